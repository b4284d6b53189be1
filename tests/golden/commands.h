// What the files of golden commands share.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "golden/golden.h"

namespace inkle::golden {

// The parts between commas.
[[nodiscard]] std::vector<std::string_view> split(std::string_view list);

[[nodiscard]] std::string interpret(std::string_view text, std::span<const std::string> args);

}  // namespace inkle::golden
