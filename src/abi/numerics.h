// How exactly results are to be those of eager: `options={"numerics": ...}` (docs/numerics.md).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace inkle::abi {

enum class Numerics : std::uint8_t {
  eager,            // rounds after each op, as eager does; sums in an order of ours
  bitwise,          // eager's bits: what would have others is left to eager
  fast,             // rounds to f16 and bf16 only where a kernel ends
  batch_invariant,  // a row's result does not depend on the batch around it
};

inline constexpr std::array<std::string_view, 4> kNumericsNames = {"eager", "bitwise", "fast",
                                                                   "batch_invariant"};

[[nodiscard]] constexpr std::string_view name_of(Numerics numerics) {
  return kNumericsNames[static_cast<std::size_t>(numerics)];
}

[[nodiscard]] constexpr std::optional<Numerics> numerics_named(std::string_view name) {
  for (std::size_t n = 0; n < kNumericsNames.size(); ++n) {
    if (kNumericsNames[n] == name) return static_cast<Numerics>(n);
  }
  return std::nullopt;
}

}  // namespace inkle::abi
