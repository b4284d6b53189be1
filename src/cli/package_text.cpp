#include "cli/package_text.h"

#include <fmt/format.h>

namespace inkle::cli {

std::string sections_text(const package::Package& package) {
  std::string text;
  for (const package::Section& section : package.sections()) {
    text += fmt::format("{:<10} {:<10} {:>12} bytes at {}\n", package::name_of(section.kind),
                        section.target, section.bytes, section.offset);
  }
  return text;
}

}  // namespace inkle::cli
