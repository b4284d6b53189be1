// The text of a kernel as its parsers read it. For parse*.cpp only.
#pragma once

#include <string>
#include <string_view>

#include "base/text.h"
#include "kernel/names.h"
#include "kernel/type.h"

namespace inkle::kernel {

class KernelText {
 public:
  KernelText(std::string_view text, std::string_view file) : scanner(text, file) {}

  std::int32_t count(std::string_view what);  // 0 <= n < 2^31
  std::string name();                         // perhaps quoted
  std::string value_name();                   // "%a"
  [[nodiscard]] DType dtype(std::string_view name) const;
  template <class E, std::size_t N>
  E named(const Names<E, N>& table, std::string_view what) {
    const Scanner::Mark start = scanner.mark();
    const std::string_view word = scanner.identifier();
    const auto found = table.find(word);
    if (found) return *found;
    scanner.reset(start);
    scanner.fail(std::string("unknown ") + std::string(what));
  }
  template <class E, std::size_t N>
  E suffix_named(const Names<E, N>& table, std::string_view suffix, std::string_view what) {
    const auto found = table.find(suffix);
    if (!found) refuse("unknown " + std::string(what) + " '" + std::string(suffix) + "'");
    return *found;
  }
  // Where the operation that is being read begins: here, or there.
  void begin() { start_ = scanner.mark(); }
  void begin(Scanner::Mark start) { start_ = start; }
  [[nodiscard]] Scanner::Mark start() const { return start_; }
  [[noreturn]] void refuse(std::string_view message);  // that operation
  // Values and regions are nested so deeply, and no deeper.
  void enter(const char* what);
  void leave() { --depth_; }

  Scanner scanner;

 private:
  Scanner::Mark start_{};
  int depth_ = 0;
};

}  // namespace inkle::kernel
