#include "schedule/legal_blocks.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/unsupported.h"
#include "schedule/prepare.h"

namespace inkle::schedule {
namespace {

using loop::Instruction;
using loop::Opcode;
using Axis = BlockSchedule::Axis;

constexpr std::int32_t kWarp = 32;

bool has_scan(const LoopKernel& loops) {
  return std::ranges::any_of(loops.stages,
                             [](const Stage& s) { return s.kind == StageKind::scan; });
}

// Whether a row of a stage starts at an offset that is known and no multiple of the lanes.
bool is_unaligned(const Kernel& kernel, const Stage& stage, std::int32_t lanes) {
  const auto& body = stage.body.instructions;
  const auto is_indirect = [&](Expr symbol) {
    return std::ranges::any_of(body, [&](const Instruction& i) {
      return i.opcode == Opcode::indirect && i.indices[0] == symbol;
    });
  };
  const auto is_odd = [&](Expr offset) {
    const Expr variable = stage.inner.front().variable;
    const auto stride = sym::stride(offset, variable);
    if (!stride || !stride->is_constant(1)) return false;
    const std::pair<Expr, Expr> map[] = {{variable, variable.context().constant(0)}};
    const Expr start = sym::substitute(offset, map);
    return std::ranges::none_of(sym::symbols(start), is_indirect) && !sym::divides(lanes, start);
  };
  return std::ranges::any_of(body,
                             [&](const Instruction& i) {
                               return i.opcode == Opcode::load && i.buffer < kernel.params.size() &&
                                      is_odd(i.indices[0]);
                             }) ||
         std::ranges::any_of(stage.stores,
                             [&](const StageStore& store) { return is_odd(store.offset); });
}

// Whether a stage loads what one before it has stored.
bool passes_memory(const std::vector<PreparedStage>& stages) {
  std::vector<std::uint32_t> stored;
  const auto is_stored = [&](const Instruction& i) {
    return i.opcode == Opcode::load && std::ranges::find(stored, i.buffer) != stored.end();
  };
  for (const PreparedStage& prepared : stages) {
    if (std::ranges::any_of(prepared.stage.body.instructions, is_stored)) return true;
    for (const StageStore& store : prepared.stage.stores) stored.push_back(store.target);
  }
  return false;
}

// Scratch of rows is in shared memory, or in a thread's local memory.
std::string scratch_objection(const LoopKernel& loops, const PreparedKernel& prepared,
                              const BlockSchedule& blocks) {
  const bool is_own = blocks.team == 1 && blocks.lanes == 1;
  std::int64_t shared = 0;
  for (std::size_t s = 0; s < loops.scratch.size(); ++s) {
    if (!prepared.scratch_used[s]) continue;
    const auto elements = loops.scratch[s].elements.constant();
    if (!elements) return "scratch needs a constant size";
    if (is_own && *elements > kThreadScratch) {
      return fmt::format("scratch of {} elements a thread, at most {}", *elements, kThreadScratch);
    }
    if (is_own) continue;
    if (blocks.cluster > 1) return "a cluster cannot share scratch";
    shared += blocks.threads / blocks.team * *elements * abi::size_of(loops.scratch[s].dtype);
  }
  return shared > kMostScratch ? fmt::format("{} bytes of scratch in shared memory", shared) : "";
}

std::string rows_objection(const Kernel& kernel, const LoopKernel& loops,
                           const BlockSchedule& blocks, sym::Context& context) {
  if (!std::has_single_bit(static_cast<std::uint32_t>(blocks.team))) {
    return fmt::format("rows shared by {} threads", blocks.team);
  }
  if (blocks.team > kWarp && blocks.team != blocks.threads) {
    return fmt::format("rows shared by {} threads of {}", blocks.team, blocks.threads);
  }
  if (blocks.cluster > 1 && blocks.team <= kWarp) {
    return fmt::format("a cluster of rows shared by {} threads", blocks.team);
  }
  if (has_scan(loops) && blocks.cluster > 1) return "a scan by a cluster";
  if (has_scan(loops) && blocks.keep) return "a scan of a row that is kept";
  if (blocks.chunk == 0 && blocks.cluster == 1 && loops.scratch.empty()) return "";
  const PreparedKernel prepared =
      prepare(kernel, loops, {.join_softmax = !blocks.keep, .join_rows = false}, context);
  if (blocks.cluster > 1 && passes_memory(prepared.stages)) {
    return "stages of a cluster pass values through global memory or scratch";
  }
  for (const PreparedStage& p : prepared.stages) {
    if (blocks.chunk == 0 || blocks.lanes == 1 || p.stage.inner.empty() ||
        sym::divides(blocks.lanes, p.stage.inner.front().extent)) {
      continue;
    }
    if (is_unaligned(kernel, p.stage, blocks.lanes)) return "chunks of unaligned rows";
  }
  return scratch_objection(loops, prepared, blocks);
}

bool columns_scratch(const Kernel& kernel, const LoopKernel& loops, sym::Context& context) {
  if (loops.scratch.empty()) return false;
  const PreparedKernel prepared =
      prepare(kernel, loops, {.join_softmax = true, .join_columns = true}, context);
  return std::ranges::find(prepared.scratch_used, true) != prepared.scratch_used.end();
}

std::vector<BlockSchedule> fallbacks(const BlockSchedule& wanted, const abi::Target& device) {
  std::vector<BlockSchedule> found;
  const auto add = [&](const BlockSchedule& b) {
    if (!(b == (found.empty() ? wanted : found.back()))) found.push_back(b);
  };
  BlockSchedule b = wanted;
  if (b.axis == Axis::inner) {
    if (b.keep) b.unroll = 4;
    if (b.cluster > 1) b.team = b.threads = device.block_threads;
    b.cluster = 1;
    b.chunk = 0;
    b.keep = false;
    add(b);
  }
  if (b.axis != Axis::tile) {
    b.lanes = 1;
    add(b);
  }
  b = {};
  b.threads = 128;
  if (wanted.axis == Axis::inner) {
    b.axis = Axis::inner;
    b.team = b.threads = kWarp;
    add(b);
    b.team = 1;
    b.threads = 128;
  }
  add(b);
  return found;
}

}  // namespace

std::string objection(const Kernel& kernel, const BlockSchedule& blocks, sym::Context& context) {
  const auto& loops = std::get<LoopKernel>(kernel.body);
  const auto has_threads = [&](const Beside& b) { return b.blocks.threads == blocks.threads; };
  if (!std::ranges::all_of(kernel.beside, has_threads))
    return "blocks of different sizes side by side";
  switch (blocks.axis) {
    case Axis::outer:
      if (has_scan(loops) && blocks.team > 1) return "a scan by a team";
      return columns_scratch(kernel, loops, context) ? "scratch of columns" : "";
    case Axis::inner:
      // Fusion split kernels with sequential rows for one schedule (sequential_rows.h).
      return loops.sequential != 0 ? "" : rows_objection(kernel, loops, blocks, context);
    case Axis::tile:
      break;
  }
  return "";
}

BlockSchedule legal_blocks(const Kernel& kernel, const BlockSchedule& wanted,
                           const abi::Target& device, sym::Context& context) {
  const std::string first = objection(kernel, wanted, context);
  if (first.empty()) return wanted;
  for (const BlockSchedule& fallback : fallbacks(wanted, device)) {
    if (!objection(kernel, fallback, context).empty()) continue;
    log(LogChannel::codegen, "{}: {}; {} instead", to_string(wanted), first, to_string(fallback));
    return fallback;
  }
  unsupported_at(kernel.sources, "{}: {}", fmt::join(kernel.sources, ", "), first);
}

}  // namespace inkle::schedule
