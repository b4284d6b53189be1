#include "schedule/gemm_boxes.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace inkle::schedule {
namespace {

// Of the first element, and of all strides but the last (cuTensorMapEncodeTiled).
constexpr std::int64_t kGranule = 16;  // bytes
constexpr std::int32_t kSwizzle = 128;
constexpr std::int64_t kTypicalSize = 4096;

// The dimensions before the matrix as one: how many and how far apart; nothing where they are none.
struct Batch {
  Expr count, stride;
};
std::optional<Batch> batch_of(const View& view) {
  const std::size_t rank = view.sizes.size();
  Expr count = view.offset.context().constant(1), stride = view.offset.context().constant(0);
  for (std::size_t d = rank - 2; d-- > 0;) {
    if (view.sizes[d].is_constant(1)) continue;
    if (count.is_constant(1)) {
      stride = view.strides[d];
    } else if (!(view.strides[d] == stride * count)) {
      return std::nullopt;
    }
    count = count * view.sizes[d];
  }
  return Batch{count, stride};
}

double cycles_of(const abi::ProductTile& tile, const abi::ProductRules& rules, double batch,
                 double rows, double columns, double terms, double blocks) {
  const auto parts = [](double of, double by) { return std::ceil(of / by); };
  const double tiles = batch * parts(rows, tile.rows) * parts(columns, tile.columns);
  const double stage_terms = rules.terms;
  const double multiplies =
      tile.rows / 64.0 * tile.columns / 8.0 * stage_terms / 16 * rules.multiplication;
  const double copies = (tile.rows + tile.columns) * stage_terms * 2 * rules.byte;
  const double stages = parts(terms, stage_terms);
  return parts(tiles, blocks) * (stages * std::max(multiplies, copies) + rules.tile);
}

}  // namespace

std::optional<GemmKernel::Boxes> boxes_of(const View& operand, bool is_right, abi::DType dtype,
                                          const ProductSchedule& schedule) {
  const std::size_t rank = operand.sizes.size();
  const std::size_t row = is_right ? rank - 1 : rank - 2, term = is_right ? rank - 2 : rank - 1;
  const std::int64_t granule = kGranule / abi::size_of(dtype);
  if (!operand.strides[term].is_constant(1)) return std::nullopt;
  const auto batch = batch_of(operand);
  if (!batch || !operand.offset.is_constant(0)) return std::nullopt;
  GemmKernel::Boxes boxes;
  boxes.swizzle = kSwizzle;
  if (!batch->stride.is_constant(0)) {
    boxes.sizes.push_back(batch->count);
    boxes.strides.push_back(batch->stride);
    boxes.box.push_back(1);
  }
  boxes.sizes.push_back(operand.sizes[row]);
  boxes.strides.push_back(operand.strides[row]);
  boxes.box.push_back(is_right ? schedule.columns : schedule.rows);
  boxes.sizes.push_back(operand.sizes[term]);
  boxes.strides.push_back(operand.strides[term]);
  boxes.box.push_back(schedule.terms);
  // Rows that lie one behind the other, as the kernel IR describes an array.
  Expr dense = operand.offset.context().constant(1);
  for (std::size_t d = boxes.sizes.size(); d-- > 0;) {
    if (!(boxes.strides[d] == dense)) return std::nullopt;
    if (d + 1 < boxes.sizes.size() && !sym::divides(granule, dense)) return std::nullopt;
    dense = dense * boxes.sizes[d];
  }
  return boxes;
}

ProductSchedule choose_products(const GemmKernel& gemm, const abi::Target& device) {
  const auto size = [](Expr e) {
    return static_cast<double>(std::max<std::int64_t>(sym::hint(e).value_or(kTypicalSize), 1));
  };
  const abi::ProductRules& rules = device.products;
  ProductSchedule best;
  double least = std::numeric_limits<double>::infinity();
  for (const abi::ProductTile& tile : rules.tiles) {
    if (tile.rows == 0) continue;
    const double cycles = cycles_of(tile, rules, size(gemm.batch), size(gemm.rows),
                                    size(gemm.columns), size(gemm.terms), device.parallelism);
    if (cycles >= least) continue;
    least = cycles;
    best.rows = tile.rows;
    best.columns = tile.columns;
    best.stages = tile.stages;
  }
  best.terms = rules.terms;
  best.group = rules.group;
  best.blocks = device.parallelism;
  return best;
}

}  // namespace inkle::schedule
