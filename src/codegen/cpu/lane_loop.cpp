// Loops of a nest.
#include "codegen/cpu/lane_loop.h"

#include <algorithm>

#include "base/error.h"

namespace inkle::codegen::cpu {

namespace {

// One part: its accumulators begin anew and are merged.
Values one_part(const Chunks* chunks, const Values& totals, const Ir::LoopBody& run) {
  if (chunks == nullptr) return run(nullptr, totals);
  return chunks->merge(totals, run(nullptr, chunks->begin(totals)));
}

// The loop from begin to end, in parts where there are chunks.
Values chunked_loop(Ir& ir, Value* begin, Value* end, std::int64_t step, std::int64_t most_steps,
                    Values carried, bool at_least_once, const Chunks* chunks,
                    const Ir::LoopBody& body) {
  if (chunks == nullptr) {
    return ir.loop(begin, end, ir.i64(step), std::move(carried), at_least_once, body);
  }
  const auto part = [&](Value* first, Value* last, const Values& totals) {
    return one_part(chunks, totals, [&](Value*, const Values& start) {
      return ir.loop(first, last, ir.i64(step), start, true, body);
    });
  };
  if (at_least_once && most_steps <= chunks->steps) return part(begin, end, carried);
  Value* length = ir.i64(step * chunks->steps);
  return ir.loop(begin, end, length, std::move(carried), at_least_once,
                 [&](Value* first, const Values& totals) {
                   return part(first, ir.smin(ir.add(first, length), end), totals);
                 });
}

std::int64_t saturating_bound(sym::Expr extent) { return sym::bounds(extent).high; }

Values known_count_loop(KernelCode& code, sym::Expr variable, const LaneRange& range,
                        LaneShape shape, Values carried, const Chunks* chunks,
                        const GroupBody& body) {
  Ir& ir = code.ir;
  Value* begin = range.begin;
  const std::int64_t count = *range.count;
  const std::int64_t step = std::int64_t{shape.lanes} * shape.copies;
  const std::int64_t whole = count / step * step;
  LaneGroup group{variable, begin, ir.depth(), shape.lanes, shape.copies, {}, range.aligned};
  if (whole == step) {
    carried = one_part(chunks, carried, [&](Value*, const Values& v) { return body(group, v); });
  } else if (whole > step) {
    carried = chunked_loop(ir, begin, ir.add(begin, ir.i64(whole)), step, whole / step,
                           std::move(carried), true, chunks, [&](Value* i, const Values& values) {
                             LaneGroup inside = group;
                             inside.base = i;
                             inside.depth = ir.depth();
                             return body(inside, values);
                           });
  }
  const std::int64_t rest = count - whole;
  if (rest == 0) return carried;
  group.base = ir.add(begin, ir.i64(whole));
  group.copies = static_cast<int>((rest + shape.lanes - 1) / shape.lanes);
  if (rest % shape.lanes != 0) {
    group.masks.assign(static_cast<std::size_t>(group.copies), nullptr);
    group.masks.back() = ir.first_lanes(shape.lanes, static_cast<int>(rest % shape.lanes));
  }
  return one_part(chunks, carried, [&](Value*, const Values& v) { return body(group, v); });
}

}  // namespace

Values lane_loop(KernelCode& code, sym::Expr variable, const LaneRange& range, LaneShape shape,
                 Values carried, const Chunks* chunks, const GroupBody& body) {
  if (range.count) {
    return known_count_loop(code, variable, range, shape, std::move(carried), chunks, body);
  }
  Value* begin = range.begin;
  Value* end = range.end;
  Ir& ir = code.ir;
  const std::int64_t step = std::int64_t{shape.lanes} * shape.copies;
  Value* whole = end;
  if (step > 1) {  // step is a power of two only if copies is
    Value* groups = ir.udiv(ir.sub(end, begin), ir.i64(step));
    whole = ir.add(begin, ir.mul(groups, ir.i64(step)));
  }
  carried = chunked_loop(ir, begin, whole, step, sym::Range::kMax, std::move(carried), false,
                         chunks, [&](Value* i, const Values& values) {
                           const LaneGroup group{variable,     i,  ir.depth(),   shape.lanes,
                                                 shape.copies, {}, range.aligned};
                           return body(group, values);
                         });
  if (step == 1) return carried;
  const auto rest = [&](Value*, const Values& start) {
    return ir.loop(
        whole, end, ir.i64(shape.lanes), start, false, [&](Value* i, const Values& values) {
          Type* word = ir.integer_type(32, shape.lanes);
          LaneGroup group{variable, i, ir.depth(), shape.lanes, 1, {nullptr}, range.aligned};
          if (shape.lanes > 1) {
            Value* left = ir.truncate(ir.sub(end, i), ir.integer_type(32));
            group.masks[0] = ir.icmp(Compare::lt, ir.iota(word), ir.broadcast(left, shape.lanes));
          }
          return body(group, values);
        });
  };
  return one_part(chunks, carried, rest);
}

Values scalar_loop(KernelCode& code, sym::Expr extent, Value* extent_value, Values carried,
                   const Chunks* chunks,
                   const std::function<Values(Value* i, const Values& carried)>& body) {
  Ir& ir = code.ir;
  if (extent.is_constant(1)) {
    return one_part(chunks, carried, [&](Value*, const Values& v) { return body(ir.i64(0), v); });
  }
  return chunked_loop(ir, ir.i64(0), extent_value, 1, saturating_bound(extent), std::move(carried),
                      true, chunks, body);
}

}  // namespace inkle::codegen::cpu
