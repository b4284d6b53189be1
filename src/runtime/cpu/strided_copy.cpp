#include "runtime/cpu/strided_copy.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/threads.h"

namespace inkle::runtime::cpu {
namespace {

constexpr std::int64_t kGrainBytes = 64 << 10;

struct Dimension {
  std::int64_t size;
  std::int64_t from;  // bytes
  std::int64_t to;
};

// Outermost first, sorted by stride of the target so that it is written in order; adjacent
// dimensions that are contiguous in both tensors are collapsed.
std::vector<Dimension> simplify(std::span<const std::int64_t> sizes, std::int64_t element_bytes,
                                std::span<const std::int64_t> from,
                                std::span<const std::int64_t> to) {
  std::vector<Dimension> dims;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1) dims.push_back({sizes[d], from[d] * element_bytes, to[d] * element_bytes});
  }
  std::stable_sort(dims.begin(), dims.end(),
                   [](const Dimension& a, const Dimension& b) { return a.to > b.to; });
  std::vector<Dimension> merged;
  for (const Dimension& d : dims) {
    if (!merged.empty() && merged.back().from == d.size * d.from &&
        merged.back().to == d.size * d.to) {
      merged.back() = {merged.back().size * d.size, d.from, d.to};
    } else {
      merged.push_back(d);
    }
  }
  return merged;
}

void copy_row(const Dimension& row, std::int64_t element_bytes, const std::byte* from,
              std::byte* to) {
  if (row.from == element_bytes && row.to == element_bytes) {
    std::memcpy(to, from, static_cast<std::size_t>(row.size * element_bytes));
    return;
  }
  const auto by = [&]<class T>(T) {
    for (std::int64_t i = 0; i < row.size; ++i) {
      std::memcpy(to + i * row.to, from + i * row.from, sizeof(T));
    }
  };
  switch (element_bytes) {
    case 1:
      by(std::uint8_t{});
      break;
    case 2:
      by(std::uint16_t{});
      break;
    case 4:
      by(std::uint32_t{});
      break;
    case 8:
      by(std::uint64_t{});
      break;
    default:
      for (std::int64_t i = 0; i < row.size; ++i) {
        std::memcpy(to + i * row.to, from + i * row.from, static_cast<std::size_t>(element_bytes));
      }
  }
}

}  // namespace

void strided_copy(std::span<const std::int64_t> sizes, std::int64_t element_bytes, const void* from,
                  std::span<const std::int64_t> from_strides, void* to,
                  std::span<const std::int64_t> to_strides) {
  for (const std::int64_t s : sizes) {
    if (s == 0) return;
  }
  std::vector<Dimension> dims = simplify(sizes, element_bytes, from_strides, to_strides);
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  if (dims.empty()) {
    std::memmove(target, source, static_cast<std::size_t>(element_bytes));
    return;
  }
  if (source == target &&
      std::all_of(dims.begin(), dims.end(), [](const Dimension& d) { return d.from == d.to; })) {
    return;
  }
  if (dims.size() == 1) {  // one long row: parts of it, so that threads share it
    const Dimension d = dims[0];
    parallel_for(0, d.size, std::max<std::int64_t>(1, kGrainBytes / element_bytes),
                 [&](std::int64_t first, std::int64_t last) {
                   copy_row({last - first, d.from, d.to}, element_bytes, source + first * d.from,
                            target + first * d.to);
                 });
    return;
  }
  const Dimension row = dims.back();
  dims.pop_back();
  std::int64_t rows = 1;
  for (const Dimension& d : dims) rows *= d.size;
  const std::int64_t grain = std::max<std::int64_t>(1, kGrainBytes / (row.size * element_bytes));
  parallel_for(0, rows, grain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      std::int64_t rest = r;
      std::int64_t from_offset = 0;
      std::int64_t to_offset = 0;
      for (std::size_t d = dims.size(); d-- > 0;) {
        from_offset += rest % dims[d].size * dims[d].from;
        to_offset += rest % dims[d].size * dims[d].to;
        rest /= dims[d].size;
      }
      copy_row(row, element_bytes, source + from_offset, target + to_offset);
    }
  });
}

}  // namespace inkle::runtime::cpu
