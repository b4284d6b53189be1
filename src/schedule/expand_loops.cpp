// Loops of a stage or of columns.
#include <algorithm>

#include "base/error.h"
#include "schedule/expand_parts.h"
#include "sym/symbols.h"

namespace inkle::schedule::expansion {

using kernel::Loop;
using loop::Opcode;

namespace {

Values one_part(const Chunks* chunks, const Values& totals,
                const std::function<Values(const Values&)>& run) {
  if (chunks == nullptr) return run(totals);
  return chunks->merge(totals, run(chunks->begin(totals)));
}

// A loop variable that lies in begin .. end, at a multiple of `divisor`.
Expr variable_of(sym::Context& context, Expr begin, Expr end, std::int64_t divisor) {
  sym::SymbolInfo info;
  info.range = {std::min(sym::bounds(begin).low, sym::bounds(end).high), sym::bounds(end).high};
  if (info.range.high != sym::Range::kMax && info.range.high > info.range.low) --info.range.high;
  info.divisor = divisor;
  return sym::fresh(context, info);
}

struct Span {
  Expr begin, end;
  std::int64_t step = 1;
  std::int64_t divisor = 1;  // of the variable's values
  std::int64_t most_steps = 0;
  bool at_least_once = false;
  Expr variable;  // null: a new one
};

using SpanBody = std::function<Values(Expr variable, const Values& carried)>;

Values plain_loop(Expansion& expansion, const Span& span, const Values& carried,
                  const SpanBody& body) {
  Loop info;
  info.begin = span.begin;
  info.end = span.end;
  info.step = expansion.b.context().constant(span.step);
  info.at_least_once = span.at_least_once;
  info.variable = !span.variable.is_null()
                      ? span.variable
                      : variable_of(expansion.b.context(), span.begin, span.end, span.divisor);
  return expansion.b.loop(std::move(info), carried, body);
}

// The loop in parts where there are chunks, each with accumulators of its own.
Values chunked_loop(Expansion& expansion, const Span& span, const Values& carried,
                    const Chunks* chunks, const SpanBody& body) {
  if (chunks == nullptr) return plain_loop(expansion, span, carried, body);
  const auto part = [&](Expr first, Expr last, const Values& totals) {
    return one_part(chunks, totals, [&](const Values& start) {
      Span inside = span;
      inside.begin = first;
      inside.end = last;
      inside.at_least_once = true;
      return plain_loop(expansion, inside, start, body);
    });
  };
  if (span.at_least_once && span.most_steps <= chunks->steps) {
    return part(span.begin, span.end, carried);
  }
  const std::int64_t length = span.step * chunks->steps;
  Span parts = span;
  parts.step = length;
  parts.variable = {};
  return plain_loop(expansion, parts, carried, [&](Expr first, const Values& totals) {
    return part(first, sym::min(first + length, span.end), totals);
  });
}

// Runs `body` in lanes where `active` holds, of which there is at least one; the others keep their
// values.
Values masked(Expansion& expansion, ValueId active, const Values& carried,
              const std::function<Values(const Values&)>& body) {
  std::vector<std::size_t> changed;
  kernel::Branch some_lane;
  some_lane.some_lane = true;
  const Values results = expansion.b.branch(
      active,
      [&] {
        const Values after = body(carried);
        Values kept;
        for (std::size_t i = 0; i < after.size(); ++i) {
          if (after[i] == carried[i]) continue;
          changed.push_back(i);
          kept.push_back(after[i]);
        }
        return kept;
      },
      [&] {
        Values kept;
        for (const std::size_t i : changed) kept.push_back(carried[i]);
        return kept;
      },
      some_lane);
  Values after = carried;
  for (std::size_t i = 0; i < changed.size(); ++i) after[changed[i]] = results[i];
  return after;
}

ValueId lanes_below(Expansion& expansion, Expr lane, Expr count) {
  kernel::Builder& b = expansion.b;
  const auto constant = count.constant();
  const ValueId limit = constant ? b.integer(DType::i32, *constant)
                                 : b.compute(Opcode::cast, DType::i32, {b.index(count)});
  return logic(b, Opcode::less, {b.index(lane, DType::i32), limit});
}

Values known_count_loop(Expansion& expansion, const Lanes& shape, const LaneRange& range,
                        Values carried, const Chunks* chunks, const GroupBody& body) {
  const std::int64_t count = *range.count;
  const std::int64_t step = std::int64_t{shape.lanes} * shape.copies;
  const std::int64_t whole = count / step * step;
  Lanes group = shape;
  group.base = range.begin;
  if (whole == step) {
    carried = one_part(chunks, carried, [&](const Values& v) { return body(group, 0, v); });
  } else if (whole > step) {
    Span span{range.begin, range.begin + whole, step, 1, whole / step, true, {}};
    if (sym::divides(shape.lanes, range.begin)) span.divisor = shape.lanes;
    carried = chunked_loop(expansion, span, carried, chunks, [&](Expr i, const Values& values) {
      Lanes inside = group;
      inside.base = i;
      return body(inside, 0, values);
    });
  }
  const std::int64_t rest = count - whole;
  if (rest == 0) return carried;
  const auto full = static_cast<int>(rest / shape.lanes);
  const std::int64_t left = rest % shape.lanes;
  return one_part(chunks, carried, [&](const Values& start) {
    Values values = start;
    group.base = range.begin + whole;
    group.copies = full;
    if (full > 0) values = body(group, 0, values);
    if (left == 0) return values;
    group.base = group.base + std::int64_t{full} * shape.lanes;
    group.copies = 1;
    const ValueId active = lanes_below(expansion, shape.lane, expansion.b.context().constant(left));
    return masked(expansion, active, values,
                  [&](const Values& before) { return body(group, full, before); });
  });
}

}  // namespace

Values lane_loop(Expansion& expansion, const Lanes& shape, const LaneRange& range, Values carried,
                 const Chunks* chunks, const GroupBody& body) {
  if (range.count) return known_count_loop(expansion, shape, range, carried, chunks, body);
  const std::int64_t step = std::int64_t{shape.lanes} * shape.copies;
  Expr whole = range.end;
  if (step > 1) whole = range.begin + sym::floordiv(range.end - range.begin, step) * step;
  const std::int64_t divisor = sym::divides(shape.lanes, range.begin) ? shape.lanes : 1;
  Span span{range.begin, whole, step, divisor, sym::Range::kMax, false, {}};
  carried = chunked_loop(expansion, span, carried, chunks, [&](Expr i, const Values& values) {
    Lanes group = shape;
    group.base = i;
    return body(group, 0, values);
  });
  if (step == 1) return carried;
  return one_part(chunks, carried, [&](const Values& start) {
    Span rest{whole, range.end, shape.lanes, divisor, sym::Range::kMax, false, {}};
    return plain_loop(expansion, rest, start, [&](Expr i, const Values& values) {
      Lanes group = shape;
      group.base = i;
      group.copies = 1;
      if (shape.lanes == 1) return body(group, 0, values);
      const ValueId active = lanes_below(expansion, shape.lane, range.end - i);
      return masked(expansion, active, values,
                    [&](const Values& before) { return body(group, 0, before); });
    });
  });
}

Values whole_vector_loop(Expansion& expansion, const Lanes& shape, Expr end, Values carried,
                         const GroupBody& body) {
  const Span span{
      expansion.b.context().constant(0), end, shape.lanes, shape.lanes, sym::Range::kMax,
      sym::bounds(end).low > 0,          {}};
  return plain_loop(expansion, span, carried, [&](Expr i, const Values& values) {
    Lanes group = shape;
    group.base = i;
    group.copies = 1;
    return body(group, 0, values);
  });
}

Values scalar_loop(Expansion& expansion, const loop::Dim& dim, Values carried, const Chunks* chunks,
                   const std::function<Values(const Values& carried)>& body) {
  sym::Context& context = expansion.b.context();
  if (dim.extent.is_constant(1)) {
    expansion.replaced.emplace_back(dim.variable, context.constant(0));
    carried = one_part(chunks, carried, [&](const Values& v) { return body(v); });
    expansion.replaced.pop_back();
    return carried;
  }
  Span span{context.constant(0),          dim.extent, 1,           1,
            sym::bounds(dim.extent).high, true,       dim.variable};
  return chunked_loop(expansion, span, carried, chunks,
                      [&](Expr, const Values& values) { return body(values); });
}

}  // namespace inkle::schedule::expansion
