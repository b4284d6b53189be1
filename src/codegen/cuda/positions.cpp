// The places at which the threads of a kernel work: positions along rows, several accesses in
// flight, rows that start anywhere in memory, and columns.
#include <algorithm>

#include "codegen/cuda/operation.h"
#include "codegen/cuda/stage.h"

namespace inkle::codegen::cuda {

using loop::Instruction;
using loop::Opcode;
using schedule::StageKind;
using schedule::StageStore;
using sym::Expr;

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
  place.lasts = blocks_.lasting;
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

}  // namespace inkle::codegen::cuda
