#include "schedule/expand_rows.h"

#include <algorithm>

#include "base/error.h"

namespace inkle::schedule::expansion {

using kernel::AxisKind;
using loop::Instruction;
using loop::Opcode;
using loop::ReduceOp;
using loop::Val;

namespace {

constexpr std::int32_t kWarp = 32;
// Registers of a thread for what a row keeps; beyond, functions are computed again rather than kept
// (half of what 512 threads of each of two blocks of a multiprocessor can have).
constexpr std::int64_t kMostKeptRegisters = 48;

}  // namespace

RowExpander::RowExpander(BlockExpansion& x) : x_(x), b_(x.e.b), blocks_(x.blocks) {}

void RowExpander::run() {
  plan_passes();
  const auto stages = [&] {
    const bool is_sum = thread_.kind() == sym::Kind::add;
    position_ = is_sum ? bind_new(x_, thread_, constant(members())) : thread_;
    declare_scratch();
    find_skew();
    declare_kept();
    if (walks())
      walk();
    else
      phase(Phase::each);
  };
  if (walks())
    launch_walk(stages);
  else if (blocks_.chunk != 0)
    launch_chunks(stages);
  else
    launch(stages);
}

// --- The launch ----------------------------------------------------------------------------------

void RowExpander::launch(const std::function<void()>& stages) {
  const auto& outer = x_.loops().outer;
  std::vector<kernel::Axis>& axes = b_.kernel().launch.axes;
  const std::int32_t team = blocks_.team;
  if (team > kWarp) {
    INKLE_CHECK(team == blocks_.threads, "a team of {} in a block of {}", team, blocks_.threads);
    if (x_.block.is_null()) {
      for (const loop::Dim& dim : outer) {
        axes.push_back({AxisKind::grid, dim.variable, dim.extent});
      }
      if (outer.empty()) (void)b_.axis(AxisKind::grid, constant(1));
    } else if (!outer.empty()) {
      bind_outer(x_, x_.block, 0, outer.size());
    }
    thread_ = constant(0);
    if (blocks_.cluster > 1) {
      thread_ = b_.axis(AxisKind::cluster, constant(blocks_.cluster)) * std::int64_t{team};
    }
    const std::vector<ThreadNumber> numbers = thread_numbers(x_, thread_extents(blocks_));
    warp_ = numbers[0].value;
    lane_ = numbers[1].value;
    team_ = numbers[0].axes;
    team_.insert(team_.end(), numbers[1].axes.begin(), numbers[1].axes.end());
    thread_ = thread_ + warp_ * std::int64_t{kWarp} + lane_;
    return stages();
  }
  const std::int64_t teams = blocks_.threads / team;
  const Expr rows = x_.iterations(outer.size());
  const Expr block =
      x_.block.is_null() ? b_.axis(AxisKind::grid, sym::ceildiv(rows, teams)) : x_.block;
  const std::vector<ThreadNumber> numbers = thread_numbers(x_, thread_extents(blocks_));
  team_number_ = numbers[0].value;
  thread_ = team > 1 ? numbers[1].value : constant(0);
  if (team > 1) team_ = numbers[1].axes;
  const Expr row = block * teams + team_number_;
  if_less(x_, row, rows, [&] {
    if (outer.size() == 1) {
      bind(x_, outer[0].variable, row);
    } else if (outer.size() > 1) {
      bind_outer(x_, bind_new(x_, row, rows), 0, outer.size());
    }
    stages();
  });
}

// Each row of a block has its own; in shared memory, or of a thread that has a row for itself.
void RowExpander::declare_scratch() {
  const auto& scratch = x_.loops().scratch;
  const std::int64_t teams = blocks_.threads / blocks_.team;
  for (std::size_t s = 0; s < scratch.size(); ++s) {
    if (!x_.prepared.scratch_used[s]) {
      x_.e.memories.push_back(kernel::kNone);
      continue;
    }
    const auto elements = scratch[s].elements.constant();
    if (elements && scratch[s].walks) {
      x_.e.memories.push_back(
          registers("t", scratch[s].dtype, {sums_of(scratch[s]), blocks_.lanes}));
      continue;
    }
    kernel::Memory memory;
    memory.name = fmt::format("t{}", s);
    memory.dtype = scratch[s].dtype;
    memory.shape = {scratch[s].elements};
    memory.alignment = 16;
    if (members() == 1 && blocks_.lanes == 1) {
      memory.space = kernel::Space::stack;
    } else {
      memory.space = kernel::Space::shared;
      if (teams > 1) {
        memory.shape.insert(memory.shape.begin(), constant(teams));
        x_.e.team = team_number_;
      }
    }
    x_.e.memories.push_back(b_.memory(std::move(memory)));
  }
}

kernel::MemoryId RowExpander::registers(const char* prefix, DType dtype,
                                        std::vector<std::int64_t> shape) {
  kernel::Memory memory;
  memory.name = fmt::format("{}{}", prefix, b_.kernel().memories.size());
  memory.space = kernel::Space::registers;
  memory.dtype = dtype;
  for (const std::int64_t extent : shape) memory.shape.push_back(constant(extent));
  return b_.memory(std::move(memory));
}

kernel::MemoryId RowExpander::shared(const char* prefix, DType dtype, std::int64_t elements) {
  kernel::Memory memory;
  memory.name = fmt::format("{}{}", prefix, b_.kernel().memories.size());
  memory.space = kernel::Space::shared;
  memory.dtype = dtype;
  memory.shape = {constant(elements)};
  memory.alignment = 16;
  return b_.memory(std::move(memory));
}

// --- What is kept --------------------------------------------------------------------------------

// Values are kept from pass to pass of one iteration.
void RowExpander::plan_passes() {
  const auto add = [&](bool in_each) {
    for (std::size_t s = 0; s < x_.prepared.stages.size(); ++s) {
      const Stage& stage = x_.prepared.stages[s].stage;
      if ((stage.phase == Phase::each) != in_each) continue;
      passes_.push_back({s, 0});
      if (blocks_.keep && stage.kind == StageKind::reduction && stage.reduce == ReduceOp::welford &&
          !stage.inner.empty()) {
        passes_.push_back({s, 1});
      }
    }
  };
  add(true);
  if (blocks_.keep) {
    keep_ = plan_kept(x_.prepared.stages, passes_, false);
    if (kept_registers() > kMostKeptRegisters) {
      keep_ = plan_kept(x_.prepared.stages, passes_, true);
    }
  }
  add(false);
  keep_.known.resize(passes_.size());
  fetched_.assign(keep_.kept.size(), false);
}

std::int64_t RowExpander::kept_registers() const {
  std::int64_t bytes = 0;
  for (const KeptValue& kept : keep_.kept) {
    const Stage& stage = x_.prepared.stages[passes_[kept.first_pass].stage].stage;
    const std::int64_t count = (*stage.inner.front().extent.constant() + step() - 1) / step();
    bytes += count * blocks_.lanes * abi::size_of(kept.dtype);
  }
  return bytes / 4;
}

void RowExpander::declare_kept() {
  for (const KeptValue& kept : keep_.kept) {
    const Stage& stage = x_.prepared.stages[passes_[kept.first_pass].stage].stage;
    kept_.push_back(registers("c", kept.dtype, {accesses_of(stage), blocks_.lanes}));
  }
}

// --- Stages --------------------------------------------------------------------------------------

void RowExpander::pass(std::size_t p) {
  const PreparedStage& prepared = x_.prepared.stages[passes_[p].stage];
  const Stage& stage = prepared.stage;
  switch (stage.kind) {
    case StageKind::pointwise:
    case StageKind::scatter:
      pointwise(stage, p);
      break;
    case StageKind::reduction:
      reduction(prepared, p);
      break;
    case StageKind::scan:
      scan(stage, p);
      break;
  }
}

ValueId RowExpander::is_first_thread() {
  return logic(Opcode::equal, {b_.index(thread_), b_.index(constant(0))});
}

void RowExpander::once(const Stage& stage) {
  const auto write = [&] {
    BodyExpander body(x_.e, stage.body, {});
    for (const StageStore& store : stage.stores) {
      (void)body.value(stage.body.yields[store.yield], 0);
    }
    for (const StageStore& store : stage.stores) body.store(store, 0);
    return Values();
  };
  if (members() == 1) {
    write();
    return;
  }
  b_.branch(is_first_thread(), write);
}

void RowExpander::pointwise(const Stage& stage, std::size_t pass) {
  if (stage.inner.empty()) {
    once(stage);
    return;
  }
  (void)along(stage, pass, {}, [&](const RowPlace& place, const Values&) {
    Wanted wanted;
    wanted.stores = true;
    for (const StageStore& store : stage.stores) wanted.yields.push_back(store.yield);
    in_lanes(stage, pass, place, wanted, [&](BodyExpander& body, Expr, ValueId) {
      for (const StageStore& store : stage.stores) {
        (void)body.value(stage.body.yields[store.yield], 0);
      }
      for (const StageStore& store : stage.stores) body.store(store, 0);
      return Values();
    });
    return Values();
  });
}

// Kept loads of this pass, all of them in flight before the first is used.
void RowExpander::prefetch(const Stage& stage, std::size_t pass) {
  unstage(stage, pass);
  std::vector<std::size_t> ahead;
  for (std::size_t k = 0; k < keep_.kept.size(); ++k) {
    const KeptValue& kept = keep_.kept[k];
    if (kept.first_pass != pass || fetched_[k]) continue;
    if (is_direct(stage, stage.body[kept.value]) && is_packed(stage, kept.value)) {
      ahead.push_back(k);
    }
  }
  if (ahead.empty()) return;
  Usage usage;
  usage.lasts = blocks_.lasting;
  (void)kept(stage, usage, {}, [&](const RowPlace& place, const Values&) {
    in_vector([&](Expr lane) {
      Lanes shape{stage.inner.front().variable, lane, place.base, blocks_.lanes};
      BodyExpander body(x_.e, stage.body, shape);
      body.use(place.usage);
      LaneMask mask;
      if (place.part) mask.active = active(stage, place, lane);
      body.mask(mask);
      for (const std::size_t k : ahead) {
        const ValueId value = body.value(keep_.kept[k].value, 0);
        b_.store(element_of(kept_[k], place.number, lane), value);
      }
    });
    return Values();
  });
  for (const std::size_t k : ahead) fetched_[k] = true;
}

// --- Loads ---------------------------------------------------------------------------------------

bool RowExpander::is_known(Expr symbol) const {
  const auto& sizes = x_.e.scheduled.sizes;
  const auto& outer = x_.loops().outer;
  return std::find(sizes.begin(), sizes.end(), symbol) != sizes.end() ||
         std::any_of(outer.begin(), outer.end(),
                     [&](const loop::Dim& dim) { return dim.variable == symbol; });
}

// A load without a condition whose place is known without other values.
bool RowExpander::is_direct(const Stage& stage, const Instruction& load) const {
  if (load.opcode != Opcode::load || load.operand_count != 0) return false;
  const auto symbols = sym::symbols(load.indices[0]);
  return std::all_of(symbols.begin(), symbols.end(),
                     [&](Expr s) { return is_known(s) || s == stage.inner.front().variable; });
}

// A load of neighbouring elements that is one access, or few.
bool RowExpander::is_packed(const Stage& stage, Val v) const {
  const std::int64_t width = packed_lanes(stage, v);
  return width > 1 || (width == 1 && is_skewed(stage));
}

std::int64_t RowExpander::packed_lanes(const Stage& stage, Val v) const {
  const Instruction& load = stage.body[v];
  const std::size_t params = x_.e.scheduled.params.size();
  if (blocks_.lanes == 1 || load.buffer >= params) return 0;
  const std::int64_t lanes = blocks_.lanes;
  sym::Context& context = x_.context();
  const Expr lane = context.index(context.constant(lanes));
  Expr base = context.index(context.constant(std::int64_t{1} << 30)) * lanes;
  const bool skewed = is_skewed(stage);
  if (skewed) base = base + aligned_ - start_;
  const std::pair<Expr, Expr> map[] = {{stage.inner.front().variable, base + lane}};
  const Expr place = split_lanes(sym::substitute(load.indices[0], map), lane, lanes);
  const auto stride = sym::stride(place, lane);
  if (!stride || !stride->is_constant(1)) return 0;
  const std::int64_t size = abi::size_of(load.dtype);
  const std::int32_t alignment = x_.e.scheduled.params[load.buffer].alignment;
  std::int64_t width = lanes;
  while (width > 1 && alignment % (width * size) != 0 && alignment % 16 != 0) width /= 2;
  while (width > 1 && !sym::divides(width, place - lane)) width /= 2;
  return width;
}

// Whether the value is there before a body of this pass: loaded ahead, or kept.
bool RowExpander::is_given(const Stage& stage, std::size_t pass, Val v) const {
  const auto is_it = [&](const auto& a) { return a.value == v; };
  const auto& uses = keep_.known[pass];
  if (std::any_of(batch_.begin(), batch_.end(), is_it) ||
      std::any_of(uses.begin(), uses.end(), is_it) ||
      std::any_of(staged_.begin(), staged_.end(),
                  [&](const Staged& load) { return load.pass == pass && load.value == v; })) {
    return true;
  }
  const Instruction& i = stage.body[v];
  for (const Number& number : numbers_) {
    if (own_.empty() || i.opcode != Opcode::load || i.operand_count != 0) continue;
    if (number.buffer == i.buffer && number.offset == i.indices[0]) return true;
  }
  for (std::size_t k = 0; k < keep_.kept.size(); ++k) {
    const KeptValue& kept = keep_.kept[k];
    if (fetched_[k] && kept.first_pass == pass && kept.value == v) return true;
  }
  return false;
}

std::vector<bool> RowExpander::needed(const Stage& stage, std::size_t pass,
                                      const Wanted& wanted) const {
  const loop::Body& body = stage.body;
  std::vector<bool> needed(body.instructions.size(), false);
  const auto given = [&](Val v) { return is_given(stage, pass, v); };
  const auto sources = [&](Expr e, const auto& need) {
    for (const Expr s : sym::symbols(e)) {
      for (Val v = 0; v < body.instructions.size(); ++v) {
        if (body[v].opcode == Opcode::indirect && body[v].indices[0] == s) need(v, need);
      }
    }
  };
  const auto need = [&](Val v, const auto& self) -> void {
    if (needed[v]) return;
    needed[v] = true;
    if (given(v)) return;
    for (const Val operand : body[v].used()) self(operand, self);
    if (body[v].opcode == Opcode::load || body[v].opcode == Opcode::index) {
      sources(body[v].indices[0], self);
    }
  };
  for (const std::uint32_t yield : wanted.yields) need(body.yields[yield], need);
  for (const KeptValue& kept : keep_.kept) {
    if (kept.first_pass == pass) need(kept.value, need);
  }
  if (wanted.stores) {
    for (const StageStore& store : stage.stores) sources(store.offset, need);
  }
  for (Val v = 0; v < body.instructions.size(); ++v) {
    if (given(v)) needed[v] = false;
  }
  return needed;
}

void expand_rows(BlockExpansion& x) { RowExpander(x).run(); }

}  // namespace inkle::schedule::expansion
