// The function of a kernel: its parameters, its scratch, the stages of an iteration.
//
// A kernel with an ending is several functions: one for its stages, one for each part of the
// ending, and one that calls them, which counts the blocks that are through.
#include "codegen/cuda/kernel.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/error.h"
#include "codegen/cuda/iterations.h"
#include "codegen/cuda/print_kernel.h"
#include "codegen/cuda/stage.h"
#include "kernel/passes.h"
#include "schedule/expand_blocks.h"

namespace inkle::codegen::cuda {

using schedule::BlockSchedule;
using schedule::LoopKernel;
using schedule::ParamRole;
using sym::Expr;

namespace {

// A thread's own scratch, in elements.
constexpr std::int64_t kThreadScratch = 64;
// Of a block whose kernel has an ending: the count, and a value of each warp for the reductions of
// rows.
constexpr std::int64_t kCounterShared = 2 << 10;

// Calls f with the number of each parameter that the loops load or store.
void for_each_param(const LoopKernel& loops, std::size_t count,
                    const std::function<void(std::size_t)>& f) {
  for (const schedule::Stage& stage : loops.stages) {
    for (const loop::Instruction& i : stage.body.instructions) {
      if (i.opcode == loop::Opcode::load && i.buffer < count) f(i.buffer);
    }
    for (const schedule::StageStore& store : stage.stores) {
      if (store.target < count) f(store.target);
    }
  }
}

class KernelWriter : private IterationWriter {
 public:
  KernelWriter(const schedule::Kernel& kernel, const LoopKernel& loops, const BlockSchedule& blocks,
               sym::Context& context)
      : IterationWriter(kernel, loops, blocks, context) {
    text_.written.resize(kernel.params.size());
    for (std::size_t p = 0; p < kernel.params.size(); ++p) {
      text_.written[p] = kernel.params[p].role != ParamRole::in;
      if (!kernel.ending) text_.aliasing = text_.aliasing || kernel.params[p].may_alias;
    }
    if (kernel.ending) {
      for_each_param(loops, kernel.params.size(), [&](std::size_t p) {
        text_.aliasing = text_.aliasing || kernel.params[p].may_alias;
      });
    }
    text_.rows_have_lanes = blocks.axis != BlockSchedule::Axis::inner && blocks.lanes > 1;
  }

  KernelSource run(const std::string& name, const std::string& schedule_text) {
    begin_kernel(name, schedule_text, "");
    if (is_empty()) {  // never launched; what follows would divide by extents
      out_.close();
      return {out_.text(), false, context_.constant(0)};
    }
    if (text_.kernel.instances > 1) find_instance();
    const std::string body = write_body();
    if (text_.slot_bytes > kStaticShared) {
      unsupported("kernel {}: {} bytes to reduce columns in", text_.kernel.name, text_.slot_bytes);
    }
    if (text_.slot_bytes != 0) {
      out_.line("__shared__ alignas(16) char slots[{}];", text_.slot_bytes);
    }
    out_.append(body);
    if (blocks_.cluster > 1)
      out_.raw("cluster_sync();");  // peers may still read this block's memory
    out_.close();
    return {out_.text(), text_.can_fail, context_.constant(0)};
  }

  // The stages alone, as a function of one block.
  std::string run_part(const std::string& name) {
    block_ = "block";
    out_.open(fmt::format("INLINE void {}({}const u32 block, char* slots, u32* status)", name,
                          plain_parameters()));
    const std::string body = write_body();
    out_.append(body);
    out_.close();
    return out_.text();
  }

  // The function that calls those of the parts, of which the first has the stages.
  KernelSource run_calls(const std::string& name, const std::string& schedule_text,
                         std::int64_t slot_bytes, bool can_fail) {
    const schedule::Kernel& kernel = text_.kernel;
    const schedule::Ending& ending = *kernel.ending;
    if (slot_bytes + kCounterShared > kStaticShared) {
      unsupported("kernel {}: {} bytes to reduce columns in", kernel.name, slot_bytes);
    }
    begin_kernel(name, schedule_text, "u32* counters, ");
    const bool is_table = kernel.instances > 1;
    if (is_table) {
      find_instance();
    } else {
      out_.raw("const u32 block = blockIdx.x;");
    }
    std::string blocks = is_table ? "table.first[at + 1] - table.first[at]" : "gridDim.x";
    std::string counter = is_table ? "counters + at" : "counters";
    Expr counters = context_.constant(1);
    if (ending.by_strips) {
      counters = strips();
      size_symbols();
      const std::string count = index_text(counters, symbols_, false);
      out_.line("const u32 strip = block % ({});", count);
      counter = is_table ? fmt::format("counters + at * ({}) + strip", count) : "counters + strip";
      blocks = fmt::format("({}) / ({})", blocks, count);
    } else {
      size_symbols();
    }
    if (slot_bytes != 0) out_.line("__shared__ alignas(16) char slots[{}];", slot_bytes);
    std::string arguments;
    for (std::size_t p = 0; p < kernel.params.size(); ++p) arguments += fmt::format("p{}, ", p);
    for (std::size_t s = 0; s < kernel.sizes.size(); ++s) arguments += fmt::format("n{}, ", s);
    const char* shared = slot_bytes != 0 ? "slots" : "(char*)0";
    const bool in_cells = has_cells();
    if (in_cells) out_.line("const u32 number = begin_number({});", counter);
    out_.line("{}_first({}block, {}, status);", name, arguments, shared);
    if (in_cells) {
      pass_cells(counter, blocks);
    } else {
      // Also where it only overwrites what the others have read: reads come before the counter,
      // too.
      out_.line("if (!last_of({}, {})) return;", counter, blocks);
    }
    for (std::size_t i = 0; i < ending.parts.size(); ++i) {
      if (i != 0) out_.raw("__syncthreads();");
      const std::string call = fmt::format("{}_last{}({}", name, i, arguments);
      if (ending.by_strips) {
        out_.line("{}strip, {}, status);", call, shared);
        continue;
      }
      const schedule::Ending::Part& part = ending.parts[i];
      const Expr all =
          grid_extent(part.loops, ending_blocks(part.blocks, blocks_, false), context_);
      if (all.is_constant(1)) {
        out_.line("{}0, {}, status);", call, shared);
        continue;
      }
      out_.open(
          fmt::format("for (u32 b = 0; b < (u32)({}); ++b)", index_text(all, symbols_, false)));
      out_.line("{}b, {}, status);", call, shared);
      out_.raw("__syncthreads();");
      out_.close();
    }
    out_.close();
    Expr bytes = counters * std::int64_t{4 * kernel.instances};
    if (in_cells) {
      const Expr cells = grid_extent(loops_, blocks_, context_) * std::ssize(ending.cells);
      bytes = cells * std::int64_t{8} + std::int64_t{16};
    }
    return {out_.text(), can_fail, bytes};
  }

  [[nodiscard]] bool can_fail() const { return text_.can_fail; }
  [[nodiscard]] std::int64_t slot_bytes() const { return text_.slot_bytes; }
  [[nodiscard]] bool is_empty() const {
    return std::any_of(loops_.outer.begin(), loops_.outer.end(),
                       [](const loop::Dim& dim) { return dim.extent.is_constant(0); });
  }

 private:
  // Whether each block writes one number to each cell.
  [[nodiscard]] bool has_cells() const {
    return !text_.kernel.ending->cells.empty() && text_.kernel.instances == 1 &&
           blocks_.axis == BlockSchedule::Axis::inner && blocks_.team > 32 && blocks_.cluster == 1;
  }

  void pass_cells(const std::string& counter, const std::string& blocks) {
    const auto& cells = text_.kernel.ending->cells;
    out_.line("u64* const cells = (u64*)({} + 4);", counter);
    for (std::size_t c = 0; c < cells.size(); ++c) {
      out_.line("if (threadIdx.x == 0) leave_cell(cells + {} * {} + block, p{}[block]);", c, blocks,
                cells[c]);
    }
    out_.line("if (!began_last(number, {}, {})) return;", counter, blocks);
    for (std::size_t c = 0; c < cells.size(); ++c) {
      out_.line("take_cells(cells + {} * {}, {}, p{});", c, blocks, blocks, cells[c]);
    }
    out_.raw("__syncthreads();");
  }

  void begin_kernel(const std::string& name, const std::string& schedule_text,
                    const std::string& workspace) {
    const schedule::Kernel& kernel = text_.kernel;
    if (!kernel.sources.empty()) out_.line("// {}", fmt::join(kernel.sources, ", "));
    out_.line("// {}", schedule_text);
    const std::string parameters = kernel.instances > 1 ? declare_table(name) : plain_parameters();
    const std::string cluster =
        blocks_.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", blocks_.cluster) : "";
    out_.open(
        fmt::format("extern \"C\" __global__ void {}__launch_bounds__({}{}) {}({}{}u32* status)",
                    cluster, blocks_.threads, blocks_at_once(), name, parameters, workspace));
    if (kernel.instances == 1) begin();
  }

  // All that follows from the number of the block; what is declared before it goes to out_.
  std::string write_body() {
    size_symbols();
    Expr columns;
    std::optional<WalkText> walk;
    switch (blocks_.axis) {
      case BlockSchedule::Axis::inner:
        if (loops_.walked != 0)
          walk = begin_walk();
        else
          begin_rows();
        break;
      case BlockSchedule::Axis::outer:
        begin_columns();
        columns = loops_.outer.back().variable;
        break;
      case BlockSchedule::Axis::tile:
        begin_tile();
        columns = loops_.outer.back().variable;
        break;
    }
    const bool rows = blocks_.axis == BlockSchedule::Axis::inner;
    const schedule::PrepareOptions options{
        .join_softmax = !rows || !blocks_.keep,
        .join_columns = blocks_.axis == BlockSchedule::Axis::outer,
        .join_rows = loops_.walked != 0};
    const schedule::PreparedKernel prepared = prepare(text_.kernel, loops_, options, context_);
    declare_scratch(prepared);
    Writer body;
    StageText stages(text_, blocks_, body, symbols_, columns, std::move(walk));
    stages.write(prepared);
    return body.text();
  }

  // Two blocks of 1024 threads that turn tiles around are at work side by side: one waits for its
  // loads while the other stores.
  //
  // Threads that walk rows take few enough registers for half as many of them as there could be,
  // where each has few elements of a row: 120 to 128 for 24 elements of two sums each, with 56
  // bytes at most in memory; with 32 elements it would be 200 to 400 bytes.
  std::string blocks_at_once() const {
    constexpr std::int64_t kFewElements = 24;
    constexpr std::int64_t kThreads = 512;
    if (blocks_.side != 0 && blocks_.threads == 1024) return ", 2";
    std::int64_t elements = 0;
    for (const schedule::Scratch& scratch : loops_.scratch) {
      if (!scratch.walks) continue;
      const std::int64_t step = std::int64_t{blocks_.team} * blocks_.lanes;
      const std::int64_t size = scratch.elements.constant().value_or(1);
      elements = std::max(elements, (size + step - 1) / step * blocks_.lanes);
    }
    const std::int64_t blocks = kThreads / blocks_.threads;
    if (elements == 0 || elements > kFewElements || blocks < 2) return "";
    return fmt::format(", {}", blocks);
  }

  // Blocks side by side along the columns.
  Expr strips() {
    const std::int64_t across = blocks_.threads / blocks_.team;
    return sym::ceildiv(loops_.outer.back().extent, across * blocks_.lanes);
  }

  std::string parameter(std::size_t p) const {
    return fmt::format("{}{}* {}p{}", text_.written[p] ? "" : "const ",
                       type_of(text_.kernel.params[p].dtype),
                       text_.aliasing || text_.kernel.ending ? "" : "__restrict__ ", p);
  }

  std::string plain_parameters() const {
    std::string list;
    for (std::size_t p = 0; p < text_.kernel.params.size(); ++p) list += parameter(p) + ", ";
    for (std::size_t s = 0; s < text_.kernel.sizes.size(); ++s) list += fmt::format("i64 n{}, ", s);
    return list;
  }

  // The structure of a table, as abi/plan.h says it, before the function.
  std::string declare_table(const std::string& name) {
    const schedule::Kernel& kernel = text_.kernel;
    out_.open(fmt::format("struct Table_{}", name));
    out_.line("void* p[{}];", kernel.instances * kernel.params.size());
    if (!kernel.sizes.empty()) out_.line("i64 n[{}];", kernel.instances * kernel.sizes.size());
    out_.line("u32 first[{}];", kernel.instances + 1);
    out_.close(";");
    return fmt::format("const __grid_constant__ Table_{} table, ", name);
  }

  // Which instance this block is of, and its number in that.
  void find_instance() {
    const schedule::Kernel& kernel = text_.kernel;
    out_.line("int at = 0;");
    out_.line("for (int step = {}; step > 0; step /= 2) {{",
              std::bit_floor(std::uint32_t{kernel.instances}));
    out_.line("  if (at + step < {} && table.first[at + step] <= blockIdx.x) at += step;",
              kernel.instances);
    out_.raw("}");
    out_.raw("const u32 block = blockIdx.x - table.first[at];");
    block_ = "block";
    for (std::size_t p = 0; p < kernel.params.size(); ++p) {
      const std::string type = type_of(kernel.params[p].dtype);
      out_.line("{} = ({}{}*)table.p[at * {} + {}];", parameter(p),
                text_.written[p] ? "" : "const ", type, kernel.params.size(), p);
    }
    begin();
    for (std::size_t s = 0; s < kernel.sizes.size(); ++s) {
      out_.line("const i64 n{} = table.n[at * {} + {}];", s, kernel.sizes.size(), s);
    }
  }

  // Waits for what is queued before the kernel.
  void begin() {
    std::vector<std::string> read;
    for (std::size_t p = 0; p < text_.kernel.params.size(); ++p) {
      if (!text_.written[p]) read.push_back(fmt::format("p{}", p));
    }
    out_.line("begin({});", fmt::join(read, ", "));
  }

  void declare_scratch(const PreparedKernel& prepared) {
    std::int64_t shared = 0;
    std::vector<bool> own(loops_.scratch.size(), false);
    for (std::size_t s = 0; s < loops_.scratch.size(); ++s) {
      if (!prepared.scratch_used[s]) continue;
      const auto elements = loops_.scratch[s].elements.constant();
      const std::string type = type_of(loops_.scratch[s].dtype);
      if (!elements) unsupported("kernel {}: scratch of unknown size", text_.kernel.name);
      if (loops_.scratch[s].walks) {
        const std::int64_t step = std::int64_t{blocks_.team} * blocks_.lanes;
        out_.line("Pack<{}, {}> sums{}[{}];", type, blocks_.lanes, s,
                  (*elements + step - 1) / step);
        continue;
      }
      if (blocks_.team == 1 && blocks_.lanes == 1) {
        if (*elements > kThreadScratch) {
          unsupported("kernel {}: scratch of {} elements a thread", text_.kernel.name, *elements);
        }
        out_.line("{} scratch{}[{}];", type, s, *elements);
        own[s] = true;
        continue;
      }
      const bool rows = blocks_.axis == BlockSchedule::Axis::inner && blocks_.cluster == 1;
      const std::int64_t teams = blocks_.threads / blocks_.team;
      shared += teams * *elements * abi::size_of(loops_.scratch[s].dtype);
      if (!rows || shared > kStaticShared) {
        unsupported("kernel {}: {} bytes of scratch do not fit a block", text_.kernel.name, shared);
      }
      out_.line("__shared__ {} scratch{}[{}][{}];", type, s, teams, *elements);
    }
    text_.scratch = [this, own, team = blocks_.team](std::uint32_t s, const std::string& at) {
      // At the position of the loop that touches it.
      if (loops_.scratch[s].walks) {
        return fmt::format("sums{}[k].at[{}]", s, blocks_.lanes > 1 ? "l" : "0");
      }
      if (own[s]) return fmt::format("scratch{}[{}]", s, at);
      return fmt::format("scratch{}[threadIdx.x / {}][{}]", s, team, at);
    };
  }
};

}  // namespace

schedule::BlockSchedule ending_blocks(const BlockSchedule& part, const BlockSchedule& kernel,
                                      bool by_strips) {
  BlockSchedule b = part;
  b.threads = kernel.threads;
  b.keep = false;
  b.cluster = 1;
  if (by_strips) {
    b.team = kernel.team;
    b.lanes = kernel.lanes;
  } else if (b.axis == BlockSchedule::Axis::inner) {
    b.team = b.team > 32 ? b.threads : b.team;
  } else {
    b.team = std::min(b.team, b.threads);
  }
  return b;
}

KernelSource write_kernel(const schedule::Kernel& kernel, const schedule::Schedule& schedule,
                          const std::string& name, sym::Context& context,
                          const kernel::PassFault& fault) {
  const auto* loops = std::get_if<LoopKernel>(&kernel.body);
  if (loops == nullptr) unsupported("kernel {}: attention as a kernel of our own", kernel.name);
  INKLE_CHECK(schedule.blocks.has_value(), "kernel {} has no block schedule", kernel.name);
  const BlockSchedule& blocks = *schedule.blocks;
  if (schedule::expansion::knows(kernel)) {
    kernel::Kernel made = schedule::expand(kernel, schedule, context);
    kernel::run_passes(made, context, kernel::gpu_passes(), {.fault = fault});
    return print_kernel(made, name, schedule::to_string(schedule), context);
  }
  KernelWriter calls(kernel, *loops, blocks, context);
  if (!kernel.ending || calls.is_empty()) return calls.run(name, schedule::to_string(schedule));
  std::string text;
  std::int64_t slot_bytes = 0;
  bool can_fail = false;
  const auto add = [&](const LoopKernel& part, const BlockSchedule& how,
                       const std::string& suffix) {
    KernelWriter writer(kernel, part, how, context);
    text += writer.run_part(name + suffix);
    slot_bytes = std::max(slot_bytes, writer.slot_bytes());
    can_fail = can_fail || writer.can_fail();
  };
  add(*loops, blocks, "_first");
  for (std::size_t i = 0; i < kernel.ending->parts.size(); ++i) {
    const schedule::Ending::Part& part = kernel.ending->parts[i];
    add(part.loops, ending_blocks(part.blocks, blocks, kernel.ending->by_strips),
        fmt::format("_last{}", i));
  }
  KernelSource source = calls.run_calls(name, schedule::to_string(schedule), slot_bytes, can_fail);
  source.text = text + source.text;
  return source;
}

}  // namespace inkle::codegen::cuda
