#include "kernel/fragment.h"

#include "base/error.h"

namespace inkle::kernel {
namespace {

struct Tile {
  std::int32_t rows = 1, columns = 1;
};

Tile tile_of(const FragmentType& type) {
  switch (type.layout) {
    case FragmentLayout::mma_a:
      return {16, 16};
    case FragmentLayout::mma_b:
      return {16, 8};
    case FragmentLayout::mma_c:
      return {16, 8};
    case FragmentLayout::wgmma_c:
      return {64, 8};
    default:
      return {type.rows, type.columns};
  }
}

// Of one tile, as PTX has the fragments of mma.sync.m16n8k16 and wgmma.m64nNk16.
Element in_tile(FragmentLayout layout, std::int32_t thread, std::int32_t i) {
  const std::int32_t lane = thread % 32;
  switch (layout) {
    case FragmentLayout::mma_a:
      return {lane / 4 + 8 * (i / 2 % 2), lane % 4 * 2 + i % 2 + 8 * (i / 4)};
    case FragmentLayout::mma_b:
      return {lane % 4 * 2 + i % 2 + 8 * (i / 2), lane / 4};
    case FragmentLayout::mma_c:
      return {lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2};
    default:
      return {16 * (thread / 32) + lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2};
  }
}

}  // namespace

std::int32_t threads_of(Holder holder) {
  switch (holder) {
    case Holder::core:
    case Holder::tile:
      return 1;
    case Holder::warp:
      return 32;
    case Holder::warpgroup:
      return 128;
  }
  return 1;
}

std::int32_t elements_of(const FragmentType& type) {
  return type.rows * type.columns / threads_of(type.holder);
}

Element fragment_element(const FragmentType& type, std::int32_t thread, std::int32_t i) {
  if (threads_of(type.holder) == 1) return {i / type.columns, i % type.columns};
  const Tile tile = tile_of(type);
  INKLE_CHECK(type.rows % tile.rows == 0 && type.columns % tile.columns == 0,
              "a fragment of {} x {} has no whole tiles", type.rows, type.columns);
  const std::int32_t each = tile.rows * tile.columns / threads_of(type.holder);
  const std::int32_t number = i / each;
  const std::int32_t across = type.columns / tile.columns;
  const Element inside = in_tile(type.layout, thread, i % each);
  return {number / across * tile.rows + inside.row, number % across * tile.columns + inside.column};
}

}  // namespace inkle::kernel
