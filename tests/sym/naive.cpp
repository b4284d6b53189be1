#include "naive.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <string>

namespace inkle::sym {
namespace {

class Naive {
 public:
  Naive(std::string_view text, const Assignment& value) : text_(text), value_(value) {}

  std::optional<std::int64_t> run() {
    const std::int64_t out = sum();
    if (at_ != text_.size()) throw std::runtime_error("naive: bad text " + std::string(text_));
    if (zero_) return std::nullopt;
    return out;
  }

 private:
  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (next() != c) return false;
    ++at_;
    return true;
  }

  std::int64_t sum() {
    std::int64_t out = product();
    for (;;) {
      if (take('+')) {
        out += product();
      } else if (take('-')) {
        out -= product();
      } else {
        return out;
      }
    }
  }

  std::int64_t product() {
    std::int64_t out = factor();
    while (take('*')) out *= factor();
    return out;
  }

  std::int64_t factor() {
    if (take('-')) return -factor();
    if (take('(')) {
      const std::int64_t out = sum();
      take(')');
      return out;
    }
    const std::size_t start = at_;
    while (std::isalnum(static_cast<unsigned char>(next())) != 0 || next() == '_') ++at_;
    const std::string_view word = text_.substr(start, at_ - start);
    if (word.empty()) throw std::runtime_error("naive: bad text " + std::string(text_));
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) {
      return std::stoll(std::string(word));
    }
    if (!take('(')) return value_(word);
    std::int64_t out = sum();
    while (take(',')) out = call(word, out, sum());
    take(')');
    return out;
  }

  std::int64_t call(std::string_view name, std::int64_t a, std::int64_t b) {
    if (name == "min") return std::min(a, b);
    if (name == "max") return std::max(a, b);
    if (b == 0) {
      zero_ = true;
      return 0;
    }
    // By counting, so that nothing is shared with the engine's arithmetic.
    std::int64_t q = a / b;
    while (b > 0 ? q * b > a : q * b < a) --q;
    while (b > 0 ? (q + 1) * b <= a : (q + 1) * b >= a) ++q;
    return name == "floordiv" ? q : a - q * b;
  }

  std::string_view text_;
  const Assignment& value_;
  std::size_t at_ = 0;
  bool zero_ = false;
};

}  // namespace

std::optional<std::int64_t> naive_value(std::string_view text, const Assignment& value) {
  return Naive(text, value).run();
}

}  // namespace inkle::sym
