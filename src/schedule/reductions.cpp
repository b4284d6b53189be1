// Reductions: equal ones are computed once, long ones in parts.
#include "schedule/reductions.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "loop/builder.h"
#include "schedule/buffers.h"
#include "schedule/inline.h"
#include "schedule/linear.h"
#include "schedule/rewrite.h"

namespace inkle::schedule {
namespace {

using abi::DType;
using loop::BodyBuilder;
using loop::BufferId;
using loop::Dim;
using loop::Nest;
using loop::NestKind;
using loop::Opcode;
using loop::Program;
using loop::ReduceOp;
using loop::Val;

bool has_place(ReduceOp op) { return op == ReduceOp::argmin || op == ReduceOp::argmax; }

bool can_split(const Nest& nest, bool blocks) {
  if (nest.kind != NestKind::reduction) return false;
  if (blocks && nest.reduce == ReduceOp::welford) return true;
  if (nest.stores.size() != 1) return false;
  if (blocks && has_place(nest.reduce)) return true;
  switch (nest.reduce) {
    case ReduceOp::sum:
    case ReduceOp::prod:
    case ReduceOp::min:
    case ReduceOp::max:
    case ReduceOp::any:
    case ReduceOp::all:
      return true;
    case ReduceOp::argmin:
    case ReduceOp::argmax:
    case ReduceOp::welford:
    case ReduceOp::online_softmax:
      return false;
  }
  return false;
}

// A divisor of `n` nearest to its square root from below, at least 8; 0 if there is none.
std::int64_t middle_divisor(std::int64_t n) {
  for (auto d = static_cast<std::int64_t>(std::min<double>(4096, std::max(8.0, double(n) / 8)));
       d >= 8; --d) {
    if (d * d <= n && n % d == 0) return d;
  }
  return 0;
}

// The least divisor of `n` that is `wanted` or more, by a factor of 4 at most; 0 if there is none.
std::int64_t divisor_from(std::int64_t n, std::int64_t wanted) {
  for (std::int64_t d = wanted; d <= std::min(n / 2, 4 * wanted); ++d) {
    if (n % d == 0) return d;
  }
  return 0;
}

// Whether an indirect index of the nest is in the offset.
bool is_chosen(const Nest& nest, Expr offset) {
  return std::any_of(nest.body.instructions.begin(), nest.body.instructions.end(),
                     [&](const loop::Instruction& i) {
                       return i.opcode == Opcode::indirect &&
                              sym::contains(offset, i.indices.front());
                     });
}

// Whether the last reduced loop is contiguous (a row), or one that is kept does (columns).
// Loads that vary with no kept loop, as one value for each row whose columns are summed, are few
// and do not count; rows that an indirect index chooses do vary.
bool reduces_rows(const Nest& nest, const Program& program) {
  const Expr last = nest.reduced.back().variable;
  for (const loop::Instruction& i : nest.body.instructions) {
    if (i.opcode != Opcode::load) continue;
    const Expr offset = linear_offset(program.buffers[i.buffer], i.indices, *program.context);
    const bool varies = std::any_of(nest.dims.begin(), nest.dims.end(), [&](const Dim& dim) {
      return sym::contains(offset, dim.variable);
    });
    if (!varies && !is_chosen(nest, offset) && !nest.dims.empty()) continue;
    const auto stride = sym::stride(offset, last);
    if (sym::contains(offset, last) && stride && stride->is_constant(1)) return true;
  }
  return false;
}

// Whether the partial result is one value of 4 bytes.
bool is_number(const Nest& nest) {
  switch (nest.reduce) {
    case ReduceOp::sum:
    case ReduceOp::prod:
    case ReduceOp::min:
    case ReduceOp::max:
      return abi::size_of(nest.accumulator) == 4;
    default:
      return false;
  }
}

// Bytes of an element of the narrowest row that is read.
std::int64_t bytes_of_rows(const Nest& nest, const Program& program) {
  std::int64_t bytes = 8;
  for (const loop::Instruction& i : nest.body.instructions) {
    if (i.opcode != Opcode::load) continue;
    bytes = std::min(bytes, abi::size_of(program.buffers[i.buffer].dtype));
  }
  return bytes;
}

// Into how many parts a reduction is split so that all multiprocessors have work: 0 for as it is.
// Columns are reduced by 32 threads with 8 lanes and up to 8 of those in a block, rows by up to
// 1024 threads; a part of a row is worth a block's work. Four blocks of column reductions keep the
// memory of an SM busy; more parts would only make the second reduction longer.
std::int64_t parts_of_blocks(const Nest& nest, const Program& program, const abi::Target& device) {
  const abi::SplitRules& rules = device.split;
  const std::int64_t wanted = std::int64_t{device.parallelism} * device.resident_threads / 2;
  const std::int64_t kept = extent_hint(nest.dims);
  const std::int64_t length = extent_hint(nest.reduced);
  const bool rows = reduces_rows(nest, program);
  const std::int64_t threads = rows ? kept * std::min<std::int64_t>(1024, (length + 31) / 32)
                                    : kept * std::min<std::int64_t>(8, (length + 3) / 4) / 8;
  // Split kernels cannot be fused with others that read the same: only where most SMs are idle.
  if (threads >= wanted / 4) return 0;
  std::int64_t most = length / (rows ? rules.part_of_row : rules.part_of_column);
  if (!rows) most = std::min(most, rules.column_blocks * device.parallelism);
  std::int64_t parts = std::min(wanted / std::max<std::int64_t>(threads, 1), most);
  // Partial results of 4 bytes are cheap to exchange (last_block.h): more blocks than resident.
  if (rows && parts >= 2 && is_number(nest)) {
    const std::int64_t bytes = bytes_of_rows(nest, program);
    parts = std::max(parts, std::min(length * bytes / device.blocks.part_bytes * 15 / 16,
                                     rules.most_blocks / kept));
  }
  return parts < 2 ? 0 : parts;
}

// Reduced loop `at` becomes two, the outer one of `wanted` iterations or somewhat more (0: about
// the square root).
bool divide_reduced(Nest& nest, sym::Context& context, std::size_t at, std::int64_t wanted) {
  const auto extent = nest.reduced[at].extent.constant();
  if (!extent) return false;
  const std::int64_t outer = wanted == 0 ? middle_divisor(*extent) : divisor_from(*extent, wanted);
  if (outer == 0) return false;
  divide_loop(nest, nest.reduced, at, context.constant(*extent / outer), context);
  return true;
}

void substitute_all(std::vector<Expr>& list, sym::Substitution map) {
  for (Expr& e : list) e = sym::substitute(e, map);
}

// A buffer for a result of each part: over what the nest keeps, then over the parts.
BufferId add_partial(Program& program, const Nest& nest, const std::vector<Dim>& parts,
                     bool columns) {
  const DType dtype = has_place(nest.reduce) ? DType::i64 : nest.accumulator;
  loop::Buffer buffer = temporary(program, nest.stores.front().buffer, dtype, {});
  for (const Dim& dim : nest.dims) buffer.sizes.push_back(dim.extent);
  for (const Dim& dim : parts) buffer.sizes.push_back(dim.extent);
  const std::size_t rank = buffer.sizes.size();
  std::vector<Expr> strides(rank);
  Expr running = program.context->constant(1);
  const auto lay = [&](std::size_t from, std::size_t to) {
    for (std::size_t d = to; d-- > from;) {
      strides[d] = running;
      running = running * buffer.sizes[d];
    }
  };
  // Columns of partial results are contiguous, as the columns are.
  if (columns) {
    lay(0, nest.dims.size());
    lay(nest.dims.size(), rank);
  } else {
    lay(0, rank);
  }
  buffer.strides = std::move(strides);
  return program.add_buffer(std::move(buffer));
}

std::vector<Expr> variables_of(const std::vector<Dim>& a, const std::vector<Dim>& b) {
  std::vector<Expr> list;
  for (const std::vector<Dim>* dims : {&a, &b}) {
    for (const Dim& dim : *dims) list.push_back(dim.variable);
  }
  return list;
}

// A nest with the stores of `nest`, new loops and no body.
Nest with_own_loops(const Nest& nest, sym::Context& context) {
  Nest own = nest;
  own.body = {};
  own.reduced.clear();
  std::vector<std::pair<Expr, Expr>> map;
  for (Dim& dim : own.dims) {
    const Expr variable = context.index(dim.extent);
    map.emplace_back(dim.variable, variable);
    dim.variable = variable;
  }
  for (loop::Store& store : own.stores) substitute_all(store.indices, map);
  return own;
}

// Reduces the partial results in `from` over the parts by `op`.
Nest over_parts(Program& program, const Nest& nest, const std::vector<Dim>& parts, BufferId from,
                ReduceOp op) {
  Nest total = with_own_loops(nest, *program.context);
  total.reduce = op;
  for (const Dim& dim : parts) {
    total.reduced.push_back({program.context->index(dim.extent), dim.extent});
  }
  BodyBuilder b(total.body, *program.context);
  b.yield(b.load(from, nest.accumulator, variables_of(total.dims, total.reduced)));
  return total;
}

// Of parts of equally many elements n: the mean is that of the means, and
// m2 = sum of the parts' m2 + n * (m2 of the means).
void join_moments(Program& program, const Nest& nest, const std::vector<Dim>& parts, Expr count,
                  BufferId means, BufferId squares, std::vector<Nest>& result) {
  sym::Context& context = *program.context;
  const DType dtype = nest.accumulator;
  const BufferId between = add_partial(program, nest, {}, false);
  const BufferId inside = add_partial(program, nest, {}, false);
  Nest mean = over_parts(program, nest, parts, means, ReduceOp::welford);
  std::erase_if(mean.stores, [](const loop::Store& store) { return store.result != 0; });
  mean.stores.push_back({between, variables_of(mean.dims, {}), loop::StoreMode::overwrite, 1});
  result.push_back(std::move(mean));
  Nest sum = over_parts(program, nest, parts, squares, ReduceOp::sum);
  sum.stores = {{inside, variables_of(sum.dims, {}), loop::StoreMode::overwrite, 0}};
  result.push_back(std::move(sum));
  for (std::size_t s = 0; s < nest.stores.size(); ++s) {
    if (nest.stores[s].result != 1) continue;
    Nest join = with_own_loops(nest, context);
    join.kind = NestKind::pointwise;
    const loop::Store store = join.stores[s];
    const std::vector<Expr> at = variables_of(join.dims, {});
    BodyBuilder b(join.body, context);
    const Val spread = b.mul(b.load(between, dtype, at), b.cast(b.index(count), dtype));
    b.yield(b.cast(b.add(b.load(inside, dtype, at), spread), program.buffers[store.buffer].dtype));
    join.stores = {store};
    join.stores.front().result = 0;
    result.push_back(std::move(join));
  }
}

// `at` as an iteration of these loops, the last fastest.
void add_iteration(Expr at, const std::vector<Dim>& dims, std::vector<std::pair<Expr, Expr>>& map) {
  for (std::size_t d = dims.size(); d-- > 0;) {
    map.emplace_back(dims[d].variable, d == 0 ? at : sym::mod(at, dims[d].extent));
    if (d != 0) at = sym::floordiv(at, dims[d].extent);
  }
}

// argmin or argmax of the parts: of their indices, the first with the best value of all.
void join_indices(Program& program, const Nest& nest, const std::vector<Dim>& parts,
                  const std::vector<Dim>& inside, BufferId places, std::vector<Nest>& result) {
  sym::Context& context = *program.context;
  const BufferId best = add_partial(program, nest, {}, false);
  Nest pick = with_own_loops(nest, context);
  std::vector<std::pair<Expr, Expr>> map;
  for (std::size_t d = 0; d < nest.dims.size(); ++d) {
    map.emplace_back(nest.dims[d].variable, pick.dims[d].variable);
  }
  for (const Dim& dim : parts) {
    pick.reduced.push_back({context.index(dim.extent), dim.extent});
    map.emplace_back(dim.variable, pick.reduced.back().variable);
  }
  const Expr count = extent_product(inside, context);
  {
    BodyBuilder b(pick.body, context);
    const Val place = b.load(places, DType::i64, variables_of(pick.dims, pick.reduced));
    add_iteration(b.indirect(place, count), inside, map);
    pick.body.yields = loop::inline_body(nest.body, map, b, nullptr);
  }
  pick.stores = {{best, variables_of(pick.dims, {}), loop::StoreMode::overwrite, 0}};
  result.push_back(std::move(pick));
  Nest join = with_own_loops(nest, context);
  join.kind = NestKind::pointwise;
  BodyBuilder b(join.body, context);
  const std::vector<Expr> at = variables_of(join.dims, {});
  const Val part = b.load(best, DType::i64, at);
  std::vector<std::pair<Expr, Expr>> of_part;
  add_iteration(b.indirect(part, extent_product(parts, context)), parts, of_part);
  std::vector<Expr> from = at;
  for (const Dim& dim : parts) {
    for (const auto& [variable, value] : of_part) {
      if (variable == dim.variable) from.push_back(value);
    }
  }
  const Val place = b.load(places, DType::i64, std::move(from));
  const Val whole = b.add(b.mul(part, b.cast(b.index(count), DType::i64)), place);
  b.yield(b.cast(whole, program.buffers[nest.stores.front().buffer].dtype));
  result.push_back(std::move(join));
}

using Map = std::vector<std::pair<Expr, Expr>>;

// The variables of `nest` as those of `first`, if both reduce the same values in the same way.
std::optional<Map> same_reduction(const Nest& first, const Nest& nest, sym::Context& context) {
  if (first.reduce != nest.reduce || first.accumulator != nest.accumulator ||
      first.body.instructions.size() != nest.body.instructions.size()) {
    return std::nullopt;
  }
  Map map;
  if (!pair_loops(nest.dims, first.dims, map) || !pair_loops(nest.reduced, first.reduced, map)) {
    return std::nullopt;
  }
  const auto copied = [&](const loop::Body& from, const Map& names) {
    loop::Body body;
    BodyBuilder builder(body, context);
    body.yields = loop::inline_body(from, names, builder, nullptr);
    return body;
  };
  if (!(copied(first.body, {}) == copied(nest.body, map))) return std::nullopt;
  return map;
}

// What `nest` stores is copied from where `first` has stored it, or `first` stores it.
void take_results(Program& program, Nest& first, const Nest& nest, const Map& map,
                  std::vector<Nest>& result) {
  Map back;
  for (const auto& [theirs, ours] : map) back.emplace_back(ours, theirs);
  std::vector<Nest> copies;
  for (const loop::Store& store : nest.stores) {
    const auto made = std::find_if(first.stores.begin(), first.stores.end(),
                                   [&](const auto& s) { return s.result == store.result; });
    if (made == first.stores.end()) {
      loop::Store moved = store;
      for (Expr& e : moved.indices) e = sym::substitute(e, map);
      first.stores.push_back(std::move(moved));
      continue;
    }
    Nest copy = nest;
    copy.kind = NestKind::pointwise;
    copy.reduced.clear();
    copy.body = {};
    std::vector<Expr> from = made->indices;
    for (Expr& e : from) e = sym::substitute(e, back);
    BodyBuilder b(copy.body, *program.context);
    b.yield(b.cast(b.load(made->buffer, program.buffers[made->buffer].dtype, std::move(from)),
                   program.buffers[store.buffer].dtype));
    copy.stores = {store};
    copy.stores.front().result = 0;
    copies.push_back(std::move(copy));
  }
  for (Nest& copy : copies) result.push_back(std::move(copy));
}

}  // namespace

bool pair_loops(const std::vector<Dim>& from, const std::vector<Dim>& to,
                std::vector<std::pair<Expr, Expr>>& map) {
  std::size_t t = 0;
  for (const Dim& dim : from) {
    if (dim.extent.is_constant(1)) continue;
    while (t < to.size() && to[t].extent.is_constant(1)) ++t;
    if (t == to.size() || !(to[t].extent == dim.extent)) return false;
    map.emplace_back(dim.variable, to[t++].variable);
  }
  while (t < to.size() && to[t].extent.is_constant(1)) ++t;
  return t == to.size();
}

std::size_t loops_of_parts(Nest& nest, sym::Context& context, std::int64_t wanted) {
  // A loop that cannot be divided may make so many times more parts than were asked for.
  constexpr std::int64_t kUndivided = 16;
  constexpr std::int64_t kWhole = 2;
  std::int64_t made = 1;
  for (std::size_t at = 0; at < nest.reduced.size(); ++at) {
    const bool last = at + 1 == nest.reduced.size();
    const std::int64_t rest = (wanted + made - 1) / made;
    if (kWhole * made > wanted) return at;
    const std::int64_t extent = sym::hint(nest.reduced[at].extent).value_or(kUndivided * rest + 1);
    if (last || extent > kWhole * rest) {
      if (divide_reduced(nest, context, at, std::max<std::int64_t>(2, rest * 2 / 3))) return at + 1;
      if (last || extent > kUndivided * rest) return at;
    }
    made *= extent;
  }
  return nest.reduced.size();
}

void split(Program& program, const Nest& nest, std::size_t moved, bool columns,
           std::vector<Nest>& result) {
  const auto end = nest.reduced.begin() + static_cast<std::ptrdiff_t>(moved);
  const std::vector<Dim> parts(nest.reduced.begin(), end);
  Nest partial = nest;
  partial.reduced.erase(partial.reduced.begin(),
                        partial.reduced.begin() + static_cast<std::ptrdiff_t>(moved));
  partial.dims.insert(partial.dims.end(), parts.begin(), parts.end());
  partial.stores.clear();
  std::vector<BufferId> made;
  for (std::uint32_t r = 0; r < loop::result_count(nest.reduce); ++r) {
    made.push_back(add_partial(program, nest, parts, columns));
    partial.stores.push_back(
        {made.back(), variables_of(nest.dims, parts), loop::StoreMode::overwrite, r});
  }
  const std::vector<Dim> inside = partial.reduced;
  const Expr count = extent_product(inside, *program.context);
  result.push_back(std::move(partial));
  if (has_place(nest.reduce)) {
    join_indices(program, nest, parts, inside, made[0], result);
  } else if (nest.reduce == ReduceOp::welford) {
    join_moments(program, nest, parts, count, made[0], made[1], result);
  } else {
    result.push_back(over_parts(program, nest, parts, made[0], nest.reduce));
  }
}

void share_reductions(Program& program) {
  const std::vector<bool> mutated = mutated_buffers(program);
  const auto is_still = [&](const Nest& nest) {
    const auto changes = [&](BufferId b) {
      return mutated[b] || program.buffers[b].writes_into.has_value();
    };
    const auto r = loop::reads(nest);
    const auto w = loop::writes(nest);
    return std::none_of(r.begin(), r.end(), changes) && std::none_of(w.begin(), w.end(), changes);
  };
  std::vector<Nest> result;
  std::vector<std::size_t> reductions;
  for (Nest& nest : program.nests) {
    if (nest.kind != NestKind::reduction || !is_still(nest)) {
      result.push_back(std::move(nest));
      continue;
    }
    std::optional<Map> map;
    const auto found = std::find_if(reductions.begin(), reductions.end(), [&](std::size_t r) {
      map = same_reduction(result[r], nest, *program.context);
      // A sum that is rounded as it is stored has another value.
      return map && std::all_of(result[r].stores.begin(), result[r].stores.end(), [&](auto& s) {
               return program.buffers[s.buffer].dtype == nest.accumulator;
             });
    });
    if (found != reductions.end()) {
      Nest first = std::move(result[*found]);
      take_results(program, first, nest, *map, result);
      result[*found] = std::move(first);
    } else {
      reductions.push_back(result.size());
      result.push_back(std::move(nest));
    }
  }
  program.nests = std::move(result);
}

void split_long_reductions(Program& program, const abi::Target& device,
                           const std::vector<BufferId>& parts_made) {
  sym::Context& context = *program.context;
  const bool blocks = device.has_blocks;
  const auto is_cut = [&](const Nest& nest) {
    return std::any_of(parts_made.begin(), parts_made.end(), [&](BufferId made) {
      const auto r = loop::reads(nest);
      const auto w = loop::writes(nest);
      return std::find(r.begin(), r.end(), made) != r.end() ||
             std::find(w.begin(), w.end(), made) != w.end();
    });
  };
  std::vector<Nest> result;
  for (Nest& nest : program.nests) {
    std::size_t moved = 0;
    if (can_split(nest, blocks) && !is_cut(nest)) {
      const std::int64_t parts = blocks ? parts_of_blocks(nest, program, device) : 0;
      // Below this, one thread finishes before a second one has started.
      const std::int64_t long_reduction = device.loops.long_reduction;
      const bool few = long_reduction > 0 && extent_hint(nest.dims) < 2 * device.parallelism &&
                       extent_hint(nest.reduced) >= long_reduction;
      if (parts != 0) moved = loops_of_parts(nest, context, parts);
      // The first loop as it is makes enough parts, or is divided.
      if (few && (nest.reduced.size() > 1 || divide_reduced(nest, context, 0, 0))) moved = 1;
    }
    if (moved == 0) {
      result.push_back(std::move(nest));
    } else {
      split(program, nest, moved, blocks && !reduces_rows(nest, program), result);
    }
  }
  program.nests = std::move(result);
}

}  // namespace inkle::schedule
