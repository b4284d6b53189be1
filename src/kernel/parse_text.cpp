#include "kernel/parse_text.h"

#include <fmt/format.h>

#include <limits>

namespace inkle::kernel {

namespace {

constexpr int kDeepest = 200;

}  // namespace

std::string KernelText::name() {
  return scanner.peek() == '"' ? scanner.quoted() : std::string(scanner.identifier());
}

std::int32_t KernelText::count(std::string_view what) {
  const Scanner::Mark start = scanner.mark();
  const std::int64_t value = scanner.integer();
  if (value < 0 || value > std::numeric_limits<std::int32_t>::max()) {
    scanner.reset(start);
    scanner.fail(fmt::format("{} out of range", what));
  }
  return static_cast<std::int32_t>(value);
}

std::string KernelText::value_name() {
  scanner.expect("%");
  if (const auto word = scanner.accept_identifier()) return std::string(*word);
  return fmt::format("{}", count("number of a value"));
}

DType KernelText::dtype(std::string_view name) const {
  const auto found = abi::dtype_from_name(name);
  if (!found) scanner.fail(fmt::format("'{}' is no dtype", name));
  return *found;
}

void KernelText::refuse(std::string_view message) {
  scanner.reset(start_);
  scanner.fail(message);
}

void KernelText::enter(const char* what) {
  if (++depth_ > kDeepest) scanner.fail(fmt::format("{} nested too deeply", what));
}

}  // namespace inkle::kernel
