// The warpgroups that multiply. What lies behind the last row, column or term comes as zeros; only
// stores are masked.
#include "templates/gemm_wgmma_writer.h"

namespace inkle::templates::wgmma {

using kernel::Op;
using loop::Opcode;

// Fragments lie one behind the other; without ping-pong the second warpgroup's behind the first's.
Expr Writer::row_of(std::int32_t fragment) {
  const Expr within = number(fragment * kRows);
  if (config_.ping_pong) return within;
  return (group_ - 1) * (fragments_of(config_) * kRows) + within;
}

kernel::FragmentAccess Writer::tile_access(std::size_t operand, Expr stage_number, Expr first,
                                           Expr term) {
  const GemmBoxes& boxes = problem_.boxes[operand];
  kernel::FragmentAccess tile;
  tile.access.memory = stages_[operand];
  tile.access.indices = {barriers_.slot(stage_number)};
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

void Writer::release(Expr stage_number, ValueId condition) {
  when(condition, [&] { barriers_.release(stage_number); });
}

Writer::Values Writer::multiply_stage(const Tile& tile, Expr s, const Values& before) {
  const Expr n = tile.first_stage + s;
  barriers_.wait_filled(n);
  plain(Op::mma_fence);
  const auto step = [&](Expr k, const Values& sums) {
    Values next;
    for (std::int32_t f = 0; f < fragments_of(config_); ++f) {
      kernel::MatrixMultiply multiply;
      multiply.unit = kernel::MatrixUnit::wgmma;
      multiply.shared = {tile_access(0, n, row_of(f), k * kTerms),
                         tile_access(1, n, number(0), k * kTerms)};
      const ValueId sum = sums[static_cast<std::size_t>(f)];
      next.push_back(b_.operation(Op::mma, {sum}, {b_.type_of(sum)}, multiply)[0]);
    }
    return next;
  };
  const Values sums =
      loop(number(config_.terms / kTerms), kernel::LoopKind::unroll, before, step);
  plain(Op::mma_commit);
  plain(Op::mma_wait, 1);
  const ValueId is_later = is(Opcode::greater, s, number(0));
  release(n - 1, b_.compute(Opcode::bit_and, DType::boolean, {is_later, is_first_lane()}));
  return sums;
}

// Elements of the left operand in registers, as the problem computes them.
Writer::ValueId Writer::computed(const Tile& tile, std::int32_t fragment, Expr stage_number, Expr s,
                                 Expr k) {
  const kernel::Type type =
      b_.kernel().fragment_type({DType::bf16, kRows, kTerms, kernel::Holder::warpgroup,
                                 kernel::FragmentLayout::wgmma_c});
  const Values copied =
      b_.operation(Op::fragment_load, {}, {type},
                   tile_access(0, stage_number, row_of(fragment), k * kTerms));
  kernel::FragmentMap map;
  map.row = b_.context().index(number(kRows));
  map.column = b_.context().index(number(kTerms));
  const Expr row = tile.row + row_of(fragment) + map.row;
  const Expr term =
      (tile.part * stages_of_tile_ + s) * config_.terms + k * kTerms + map.column;
  // Rows behind the last are not stored; terms behind the last are multiplied with zeros, which
  // nothing infinite may be.
  const bool has_all_rows = sym::divides(config_.rows, problem_.rows);
  const bool has_all_terms =
      stages_of_tile_ * config_.parts * config_.terms == problem_.terms;
  const GemmPlace place = {tile.batch, has_all_rows ? row : sym::min(row, problem_.rows - 1),
                           {},
                           has_all_terms ? term : sym::min(term, problem_.terms - 1)};
  const auto body = [&](const Values& elements) {
    GemmBody left(problem_, parameters_, b_, {});
    left.constant_loads = true;
    ValueId value = b_.cast(left.run(problem_.left, elements[0], place)[0], DType::f32);
    if (!has_all_terms) {
      value = b_.compute(Opcode::select, DType::f32,
                         {is(Opcode::less, term, problem_.terms), value, b_.real(DType::f32, 0)});
    }
    return Values{b_.cast(value, DType::bf16)};
  };
  return b_.operation(Op::fragment_map, copied, {type}, map,
                      {{{kernel::scalar_type(DType::bf16)}, body}})[0];
}

// The left operand goes through registers: those of a stage are computed while no multiplication of
// this warpgroup reads any, and the other one multiplies.
Writer::Values Writer::multiply_computed_stage(const Tile& tile, Expr s, const Values& before) {
  const Expr n = tile.first_stage + s;
  barriers_.wait_filled(n);
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
  release(n, is_first_lane());
  return sums;
}

// By ping-pong the warpgroups multiply in turns: a stage's barrier tells an even from an odd round
// alone, so who waits for one must know that the round before is over.
void Writer::wait_for_turn(const Tile& tile) {
  if (!config_.ping_pong) return;
  const Expr before = tile.turn - 1;
  when(is(Opcode::greater, tile.turn, number(0)), [&] {
    wait_for_phase(b_, turns_, number(2) - group_, sym::floordiv(before, kConsumers));
  });
}

Writer::Values Writer::multiply(const Tile& tile) {
  const kernel::Type type =
      b_.kernel().fragment_type({DType::f32, kRows, config_.columns, kernel::Holder::warpgroup,
                                 kernel::FragmentLayout::wgmma_c});
  Values zeros;
  for (std::int32_t f = 0; f < fragments_of(config_); ++f) {
    zeros.push_back(b_.operation(Op::fragment_fill, {b_.real(DType::f32, 0)}, {type}, {})[0]);
  }
  wait_for_turn(tile);
  const bool computes = !problem_.left.instructions.empty();
  const Values sums =
      loop(stages_of_tile_, kernel::LoopKind::serial, zeros, [&](Expr s, const Values& before) {
        return computes ? multiply_computed_stage(tile, s, before)
                        : multiply_stage(tile, s, before);
      });
  if (config_.ping_pong) {
    when(is_first_lane(), [&] { arrive(b_, turns_, group_ - 1); });
  }
  if (computes) return sums;  // each stage has been waited for
  plain(Op::mma_wait, 0);
  release(tile.first_stage + stages_of_tile_ - 1, is_first_lane());
  return sums;
}

void Writer::consume() {
  const auto one = [&](Expr turn) {
    const Tile tile = tile_of(turn);
    if (config_.parts > 1) {
      const Values sums = multiply(tile);
      store_parts(tile, sums);
      when(is_last_part(tile), [&] { finish(tile, add_parts(tile, sums)); });
      return;
    }
    for (std::int32_t s = 0; s < slices_ahead_; ++s) load_slice(tile, 0, number(s));
    finish(tile, multiply(tile));
  };
  if (!config_.ping_pong) return loop(turns(), kernel::LoopKind::serial, one);
  const Expr mine = sym::ceildiv(turns() - (group_ - 1), kConsumers);
  loop(mine, kernel::LoopKind::serial, [&](Expr i) { one(i * kConsumers + (group_ - 1)); });
}

}  // namespace inkle::templates::wgmma
