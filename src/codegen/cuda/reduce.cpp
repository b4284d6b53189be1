// The reductions of a kernel's stages.
#include "codegen/cuda/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "codegen/cuda/operation.h"
#include "codegen/cuda/stage.h"

namespace inkle::codegen::cuda {

using loop::ReduceOp;
using schedule::StageStore;

bool has_position(ReduceOp op) { return op == ReduceOp::argmin || op == ReduceOp::argmax; }

std::string joiner(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "Sum";
    case ReduceOp::prod:
      return "Prod";
    case ReduceOp::min:
      return "Min";
    case ReduceOp::max:
      return "Max";
    case ReduceOp::any:
      return "Any";
    case ReduceOp::all:
      return "All";
    case ReduceOp::argmin:
      return "ArgMin";
    case ReduceOp::argmax:
      return "ArgMax";
    case ReduceOp::welford:
      return "Welford";
    case ReduceOp::online_softmax:
      return "Softmax";
  }
  return {};
}

DType element_dtype(ReduceOp op, DType accumulator) {
  return op == ReduceOp::any || op == ReduceOp::all ? DType::boolean : accumulator;
}

std::string part_type(ReduceOp op, DType accumulator, bool wide) {
  std::string type = type_of(element_dtype(op, accumulator));
  if (has_position(op)) return fmt::format("Best<{}, {}>", type, wide ? "i64" : "int");
  if (op == ReduceOp::welford) return fmt::format("Moments<{}>", type);
  if (op == ReduceOp::online_softmax) return fmt::format("Exponentials<{}>", type);
  return type;
}

namespace {

std::string extreme(DType dtype, bool lowest) {
  if (abi::is_float(dtype)) {
    const double inf = std::numeric_limits<double>::infinity();
    return literal(dtype, lowest ? -inf : inf, 0);
  }
  switch (dtype) {
    case DType::boolean:
      return lowest ? "false" : "true";
    case DType::u8:
      return literal(dtype, 0, lowest ? 0 : 255);
    case DType::i8:
      return literal(dtype, 0, lowest ? -128 : 127);
    case DType::i16:
      return literal(dtype, 0, lowest ? -32768 : 32767);
    case DType::i32:
      return literal(dtype, 0,
                     lowest ? std::numeric_limits<std::int32_t>::min()
                            : std::numeric_limits<std::int32_t>::max());
    default:
      return literal(dtype, 0,
                     lowest ? std::numeric_limits<std::int64_t>::min()
                            : std::numeric_limits<std::int64_t>::max());
  }
}

}  // namespace

std::string empty_part(ReduceOp op, DType accumulator, bool wide) {
  switch (op) {
    case ReduceOp::sum:
      return literal(accumulator, 0, 0);
    case ReduceOp::prod:
      return literal(accumulator, 1, 1);
    case ReduceOp::min:
      return extreme(accumulator, false);
    case ReduceOp::max:
      return extreme(accumulator, true);
    case ReduceOp::any:
      return "false";
    case ReduceOp::all:
      return "true";
    case ReduceOp::argmin:
    case ReduceOp::argmax:
      return fmt::format("{{{}, {}}}", extreme(accumulator, op == ReduceOp::argmax),
                         wide ? "9223372036854775807ll" : "2147483647");
    case ReduceOp::welford:
      return "{0, 0, 0}";
    case ReduceOp::online_softmax:
      return fmt::format("{{{}, 0}}", extreme(accumulator, true));
  }
  return {};
}

std::int64_t part_bytes(ReduceOp op, DType accumulator, bool wide) {
  const std::int64_t element = abi::size_of(element_dtype(op, accumulator));
  if (has_position(op)) return 2 * std::max<std::int64_t>(element, wide ? 8 : 4);
  if (op == ReduceOp::welford || op == ReduceOp::online_softmax) return 3 * element;
  return element;
}

// --- Stages ------------------------------------------------------------------------------------

void StageText::reduction(const PreparedStage& prepared, std::size_t pass, int part) {
  const Stage& stage = prepared.stage;
  const bool kept = blocks_.keep && by_rows() && !stage.inner.empty();
  if (kept) prefetch(stage, pass);
  if (!by_rows()) {
    reduction_columns(prepared, pass);
  } else if (walk_ && stage.reduce == ReduceOp::sum && !stage.inner.empty()) {
    sums_of_row(prepared, pass);
  } else if (stage.reduce == ReduceOp::welford && kept) {
    moments_kept(prepared, pass, part);
  } else if (stage.reduce == ReduceOp::welford) {
    moments_rows(prepared, pass);
  } else if (stage.reduce == ReduceOp::online_softmax) {
    exponentials_rows(prepared, pass);
  } else {
    simple_rows(prepared, pass);
  }
}

std::string StageText::team_result(const std::string& op, const std::string& type,
                                   const std::string& value) {
  if (blocks_.team == 1 && blocks_.cluster == 1) return value;
  if (blocks_.team <= 32) return fmt::format("reduce_warp<{}, {}>({})", op, blocks_.team, value);
  const int number = kernel_.names++;
  const std::int32_t warps = blocks_.team / 32;
  // The next row has slots of its own, so that nobody writes what others still read.
  out_.line("__shared__ {} slots{}[{}];", type, number, (walk_ ? 2 : 1) * warps);
  const std::string own = walk_ ? fmt::format(" + (w & 1) * {}", warps) : "";
  std::string text =
      fmt::format("reduce_block<{}, {}>({}, slots{}{})", op, blocks_.team, value, number, own);
  if (blocks_.cluster > 1) {
    out_.line("__shared__ {} whole{};", type, number);
    text = fmt::format("reduce_cluster<{}, {}>({}, &whole{})", op, blocks_.cluster, text, number);
  }
  return text;
}

void StageText::define_row(std::uint32_t row, const std::string& value, DType from) {
  const DType to = kernel_.loops.rows.at(row);
  const std::string at = kernel_.rows_have_lanes ? ".at[l]" : "";
  out_.line("r{}{} = {};", row, at, cast_text(value, from, to));
}

void StageText::simple_rows(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  const bool kept = blocks_.keep && !stage.inner.empty();
  if (kept && has_position(stage.reduce)) {
    search_rows(prepared, pass);
    return;
  }
  const bool wide = !stage.inner.empty() && is_wide_extent(stage.inner.front().extent);
  const std::string op = joiner(stage.reduce);
  const std::string type = part_type(stage.reduce, stage.accumulator, wide);
  const DType element = element_dtype(stage.reduce, stage.accumulator);
  out_.line("{} part = {};", type, empty_part(stage.reduce, stage.accumulator, wide));
  const std::string worst = has_position(stage.reduce)
                                ? extreme(element, stage.reduce == ReduceOp::argmax)
                                : std::string();
  const auto at_place = [&](const Place& place) {
    BodyText body = body_of(stage, place, pass);
    const DType from = stage.body[stage.body.yields[0]].dtype;
    const bool packed = has_position(stage.reduce) && place.lanes > 1;
    if (packed) out_.line("{} w[{}];", type_of(element), place.lanes);
    body.write(out_, {0}, {}, [&](Writer& out, const auto& yields, const std::string& active) {
      const std::string x = cast_text(yields[0], from, element);
      const std::string guard = active.empty() ? "" : fmt::format("if ({}) ", active);
      if (packed) {
        out.line("w[l] = {};", active.empty() ? x : fmt::format("{} ? {} : {}", active, x, worst));
      } else if (has_position(stage.reduce)) {
        const std::string at = stage.inner.empty() ? "0" : place.lanes > 1 ? "j + l" : "j";
        out.line("{}part = {}::join(part, {}{{{}, {}}});", guard, op, type, x, at);
      } else {
        out.line("{}part = {}::join(part, {});", guard, op,
                 element == DType::boolean ? fmt::format("(bool)({})", x) : x);
      }
    });
    if (packed) {
      out_.line("{}(part, w, ({})j);", stage.reduce == ReduceOp::argmax ? "add_max" : "add_min",
                wide ? "i64" : "int");
    }
  };
  if (stage.inner.empty()) {
    Place place;
    place.symbols = symbols_;
    at_place(place);
    define_row(prepared.rows[0], has_position(stage.reduce) ? "place_of(part)" : "part",
               has_position(stage.reduce) ? DType::i64 : element);
    return;
  }
  positions(stage, kept, at_place);
  const std::string result = team_result(op, type, "part");
  if (has_position(stage.reduce)) {
    define_row(prepared.rows[0], fmt::format("place_of({})", result), DType::i64);
  } else {
    define_row(prepared.rows[0], result, element);
  }
}

// The extreme value first, all of the row kept; then those threads that have it look for its place.
void StageText::search_rows(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  const bool is_max = stage.reduce == ReduceOp::argmax;
  const DType element = element_dtype(stage.reduce, stage.accumulator);
  const std::string type = type_of(element);
  const std::int64_t step = std::int64_t{blocks_.team} * blocks_.cluster * blocks_.lanes;
  const bool skewed = !skew_of(stage).is_null();
  const std::int64_t size =
      *stage.inner.front().extent.constant() + (skewed ? blocks_.lanes - 1 : 0);
  const std::int64_t count = (size + step - 1) / step;
  const std::string worst = extreme(element, is_max);
  out_.line("{} w[{}][{}];", type, count, blocks_.lanes);
  if (skewed || size % step != 0) {
    out_.line("#pragma unroll");
    out_.line("for (int k = 0; k < {}; ++k) {{", count);
    out_.line("  for (int l = 0; l < {}; ++l) w[k][l] = {};", blocks_.lanes, worst);
    out_.raw("}");
  }
  positions(stage, true, [&](const Place& at) {
    Place place = at;
    place.streams = true;
    BodyText body = body_of(stage, place, pass);
    const DType from = stage.body[stage.body.yields[0]].dtype;
    body.write(out_, {0}, {}, [&](Writer& out, const auto& yields, const std::string& active) {
      const std::string x = cast_text(yields[0], from, element);
      out.line("w[k][{}] = {};", place.lanes > 1 ? "l" : "0",
               active.empty() ? x : fmt::format("{} ? {} : {}", active, x, worst));
    });
  });
  out_.line("const {} own = {}(w);", type, is_max ? "max_of_all" : "min_of_all");
  out_.line("const {} best = {};", type, team_result(is_max ? "Max" : "Min", type, "own"));
  out_.raw("int at = 2147483647;");
  out_.line("if (own == best || own != own) at = place_in(w, best, t * {}{}, {});", blocks_.lanes,
            skewed ? " - skew" : "", step);
  const std::string first = team_result("Min", "int", "at");
  out_.line("const int place = {};", first);
  define_row(prepared.rows[0], "(place == 2147483647 ? 0 : (i64)place)", DType::i64);
}

// The mean in one loop over what is kept, the squares of the deviations in another.
void StageText::moments_kept(const PreparedStage& prepared, std::size_t pass, int part) {
  const Stage& stage = prepared.stage;
  const std::string type = type_of(stage.accumulator);
  const DType from = stage.body[stage.body.yields[0]].dtype;
  const DType to = kernel_.loops.rows.at(prepared.rows[0]);
  if (part == 1) {
    out_.line("const {} mean = {};", type,
              cast_text(fmt::format("r{}", prepared.rows[0]), to, stage.accumulator));
  }
  out_.line("{} part = 0;", type);
  positions(stage, true, [&](const Place& place) {
    BodyText body = body_of(stage, place, pass);
    body.write(out_, {0}, {}, [&](Writer& out, const auto& yields, const std::string& active) {
      const std::string x = cast_text(yields[0], from, stage.accumulator);
      const std::string guard = active.empty() ? "" : fmt::format("if ({}) ", active);
      if (part == 0) {
        out.line("{}part += {};", guard, x);
      } else {
        out.line("const {} d = {} - mean;", type, x);
        out.line("{}part = {}(d, d, part);", guard,
                 stage.accumulator == DType::f32 ? "__fmaf_rn" : "__fma_rn");
      }
    });
  });
  const std::string result = team_result("Sum", type, "part");
  const std::string count = index_text(stage.inner.front().extent, symbols_, false);
  define_row(prepared.rows[static_cast<std::size_t>(part)],
             part == 0 ? fmt::format("{} / ({}){}", result, type, count) : result,
             stage.accumulator);
}

// One pass: the moments of neighbouring lanes first, then joined to what was before.
void StageText::moments_rows(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  const std::string type = type_of(stage.accumulator);
  const DType from = stage.body[stage.body.yields[0]].dtype;
  const std::string part = part_type(stage.reduce, stage.accumulator, false);
  out_.line("{} part = {{0, 0, 0}};", part);
  const auto at_place = [&](const Place& place) {
    BodyText body = body_of(stage, place, pass);
    if (place.lanes > 1) out_.line("{} w[{}];", type, place.lanes);
    body.write(out_, {0}, {}, [&](Writer& out, const auto& yields, const std::string&) {
      const std::string x = cast_text(yields[0], from, stage.accumulator);
      if (place.lanes > 1)
        out.line("w[l] = {};", x);
      else
        out.line("part = Welford::join(part, {}{{1, {}, 0}});", part, x);
    });
    if (place.lanes == 1) return;
    const std::string first =
        place.first.empty() ? "0" : fmt::format("(int)max_of<i64>(0, {})", place.first);
    const std::string last = place.last.empty()
                                 ? std::to_string(place.lanes)
                                 : fmt::format("(int)min_of<i64>({}, {})", place.lanes, place.last);
    out_.line("part = Welford::join(part, moments_of(w, {}, {}));", first, last);
  };
  if (stage.inner.empty()) {
    Place place;
    place.symbols = symbols_;
    at_place(place);
  } else {
    positions(stage, false, at_place);
  }
  const std::string result = stage.inner.empty() ? "part" : team_result("Welford", part, "part");
  out_.line("const {} all = {};", part, result);
  define_row(prepared.rows[0], "all.mean", stage.accumulator);
  define_row(prepared.rows[1], "all.m2", stage.accumulator);
}

void StageText::exponentials_rows(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  const std::string type = type_of(stage.accumulator);
  const DType from = stage.body[stage.body.yields[0]].dtype;
  const std::string part = part_type(stage.reduce, stage.accumulator, false);
  out_.line("{} part = {{lowest<{}>(), 0, lowest<{}>()}};", part, type, type);
  const auto at_place = [&](const Place& place) {
    BodyText body = body_of(stage, place, pass);
    out_.line("{} w[{}];", type, place.lanes);
    body.write(out_, {0}, {}, [&](Writer& out, const auto& yields, const std::string& active) {
      const std::string x = cast_text(yields[0], from, stage.accumulator);
      const std::string l = place.lanes > 1 ? "l" : "0";
      if (active.empty())
        out.line("w[{}] = {};", l, x);
      else
        out.line("w[{}] = {} ? {} : lowest<{}>();", l, active, x, type);
    });
    out_.raw("add_exponentials(part, w);");
  };
  if (stage.inner.empty()) {
    Place place;
    place.symbols = symbols_;
    at_place(place);
  } else {
    // A kept row would take two loops; one is as good here, since its values are known.
    positions(stage, blocks_.keep, at_place);
  }
  out_.raw("settle(part);");
  const std::string result = stage.inner.empty() ? "part" : team_result("Softmax", part, "part");
  out_.line("const {} all = finish({});", part, result);
  define_row(prepared.rows[0], "all.top", stage.accumulator);
  define_row(prepared.rows[1], "all.sum", stage.accumulator);
}

// All reductions of a stage in one loop down the columns, each with its parts.
void StageText::reduction_columns(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  const bool wide = !stage.inner.empty() && is_wide_extent(stage.inner.front().extent);
  std::vector<std::uint32_t> wanted;
  for (std::size_t r = 0; r < prepared.reductions.size(); ++r) {
    begin_columns(prepared.reductions[r], r, wide);
    wanted.push_back(prepared.reductions[r].yield);
  }
  for (const StageStore& store : stage.stores) wanted.push_back(store.yield);
  const auto at_place = [&](const Place& place) {
    for (std::size_t r = 0; r < prepared.reductions.size(); ++r) {
      if (prepared.reductions[r].reduce != ReduceOp::welford) continue;
      const std::string type = type_of(prepared.reductions[r].accumulator);
      out_.line("count{} += 1;", r);
      out_.line("const {} share{} = ({})1 / count{};", type, r, type, r);
    }
    BodyText body = body_of(stage, place, pass);
    body.write(out_, wanted, stage.stores, [&](Writer& out, const auto& yields, const auto&) {
      for (std::size_t r = 0; r < prepared.reductions.size(); ++r) {
        const PreparedReduction& reduction = prepared.reductions[r];
        const DType from = stage.body[stage.body.yields[reduction.yield]].dtype;
        const std::string x = cast_text(yields[reduction.yield], from,
                                        element_dtype(reduction.reduce, reduction.accumulator));
        add_to_column(out, reduction, r, x, place.lanes > 1 ? "l" : "0",
                      stage.inner.empty() ? "0" : "j", wide);
      }
      for (const StageStore& store : stage.stores) body.store_yield(out, store);
    });
  };
  if (stage.inner.empty())
    columns([&] { at_place(column_place()); });
  else
    positions(stage, false, at_place);
  for (std::size_t r = 0; r < prepared.reductions.size(); ++r) {
    end_columns(prepared.reductions[r], r, wide, stage.inner.empty());
  }
}

void StageText::begin_columns(const PreparedReduction& reduction, std::size_t number, bool wide) {
  const int lanes = blocks_.lanes;
  const std::string type = part_type(reduction.reduce, reduction.accumulator, wide);
  const bool is_struct = has_position(reduction.reduce) || reduction.reduce == ReduceOp::welford ||
                         reduction.reduce == ReduceOp::online_softmax;
  out_.line("{} part{}[{}];", type, number, lanes);
  out_.line("#pragma unroll");
  out_.line("for (int l = 0; l < {}; ++l) part{}[l] = {}{};", lanes, number, is_struct ? type : "",
            empty_part(reduction.reduce, reduction.accumulator, wide));
  if (reduction.reduce == ReduceOp::welford) {
    out_.line("{} count{} = 0;", type_of(reduction.accumulator), number);
  }
}

// All lanes have seen equally many elements, so that they share one division.
void StageText::add_to_column(Writer& out, const PreparedReduction& reduction, std::size_t number,
                              const std::string& x, const std::string& lane,
                              const std::string& position, bool wide) {
  const std::string part = fmt::format("part{}[{}]", number, lane);
  const std::string type = part_type(reduction.reduce, reduction.accumulator, wide);
  if (reduction.reduce == ReduceOp::welford) {
    out.line("add_moment({}, {}, share{});", part, x, number);
    return;
  }
  std::string value = x;
  if (has_position(reduction.reduce)) {
    value = fmt::format("{}{{{}, {}}}", type, x, position);
  } else if (reduction.reduce == ReduceOp::online_softmax) {
    value = fmt::format("{}{{{}, 1}}", type, x);
  } else if (element_dtype(reduction.reduce, reduction.accumulator) == DType::boolean) {
    value = fmt::format("(bool)({})", x);
  }
  out.line("{0} = {1}::join({0}, {2});", part, joiner(reduction.reduce), value);
}

void StageText::end_columns(const PreparedReduction& reduction, std::size_t number, bool wide,
                            bool single) {
  const int lanes = blocks_.lanes;
  const std::string type = part_type(reduction.reduce, reduction.accumulator, wide);
  if (reduction.reduce == ReduceOp::welford) {
    out_.line("#pragma unroll");
    out_.line("for (int l = 0; l < {0}; ++l) part{1}[l].count = count{1};", lanes, number);
  }
  if (blocks_.team > 1 && !single) {
    const std::int64_t bytes = part_bytes(reduction.reduce, reduction.accumulator, wide);
    if (kernel_.slot_bytes != 0) out_.raw("__syncthreads();");
    kernel_.slot_bytes = std::max(kernel_.slot_bytes, bytes * blocks_.threads * lanes);
    out_.line("reduce_columns<{}, {}, {}>(part{}, ({}*)slots);", joiner(reduction.reduce),
              blocks_.threads / blocks_.team, blocks_.team, number, type);
  }
  out_.open("");
  if (kernel_.rows_have_lanes) {
    out_.line("#pragma unroll");
    out_.open(fmt::format("for (int l = 0; l < {}; ++l)", lanes));
  } else {
    out_.raw("constexpr int l = 0;");
  }
  const std::string part = fmt::format("part{}[l]", number);
  if (has_position(reduction.reduce)) {
    define_row(reduction.rows[0], fmt::format("place_of({})", part), DType::i64);
  } else if (reduction.reduce == ReduceOp::welford) {
    define_row(reduction.rows[0], part + ".mean", reduction.accumulator);
    define_row(reduction.rows[1], part + ".m2", reduction.accumulator);
  } else if (reduction.reduce == ReduceOp::online_softmax) {
    define_row(reduction.rows[0], part + ".top", reduction.accumulator);
    define_row(reduction.rows[1], fmt::format("finish({}).sum", part), reduction.accumulator);
  } else {
    define_row(reduction.rows[0], part, element_dtype(reduction.reduce, reduction.accumulator));
  }
  if (kernel_.rows_have_lanes) out_.close();
  out_.close();
}

}  // namespace inkle::codegen::cuda
