// What a package holds, as text.
#pragma once

#include <string>

#include "package/package.h"

namespace inkle::cli {

// A line a section.
[[nodiscard]] std::string sections_text(const package::Package& package);

}  // namespace inkle::cli
