#include "package/target.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

namespace inkle::package {
namespace {

constexpr std::string_view kMachineCode = "sm_";
constexpr std::string_view kPtx = "compute_";

struct Architecture {
  int number = -1;           // 90: major and minor
  bool is_specific = false;  // "a" behind it: for no other
};

Architecture architecture_of(std::string_view name) {
  const std::size_t prefix = is_ptx(name) ? kPtx.size() : kMachineCode.size();
  if (name.size() <= prefix) return {};
  Architecture result;
  const char* const end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + prefix, end, result.number);
  if (read.ec != std::errc()) return {};
  result.is_specific = read.ptr != end;
  return result;
}

}  // namespace

bool is_of_gpu(std::string_view target) {
  return target.starts_with(kMachineCode) || is_ptx(target);
}

bool is_ptx(std::string_view target) { return target.starts_with(kPtx); }

bool runs_on(std::string_view target, std::string_view architecture) {
  if (target == architecture) return true;
  const Architecture made_for = architecture_of(target);
  const Architecture here = architecture_of(architecture);
  if (!is_of_gpu(target) || architecture.empty()) return false;
  if (made_for.number <= 0 || made_for.is_specific || made_for.number > here.number) return false;
  return is_ptx(target) || made_for.number / 10 == here.number / 10;
}

std::string machines_of(std::string_view target) {
  if (!is_ptx(target)) return "such a GPU";
  return fmt::format("a GPU of {}{} or later", kMachineCode, target.substr(kPtx.size()));
}

}  // namespace inkle::package
