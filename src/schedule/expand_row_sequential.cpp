// Kernels that take the rows of a part one after the other and add up their columns:
//
//   registers t0[count,lanes] = 0                   each thread, of the elements that it has
//   copies of row q are under way to shared memory
//   for i1 in q .. 32 by 8 {                        a row at a time for each team of the block
//     r0 = ...                                      what it reads is taken from shared memory, then
//     copies of row i1 + 8                          the next row takes its place
//     t0[k,l] += ...
//   }
//   the teams' sums, by halves, through shared memory
//   if q == 0 { p5[...] = t0 }
#include <algorithm>

#include "base/error.h"
#include "schedule/expand_rows.h"

namespace inkle::schedule::expansion {

using kernel::AxisKind;
using kernel::Op;
using loop::Instruction;
using loop::Opcode;
using loop::Val;

namespace {

constexpr std::int32_t kWarp = 32;
constexpr std::int64_t kStaticShared = 48 << 10;
// Static shared memory that every architecture gives a block, but for what reductions take.
constexpr std::int64_t kMostMemory = kStaticShared - 1024;
constexpr std::int64_t kCopyBytes = 16;

}  // namespace

// --- The launch ----------------------------------------------------------------------------------

void RowExpander::launch_walk(const std::function<void()>& stages) {
  const auto& outer = x_.loops().outer;
  const std::size_t first = outer.size() - x_.loops().walked;
  const std::string& name = x_.e.scheduled.name;
  INKLE_CHECK(blocks_.keep && blocks_.cluster == 1, "kernel {} walks rows that it does not keep",
              name);
  Expr rows = constant(1);
  for (std::size_t d = first; d < outer.size(); ++d) rows = rows * outer[d].extent;
  for (const Stage& stage : x_.loops().stages) {
    for (const loop::Dim& dim : stage.inner) {
      if (dim.extent.constant().value_or(0) > 0) continue;
      unsupported("kernel {}: walks rows of unknown length", name);
    }
  }
  const std::int32_t team = blocks_.team;
  teams_ = blocks_.threads / team;
  if (team % kWarp != 0 || !rows.is_constant() || (team > kWarp && teams_ > 1)) {
    unsupported("kernel {}: walks rows with teams of {} threads", name, team);
  }
  walked_rows_ = *rows.constant();
  std::vector<kernel::Axis>& axes = b_.kernel().launch.axes;
  for (std::size_t d = 0; d < first; ++d) {
    axes.push_back({AxisKind::grid, outer[d].variable, outer[d].extent});
  }
  if (first == 0) (void)b_.axis(AxisKind::grid, constant(1));
  if (teams_ > 1) team_number_ = b_.axis(AxisKind::thread, constant(teams_));
  const auto axis_of_team = [&](std::int64_t extent) {
    const Expr variable = b_.axis(AxisKind::thread, constant(extent));
    team_.push_back(static_cast<kernel::AxisId>(axes.size() - 1));
    return variable;
  };
  if (team > kWarp) warp_ = axis_of_team(team / kWarp);
  lane_ = axis_of_team(kWarp);
  thread_ = team > kWarp ? warp_ * std::int64_t{kWarp} + lane_ : lane_;
  b_.kernel().launch.resident_blocks = blocks_at_once();
  stages();
}

// Threads that take rows one after the other, each with few elements of a row, need few enough
// registers for half as many of them as there could be: 120 to 128 for 24 elements of two sums
// each, with 56 bytes at most in memory; with 32 elements it would be 200 to 400 bytes.
std::int32_t RowExpander::blocks_at_once() const {
  constexpr std::int64_t kFewElements = 24;
  constexpr std::int32_t kThreads = 512;
  std::int64_t elements = 0;
  for (const Scratch& scratch : x_.loops().scratch) {
    if (scratch.walks) elements = std::max(elements, sums_of(scratch) * blocks_.lanes);
  }
  const std::int32_t blocks = kThreads / blocks_.threads;
  return elements == 0 || elements > kFewElements || blocks < 2 ? 0 : blocks;
}

// Accesses of a thread to the sums.
std::int64_t RowExpander::sums_of(const Scratch& scratch) const {
  return (scratch.elements.constant().value_or(1) + step() - 1) / step();
}

// --- The loop ------------------------------------------------------------------------------------

Values RowExpander::each_walked(const Values& carried,
                                const std::function<Values(Expr row, const Values&)>& body) {
  const auto& outer = x_.loops().outer;
  const std::size_t first = outer.size() - x_.loops().walked;
  kernel::Loop info;
  info.begin = teams_ > 1 ? team_number_ : constant(0);
  info.end = constant(walked_rows_);
  info.step = constant(teams_);
  const bool is_one = x_.loops().walked == 1;
  if (is_one) info.variable = outer.back().variable;
  return b_.loop(std::move(info), carried, [&](Expr row, const Values& before) {
    if (!is_one) bind_outer(x_, row, first, outer.size());
    return body(row, before);
  });
}

void RowExpander::walk() {
  plan_staged();
  if (!staged_.empty()) plan_numbers();
  declare_walk_memory();
  begin_sums();
  phase(Phase::first);
  const Expr first = teams_ > 1 ? team_number_ : constant(0);
  Values numbers = zeros();
  for (std::size_t p = 0; p < passes_.size(); ++p) numbers = stage_row(p, first, numbers);
  each_walked(numbers, [&](Expr row, const Values& own) {
    own_ = own;
    Values next = own;
    for (std::size_t p = 0; p < passes_.size(); ++p) {
      if (x_.prepared.stages[passes_[p].stage].stage.phase != Phase::each) continue;
      pass(p);
      next = stage_row(p, row + teams_, next);
    }
    return next;
  });
  own_.clear();
  if (teams_ == 1) return phase(Phase::last);
  if (!staged_.empty()) b_.barrier({});
  join_teams();
  b_.branch(logic(Opcode::equal, {b_.index(team_number_), b_.index(constant(0))}), [&] {
    phase(Phase::last);
    return Values();
  });
}

// Teams exchange whole accesses, also of elements that no row has.
void RowExpander::begin_sums() {
  const auto& scratch = x_.loops().scratch;
  const bool exact = std::all_of(scratch.begin(), scratch.end(), [&](const Scratch& s) {
    return !s.walks || *s.elements.constant() % step() == 0;
  });
  if (teams_ == 1 || exact) return;
  each_sum([&](std::size_t s, Expr number, Expr lane) {
    const DType dtype = scratch[s].dtype;
    const ValueId zero = abi::is_float(dtype) ? b_.real(dtype, 0) : b_.integer(dtype, 0);
    b_.store(element_of(x_.e.memories[first_scratch() + s], number, lane), zero);
  });
}

void RowExpander::phase(Phase phase) {
  for (std::size_t p = 0; p < passes_.size(); ++p) {
    if (x_.prepared.stages[passes_[p].stage].stage.phase == phase) pass(p);
  }
}

// --- The next row --------------------------------------------------------------------------------

// Whether the load is of memory that nobody writes here, at a place that differs from row to row.
bool RowExpander::is_of_row(const Instruction& load) const {
  const auto& outer = x_.loops().outer;
  const auto& params = x_.e.scheduled.params;
  if (load.buffer >= params.size() || x_.e.aliasing || params[load.buffer].role != ParamRole::in) {
    return false;
  }
  return std::any_of(
      outer.end() - static_cast<std::ptrdiff_t>(x_.loops().walked), outer.end(),
      [&](const loop::Dim& dim) { return sym::contains(load.indices[0], dim.variable); });
}

// Loads that are one for the whole row.
void RowExpander::plan_numbers() {
  for (const RowPass& p : passes_) {
    const Stage& stage = x_.prepared.stages[p.stage].stage;
    if (stage.phase != Phase::each || stage.inner.empty()) continue;
    for (const Instruction& i : stage.body.instructions) {
      if (!is_direct(stage, i) || !is_of_row(i) ||
          sym::contains(i.indices[0], stage.inner.front().variable)) {
        continue;
      }
      const bool known = std::any_of(numbers_.begin(), numbers_.end(), [&](const Number& n) {
        return n.buffer == i.buffer && n.offset == i.indices[0];
      });
      if (!known) numbers_.push_back({i.buffer, i.indices[0]});
    }
  }
}

// Loads of the next row in whole accesses of 8 or 16 bytes, as far as shared memory reaches.
void RowExpander::plan_staged() {
  for (std::size_t p = 0; p < passes_.size(); ++p) {
    const Stage& stage = x_.prepared.stages[passes_[p].stage].stage;
    if (stage.phase != Phase::each || stage.inner.empty()) continue;
    if (is_ragged(stage) || blocks_.lanes == 1) continue;
    const std::size_t before = staged_.size();
    for (Val v = 0; v < stage.body.instructions.size(); ++v) {
      const Instruction& i = stage.body[v];
      const auto& uses = keep_.known[p];
      const bool is_kept = std::any_of(uses.begin(), uses.end(),
                                       [&](const KeepPlan::Use& use) { return use.value == v; });
      if (is_kept || !is_direct(stage, i) || !is_of_row(i)) continue;
      const std::int64_t bytes = blocks_.lanes * abi::size_of(i.dtype);
      const std::int32_t alignment = x_.e.scheduled.params[i.buffer].alignment;
      if (bytes % 8 != 0 || alignment % std::min(bytes, kCopyBytes) != 0 ||
          packed_lanes(stage, v) != blocks_.lanes) {
        continue;
      }
      const std::int64_t count = accesses_of(stage);
      const std::int64_t size = count * blocks_.threads * bytes;
      if (walk_bytes_ + size > kMostMemory) continue;
      staged_.push_back({p, v, count, walk_bytes_, kernel::kNone, kernel::kNone});
      walk_bytes_ += size;
    }
    if (staged_.size() != before) ++staged_passes_;
  }
}

// Rows on their way, and later the sums of half of the teams, in the same bytes.
void RowExpander::declare_walk_memory() {
  std::int64_t gathered = 0;
  for (const Scratch& scratch : x_.loops().scratch) gathered += joined_bytes(scratch);
  const std::int64_t bytes = std::max(walk_bytes_, gathered);
  if (bytes > kMostMemory + 1024) {
    unsupported("kernel {}: {} bytes to gather columns in", x_.e.scheduled.name, bytes);
  }
  if (bytes == 0) return;
  kernel::Memory memory;
  memory.name = "rows";
  memory.space = kernel::Space::shared;
  memory.dtype = DType::u8;
  memory.shape = {constant(bytes)};
  memory.alignment = 16;
  const kernel::MemoryId all = b_.memory(memory);
  memory.of = all;
  const auto part = [&](const char* prefix, DType dtype, std::int64_t offset,
                        std::vector<Expr> shape) {
    memory.name = fmt::format("{}{}", prefix, b_.kernel().memories.size());
    memory.dtype = dtype;
    memory.offset = offset;
    memory.shape = std::move(shape);
    return b_.memory(memory);
  };
  for (Staged& load : staged_) {
    const Stage& stage = x_.prepared.stages[passes_[load.pass].stage].stage;
    load.memory = part("row", stage.body[load.value].dtype, load.offset,
                       {constant(load.count), constant(blocks_.threads), constant(blocks_.lanes)});
  }
  std::int64_t offset = 0;
  for (const Scratch& scratch : x_.loops().scratch) {
    joined_.push_back(kernel::kNone);
    if (joined_bytes(scratch) == 0) continue;
    joined_.back() = part("sums", scratch.dtype, offset,
                          {constant(teams_ / 2), constant(sums_of(scratch)), constant(blocks_.team),
                           constant(blocks_.lanes)});
    offset += joined_bytes(scratch);
  }
}

std::int64_t RowExpander::joined_bytes(const Scratch& scratch) const {
  if (!scratch.walks) return 0;
  return sums_of(scratch) * step() * abi::size_of(scratch.dtype) * (teams_ / 2);
}

Values RowExpander::zeros() {
  Values zeros;
  for (const Number& n : numbers_) {
    const DType dtype = x_.e.scheduled.params[n.buffer].dtype;
    zeros.push_back(abi::is_float(dtype) ? b_.real(dtype, 0) : b_.integer(dtype, 0));
  }
  return zeros;
}

// The variables of the sequential loops at another row.
Replacements RowExpander::at_row(Expr row) {
  const auto& outer = x_.loops().outer;
  const std::size_t first = outer.size() - x_.loops().walked;
  Replacements map;
  Expr rest = row;
  for (std::size_t d = outer.size(); d-- > first;) {
    if (d == first) {
      map.emplace_back(outer[d].variable, rest);
      break;
    }
    Expr above = constant(1);
    for (std::size_t a = first; a < d; ++a) above = above * outer[a].extent;
    const Expr own = bind_new(x_, sym::mod(rest, outer[d].extent), outer[d].extent);
    map.emplace_back(outer[d].variable, own);
    rest = bind_new(x_, sym::floordiv(rest, outer[d].extent), above);
  }
  return map;
}

// Begins to copy what this pass reads of a row. Whoever waits for copies counts them by such
// groups, so there is one even where there is no row. The numbers of that row, if they are loaded
// here.
Values RowExpander::stage_row(std::size_t pass, Expr row, const Values& numbers) {
  const bool any = std::any_of(staged_.begin(), staged_.end(),
                               [&](const Staged& load) { return load.pass == pass; });
  if (!any) return numbers;
  const Stage& stage = x_.prepared.stages[passes_[pass].stage].stage;
  const Values after = if_below(row, constant(walked_rows_), numbers, [&] {
    const Replacements map = at_row(row);
    Values next = numbers;
    if (pass == staged_.front().pass) {
      for (std::size_t n = 0; n < numbers_.size(); ++n) {
        kernel::Access from;
        from.memory = x_.e.memories[numbers_[n].buffer];
        from.indices = {sym::substitute(numbers_[n].offset, map)};
        from.constant = true;
        next[n] = b_.load(std::move(from));
      }
    }
    (void)kept(stage, {}, {}, [&](const RowPlace& place, const Values&) {
      for (const Staged& load : staged_) {
        if (load.pass == pass) copy(stage, load, place, map);
      }
      return Values();
    });
    return next;
  });
  b_.operation(Op::copy_commit, {}, {}, {});
  return after;
}

void RowExpander::copy(const Stage& stage, const Staged& load, const RowPlace& place,
                       const Replacements& row) {
  const Instruction& i = stage.body[load.value];
  Replacements map = row;
  map.emplace_back(stage.inner.front().variable, place.base);
  const Expr from = sym::substitute(i.indices[0], map);
  const std::int64_t size = abi::size_of(i.dtype);
  const std::int64_t elements = std::min(blocks_.lanes * size, kCopyBytes) / size;
  for (std::int64_t e = 0; e < blocks_.lanes; e += elements) {
    kernel::Copy copy;
    copy.elements = static_cast<std::int32_t>(elements);
    copy.from.memory = x_.e.memories[i.buffer];
    copy.from.indices = {from + e};
    copy.to.memory = load.memory;
    copy.to.indices = {place.number, thread_of_block(), constant(e)};
    b_.operation(Op::copy_async, {}, {}, std::move(copy));
  }
}

Expr RowExpander::thread_of_block() const {
  return teams_ > 1 ? team_number_ * std::int64_t{blocks_.team} + thread_ : thread_;
}

// What this pass reads of the row has come: into registers.
void RowExpander::unstage(const Stage& stage, std::size_t pass) {
  const bool any = std::any_of(staged_.begin(), staged_.end(),
                               [&](const Staged& load) { return load.pass == pass; });
  if (!any) return;
  for (Staged& load : staged_) {
    if (load.pass != pass) continue;
    load.registers = kernel::kNone;
    for (std::size_t k = 0; k < keep_.kept.size(); ++k) {
      const KeptValue& kept = keep_.kept[k];
      if (kept.first_pass != pass || kept.value != load.value) continue;
      load.registers = kept_[k];
      fetched_[k] = true;
    }
    if (load.registers != kernel::kNone) continue;
    const DType dtype = stage.body[load.value].dtype;
    load.registers = registers("row", dtype, {load.count, blocks_.lanes});
  }
  kernel::Count count;
  count.count = static_cast<std::int64_t>(staged_passes_) - 1;
  b_.operation(Op::copy_wait, {}, {}, std::move(count));
  (void)kept(stage, {}, {}, [&](const RowPlace& place, const Values&) {
    b_.vector(blocks_.lanes, blocks_.lanes, [&](Expr lane) {
      for (const Staged& load : staged_) {
        if (load.pass != pass) continue;
        const ValueId x =
            b_.load(load.memory, {place.number, thread_of_block(), lane}, kernel::Form::wide);
        b_.store(element_of(load.registers, place.number, lane), x);
      }
      return Values();
    });
    return Values();
  });
}

// What is known of a body of this pass: rows that were copied, numbers of the row.
void RowExpander::provide_row(const Stage& stage, std::size_t pass, const RowPlace& place,
                              Expr lane, BodyExpander& body) {
  for (const Staged& load : staged_) {
    if (load.pass != pass) continue;
    body.know(load.value, b_.load(element_of(load.registers, place.number, lane)));
  }
  if (own_.empty()) return;
  for (Val v = 0; v < stage.body.instructions.size(); ++v) {
    const Instruction& i = stage.body[v];
    if (i.opcode != Opcode::load || i.operand_count != 0) continue;
    for (std::size_t n = 0; n < numbers_.size(); ++n) {
      const bool same = numbers_[n].buffer == i.buffer && numbers_[n].offset == i.indices[0];
      if (same) body.know(v, own_[n]);
    }
  }
}

// --- The end -------------------------------------------------------------------------------------

void RowExpander::each_sum(const EachSum& f) {
  const auto& scratch = x_.loops().scratch;
  for (std::size_t s = 0; s < scratch.size(); ++s) {
    if (!scratch[s].walks || x_.e.memories[first_scratch() + s] == kernel::kNone) continue;
    const auto access = [&](Expr number, const Values&) {
      in_vector([&](Expr lane) { f(s, number, lane); });
      return Values();
    };
    if (sums_of(scratch[s]) == 1)
      access(constant(0), {});
    else
      b_.loop(kernel::LoopKind::unroll, constant(sums_of(scratch[s])), {}, access);
  }
}

void RowExpander::join_teams() {
  const auto element = [&](std::size_t s, Expr team, Expr number, Expr lane) {
    kernel::Access access;
    access.memory = joined_[s];
    access.indices = {team, number, thread_, lane.is_null() ? constant(0) : lane};
    access.form = lane.is_null() ? kernel::Form::each : kernel::Form::wide;
    return access;
  };
  const auto own = [&](std::size_t s, Expr number, Expr lane) {
    return element_of(x_.e.memories[first_scratch() + s], number, lane);
  };
  for (std::int64_t half = teams_ / 2; half > 0; half /= 2) {
    const ValueId gives = logic(Opcode::bit_and, {is_at_least(team_number_, half),
                                                  less(x_, team_number_, constant(2 * half))});
    b_.branch(gives, [&] {
      each_sum([&](std::size_t s, Expr number, Expr lane) {
        b_.store(element(s, team_number_ - half, number, lane), b_.load(own(s, number, lane)));
      });
      return Values();
    });
    b_.barrier({});
    b_.branch(less(x_, team_number_, constant(half)), [&] {
      each_sum([&](std::size_t s, Expr number, Expr lane) {
        const ValueId sum = op(Opcode::add, {b_.load(own(s, number, lane)),
                                             b_.load(element(s, team_number_, number, lane))});
        b_.store(own(s, number, lane), sum);
      });
      return Values();
    });
    b_.barrier({});
  }
}

// --- Sums of a row -------------------------------------------------------------------------------

// All of a pass at once, each lane with a sum of its own: so many chains of additions beside each
// other.
void RowExpander::sums_of_row(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  const DType dtype = stage.accumulator;
  const std::size_t count = prepared.reductions.size();
  const auto reductions = static_cast<std::int64_t>(count);
  const kernel::MemoryId parts = registers("v", dtype, {reductions, blocks_.lanes});
  const ValueId zero = abi::is_float(dtype) ? b_.real(dtype, 0) : b_.integer(dtype, 0);
  in_vector([&](Expr lane) {
    for (std::size_t r = 0; r < count; ++r) {
      b_.store(element_of(parts, constant(static_cast<std::int64_t>(r)), lane), zero);
    }
  });
  Wanted wanted;
  for (const PreparedReduction& reduction : prepared.reductions) {
    wanted.yields.push_back(reduction.yield);
  }
  (void)along(stage, pass, {}, [&](const RowPlace& place, const Values&) {
    in_lanes(stage, pass, place, wanted, [&](BodyExpander& body, Expr lane, ValueId active) {
      const auto at = [&](std::size_t r) {
        return element_of(parts, constant(static_cast<std::int64_t>(r)), lane);
      };
      Values before, after;
      for (std::size_t r = 0; r < count; ++r) before.push_back(b_.load(at(r)));
      for (std::size_t r = 0; r < count; ++r) {
        const Val yield = stage.body.yields[prepared.reductions[r].yield];
        const ValueId sum = op(Opcode::add, {before[r], b_.cast(body.value(yield, 0), dtype)});
        after.push_back(active == kernel::kNone ? sum : select(active, sum, before[r]));
      }
      for (std::size_t r = 0; r < count; ++r) b_.store(at(r), after[r]);
      return Values();
    });
    return Values();
  });
  Values sums;
  for (std::size_t r = 0; r < count; ++r) {
    Values lanes;
    for (std::int64_t l = 0; l < blocks_.lanes; ++l) {
      lanes.push_back(b_.load(parts, {constant(static_cast<std::int64_t>(r)), constant(l)}));
    }
    for (std::size_t half = lanes.size() / 2; half > 0; half /= 2) {
      for (std::size_t l = 0; l < half; ++l)
        lanes[l] = op(Opcode::add, {lanes[l], lanes[l + half]});
    }
    sums.push_back(lanes[0]);
  }
  sums = join(sums, [&](const Values& a, const Values& b) {
    Values all;
    for (std::size_t r = 0; r < count; ++r) all.push_back(op(Opcode::add, {a[r], b[r]}));
    return all;
  });
  for (std::size_t r = 0; r < count; ++r) define(prepared.reductions[r].rows[0], sums[r]);
}

}  // namespace inkle::schedule::expansion
