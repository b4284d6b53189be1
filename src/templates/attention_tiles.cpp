#include "templates/attention_tiles.h"

#include "base/error.h"
#include "templates/lane_writer.h"

namespace inkle::templates {

using kernel::FragmentLayout;
using kernel::Holder;
using kernel::Op;
using kernel::Type;

namespace {

std::int32_t side(std::int64_t n) { return static_cast<std::int32_t>(n); }

}  // namespace

TileMultiplier::TileMultiplier(kernel::Builder& builder, std::int64_t rows, std::int64_t down)
    : b_(builder), rows_(rows), down_(down) {
  const auto tile = [&](DType dtype, std::int64_t count) {
    return b_.kernel().fragment_type(
        {dtype, side(count), side(kTileSide), Holder::tile, FragmentLayout::tile});
  };
  sum_ = tile(DType::f32, rows);
  left_ = tile(DType::i32, rows);
  right_ = tile(DType::i32, kTileSide);
}

void TileMultiplier::multiply(const TileProduct& product) {
  const std::int64_t step = kTilesAcross * kTileSide;
  const auto constant = product.columns.constant();
  const std::int64_t tiles = constant ? (*constant + kTileSide - 1) / kTileSide : 0;
  // Of columns that are not constant there are whole steps.
  const Expr whole =
      constant ? b_.context().constant(tiles / kTilesAcross * step) : product.columns;
  write_loop(b_, b_.context().constant(0), whole, step, Runs::perhaps, {},
             [&](Expr c, const Values&) {
               multiply_columns(product, c, kTilesAcross);
               return Values();
             });
  if (tiles % kTilesAcross != 0) multiply_columns(product, whole, tiles % kTilesAcross);
}

void TileMultiplier::multiply_columns(const TileProduct& product, Expr column,
                                      std::int64_t across) {
  const Expr zero = b_.context().constant(0);
  Values initial;
  for (std::int64_t t = 0; t < down_; ++t) {
    for (std::int64_t v = 0; v < across; ++v) {
      const Expr row = product.to_row + t * rows_, at = column + v * kTileSide;
      initial.push_back(
          product.adds ? load(sum_, product.to, row, at)
                       : b_.operation(Op::fragment_fill, {b_.real(DType::f32, 0)}, {sum_}, {})[0]);
    }
  }
  const auto add = [&](Expr p, const Values& before) {
    Values left, sums(before.size());
    for (std::int64_t t = 0; t < down_; ++t) {
      left.push_back(load(left_, product.left, product.left_row + t * rows_, p));
    }
    for (std::int64_t v = 0; v < across; ++v) {
      const ValueId right = load(right_, product.right, p, column + v * kTileSide);
      for (std::int64_t t = 0; t < down_; ++t) {
        const auto number = static_cast<std::size_t>(t * across + v);
        sums[number] =
            b_.operation(Op::mma, {before[number], left[static_cast<std::size_t>(t)], right},
                         {sum_}, kernel::MatrixMultiply{kernel::MatrixUnit::amx, {}})[0];
      }
    }
    return sums;
  };
  const Values sums = write_loop(b_, zero, product.pairs, kTileSide, Runs::surely, initial, add);
  for (std::int64_t t = 0; t < down_; ++t) {
    for (std::int64_t v = 0; v < across; ++v) {
      b_.operation(Op::fragment_store, {sums[static_cast<std::size_t>(t * across + v)]}, {},
                   access(product.to, product.to_row + t * rows_, column + v * kTileSide, rows_));
    }
  }
}

kernel::FragmentAccess TileMultiplier::access(kernel::MemoryId memory, Expr row, Expr column,
                                              std::int64_t rows) {
  kernel::FragmentAccess made;
  made.access.memory = memory;
  made.access.indices = {row, column};
  made.row_stride = b_.kernel().memories[memory].shape.back();
  made.column_stride = b_.context().constant(1);
  made.rows = side(rows);
  made.columns = side(kTileSide);
  return made;
}

kernel::ValueId TileMultiplier::load(Type type, kernel::MemoryId memory, Expr row, Expr column) {
  const std::int64_t rows = b_.kernel().fragments[type.fragment].rows;
  return b_.operation(Op::fragment_load, {}, {type}, access(memory, row, column, rows))[0];
}

}  // namespace inkle::templates
