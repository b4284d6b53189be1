#include "codegen/cuda/stage.h"

#include <algorithm>

#include "base/error.h"
#include "codegen/cuda/operation.h"
#include "codegen/cuda/reduce.h"

namespace inkle::codegen::cuda {

using loop::Instruction;
using loop::Opcode;
using loop::ReduceOp;
using schedule::BlockSchedule;
using schedule::StageKind;
using schedule::StageStore;
using sym::Expr;

namespace {

// Registers of a thread for what a row keeps; beyond, functions are computed again rather than kept
// (half of what 512 threads of each of two blocks of a multiprocessor can have).
constexpr std::int64_t kMostKeptRegisters = 48;

}  // namespace

StageText::StageText(KernelText& kernel, const BlockSchedule& blocks, Writer& out,
                     const Symbols& symbols, Expr columns, std::optional<WalkText> walk)
    : kernel_(kernel),
      blocks_(blocks),
      out_(out),
      symbols_(symbols),
      columns_(columns),
      walk_(std::move(walk)) {}

// Values are kept from pass to pass of one iteration.
void StageText::plan_passes() {
  const bool keep = blocks_.keep && by_rows();
  const auto add = [&](bool in_each) {
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const Stage& stage = stages_[s].stage;
      if ((stage.phase == schedule::Phase::each) != in_each) continue;
      passes_.push_back({s, 0});
      if (keep && stage.kind == StageKind::reduction && stage.reduce == ReduceOp::welford &&
          !stage.inner.empty()) {
        passes_.push_back({s, 1});
      }
    }
  };
  add(true);
  if (keep) {
    keep_ = plan_kept(stages_, passes_, false);
    if (kept_registers() > kMostKeptRegisters) keep_ = plan_kept(stages_, passes_, true);
  }
  add(false);
  keep_.known.resize(passes_.size());
}

void StageText::write(const PreparedKernel& prepared) {
  stages_ = prepared.stages;
  plan_passes();
  fetched_.assign(keep_.kept.size(), false);
  dirty_.assign(kernel_.kernel.params.size() + kernel_.loops.scratch.size(), false);
  find_skew();
  declare_kept();
  if (walk_)
    walk();
  else
    phase(schedule::Phase::each);
}

void StageText::phase(schedule::Phase phase) {
  for (std::size_t p = 0; p < passes_.size(); ++p) {
    if (stages_[passes_[p].stage].stage.phase == phase) pass(p);
  }
}

void StageText::pass(std::size_t p) {
  const PreparedStage& current = stages_[passes_[p].stage];
  const Stage& stage = current.stage;
  if (needs_barrier(stage)) barrier();
  out_.open("");
  // Row values outlive the stage, so they are declared before its scope.
  switch (stage.kind) {
    case StageKind::pointwise:
    case StageKind::scatter:
      pointwise(stage, p);
      break;
    case StageKind::reduction:
      reduction(current, p, passes_[p].part);
      break;
    case StageKind::scan:
      if (blocks_.chunk != 0)
        scan_chunks(stage, p);
      else if (by_rows())
        scan_rows(stage, p);
      else
        scan_columns(stage, p);
      break;
  }
  out_.close();
  note_written(stage);
}

std::int64_t StageText::kept_registers() const {
  std::int64_t bytes = 0;
  for (const KeptValue& kept : keep_.kept) {
    const Stage& stage = stages_[passes_[kept.first_pass].stage].stage;
    const std::int64_t step = std::int64_t{blocks_.team} * blocks_.cluster * blocks_.lanes;
    const std::int64_t count = (*stage.inner.front().extent.constant() + step - 1) / step;
    bytes += count * blocks_.lanes * abi::size_of(kept.dtype);
  }
  return bytes / 4;
}

// --- Memory between stages ---------------------------------------------------------------------

bool StageText::needs_barrier(const Stage& stage) const {
  return std::any_of(
      stage.body.instructions.begin(), stage.body.instructions.end(),
      [&](const Instruction& i) { return i.opcode == Opcode::load && dirty_[i.buffer]; });
}

void StageText::barrier() {
  std::fill(dirty_.begin(), dirty_.end(), false);
  if (blocks_.team == 1) return;
  if (blocks_.cluster > 1) {
    unsupported("kernel {}: stages of a cluster pass values through memory", kernel_.kernel.name);
  }
  out_.raw(by_rows() && blocks_.team <= 32 ? "__syncwarp();" : "__syncthreads();");
}

void StageText::note_written(const Stage& stage) {
  const std::size_t params = kernel_.kernel.params.size();
  for (const StageStore& store : stage.stores) {
    // What a walk gathers is in the registers of the one thread that uses it.
    const bool own = store.target >= params && kernel_.loops.scratch[store.target - params].walks;
    dirty_[store.target] = !own;
  }
}

bool StageText::is_read_again(const Stage& stage) const {
  const auto reads = [](const Stage& other, std::uint32_t buffer) {
    return !other.inner.empty() &&
           std::any_of(other.body.instructions.begin(), other.body.instructions.end(),
                       [&](const Instruction& i) {
                         return i.opcode == Opcode::load && i.buffer == buffer;
                       });
  };
  bool is_later = false;
  for (const PreparedStage& other : stages_) {
    if (is_later && std::any_of(stage.body.instructions.begin(), stage.body.instructions.end(),
                                [&](const Instruction& i) {
                                  return i.opcode == Opcode::load && reads(other.stage, i.buffer);
                                })) {
      return true;
    }
    is_later = is_later || &other.stage == &stage;
  }
  return false;
}

void StageText::declare_kept() {
  for (const std::uint32_t r : [&] {
         std::vector<std::uint32_t> rows;
         for (const PreparedStage& s : stages_) {
           rows.insert(rows.end(), s.rows.begin(), s.rows.end());
         }
         return rows;
       }()) {
    const std::string type = type_of(kernel_.loops.rows.at(r));
    if (kernel_.rows_have_lanes)
      out_.line("Pack<{}, {}> r{};", type, blocks_.lanes, r);
    else
      out_.line("{} r{};", type, r);
  }
  for (std::size_t k = 0; k < keep_.kept.size(); ++k) {
    const Stage& stage = stages_[passes_[keep_.kept[k].first_pass].stage].stage;
    const std::int64_t step = std::int64_t{blocks_.team} * blocks_.cluster * blocks_.lanes;
    const std::int64_t size =
        *stage.inner.front().extent.constant() + (skew_of(stage).is_null() ? 0 : blocks_.lanes - 1);
    const std::int64_t count = (size + step - 1) / step;
    const std::string type = type_of(keep_.kept[k].dtype);
    if (blocks_.lanes > 1)
      out_.line("Pack<{}, {}> c{}[{}];", type, blocks_.lanes, k, count);
    else
      out_.line("{} c{}[{}];", type, k, count);
  }
}

// --- Places ------------------------------------------------------------------------------------

// Rows that are no whole number of accesses start anywhere in memory. Their threads then start up
// to lanes - 1 elements before the row, where an access is aligned.
void StageText::find_skew() {
  if (!by_rows() || blocks_.lanes == 1) return;
  const auto look_at = [&](const Stage& stage, Expr offset) {
    const Expr variable = stage.inner.front().variable;
    const auto stride = sym::stride(offset, variable);
    if (!skew_.is_null() || !stride || !stride->is_constant(1)) return;
    const std::pair<Expr, Expr> map[] = {{variable, kernel_.context.constant(0)}};
    const Expr start = sym::substitute(offset, map);
    const auto symbols = sym::symbols(start);
    const bool known = std::all_of(symbols.begin(), symbols.end(),
                                   [&](Expr s) { return symbols_.contains(s.node()); });
    if (!known || sym::divides(blocks_.lanes, start)) return;
    skew_ = start;
    skew_extent_ = stage.inner.front().extent;
  };
  for (const PreparedStage& prepared : stages_) {
    const Stage& stage = prepared.stage;
    if (stage.inner.empty() || sym::divides(blocks_.lanes, stage.inner.front().extent)) continue;
    for (const Instruction& i : stage.body.instructions) {
      if (i.opcode == Opcode::load && i.buffer < kernel_.kernel.params.size()) {
        look_at(stage, i.indices[0]);
      }
    }
    for (const StageStore& store : stage.stores) look_at(stage, store.offset);
  }
  if (skew_.is_null()) return;
  out_.line("const int skew = (int)(({}) & {});", index_text(skew_, symbols_), blocks_.lanes - 1);
}

Expr StageText::skew_of(const Stage& stage) const {
  const bool ours = !skew_.is_null() && stage.inner.front().extent == skew_extent_;
  return ours ? skew_ : Expr();
}

Place StageText::row_place(const Stage& stage) const {
  Place place;
  place.symbols = symbols_;
  const Expr extent = stage.inner.front().extent;
  const bool wide = is_wide_extent(extent);
  place.symbols[stage.inner.front().variable.node()] = {"j", wide};
  place.lanes = blocks_.lanes;
  if (place.lanes > 1) {
    place.lane = stage.inner.front().variable;
    if (!sym::divides(place.lanes, extent)) {
      const std::string n = index_text(extent, symbols_, wide);
      place.last = fmt::format("({} - j)", n);
      place.whole = fmt::format("j + {} <= {}", place.lanes, n);
      if (const Expr base = skew_of(stage); !base.is_null()) {
        place.aligned = false;
        place.base = base;
        place.first = "-j";
        place.whole = "j >= 0 && " + place.whole;
      }
    }
  }
  return place;
}

Place StageText::column_place() const {
  Place place;
  place.symbols = symbols_;
  place.lanes = blocks_.lanes;
  if (place.lanes > 1) {
    place.lane = columns_;
    const Expr extent = kernel_.loops.outer.back().extent;
    if (!sym::divides(place.lanes, extent)) {
      const bool wide = is_wide_extent(extent);
      const std::string n = index_text(extent, symbols_, wide);
      const std::string at = symbols_.at(columns_.node()).text;
      place.last = fmt::format("({} - {})", n, at);
      place.whole = fmt::format("{} + {} <= {}", at, place.lanes, n);
    }
  }
  return place;
}

void StageText::columns(const std::function<void()>& f) {
  if (blocks_.team == 1) {
    f();
    return;
  }
  out_.open("if (on)");
  f();
  out_.close();
}

void StageText::positions(const Stage& stage, bool kept, const AtPlace& f) {
  const Expr extent = stage.inner.front().extent;
  const bool wide = is_wide_extent(extent);
  const char* type = wide ? "i64" : "int";
  const std::string n = index_text(extent, symbols_, wide);
  if (!by_rows()) {
    Place place = column_place();
    place.symbols[stage.inner.front().variable.node()] = {"j", wide};
    place.streams = stage.kind == StageKind::reduction && !is_read_again(stage);
    place.around = stage.inner.front().variable;
    columns([&] {
      if (blocks_.unroll > 1) out_.line("#pragma unroll {}", blocks_.unroll);
      if (blocks_.team == 1)
        out_.open(fmt::format("for ({} j = 0; j < {}; ++j)", type, n));
      else
        out_.open(fmt::format("for ({} j = y; j < {}; j += {})", type, n, blocks_.team));
      f(place);
      out_.close();
    });
    return;
  }
  const Place place = row_place(stage);
  const std::int64_t threads = std::int64_t{blocks_.team} * blocks_.cluster;
  const std::int64_t step = threads * blocks_.lanes;
  std::string first = blocks_.lanes > 1 ? fmt::format("t * {}", blocks_.lanes) : "t";
  const bool skewed = !place.aligned;
  if (skewed) first += " - skew";
  const auto whole_or_part = [&](const Place& at) {
    if (at.whole.empty()) {
      f(at);
      return;
    }
    // Lanes are looked at one by one only where a row begins or ends.
    Place all = at;
    all.first = all.last = all.whole = "";
    out_.open(fmt::format("if ({})", at.whole));
    f(all);
    out_.close();
    out_.open("else");
    f(at);
    out_.close();
  };
  if (!kept) {
    batched(stage, place, first, n, wide, step, place.whole.empty() ? f : whole_or_part, f);
    reads_twice_ = reads_twice_ || is_read_again(stage);
    return;
  }
  const std::int64_t size = *extent.constant() + (skewed ? blocks_.lanes - 1 : 0);
  const std::int64_t count = (size + step - 1) / step;
  if (count > 1) {
    out_.line("#pragma unroll");
    out_.open(fmt::format("for (int k = 0; k < {}; ++k)", count));
    out_.line("const int j = {} + k * {};", first, step);
  } else {
    out_.open("");
    out_.raw("constexpr int k = 0;");
    out_.line("const int j = {};", first);
  }
  const bool exact = !skewed && size % step == 0;
  if (!exact) out_.open(fmt::format("if (j < {})", n));
  whole_or_part(place);
  if (!exact) out_.close();
  out_.close();
}

// Several accesses of a row are in flight before the first is used.
void StageText::batched(const Stage& stage, const Place& place, const std::string& first,
                        const std::string& n, bool wide, std::int64_t step, const AtPlace& f,
                        const AtPlace& whole) {
  const char* type = wide ? "i64" : "int";
  Place ahead = place;
  const bool last = stage.kind == StageKind::pointwise && !stage.stores.empty();
  ahead.streams = stage.kind == StageKind::reduction ? !is_read_again(stage) : last && reads_twice_;
  ahead.leaves = last && reads_twice_;
  Place used = place;
  used.leaves = ahead.leaves;
  batch_.clear();
  if (blocks_.unroll > 1) {
    BodyText loads(kernel_, stage.body, ahead);
    for (loop::Val v = 0; v < stage.body.instructions.size(); ++v) {
      const auto text = is_direct(stage, stage.body[v]) ? loads.pack_text(v) : std::nullopt;
      if (text) batch_.push_back({v, fmt::format("b{}", kernel_.names++), *text});
    }
  }
  if (batch_.empty()) {
    if (blocks_.unroll > 1) out_.line("#pragma unroll {}", blocks_.unroll);
    out_.open(fmt::format("for ({} j = {}; j < {}; j += {})", type, first, n, step));
    f(used);
    out_.close();
    return;
  }
  if (!place.whole.empty()) {
    ragged(stage, ahead, n, wide, step, whole);
    return;
  }
  out_.open(fmt::format("for ({} start = {}; start < {}; start += {})", type, first, n,
                        step * blocks_.unroll));
  for (const Ahead& load : batch_) {
    out_.line("Pack<{}, {}> {}[{}];", type_of(stage.body[load.value].dtype), place.lanes, load.name,
              blocks_.unroll);
  }
  const auto size = stage.inner.front().extent.constant();
  const bool exact = size && place.aligned && *size % (step * blocks_.unroll) == 0;
  const auto each = [&](const std::function<void()>& inside) {
    out_.line("#pragma unroll");
    out_.open(fmt::format("for (int u = 0; u < {}; ++u)", blocks_.unroll));
    out_.line("const {} j = start + u * {};", type, step);
    if (!exact) out_.open(fmt::format("if (j < {})", n));
    inside();
    if (!exact) out_.close();
    out_.close();
  };
  each([&] {
    for (const Ahead& load : batch_) out_.line("{}[u] = {};", load.name, load.text);
  });
  each([&] { f(used); });
  out_.close();
  batch_.clear();
}

// Rows that are no whole number of accesses: the first thread has what comes before the first whole
// access, the last one what comes after the last, and between them lanes are not looked at.
void StageText::ragged(const Stage& stage, const Place& place, const std::string& n, bool wide,
                       std::int64_t step, const AtPlace& f) {
  const char* type = wide ? "i64" : "int";
  const int lanes = blocks_.lanes;
  const bool skewed = !place.aligned;
  Place part = place;
  part.whole = "false";
  Place whole = place;
  whole.first = whole.last = whole.whole = "";
  std::vector<Ahead> loads;  // known inside the loop of several accesses alone
  loads.swap(batch_);
  const std::string head = skewed ? fmt::format("(({0} - skew) & {1})", lanes, lanes - 1) : "0";
  if (skewed) {
    out_.open("if (t == 0 && skew != 0)");
    out_.line("const {} j = -skew;", type);
    f(part);
    out_.close();
  }
  out_.line("{} start = {} + t * {};", type, head, lanes);
  out_.open(fmt::format("for (; start + {} <= {}; start += {})",
                        step * (blocks_.unroll - 1) + lanes, n, step * blocks_.unroll));
  // Loads of whole accesses, without the choice that `place` makes.
  BodyText texts(kernel_, stage.body, whole);
  for (Ahead& load : loads) {
    load.text = *texts.pack_text(load.value);
    out_.line("Pack<{}, {}> {}[{}];", type_of(stage.body[load.value].dtype), lanes, load.name,
              blocks_.unroll);
  }
  const auto each = [&](const std::function<void()>& inside) {
    out_.line("#pragma unroll");
    out_.open(fmt::format("for (int u = 0; u < {}; ++u)", blocks_.unroll));
    out_.line("const {} j = start + u * {};", type, step);
    inside();
    out_.close();
  };
  each([&] {
    for (const Ahead& load : loads) out_.line("{}[u] = {};", load.name, load.text);
  });
  batch_.swap(loads);
  each([&] { f(whole); });
  batch_.clear();
  out_.close();
  out_.open(fmt::format("for (; start + {} <= {}; start += {})", lanes, n, step));
  out_.line("const {} j = start;", type);
  f(whole);
  out_.close();
  out_.open(fmt::format("if (t == {})", blocks_.team * blocks_.cluster - 1));
  out_.line("const {0} j = {1} + ({2} - {1}) / {3} * {3};", type, head, n, lanes);
  out_.open(fmt::format("if ({} <= j && j < {})", head, n));
  f(part);
  out_.close();
  out_.close();
}

BodyText StageText::body_of(const Stage& stage, const Place& place, std::size_t pass) {
  BodyText body(kernel_, stage.body, place);
  const auto text = [&](std::size_t kept) {
    return place.lanes > 1 ? fmt::format("c{}[k].at[l]", kept) : fmt::format("c{}[k]", kept);
  };
  for (const Ahead& load : batch_) body.know(load.value, load.name + "[u].at[l]");
  for (loop::Val v = 0; v < stage.body.instructions.size(); ++v) {
    const Instruction& i = stage.body[v];
    if (i.opcode != Opcode::load || i.operand_count != 0) continue;
    for (std::size_t n = 0; n < numbers_.size(); ++n) {
      const bool same = numbers_[n].buffer == i.buffer && numbers_[n].offset == i.indices[0];
      if (same) body.know(v, fmt::format("own{}", n));
    }
  }
  for (const Staged& load : staged_) {
    if (load.pass == pass) body.know(load.value, fmt::format("row{}[k].at[l]", load.at));
  }
  for (const KeepPlan::Use& use : keep_.known[pass]) body.know(use.value, text(use.kept));
  for (std::size_t k = 0; k < keep_.kept.size(); ++k) {
    if (keep_.kept[k].first_pass != pass) continue;
    if (fetched_[k])
      body.know(keep_.kept[k].value, text(k));
    else
      body.capture(keep_.kept[k].value, text(k));
  }
  return body;
}

// A load without a condition whose place is known without other values.
bool StageText::is_direct(const Stage& stage, const Instruction& load) const {
  if (load.opcode != Opcode::load || load.operand_count != 0) return false;
  const auto symbols = sym::symbols(load.indices[0]);
  return std::all_of(symbols.begin(), symbols.end(), [&](Expr s) {
    return symbols_.contains(s.node()) || s == stage.inner.front().variable;
  });
}

// Kept loads of this pass, all of them in flight before the first is used.
void StageText::prefetch(const Stage& stage, std::size_t pass) {
  if (stage.inner.empty()) return;
  unstage(stage, pass);
  std::vector<std::size_t> ahead;
  for (std::size_t k = 0; k < keep_.kept.size(); ++k) {
    const KeptValue& kept = keep_.kept[k];
    const bool ours = kept.first_pass == pass && !fetched_[k];
    if (ours && is_direct(stage, stage.body[kept.value])) ahead.push_back(k);
  }
  if (ahead.empty()) return;
  std::vector<std::size_t> packed;
  positions(stage, true, [&](const Place& place) {
    BodyText body(kernel_, stage.body, place);
    for (const std::size_t k : ahead) {
      const auto text = body.pack_text(keep_.kept[k].value);
      if (!text) continue;
      out_.line("c{}[k] = {};", k, *text);
      packed.push_back(k);
    }
  });
  for (const std::size_t k : packed) fetched_[k] = true;
}

// --- Stages that store -------------------------------------------------------------------------

void StageText::once(const Stage& stage) {
  const auto write = [&](const Place& place) {
    BodyText body(kernel_, stage.body, place);
    std::vector<std::uint32_t> wanted;
    for (const StageStore& store : stage.stores) wanted.push_back(store.yield);
    body.write(out_, wanted, stage.stores, [&](Writer& out, const auto&, const auto&) {
      for (const StageStore& store : stage.stores) body.store_yield(out, store);
    });
  };
  if (!by_rows()) {
    if (blocks_.team > 1) out_.open("if (on && y == 0)");
    Place place = column_place();
    place.streams = place.leaves = blocks_.recent;
    write(place);
    if (blocks_.team > 1) out_.close();
    return;
  }
  Place place;
  place.symbols = symbols_;
  if (blocks_.team * blocks_.cluster > 1) out_.open("if (t == 0)");
  write(place);
  if (blocks_.team * blocks_.cluster > 1) out_.close();
}

void StageText::pointwise(const Stage& stage, std::size_t pass) {
  if (blocks_.axis == BlockSchedule::Axis::tile) {
    tile(stage);
    return;
  }
  if (stage.inner.empty()) {
    once(stage);
    return;
  }
  const bool kept = blocks_.keep && by_rows();
  if (kept) prefetch(stage, pass);
  std::vector<std::uint32_t> wanted;
  for (const StageStore& store : stage.stores) wanted.push_back(store.yield);
  positions(stage, kept, [&](const Place& place) {
    BodyText body = body_of(stage, place, pass);
    body.write(out_, wanted, stage.stores, [&](Writer& out, const auto&, const auto&) {
      for (const StageStore& store : stage.stores) body.store_yield(out, store);
    });
  });
}

// Each thread has a square of `lanes` rows of `lanes` elements. What lies along the other way is
// loaded along that and turned around in registers.
void StageText::tile(const Stage& stage) {
  const int lanes = blocks_.lanes;
  const Expr along = kernel_.loops.outer[kernel_.loops.outer.size() - 2].variable;
  Place place = column_place();
  Place other = place;
  other.lane = along;
  other.symbols[columns_.node()] = {"(a + i)", false};
  BodyText turned(kernel_, stage.body, other);
  std::vector<std::pair<loop::Val, std::string>> known;
  for (loop::Val v = 0; v < stage.body.instructions.size(); ++v) {
    const Instruction& i = stage.body[v];
    if (i.opcode != Opcode::load || i.operand_count != 0) continue;
    // What is the same for all columns (the index of a looked-up row) has nothing to turn.
    if (!sym::contains(i.indices.front(), columns_)) continue;
    const auto text = turned.pack_text(v);
    if (!text) continue;
    const std::string name = fmt::format("c{}", kernel_.names++);
    out_.line("Pack<{}, {}> {}[{}];", type_of(i.dtype), lanes, name, lanes);
    out_.line("#pragma unroll");
    out_.line("for (int i = 0; i < {}; ++i) {}[i] = {};", lanes, name, *text);
    known.emplace_back(v, fmt::format("{}[l].at[q]", name));
  }
  place.symbols[along.node()] = {"(b + q)", false};
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int q = 0; q < {}; ++q)", lanes));
  BodyText body(kernel_, stage.body, place);
  for (const auto& [v, text] : known) body.know(v, text);
  std::vector<std::uint32_t> wanted;
  for (const StageStore& store : stage.stores) wanted.push_back(store.yield);
  body.write(out_, wanted, stage.stores, [&](Writer& out, const auto&, const auto&) {
    for (const StageStore& store : stage.stores) body.store_yield(out, store);
  });
  out_.close();
}

}  // namespace inkle::codegen::cuda
