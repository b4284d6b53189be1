#include "kernel/interpret_memory.h"

namespace inkle::kernel {

Storage::Storage(std::byte* data, std::int64_t bytes, std::int64_t unit, bool is_initialised)
    : data_(data),
      bytes_(bytes),
      unit_(unit),
      cells_(static_cast<std::size_t>((bytes + unit - 1) / unit)) {
  if (is_initialised) {
    for (Cell& cell : cells_) cell.is_initialised = true;
  }
}

Storage::Storage(std::int64_t bytes, std::int64_t unit) : Storage(nullptr, bytes, unit, false) {
  owned_.resize(static_cast<std::size_t>(bytes));
  data_ = owned_.data();
}

Storage::More& Storage::make_more(Cell& cell) {
  if (cell.more == 0) {
    more_.emplace_back();
    cell.more = static_cast<std::uint32_t>(more_.size());
  }
  return more_[cell.more - 1];
}

void Storage::forget(Cell& cell) {
  cell.write = cell.read = {};
  if (More* list = more(cell)) *list = {};
}

// The hardware exchanges 16-byte chunks by bits of the address: of rows of 128 bytes, the number of
// the row within 8 (128), 4 (64) or 2 (32) of them.
std::int64_t swizzled(std::int64_t byte, std::int32_t swizzle) {
  if (swizzle == 0) return byte;
  const std::int64_t mask = swizzle / 16 - 1;
  return byte ^ (((byte >> 7) & mask) << 4);
}

}  // namespace inkle::kernel
