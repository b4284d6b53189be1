// What a package holds, as text.
#pragma once

#include <span>
#include <string>

#include "package/contents.h"
#include "package/package.h"

namespace inkle::cli {

// A line a section.
[[nodiscard]] std::string sections_text(const package::Package& package);

// A line a target: the machines that it runs on. `all`: the contents of the targets, in order.
[[nodiscard]] std::string targets_text(const package::Package& package,
                                       std::span<const package::Contents> all);

}  // namespace inkle::cli
