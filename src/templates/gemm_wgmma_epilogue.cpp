// What follows the sums: each warp has 16 rows of a fragment, in slices of columns.
#include "templates/gemm_wgmma_writer.h"

namespace inkle::templates::wgmma {

using kernel::Op;
using loop::Opcode;

std::vector<loop::Val> loads_ahead(const GemmProblem& problem) {
  std::vector<loop::Val> found;
  if (!sym::divides(kLanes, problem.columns)) return found;
  for (loop::Val v = 0; v < problem.epilogue.instructions.size(); ++v) {
    const loop::Instruction& i = problem.epilogue[v];
    if (i.opcode != Opcode::load || i.operand_count != 0) continue;
    const GemmParameter& parameter = problem.parameters.at(i.buffer);
    if (parameter.role != kernel::Role::in || parameter.may_alias) continue;
    const Expr offset = i.indices[0];
    if (!sym::contains(offset, problem.variables[1])) continue;
    const auto stride = sym::stride(offset, problem.variables[2]);
    if (stride && stride->is_constant(1)) found.push_back(v);
  }
  return found;
}

void Writer::finish(const Tile& tile, const Values& sums) {
  for (std::int32_t f = 0; f < fragments_of(config_); ++f) {
    const ValueId fragment = sums[static_cast<std::size_t>(f)];
    loop(number(slices()), kernel::LoopKind::unroll, [&](Expr slice) {
      barrier_of_warp();
      stage_slice(fragment, slice);
      barrier_of_warp();
      store_slice(tile, f, slice);
      if (slices_ahead_ == 0 || config_.parts > 1) return;
      const Expr next = slice + slices_ahead_;
      when(is(Opcode::less, next, number(slices())), [&] { load_slice(tile, f, next); });
      if (f + 1 == fragments_of(config_)) return;
      when(is(Opcode::greater_equal, next, number(slices())),
           [&] { load_slice(tile, f + 1, next - slices()); });
    });
  }
}

void Writer::stage_slice(ValueId sums, Expr slice) {
  kernel::FragmentMap map;
  map.row = b_.context().index(number(kRows));
  map.column = b_.context().index(number(config_.columns));
  const auto body = [&](const Values& elements) {
    when(is(Opcode::equal, sym::floordiv(map.column, config_.slice), slice), [&] {
      b_.store(sums_, {(group_ - 1) * kRows + map.row, sym::mod(map.column, config_.slice)},
               elements[0]);
    });
    return Values();
  };
  b_.operation(Op::fragment_map, {sums}, {}, map, {{{kernel::scalar_type(DType::f32)}, body}});
}

// Of a slice, those elements of a thread that exist: of a row in the fragment, from a column in the
// slice on.
void Writer::for_each_vector(const Tile& tile, std::int32_t fragment, Expr slice,
                             const std::function<void(Expr, Expr, Expr)>& body) {
  constexpr std::int32_t kWarpRows = kRows / kWarps;
  const std::int32_t across = config_.slice / kLanes;
  const std::int32_t down = kWarp / across;
  loop(number(kWarpRows / down), kernel::LoopKind::unroll, [&](Expr pass) {
    const Expr row = warp_ * kWarpRows + pass * down + sym::floordiv(lane_, across);
    const Expr column = sym::mod(lane_, across) * kLanes;
    const auto write = [&] { body(pass, row, column); };
    const auto write_columns = [&] {
      if (sym::divides(config_.columns, problem_.columns)) return write();
      when(is(Opcode::less, tile.column + slice * config_.slice + column, problem_.columns), write);
    };
    if (sym::divides(config_.rows, problem_.rows)) return write_columns();
    when(is(Opcode::less, tile.row + row_of(fragment) + row, problem_.rows), write_columns);
  });
}

kernel::Access Writer::ahead_of(MemoryId registers, Expr slice, Expr pass, Expr lane) {
  kernel::Access access;
  access.memory = registers;
  access.indices = {sym::mod(slice, slices_ahead_), pass, lane};
  access.form = kernel::Form::wide;
  return access;
}

// What the epilogue will read, into registers; slices are counted on from fragment to fragment.
void Writer::load_slice(const Tile& tile, std::int32_t fragment, Expr slice) {
  for_each_vector(tile, fragment, slice, [&](Expr pass, Expr row, Expr column) {
    load_vector(tile, slice + fragment * slices(), pass, row + row_of(fragment),
                tile.column + slice * config_.slice + column);
  });
}

void Writer::load_vector(const Tile& tile, Expr slice, Expr pass, Expr row, Expr column) {
  b_.vector(kLanes, kLanes, [&](Expr lane) {
    GemmBody body(problem_, parameters_, b_, lane);
    for (const Ahead& ahead : ahead_) {
      kernel::Access from;
      from.memory = parameters_.at(problem_.epilogue[ahead.load].buffer);
      from.indices = {body.at(problem_.epilogue[ahead.load].indices[0],
                              {tile.batch, tile.row + row, column + lane, {}})};
      from.form = kernel::Form::wide;
      from.constant = true;
      from.hint = kernel::Hint::early;
      b_.store(ahead_of(ahead.registers, slice, pass, lane), b_.load(from));
    }
    return Values();
  });
}

void Writer::store_slice(const Tile& tile, std::int32_t fragment, Expr slice) {
  for_each_vector(tile, fragment, slice, [&](Expr pass, Expr row, Expr column) {
    store_vector(tile, fragment, slice, pass, row, column);
  });
}

void Writer::store_vector(const Tile& tile, std::int32_t fragment, Expr slice, Expr pass, Expr row,
                          Expr column) {
  const Expr first = tile.column + slice * config_.slice + column;
  b_.vector(kLanes, kLanes, [&](Expr lane) {
    const auto write = [&] {
      const ValueId sum =
          b_.load(sums_, {(group_ - 1) * kRows + row, column + lane}, kernel::Form::wide);
      GemmBody body(problem_, parameters_, b_, lane);
      body.constant_loads = true;
      if (config_.parts == 1) {
        const Expr counted = slice + fragment * slices();
        for (const Ahead& ahead : ahead_) {
          body.loaded.emplace_back(ahead.load, ahead_of(ahead.registers, counted, pass, lane));
        }
      }
      body.store(sum, {tile.batch, tile.row + row_of(fragment) + row, first + lane, {}});
    };
    if (sym::divides(kLanes, problem_.columns)) {
      write();
    } else {
      when(is(Opcode::less, first + lane, problem_.columns), write);
    }
    return Values();
  });
}

// --- Parts of the terms: each warp stores its sums, and the last one to come adds those of all
// parts in their order, whoever came first

// In a fragment, of eight columns at a time: what a warp writes at once lies together.
Expr Writer::place_of_part(const Tile& tile, Expr part, std::int32_t fragment,
                           const kernel::FragmentMap& at) {
  const Expr first = (tile.number * config_.parts + part) * (config_.rows * config_.columns) +
                     row_of(fragment) * config_.columns;
  return first + sym::floordiv(at.column, 8) * (8 * kRows) + at.row * 8 + sym::mod(at.column, 8);
}

void Writer::store_parts(const Tile& tile, const Values& sums) {
  for (std::int32_t f = 0; f < fragments_of(config_); ++f) {
    kernel::FragmentMap map;
    map.row = b_.context().index(number(kRows));
    map.column = b_.context().index(number(config_.columns));
    const auto body = [&](const Values& elements) {
      b_.store(parameters_.at(*problem_.partials), {place_of_part(tile, tile.part, f, map)},
               elements[0]);
      return Values();
    };
    b_.operation(Op::fragment_map, {sums[static_cast<std::size_t>(f)]}, {}, map,
                 {{{kernel::scalar_type(DType::f32)}, body}});
  }
}

// Whether this warp is the last to come to its rows of a tile; then it sees what the others wrote.
Writer::ValueId Writer::is_last_part(const Tile& tile) {
  const Expr of_group = config_.ping_pong ? number(0) : (group_ - 1) * kWarps;
  const Expr ticket = tile.number * (kConsumers * kWarps) + of_group + warp_;
  barrier_of_warp();
  const ValueId drawn = b_.branch(
      is_first_lane(),
      [&] {
        kernel::Atomic add;
        add.op = kernel::AtomicOp::add;
        add.needs_old = true;
        add.access.memory = tickets_;
        add.access.indices = {ticket};
        add.access.order = kernel::Order::acquire_release;
        add.access.scope = kernel::Scope::gpu;
        return b_.operation(Op::atomic, {b_.integer(DType::i32, 1)},
                            {kernel::scalar_type(DType::i32)}, add);
      },
      [&] { return Values{b_.integer(DType::i32, 0)}; })[0];
  kernel::Shuffle from_first;
  from_first.kind = kernel::ShuffleKind::from;
  const ValueId number_of_warp =
      b_.operation(Op::shuffle, {drawn, b_.integer(DType::i32, 0)},
                   {kernel::scalar_type(DType::i32)}, from_first)[0];
  const ValueId is_last = b_.compute(Opcode::equal, DType::boolean,
                                     {number_of_warp, b_.integer(DType::i32, config_.parts - 1)});
  barrier_of_warp();
  when(b_.compute(Opcode::bit_and, DType::boolean, {is_last, is_first_lane()}), [&] {
    kernel::Access zero;
    zero.memory = tickets_;
    zero.indices = {ticket};
    b_.store(zero, b_.integer(DType::i32, 0));
  });
  return is_last;
}

Writer::Values Writer::add_parts(const Tile& tile, const Values& sums) {
  Values zeros;
  for (const ValueId sum : sums) {
    zeros.push_back(
        b_.operation(Op::fragment_fill, {b_.real(DType::f32, 0)}, {b_.type_of(sum)}, {})[0]);
  }
  return loop(number(config_.parts), kernel::LoopKind::serial, zeros,
              [&](Expr part, const Values& before) {
                Values totals;
                for (std::size_t f = 0; f < before.size(); ++f) {
                  kernel::FragmentMap map;
                  map.row = b_.context().index(number(kRows));
                  map.column = b_.context().index(number(config_.columns));
                  const auto body = [&](const Values& elements) {
                    const Expr place =
                        place_of_part(tile, part, static_cast<std::int32_t>(f), map);
                    const ValueId more = b_.load(parameters_.at(*problem_.partials), {place});
                    return Values{b_.compute(Opcode::add, DType::f32, {elements[0], more})};
                  };
                  totals.push_back(b_.operation(Op::fragment_map, {before[f]},
                                                {b_.type_of(before[f])}, map,
                                                {{{kernel::scalar_type(DType::f32)}, body}})[0]);
                }
                return totals;
              });
}

}  // namespace inkle::templates::wgmma
