#include "package/target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <vector>

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
  if (is_ptx(target)) {
    return fmt::format("a GPU of {}{} or later", kMachineCode, target.substr(kPtx.size()));
  }
  const bool is_specific = architecture_of(target).is_specific;
  return fmt::format("a GPU of {}{}", target,
                     is_specific ? "" : " or a later one of its major number");
}

Fit fit_on_processor(std::span<const image::CpuidBits> required) {
  Fit fit{.needs = fmt::format("{}", fmt::join(image::feature_names(required), ", "))};
  const std::vector<std::string> missing = image::missing_features(required);
  if (missing.empty()) return fit;
  fit.reason = Reason::cpu_features_missing;
  fit.lacks = fmt::format("{}", fmt::join(missing, ", "));
  fit.here = "the processor here is " + image::processor_text();
  return fit;
}

Fit fit_on_gpus(std::string_view target, std::span<const std::string> architectures,
                std::string_view why_none) {
  Fit fit{.needs = machines_of(target)};
  if (std::ranges::any_of(architectures, [&](const auto& a) { return runs_on(target, a); })) {
    return fit;
  }
  fit.lacks = fit.needs;
  fit.reason = architectures.empty() ? Reason::no_gpu : Reason::other_gpu;
  fit.here = architectures.empty()
                 ? fmt::format("no GPU is here: {}", why_none)
                 : fmt::format("the GPU here is {}", fmt::join(architectures, " and "));
  return fit;
}

}  // namespace inkle::package
