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
using Columns = BlockSchedule::Columns;
using Rows = BlockSchedule::Rows;

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
  const Rows& rows = blocks.rows();
  const bool is_own = rows.team == 1 && blocks.lanes == 1;
  std::int64_t shared = 0;
  for (std::size_t s = 0; s < loops.scratch.size(); ++s) {
    if (!prepared.scratch_used[s]) continue;
    const auto elements = loops.scratch[s].elements.constant();
    if (!elements) return "scratch needs a constant size";
    if (is_own && *elements > kThreadScratch) {
      return fmt::format("scratch of {} elements a thread, at most {}", *elements, kThreadScratch);
    }
    if (is_own) continue;
    if (rows.cluster > 1) return "a cluster cannot share scratch";
    shared += blocks.threads / rows.team * *elements * abi::size_of(loops.scratch[s].dtype);
  }
  return shared > kMostScratch ? fmt::format("{} bytes of scratch in shared memory", shared) : "";
}

std::string rows_objection(const Kernel& kernel, const LoopKernel& loops,
                           const BlockSchedule& blocks, sym::Context& context) {
  const Rows& rows = blocks.rows();
  if (!std::has_single_bit(static_cast<std::uint32_t>(rows.team))) {
    return fmt::format("rows shared by {} threads", rows.team);
  }
  if (rows.team > kWarp && rows.team != blocks.threads) {
    return fmt::format("rows shared by {} threads of {}", rows.team, blocks.threads);
  }
  if (rows.cluster > 1 && rows.team <= kWarp) {
    return fmt::format("a cluster of rows shared by {} threads", rows.team);
  }
  if (has_scan(loops) && rows.cluster > 1) return "a scan by a cluster";
  if (has_scan(loops) && rows.keep) return "a scan of a row that is kept";
  if (rows.chunk == 0 && rows.cluster == 1 && loops.scratch.empty()) return "";
  const PreparedKernel prepared =
      prepare(kernel, loops, {.join_softmax = !rows.keep, .join_rows = false}, context);
  if (rows.cluster > 1 && passes_memory(prepared.stages)) {
    return "stages of a cluster pass values through global memory or scratch";
  }
  for (const PreparedStage& p : prepared.stages) {
    if (rows.chunk == 0 || blocks.lanes == 1 || p.stage.inner.empty() ||
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

// Atomic additions of a type that no instruction adds, as of bytes; empty: there are none.
std::string atomic_objection(const Kernel& kernel, const LoopKernel& loops) {
  for (const Stage& stage : loops.stages) {
    for (const StageStore& store : stage.stores) {
      if (store.mode != loop::StoreMode::atomic_add || store.target >= kernel.params.size())
        continue;
      const abi::DType dtype = kernel.params[store.target].dtype;
      const bool is_word = dtype == abi::DType::i32 || dtype == abi::DType::i64;
      if (is_word || abi::is_float(dtype)) continue;
      return fmt::format("atomic additions of {} are not supported", abi::name_of(dtype));
    }
  }
  return "";
}

std::vector<BlockSchedule> fallbacks(const BlockSchedule& wanted, const abi::Target& device) {
  std::vector<BlockSchedule> found;
  const auto add = [&](const BlockSchedule& b) {
    if (!(b == (found.empty() ? wanted : found.back()))) found.push_back(b);
  };
  BlockSchedule b = wanted;
  if (auto* rows = std::get_if<Rows>(&b.mapping)) {
    if (rows->keep) rows->unroll = 4;
    if (rows->cluster > 1) rows->team = b.threads = device.block_threads;
    rows->cluster = 1;
    rows->chunk = 0;
    rows->keep = false;
    add(b);
  }
  if (!b.is<BlockSchedule::Tile>()) {
    b.lanes = 1;
    add(b);
  }
  b = {};
  if (wanted.is<Rows>()) {
    b.mapping = Rows{.team = kWarp};
    b.threads = kWarp;
    add(b);
    b.mapping = Rows{};
  }
  b.threads = 128;
  add(b);
  return found;
}

}  // namespace

std::string objection(const Kernel& kernel, const BlockSchedule& blocks, sym::Context& context) {
  const auto& loops = std::get<LoopKernel>(kernel.body);
  const auto has_threads = [&](const Beside& b) { return b.blocks.threads == blocks.threads; };
  if (!std::ranges::all_of(kernel.beside, has_threads))
    return "blocks of different sizes side by side";
  if (std::string why = atomic_objection(kernel, loops); !why.empty()) return why;
  if (const auto* columns = std::get_if<Columns>(&blocks.mapping)) {
    if (has_scan(loops) && columns->team > 1) return "a scan by a team";
    return columns_scratch(kernel, loops, context) ? "scratch of columns" : "";
  }
  // Fusion split kernels with sequential rows for one schedule (sequential_rows.h).
  const bool is_free = blocks.is<Rows>() && loops.sequential == 0;
  return is_free ? rows_objection(kernel, loops, blocks, context) : "";
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
