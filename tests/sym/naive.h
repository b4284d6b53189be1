// A second, independent reading of the text form: evaluates it directly, without the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace inkle::sym {

using Assignment = std::function<std::int64_t(std::string_view name)>;

// The value of the text under the assignment; nullopt where a division by zero is met.
std::optional<std::int64_t> naive_value(std::string_view text, const Assignment& value);

}  // namespace inkle::sym
