#include "templates/gemm_wgmma_epilogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "templates/gemm_body.h"

namespace inkle::templates::wgmma {

using kernel::Op;
using loop::Opcode;

namespace {

// Loads of the epilogue that are as large as the result: they are issued ahead.
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

// Bytes of registers that hold what is loaded ahead.
std::int32_t bytes_ahead(const WgmmaConfig& config) {
  constexpr std::int32_t kFree = kConsumerRegisters - 72;  // of sums and what else is computed
  const std::int32_t sums = fragments_of(config) * config.columns / 2;
  return std::max(kFree - sums, 0) * 4;
}

}  // namespace

Epilogue::Epilogue(Block& block)
    : Operations(block.builder()), block_(block), problem_(block.problem), config_(block.config) {
  const std::vector<loop::Val> loads = loads_ahead(problem_);
  const std::int32_t passes = config_.slice * kRows / kWarps / (kWarp * kLanes);
  std::int32_t bytes = 0;  // of a slice
  for (const loop::Val v : loads) {
    bytes += passes * kLanes * static_cast<std::int32_t>(abi::size_of(problem_.epilogue[v].dtype));
  }
  if (bytes == 0) return;
  slices_ahead_ = std::min(bytes_ahead(config_) / bytes, std::min(slices(), 4));
  if (slices_ahead_ == 0) return;
  for (const loop::Val v : loads) {
    kernel::Memory memory;
    memory.name = fmt::format("ahead{}", ahead_.size());
    memory.space = kernel::Space::registers;
    memory.dtype = problem_.epilogue[v].dtype;
    memory.shape = {number(slices_ahead_), number(passes), number(kLanes)};
    ahead_.push_back({v, b_.memory(std::move(memory))});
  }
}

void Epilogue::load_first(const Tile& tile) {
  for (std::int32_t s = 0; s < slices_ahead_; ++s) load_slice(tile, 0, number(s));
}

void Epilogue::finish(const Tile& tile, const Values& sums) {
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

void Epilogue::stage_slice(ValueId sums, Expr slice) {
  map(sums, {}, [&](ValueId sum, Expr row, Expr column) {
    when(is(Opcode::equal, sym::floordiv(column, config_.slice), slice), [&] {
      b_.store(block_.sums, {(block_.group - 1) * kRows + row, sym::mod(column, config_.slice)},
               sum);
    });
    return Values();
  });
}

// Of a slice, those elements of a thread that exist: of a row in the fragment, from a column in the
// slice on.
void Epilogue::for_each_vector(const Tile& tile, std::int32_t fragment, Expr slice,
                               const std::function<void(Expr, Expr, Expr)>& body) {
  constexpr std::int32_t kWarpRows = kRows / kWarps;
  const std::int32_t across = config_.slice / kLanes;
  const std::int32_t down = kWarp / across;
  loop(number(kWarpRows / down), kernel::LoopKind::unroll, [&](Expr pass) {
    const Expr row = block_.warp * kWarpRows + pass * down + sym::floordiv(block_.lane, across);
    const Expr column = sym::mod(block_.lane, across) * kLanes;
    const auto write = [&] { body(pass, row, column); };
    const auto write_columns = [&] {
      if (sym::divides(config_.columns, problem_.columns)) return write();
      when(is(Opcode::less, tile.column + slice * config_.slice + column, problem_.columns), write);
    };
    if (sym::divides(config_.rows, problem_.rows)) return write_columns();
    when(is(Opcode::less, tile.row + block_.row_of(fragment) + row, problem_.rows), write_columns);
  });
}

kernel::Access Epilogue::ahead_of(MemoryId registers, Expr slice, Expr pass, Expr lane) const {
  kernel::Access access;
  access.memory = registers;
  access.indices = {sym::mod(slice, slices_ahead_), pass, lane};
  access.form = kernel::Form::wide;
  return access;
}

// What the epilogue will read, into registers; slices are counted on from fragment to fragment.
void Epilogue::load_slice(const Tile& tile, std::int32_t fragment, Expr slice) {
  for_each_vector(tile, fragment, slice, [&](Expr pass, Expr row, Expr column) {
    load_vector(tile, slice + fragment * slices(), pass, row + block_.row_of(fragment),
                tile.column + slice * config_.slice + column);
  });
}

void Epilogue::load_vector(const Tile& tile, Expr slice, Expr pass, Expr row, Expr column) {
  b_.vector(kLanes, kLanes, [&](Expr lane) {
    GemmBody body(problem_, block_.parameters, b_, lane);
    for (const Ahead& ahead : ahead_) {
      kernel::Access from;
      from.memory = block_.parameters.at(problem_.epilogue[ahead.load].buffer);
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

void Epilogue::store_slice(const Tile& tile, std::int32_t fragment, Expr slice) {
  for_each_vector(tile, fragment, slice, [&](Expr pass, Expr row, Expr column) {
    store_vector(tile, fragment, slice, pass, row, column);
  });
}

void Epilogue::store_vector(const Tile& tile, std::int32_t fragment, Expr slice, Expr pass,
                            Expr row, Expr column) {
  const Expr first = tile.column + slice * config_.slice + column;
  b_.vector(kLanes, kLanes, [&](Expr lane) {
    const auto write = [&] {
      const ValueId sum = b_.load(block_.sums, {(block_.group - 1) * kRows + row, column + lane},
                                  kernel::Form::wide);
      GemmBody body(problem_, block_.parameters, b_, lane);
      body.constant_loads = true;
      if (config_.parts == 1) {
        const Expr counted = slice + fragment * slices();
        for (const Ahead& ahead : ahead_) {
          body.loaded.emplace_back(ahead.load, ahead_of(ahead.registers, counted, pass, lane));
        }
      }
      body.store(sum, {tile.batch, tile.row + block_.row_of(fragment) + row, first + lane, {}});
    };
    if (sym::divides(kLanes, problem_.columns)) {
      write();
    } else {
      when(is(Opcode::less, first + lane, problem_.columns), write);
    }
    return Values();
  });
}

}  // namespace inkle::templates::wgmma
