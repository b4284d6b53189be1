// What a package holds, and which machines run it, as text.
#pragma once

#include <span>
#include <string>

#include "package/contents.h"
#include "package/package.h"

namespace inkle::cli {

// A line a section.
[[nodiscard]] std::string sections_text(const package::Package& package);

// A table of the targets: what each needs, and whether it runs on this machine. Below one that does
// not, the reason as a code and words: what it lacks, and what is there. `all`: the contents of the
// targets, in order.
[[nodiscard]] std::string targets_text(const package::Package& package,
                                       std::span<const package::Contents> all);

}  // namespace inkle::cli
