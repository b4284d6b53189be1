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

// Sizes as hinted, of batch, rows, columns and terms.
struct Sizes {
  double batch, rows, columns, terms;
};

double parts_of(double of, double by) { return std::ceil(of / by); }

double cycles_of(const abi::GemmTile& tile, std::int32_t parts, const abi::GemmRules& rules,
                 const Sizes& sizes, double blocks) {
  const double tiles =
      sizes.batch * parts_of(sizes.rows, tile.rows) * parts_of(sizes.columns, tile.columns) * parts;
  const double stage_terms = rules.terms;
  const double multiplies =
      tile.rows / 64.0 * tile.columns / 8.0 * stage_terms / 16 * rules.multiplication;
  const double copies = (tile.rows + tile.columns) * stage_terms * 2 * rules.byte;
  const double stages = parts_of(parts_of(sizes.terms, stage_terms), parts);
  const double multiplied = stages * std::max(multiplies, copies);
  const double elements = static_cast<double>(tile.rows) * tile.columns;
  const double beside = rules.tile + rules.element * elements;
  const double turns = parts_of(tiles, blocks);
  if (!tile.ping_pong) return turns * (multiplied + beside);
  return turns * std::max(multiplied, (multiplied + beside) / 2) + beside;
}

// Whether the epilogue reads an operand at each row, along the columns.
bool reads_like_result(const GemmKernel& gemm) {
  return std::ranges::any_of(gemm.epilogue.instructions, [&](const loop::Instruction& i) {
    return i.opcode == loop::Opcode::load && sym::contains(i.indices[0], gemm.variables[1]) &&
           sym::contains(i.indices[0], gemm.variables[2]);
  });
}

}  // namespace

std::optional<GemmKernel::Boxes> boxes_of(const View& operand, bool is_right, abi::DType dtype,
                                          const GemmSchedule& schedule) {
  const std::size_t rank = operand.sizes.size();
  const std::size_t row = is_right ? rank - 1 : rank - 2, term = is_right ? rank - 2 : rank - 1;
  const std::int64_t granule = kGranule / abi::size_of(dtype);
  GemmKernel::Boxes boxes;
  boxes.terms_last = operand.strides[term].is_constant(1);
  if (!boxes.terms_last && !operand.strides[row].is_constant(1)) return std::nullopt;
  const auto batch = batch_of(operand);
  if (!batch || !operand.offset.is_constant(0)) return std::nullopt;
  boxes.swizzle = kSwizzle;
  if (!batch->stride.is_constant(0)) {
    boxes.sizes.push_back(batch->count);
    boxes.strides.push_back(batch->stride);
    boxes.box.push_back(1);
  }
  const auto add = [&](std::size_t d, std::int64_t extent) {
    boxes.sizes.push_back(operand.sizes[d]);
    boxes.strides.push_back(operand.strides[d]);
    boxes.box.push_back(extent);
  };
  if (boxes.terms_last) {
    add(row, is_right ? schedule.columns : schedule.rows);
    add(term, schedule.terms);
  } else {
    add(term, schedule.terms);
    add(row, kSwizzle / abi::size_of(dtype));
  }
  // Contiguous rows, as the kernel IR describes an array.
  Expr dense = operand.offset.context().constant(1);
  for (std::size_t d = boxes.sizes.size(); d-- > 0;) {
    if (!(boxes.strides[d] == dense)) return std::nullopt;
    if (d + 1 < boxes.sizes.size() && !sym::divides(granule, dense)) return std::nullopt;
    dense = dense * boxes.sizes[d];
  }
  return boxes;
}

GemmSchedule choose_gemm_schedule(const GemmKernel& gemm, const GemmTraits& traits,
                                  const abi::Target& device) {
  const auto size = [](Expr e) {
    return static_cast<double>(std::max<std::int64_t>(sym::hint(e).value_or(kTypicalSize), 1));
  };
  const Sizes sizes = {size(gemm.batch), size(gemm.rows), size(gemm.columns), size(gemm.terms)};
  const abi::GemmRules& rules = device.gemm;
  constexpr std::int64_t kPanel = kSwizzle / 2;
  // What a call needs for sums of parts is known now.
  const bool is_constant = gemm.batch.is_constant() && gemm.rows.is_constant() &&
                           gemm.columns.is_constant() && gemm.terms.is_constant();
  const bool reads = reads_like_result(gemm);
  GemmSchedule best;
  best.rows = 0;
  best.parts = traits.has_parts && is_constant ? rules.parts : 1;
  double least = std::numeric_limits<double>::infinity();
  for (const abi::GemmTile& tile : rules.tiles) {
    if (tile.rows == 0 || (traits.b_in_panels && tile.columns % kPanel != 0)) continue;
    if (tile.ping_pong && !gemm.left.instructions.empty()) continue;
    if (tile.ping_pong && reads && tile.rows * tile.columns > rules.ping_pong_elements) continue;
    const double cycles = cycles_of(tile, best.parts, rules, sizes, device.parallelism);
    if (cycles >= least) continue;
    least = cycles;
    best.rows = tile.rows;
    best.columns = tile.columns;
    best.stages = tile.stages;
    best.ping_pong = tile.ping_pong;
  }
  best.terms = rules.terms;
  best.group = rules.group;
  best.blocks = device.parallelism;
  return best;
}

Expr elements_of_parts(const GemmKernel& gemm, const GemmSchedule& schedule) {
  const Expr tiles = gemm.batch * sym::ceildiv(gemm.rows, schedule.rows) *
                     sym::ceildiv(gemm.columns, schedule.columns);
  return tiles * (std::int64_t{schedule.parts} * schedule.rows * schedule.columns);
}

}  // namespace inkle::schedule
