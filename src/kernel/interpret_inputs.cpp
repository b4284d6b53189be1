#include "kernel/interpret_inputs.h"

#include <algorithm>
#include <random>

#include "base/error.h"
#include "loop/scalar.h"

namespace inkle::kernel {
namespace {

constexpr std::size_t kAlignment = 256;

std::int64_t choose_size(const Kernel& kernel, Expr size, std::span<const std::string> given) {
  const sym::SymbolInfo& info = size.context().info(size);
  for (const std::string& text : given) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || text.substr(0, equals) != size.name()) continue;
    const std::int64_t value = std::stoll(text.substr(equals + 1));
    if (value < info.range.low || value > info.range.high || value % info.divisor != 0) {
      user_error("kernel {}: {} is not a value of {}", kernel.name, value, size.name());
    }
    return value;
  }
  if (info.hint) return *info.hint;
  const std::int64_t low = std::max<std::int64_t>(info.range.low, 1);
  std::int64_t value = std::max<std::int64_t>(low, 5);
  value = std::min(value, info.range.high);
  value -= value % info.divisor;
  return value < low ? (low + info.divisor - 1) / info.divisor * info.divisor : value;
}

}  // namespace

std::vector<std::int64_t> choose_sizes(const Kernel& kernel, std::span<const std::string> given) {
  for (const std::string& text : given) {
    const std::string name = text.substr(0, text.find('='));
    const bool is_size = std::any_of(kernel.sizes.begin(), kernel.sizes.end(),
                                     [&](Expr size) { return size.name() == name; });
    if (!is_size) user_error("kernel {}: {} is no size", kernel.name, name);
  }
  std::vector<std::int64_t> sizes;
  for (const Expr size : kernel.sizes) sizes.push_back(choose_size(kernel, size, given));
  return sizes;
}

Inputs make_inputs(const Kernel& kernel, std::span<const std::int64_t> sizes, std::uint64_t seed,
                   Digits digits, std::int64_t elements) {
  Inputs inputs;
  std::mt19937_64 random(seed + 1);
  const auto value = [&](Expr e) {
    return sym::evaluate(e, [&](Expr symbol) {
      const auto at = std::find(kernel.sizes.begin(), kernel.sizes.end(), symbol);
      if (at == kernel.sizes.end()) user_error("{} is no size", symbol.name());
      return sizes[static_cast<std::size_t>(at - kernel.sizes.begin())];
    });
  };
  for (std::int32_t n = 0; n < kernel.launch.instances; ++n) {
    Instance& instance = inputs.instances.emplace_back();
    instance.sizes.assign(sizes.begin(), sizes.end());
    for (MemoryId m = 0; m < kernel.parameter_count; ++m) {
      const Memory& memory = kernel.memories[m];
      if (memory.space == Space::map) {
        instance.arguments.emplace_back();
        continue;
      }
      const bool is_open = memory.shape.empty() && elements > 0;
      const std::int64_t count = is_open ? elements : value(element_count(memory));
      const auto size = static_cast<std::size_t>(element_bytes(memory));
      const std::size_t bytes = static_cast<std::size_t>(count) * size;
      auto& owned = inputs.memory.emplace_back(new std::byte[bytes + kAlignment]());
      const auto begin = reinterpret_cast<std::uintptr_t>(owned.get());
      std::byte* data = owned.get() + (kAlignment - begin % kAlignment) % kAlignment;
      for (std::int64_t e = 0; e < count; ++e) {
        const auto draw = static_cast<std::int64_t>(random() >> 33);
        const double real = digits == Digits::few ? static_cast<double>(draw % 33 - 16) / 4
                                                  : static_cast<double>(draw) * 0x1p-28 - 4;
        const auto scalar = abi::is_float(memory.dtype) ? loop::make_scalar(memory.dtype, real)
                                                        : loop::make_scalar(memory.dtype, draw % 4);
        loop::write_element(memory.dtype, data + static_cast<std::size_t>(e) * size, scalar);
      }
      // A memory whose size was given from outside need not be written entirely.
      const Writes writes = is_open ? Writes::any : Writes::by_role;
      instance.arguments.push_back({{data, bytes}, writes, true});
    }
  }
  return inputs;
}

}  // namespace inkle::kernel
