#include "runtime/common/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "runtime/common/errors.h"

namespace inkle::runtime::common {
namespace {

std::string describe(const abi::TensorView& t) {
  const std::span<const std::int64_t> sizes(t.sizes, static_cast<std::size_t>(t.rank));
  const std::span<const std::int64_t> strides(t.strides, static_cast<std::size_t>(t.rank));
  return fmt::format("{}[{}] with strides ({}) on {}", abi::name_of(t.dtype), fmt::join(sizes, ","),
                     fmt::join(strides, ", "),
                     t.device.kind == abi::DeviceKind::cpu ? "cpu" : "cuda");
}

}  // namespace

void check_type(const abi::PlanArgument& expected, const abi::TensorView& given) {
  const auto rank = static_cast<std::int32_t>(expected.sizes.size());
  if (given.dtype == expected.dtype && given.rank == rank &&
      given.device.kind == expected.device.kind) {
    return;
  }
  throw WrongArgument(fmt::format("argument {}: expected {} of rank {} on {}, got {}",
                                  expected.name, abi::name_of(expected.dtype), rank,
                                  expected.device.kind == abi::DeviceKind::cpu ? "cpu" : "cuda",
                                  describe(given)));
}

void check_geometry(const abi::PlanArgument& expected, const abi::TensorView& given,
                    std::span<const std::int64_t> slots) {
  bool is_right = true;
  bool is_empty = false;
  for (std::size_t d = 0; d < expected.sizes.size(); ++d) {
    is_right &= given.sizes[d] == slots[expected.sizes[d]];
    is_empty |= given.sizes[d] == 0;
  }
  for (std::size_t d = 0; d < expected.strides.size() && !is_empty; ++d) {
    is_right &= given.sizes[d] == 1 || given.strides[d] == slots[expected.strides[d]];
  }
  if (given.data == nullptr && !is_empty) {
    throw WrongArgument(fmt::format("argument {}: {} has no memory: was its storage freed?",
                                    expected.name, describe(given)));
  }
  if (is_right) return;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  for (const abi::Slot s : expected.sizes) sizes.push_back(slots[s]);
  for (const abi::Slot s : expected.strides) strides.push_back(slots[s]);
  throw WrongArgument(fmt::format("argument {}: expected {}[{}] with strides ({}), got {}",
                                  expected.name, abi::name_of(expected.dtype),
                                  fmt::join(sizes, ","), fmt::join(strides, ", "),
                                  describe(given)));
}

}  // namespace inkle::runtime::common
