#include "cli/package_text.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "base/error.h"
#include "package/target.h"
#include "runtime/cuda/cuda_device.h"

namespace inkle::cli {

std::string sections_text(const package::Package& package) {
  std::string text;
  for (const package::Section& section : package.sections()) {
    text += fmt::format("{:<10} {:<10} {:>12} bytes at {}\n", package::name_of(section.kind),
                        section.target, section.bytes, section.offset);
  }
  return text;
}

namespace {

struct Gpus {
  std::vector<std::string> architectures;
  std::string why_none;
};

// A driver that fails is a reason, not an error of the file.
Gpus gpus_here() {
  Gpus gpus;
  try {
    gpus.architectures = runtime::cuda::architectures_here(gpus.why_none);
  } catch (const Error& error) {
    gpus.why_none = error.what();
  }
  return gpus;
}

package::Fit fit_here(const std::string& target, const package::Contents& contents) {
  if (!package::is_of_gpu(target)) return package::fit_on_processor(contents.processor);
  static const Gpus gpus = gpus_here();
  package::Fit fit = package::fit_on_gpus(target, gpus.architectures, gpus.why_none);
  if (package::is_ptx(target)) {
    fit.needs += ", whose driver compiles it; where no machine code fits";
  }
  if (!contents.choices.empty()) {
    fit.needs += fmt::format("; {} choices of libraries, measured on {}", contents.choices.size(),
                             contents.choices.front().device);
  }
  return fit;
}

std::string row(std::string_view target, std::string_view runs, std::string_view needs) {
  return fmt::format("{:<14} {:<9} {}\n", target, runs, needs);
}

}  // namespace

std::string targets_text(const package::Package& package, std::span<const package::Contents> all) {
  std::string text;
  std::size_t number = 0;
  for (const package::Section& section : package.sections()) {
    if (section.kind != package::SectionKind::plan || number == all.size()) continue;
    if (text.empty()) text = row("target", "runs here", "needs");
    const package::Fit fit = fit_here(section.target, all[number++]);
    text += row(section.target, fit.reason ? "no" : "yes", fit.needs);
    if (!fit.reason) continue;
    text += fmt::format("  {}: needs {}; {}\n", package::name_of(*fit.reason), fit.lacks, fit.here);
  }
  return text;
}

}  // namespace inkle::cli
