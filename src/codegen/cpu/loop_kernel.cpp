// The function of a loop kernel: its parameters, scratch and outer loops.
//
//   for (n = begin; n < end; ++n)  { outer variables of n; stages }                 inner vectors
//   for (n = begin; n < end; ++n)  { outer variables but the last, and a block of the last;
//     for each group of its elements { stages } }                                   outer vectors
//   for (n = begin; n < end; ++n)  { outer variables of n; first stages;
//     for each walked iteration { stages } last stages }                            walked loops
// With strips, the blocks count slower than the outer variable before the last.
#include <algorithm>

#include "base/error.h"
#include "codegen/cpu/body.h"
#include "codegen/cpu/lane_loop.h"
#include "codegen/cpu/stage.h"

namespace inkle::codegen::cpu {

using schedule::LoopKernel;
using sym::Expr;

namespace {

constexpr std::int64_t kScratchAlignment = 64;

class LoopKernelEmitter {
 public:
  LoopKernelEmitter(KernelCode& code, const LoopKernel& loops, sym::Context& context)
      : code_(code), ir_(code.ir), loops_(loops), context_(context) {
    columns_ = code.schedule.vector_outer && !loops.outer.empty();
    INKLE_CHECK(loops.walked == 0 || (!columns_ && loops.walked < loops.outer.size()),
                "kernel {} walks what runs along lanes", code.kernel.name);
    strips_ = columns_ && code.schedule.strips && loops.outer.size() >= 2;
    code_.scratch_has_lanes = columns_;
    code_.rows.resize(loops.rows.size());
    shape_ = column_shape();
  }

  Expr run(const Values& arguments) {
    const Expr bytes = place_scratch(arguments[2]);
    const std::size_t scalars = loops_.outer.size() - loops_.walked - (columns_ ? 1 : 0);
    for (std::size_t d = 0; d < scalars; ++d) iterated_.push_back(loops_.outer[d].extent);
    if (columns_) {
      iterated_.push_back(sym::ceildiv(loops_.outer.back().extent, code_.schedule.block));
    }
    if (strips_) std::swap(iterated_[scalars - 1], iterated_[scalars]);
    // Constant extents of 1 would only cost divisions.
    Value* begin = arguments[3];
    Value* end = arguments[4];
    if (iterated_.size() <= 1) {
      ir_.loop(begin, end, ir_.i64(1), {}, false, [&](Value* n, const Values&) {
        iteration({n});
        return Values();
      });
      return bytes;
    }
    ir_.loop(begin, end, ir_.i64(1), decompose(begin), false, [&](Value*, const Values& variables) {
      iteration(variables);
      return advance(variables);
    });
    return bytes;
  }

 private:
  LaneShape column_shape() const {
    LaneShape shape{std::max(code_.schedule.lanes, 1), std::max(code_.schedule.unroll, 1)};
    int weight = 0;
    bool reduces = false;
    for (const schedule::Stage& stage : loops_.stages) {
      weight = std::max(weight, weight_of(stage.body));
      reduces = reduces || stage.kind == schedule::StageKind::reduction ||
                stage.kind == schedule::StageKind::scan;
    }
    if (weight > 48)
      shape.copies = 1;
    else if (weight > 16 || !reduces)
      shape.copies = std::min(shape.copies, 2);
    if (shape.lanes == 1) shape.copies = 1;
    return shape;
  }

  Value* scalar(Expr e) {
    IndexEmitter index(code_, code_.symbols, no_lanes_);
    return index.scalar(e);
  }

  Expr place_scratch(Value* base) {
    Expr offset = context_.constant(schedule::kStatusBytes);
    const std::int64_t group = columns_ ? std::int64_t{shape_.lanes} * shape_.copies : 1;
    for (const schedule::Scratch& scratch : loops_.scratch) {
      code_.scratch.push_back(ir_.address(ir_.integer_type(8), base, scalar(offset)));
      const Expr bytes = scratch.elements * (abi::size_of(scratch.dtype) * group);
      offset = offset + sym::ceildiv(bytes, kScratchAlignment) * kScratchAlignment;
    }
    return offset;
  }

  // The outer variables of iteration n, the last one fastest.
  Values decompose(Value* n) {
    Values variables(iterated_.size());
    for (std::size_t d = iterated_.size(); d-- > 1;) {
      Value* extent = ir_.smax(scalar(iterated_[d]), ir_.i64(1));
      variables[d] = ir_.urem(n, extent);
      n = ir_.udiv(n, extent);
    }
    variables[0] = n;
    return variables;
  }

  Values advance(const Values& variables) {
    Values next = variables;
    Value* carry = ir_.i64(1);
    for (std::size_t d = iterated_.size(); d-- > 0;) {
      Value* sum = ir_.add(variables[d], carry);
      if (d == 0) {
        next[d] = sum;
        break;
      }
      Value* wraps = ir_.icmp(Compare::eq, sum, extent_of(d));
      next[d] = ir_.select(wraps, ir_.i64(0), sum);
      carry = ir_.zext(wraps, ir_.integer_type(64));
    }
    return next;
  }

  Value* extent_of(std::size_t d) {
    return ir_.at_depth(0, [&] { return scalar(iterated_[d]); });
  }

  void stages(schedule::Phase phase) {
    for (const schedule::Stage& stage : loops_.stages) {
      if (stage.phase == phase) emit_stage(code_, stage, nullptr);
    }
  }

  // The walked loops from outer loop `d` on.
  void walk(std::size_t d) {
    if (d == loops_.outer.size()) {
      stages(schedule::Phase::each);
      return;
    }
    const loop::Dim& dim = loops_.outer[d];
    Value* extent = ir_.at_depth(0, [&] { return scalar(dim.extent); });
    ir_.loop(ir_.i64(0), extent, ir_.i64(1), {}, true, [&](Value* i, const Values&) {
      code_.symbols[dim.variable.node()] = {i, ir_.depth()};
      walk(d + 1);
      return Values();
    });
  }

  void iteration(Values variables) {
    const std::size_t scalars = loops_.outer.size() - loops_.walked - (columns_ ? 1 : 0);
    if (strips_) std::swap(variables[scalars - 1], variables[scalars]);
    for (std::size_t d = 0; d < scalars; ++d) {
      code_.symbols[loops_.outer[d].variable.node()] = {variables[d], ir_.depth()};
    }
    if (!columns_) {
      stages(schedule::Phase::first);
      walk(scalars);
      stages(schedule::Phase::last);
      return;
    }
    const loop::Dim& dim = loops_.outer.back();
    const std::int64_t block = code_.schedule.block;
    const auto extent = dim.extent.constant();
    const auto body = [&](const LaneGroup& group, const Values&) {
      for (const schedule::Stage& stage : loops_.stages) emit_stage(code_, stage, &group);
      return Values();
    };
    Value* first = ir_.mul(variables.back(), ir_.i64(block));
    std::optional<std::int64_t> count;
    if (extent && *extent <= block) {
      count = extent;
      first = ir_.i64(0);
    } else if (extent && *extent % block == 0) {
      count = block;
    }
    Value* total = ir_.at_depth(0, [&] { return scalar(dim.extent); });
    Value* last = ir_.smin(ir_.add(first, ir_.i64(block)), total);
    const LaneRange range{first, last, count, block % shape_.lanes == 0 || count == extent};
    lane_loop(code_, dim.variable, range, shape_, {}, nullptr, body);
  }

  KernelCode& code_;
  Ir& ir_;
  const LoopKernel& loops_;
  sym::Context& context_;
  bool columns_ = false;
  bool strips_ = false;
  LaneShape shape_;
  LaneGroup no_lanes_;
  std::vector<Expr> iterated_;  // extents that the iteration number counts through
};

// The context of any expression of the kernel; a kernel without one needs none.
sym::Context& context_of(const schedule::Kernel& kernel, const LoopKernel& loops,
                         sym::Context& otherwise) {
  if (!kernel.sizes.empty()) return kernel.sizes[0].context();
  if (!loops.outer.empty()) return loops.outer[0].extent.context();
  for (const schedule::Stage& stage : loops.stages) {
    if (!stage.inner.empty()) return stage.inner[0].extent.context();
    if (!stage.stores.empty()) return stage.stores[0].offset.context();
  }
  return otherwise;
}

}  // namespace

EmittedKernel emit_loop_kernel(KernelCode& code, const LoopKernel& loops, const Values& arguments) {
  sym::Context spare;
  sym::Context& context = context_of(code.kernel, loops, spare);
  INKLE_CHECK(&context != &spare, "kernel {} stores nothing", code.kernel.name);
  LoopKernelEmitter emitter(code, loops, context);
  const Expr bytes = emitter.run(arguments);
  return {bytes, code.faults.can_fail};
}

EmittedKernel emit_kernel(Ir& ir, const schedule::Kernel& kernel,
                          const schedule::Schedule& schedule, const Target& target,
                          std::string_view name) {
  const Values arguments = ir.begin_function(name, target.cpu, target.features);
  KernelCode code{ir, kernel, schedule, target, {}, {}, false, {}, nullptr, {}, {}};
  for (std::size_t p = 0; p < kernel.params.size(); ++p) {
    Value* slot = ir.address(ir.pointer(), arguments[0], ir.i64(static_cast<std::int64_t>(p)));
    code.params.push_back(ir.load(ir.pointer(), slot, 8));
  }
  for (std::size_t s = 0; s < kernel.sizes.size(); ++s) {
    Type* word = ir.integer_type(64);
    Value* slot = ir.address(word, arguments[1], ir.i64(static_cast<std::int64_t>(s)));
    code.symbols[kernel.sizes[s].node()] = {ir.load(word, slot, 8), 0};
  }
  code.faults.status = arguments[2];
  code.spare = ir.address(ir.integer_type(8), arguments[2], ir.i64(8));
  EmittedKernel result;
  if (const auto* loops = std::get_if<LoopKernel>(&kernel.body)) {
    result = emit_loop_kernel(code, *loops, arguments);
  } else {
    result = emit_attention(code, std::get<schedule::AttentionKernel>(kernel.body), arguments);
  }
  ir.end_function();
  return result;
}

}  // namespace inkle::codegen::cpu
