#include "cli/package_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "image/processor.h"
#include "package/target.h"

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

std::string machines_text(const std::string& target, const package::Contents& contents) {
  if (package::is_ptx(target)) {
    return fmt::format("needs {}, whose driver compiles it; where no machine code fits",
                       package::machines_of(target));
  }
  if (package::is_of_gpu(target)) {
    const bool is_specific = target.find_last_not_of("0123456789") + 1 == target.size();
    std::string text = fmt::format("needs a GPU of {}{}", target,
                                   is_specific ? "" : ", or a later one of its major number");
    if (!contents.choices.empty()) {
      text += fmt::format("; {} choices of libraries, measured on {}", contents.choices.size(),
                          contents.choices.front().device);
    }
    return text;
  }
  const std::vector<std::string> missing = image::missing_features(contents.processor);
  if (missing.empty()) return "runs on this processor";
  return fmt::format("needs {}, which this processor lacks", fmt::join(missing, ", "));
}

}  // namespace

std::string targets_text(const package::Package& package, std::span<const package::Contents> all) {
  std::string text;
  std::size_t number = 0;
  for (const package::Section& section : package.sections()) {
    if (section.kind != package::SectionKind::plan || number == all.size()) continue;
    text +=
        fmt::format("{:<10} {}\n", section.target, machines_text(section.target, all[number++]));
  }
  return text;
}

}  // namespace inkle::cli
