#include "templates/gemm_wgmma_multiply.h"

#include "templates/gemm_body.h"

namespace inkle::templates::wgmma {

using kernel::Op;
using loop::Opcode;

kernel::FragmentAccess Multiplier::tile_access(std::size_t operand, Expr stage_number, Expr first,
                                               Expr term) {
  const GemmBoxes& boxes = problem_.boxes[operand];
  kernel::FragmentAccess tile;
  tile.access.memory = block_.stages[operand];
  tile.access.indices = {block_.barriers.slot(stage_number)};
  const bool in_panels = !boxes.terms_last;
  if (in_panels) tile.access.indices.push_back(sym::floordiv(first, kPanel));
  if (boxes.sizes.size() == 3) tile.access.indices.push_back(number(0));
  const Expr rest = in_panels ? sym::mod(first, kPanel) : first;
  tile.access.indices.push_back(in_panels ? term : rest);
  tile.access.indices.push_back(in_panels ? rest : term);
  const Expr of_term = number(in_panels ? kPanel : 1);
  const Expr of_other = number(in_panels ? 1 : config_.terms);
  tile.row_stride = operand == 0 ? of_other : of_term;
  tile.column_stride = operand == 0 ? of_term : of_other;
  tile.rows = operand == 0 ? kRows : kTerms;
  tile.columns = operand == 0 ? kTerms : config_.columns;
  if (operand == 1 && in_panels) {
    tile.panel = kPanel;
    tile.panel_stride = static_cast<std::int64_t>(kPanel) * config_.terms;
  }
  return tile;
}

void Multiplier::release(Expr stage_number, ValueId condition) {
  when(condition, [&] { block_.barriers.release(stage_number); });
}

Values Multiplier::multiply_stage(const Tile& tile, Expr s, const Values& before) {
  const Expr n = tile.first_stage + s;
  block_.barriers.wait_filled(n);
  plain(Op::mma_fence);
  const auto step = [&](Expr k, const Values& sums) {
    Values next;
    for (std::int32_t f = 0; f < fragments_of(config_); ++f) {
      kernel::MatrixMultiply multiply;
      multiply.unit = kernel::MatrixUnit::wgmma;
      multiply.shared = {tile_access(0, n, block_.row_of(f), k * kTerms),
                         tile_access(1, n, number(0), k * kTerms)};
      const ValueId sum = sums[static_cast<std::size_t>(f)];
      next.push_back(b_.operation(Op::mma, {sum}, {b_.type_of(sum)}, multiply)[0]);
    }
    return next;
  };
  const Values sums = loop(number(config_.terms / kTerms), kernel::LoopKind::unroll, before, step);
  plain(Op::mma_commit);
  plain(Op::mma_wait, 1);
  const ValueId is_later = is(Opcode::greater, s, number(0));
  release(n - 1, b_.compute(Opcode::bit_and, DType::boolean, {is_later, block_.is_first_lane()}));
  return sums;
}

// Elements of the left operand in registers, as the problem computes them.
ValueId Multiplier::computed(const Tile& tile, std::int32_t fragment, Expr stage_number, Expr s,
                             Expr k) {
  const kernel::Type type = b_.kernel().fragment_type(
      {DType::bf16, kRows, kTerms, kernel::Holder::warpgroup, kernel::FragmentLayout::wgmma_c});
  const ValueId copied =
      b_.operation(Op::fragment_load, {}, {type},
                   tile_access(0, stage_number, block_.row_of(fragment), k * kTerms))[0];
  // Rows behind the last are not stored; terms behind the last are multiplied with zeros, which
  // nothing infinite may be.
  const bool has_all_rows = sym::divides(config_.rows, problem_.rows);
  const bool has_all_terms =
      block_.stages_of_tile * config_.parts * config_.terms == problem_.terms;
  const auto compute = [&](ValueId element, Expr row_of_fragment, Expr term_of_step) {
    const Expr row = tile.row + block_.row_of(fragment) + row_of_fragment;
    const Expr term = block_.first_term(tile, s) + k * kTerms + term_of_step;
    GemmBody left(problem_, block_.parameters, b_, {});
    left.constant_loads = true;
    const GemmIndices indices = {tile.batch,
                                 has_all_rows ? row : sym::min(row, problem_.rows - 1),
                                 {},
                                 has_all_terms ? term : sym::min(term, problem_.terms - 1)};
    ValueId value = b_.cast(left.run(problem_.left, element, indices)[0], DType::f32);
    if (!has_all_terms) {
      value = b_.compute(Opcode::select, DType::f32,
                         {is(Opcode::less, term, problem_.terms), value, b_.real(DType::f32, 0)});
    }
    return Values{b_.cast(value, DType::bf16)};
  };
  return map(copied, {type}, compute)[0];
}

// The left operand goes through registers: those of a stage are computed while no multiplication of
// this warpgroup reads any, and the other one multiplies.
Values Multiplier::multiply_computed_stage(const Tile& tile, Expr s, const Values& before) {
  const Expr n = tile.first_stage + s;
  block_.barriers.wait_filled(n);
  const std::int32_t steps = config_.terms / kTerms;
  Values left;
  for (std::int32_t k = 0; k < steps; ++k) {
    for (std::int32_t f = 0; f < fragments_of(config_); ++f) {
      left.push_back(computed(tile, f, n, s, number(k)));
    }
  }
  plain(Op::mma_fence);
  Values sums = before;
  std::size_t next = 0;
  for (std::int32_t k = 0; k < steps; ++k) {
    for (ValueId& sum : sums) {
      kernel::MatrixMultiply multiply;
      multiply.unit = kernel::MatrixUnit::wgmma;
      multiply.shared = {tile_access(1, n, number(0), number(k * kTerms))};
      sum = b_.operation(Op::mma, {sum, left[next++]}, {b_.type_of(sum)}, multiply)[0];
    }
  }
  plain(Op::mma_commit);
  plain(Op::mma_wait, 0);
  barrier_of_warp();  // all lanes have read
  release(n, block_.is_first_lane());
  return sums;
}

// With ping-pong the warpgroups multiply in turns: a stage's barrier has only the parity of its
// phase, so a warpgroup may wait for a phase only after the one before is over.
void Multiplier::wait_for_turn(const Tile& tile) {
  if (!config_.ping_pong) return;
  const Expr before = tile.turn - 1;
  when(is(Opcode::greater, tile.turn, number(0)), [&] {
    wait_for_phase(b_, block_.turns_to_multiply, number(2) - block_.group,
                   sym::floordiv(before, kConsumers));
  });
}

Values Multiplier::multiply(const Tile& tile) {
  const Values zero_sums = zeros(fragments_of(config_), config_.columns);
  wait_for_turn(tile);
  const bool computes = !problem_.left.instructions.empty();
  const Values sums = loop(block_.stages_of_tile, kernel::LoopKind::serial, zero_sums,
                           [&](Expr s, const Values& before) {
                             return computes ? multiply_computed_stage(tile, s, before)
                                             : multiply_stage(tile, s, before);
                           });
  if (config_.ping_pong) {
    when(block_.is_first_lane(), [&] { arrive(b_, block_.turns_to_multiply, block_.group - 1); });
  }
  if (computes) return sums;  // each stage has been waited for
  plain(Op::mma_wait, 0);
  release(tile.first_stage + block_.stages_of_tile - 1, block_.is_first_lane());
  return sums;
}

}  // namespace inkle::templates::wgmma
