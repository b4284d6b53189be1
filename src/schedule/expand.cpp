// A loop kernel's parameters, tasks and outer loops; stages are in expand_stage.cpp.
//
//   inner vectors   task per outer iteration { stages }
//   outer vectors   task per outer iteration but the last, and block of the last loop
//                   { for each group of its elements { vector { stages } } }
//   sequential      task per outer iteration { first stages; for each sequential step { stages };
//                   last stages }
#include "schedule/expand.h"

#include <algorithm>

#include "base/error.h"
#include "base/unsupported.h"
#include "schedule/combine.h"
#include "schedule/expand_beside.h"
#include "schedule/expand_blocks.h"
#include "schedule/expand_last_block.h"
#include "schedule/expand_parts.h"
#include "schedule/legal_blocks.h"

namespace inkle::schedule {

using expansion::Expansion;
using expansion::Lanes;
using kernel::Memory;
using kernel::Values;

namespace {

class KernelExpander {
 public:
  KernelExpander(kernel::Kernel& made, const Kernel& scheduled, const Schedule& schedule,
                 sym::Context& context, const abi::Target& target)
      : builder_(made, context),
        loops_(std::get<LoopKernel>(scheduled.body)),
        expansion_{builder_, scheduled, loops_, schedule, target, {}, false, {}, {}} {
    expansion_.columns = !schedule.blocks && schedule.vector_outer && !loops_.outer.empty();
    INKLE_CHECK(
        loops_.sequential == 0 || (!expansion_.columns && loops_.sequential < loops_.outer.size()),
        "kernel {}: sequential loops over what runs along lanes", scheduled.name);
    expansion_.rows.resize(loops_.rows.size());
    shape_ = column_shape();
  }

  void run() {
    declare_parameters();
    if (expansion_.schedule.blocks) {
      builder_.operation(kernel::Op::dependency_wait, {}, {}, {});
      return blocks();
    }
    scans_ = expansion::lane_scans(expansion_);
    declare_scratch();
    const std::size_t scalars =
        loops_.outer.size() - loops_.sequential - (expansion_.columns ? 1 : 0);
    std::vector<kernel::Axis> axes;
    for (std::size_t d = 0; d < scalars; ++d) {
      axes.push_back({kernel::AxisKind::task, loops_.outer[d].variable, loops_.outer[d].extent});
    }
    Expr block;
    if (expansion_.columns) {
      const Expr count = sym::ceildiv(loops_.outer.back().extent, expansion_.schedule.block);
      block = builder_.context().index(count);
      axes.push_back({kernel::AxisKind::task, block, count});
      // With strips, the blocks count slower than the outer variable before the last.
      if (expansion_.schedule.strips && loops_.outer.size() >= 2) {
        std::swap(axes[scalars - 1], axes[scalars]);
      }
    }
    builder_.kernel().launch.axes = std::move(axes);
    if (expansion_.columns) {
      columns(block);
      return;
    }
    stages(Phase::first);
    sequential(scalars);
    stages(Phase::last);
  }

 private:
  Lanes column_shape() const {
    Lanes shape;
    if (!expansion_.columns) return shape;
    shape.lanes = std::max(expansion_.schedule.lanes, 1);
    shape.copies = std::max(expansion_.schedule.unroll, 1);
    shape.variable = loops_.outer.back().variable;
    int weight = 0;
    bool reduces = false;
    for (const Stage& stage : loops_.stages) {
      weight = std::max(weight, weight_of(stage.body));
      reduces = reduces || stage.kind == StageKind::reduction || stage.kind == StageKind::scan;
    }
    if (weight > 48)
      shape.copies = 1;
    else if (weight > 16 || !reduces)
      shape.copies = std::min(shape.copies, 2);
    if (shape.lanes == 1) shape.copies = 1;
    return shape;
  }

  void declare_parameters() {
    const auto& params = expansion_.scheduled.params;
    for (std::size_t p = 0; p < params.size(); ++p) {
      Memory memory;
      if (!abi::is_computable(params[p].dtype)) {
        unsupported("no code for values of type {}", abi::name_of(params[p].dtype));
      }
      memory.name = fmt::format("p{}", p);
      memory.dtype = params[p].dtype;
      memory.role = params[p].role == ParamRole::in    ? kernel::Role::in
                    : params[p].role == ParamRole::out ? kernel::Role::out
                                                       : kernel::Role::inout;
      memory.alignment = params[p].alignment;
      memory.may_alias = params[p].may_alias;
      expansion_.memories.push_back(builder_.parameter(std::move(memory)));
    }
  }

  void declare_scratch() {
    const std::int64_t group = std::int64_t{shape_.lanes} * shape_.copies;
    for (std::size_t s = 0; s < loops_.scratch.size(); ++s) {
      if (scans_.kept[expansion_.memories.size()]) {
        expansion_.memories.push_back(kernel::kNone);
        continue;
      }
      Memory memory;
      memory.name = fmt::format("t{}", s);
      memory.space = kernel::Space::stack;
      memory.dtype = loops_.scratch[s].dtype;
      memory.shape = {loops_.scratch[s].elements};
      if (expansion_.columns) memory.shape.push_back(builder_.context().constant(group));
      memory.alignment = 64;
      expansion_.memories.push_back(builder_.memory(std::move(memory)));
    }
  }

  void stages(Phase phase) {
    const std::span<const Stage> all = loops_.stages;
    for (std::size_t s = 0; s < all.size(); ++s) {
      if (all[s].phase != phase) continue;
      const std::size_t count = scans_.stages[s];
      if (count == 0) {
        expansion::expand_stage(expansion_, all[s], nullptr);
      } else {
        expansion::scan_in_lanes(expansion_, all.subspan(s, count), scans_.kept);
        s += count - 1;
      }
    }
  }

  void blocks() {
    const BlockSchedule& how = *expansion_.schedule.blocks;
    const auto& params = expansion_.scheduled.params;
    builder_.kernel().launch.instances = static_cast<std::int32_t>(expansion_.scheduled.instances);
    if (const std::string why = objection(expansion_.scheduled, how, builder_.context());
        !why.empty()) {
      unsupported_at(expansion_.scheduled.sources, "{}: {}",
                     fmt::join(expansion_.scheduled.sources, ", "), why);
    }
    expansion_.blocks = &how;
    if (!expansion_.scheduled.beside.empty()) return expansion::expand_beside(expansion_);
    expansion_.aliasing =
        expansion_.scheduled.last_block
            ? expansion::uses_aliases(expansion_.scheduled, loops_)
            : std::any_of(params.begin(), params.end(), [](const Param& p) { return p.may_alias; });
    if (is_empty()) {  // never launched
      (void)builder_.axis(kernel::AxisKind::grid, builder_.context().constant(0));
      (void)builder_.axis(kernel::AxisKind::thread, builder_.context().constant(how.threads));
      return;
    }
    if (const auto& last_block = expansion_.scheduled.last_block) {
      return expansion::expand_last_block(expansion_, *last_block);
    }
    expansion::BlockExpansion x{expansion_, how, expansion::prepare_block(expansion_)};
    expansion::expand_block(x);
    std::int32_t& resident = builder_.kernel().launch.resident_blocks;
    if (resident == 0) resident = blocks_at_once(how);
  }

  // Resident blocks of a multiprocessor, 0: any number, which leaves the registers of a thread to
  // the compiler. It then takes fewer than a thread could have, and issues loads one after the
  // other.
  std::int32_t blocks_at_once(const BlockSchedule& how) {
    const abi::BlockRules& rules = expansion_.target.blocks;
    const std::int32_t blocks = std::max(1, rules.bounded_threads / how.threads);
    if (how.is<BlockSchedule::Columns>()) {
      return is_few(std::int64_t{rules.bounded_columns} * blocks) ? blocks : 0;
    }
    if (how.is<BlockSchedule::Rows>()) return 0;
    if (how.tile().side == 0) return how.threads < rules.bounded_threads ? blocks : 0;
    return how.threads == expansion_.target.block_threads ? rules.large_tile_blocks : 0;
  }

  bool is_few(std::int64_t most) {
    std::int64_t blocks = builder_.kernel().launch.instances;
    for (const kernel::Axis& axis : builder_.kernel().launch.axes) {
      if (axis.kind != kernel::AxisKind::grid) continue;
      const auto extent = axis.extent.constant();
      if (!extent || *extent > most) return false;
      blocks *= *extent;
    }
    return blocks <= most;
  }

  bool is_empty() const {
    return std::any_of(loops_.outer.begin(), loops_.outer.end(),
                       [](const loop::Dim& dim) { return dim.extent.is_constant(0); });
  }

  // The sequential loops from outer loop `d` on.
  void sequential(std::size_t d) {
    if (d == loops_.outer.size()) {
      stages(Phase::each);
      return;
    }
    kernel::Loop info;
    info.variable = loops_.outer[d].variable;
    info.begin = builder_.context().constant(0);
    info.end = loops_.outer[d].extent;
    info.step = builder_.context().constant(1);
    info.at_least_once = true;
    builder_.loop(std::move(info), {}, [&](Expr, const Values&) {
      sequential(d + 1);
      return Values();
    });
  }

  void columns(Expr block) {
    const loop::Dim& dim = loops_.outer.back();
    const std::int64_t size = expansion_.schedule.block;
    const auto extent = dim.extent.constant();
    Expr first = block * size;
    std::optional<std::int64_t> count;
    if (extent && *extent <= size) {
      count = extent;
      first = builder_.context().constant(0);
    } else if (extent && *extent % size == 0) {
      count = size;
    }
    const expansion::LaneRange range{first, sym::min(first + size, dim.extent), count};
    const auto body = [&](const Lanes& group, int, const Values&) {
      for (const Stage& stage : loops_.stages) {
        expansion::expand_stage(expansion_, stage, &group);
      }
      return Values();
    };
    if (shape_.lanes == 1) {
      expansion::lane_loop(expansion_, shape_, range, {}, nullptr, body);
      return;
    }
    builder_.vector(shape_.lanes, shape_.lanes, [&](Expr lane) {
      shape_.lane = lane;
      expansion::lane_loop(expansion_, shape_, range, {}, nullptr, body);
      return Values();
    });
  }

  kernel::Builder builder_;
  const LoopKernel& loops_;
  Expansion expansion_;
  Lanes shape_;
  expansion::LaneScans scans_;
};

}  // namespace

kernel::Kernel expand(const Kernel& scheduled, const Schedule& schedule, sym::Context& context,
                      const abi::Target& target) {
  INKLE_CHECK(std::holds_alternative<LoopKernel>(scheduled.body), "kernel {} is no loop kernel",
              scheduled.name);
  kernel::Kernel made;
  made.name = scheduled.name;
  made.sizes = scheduled.sizes;
  made.sources = scheduled.sources;
  if (scheduled.instances > 1 && made.sources.size() > kMostSourcesOfTable) {
    made.sources.resize(kMostSourcesOfTable);
  }
  KernelExpander(made, scheduled, schedule, context, target).run();
  return made;
}

}  // namespace inkle::schedule
