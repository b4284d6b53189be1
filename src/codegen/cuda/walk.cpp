// Kernels that walk the rows of a part and gather their columns:
//
//   Pack<float, 8> sums0[3]; ... = 0                each thread, of the positions that it has
//   stage row q                                     on its way to shared memory
//   for (int w = q; w < 32; w += 8) {               a row at a time for each team of the block
//     r0 = ...                                      what it reads is taken from shared memory, then
//     stage row w + 8                               the next row takes its place
//     ...
//   }
//   put_sums..., add_sums...                        the teams' sums, by halves
//   if (q == 0) { p5[...] = sums0 }
#include "codegen/cuda/stage.h"

#include <algorithm>

#include "base/error.h"
#include "codegen/cuda/operation.h"

namespace inkle::codegen::cuda {

using schedule::Phase;

namespace {

// Static shared memory that every architecture gives a block, but for what reductions take.
constexpr std::int64_t kMostMemory = (48 << 10) - 1024;

}  // namespace

void StageText::walk() {
  INKLE_CHECK(by_rows() && blocks_.keep && blocks_.cluster == 1,
              "kernel {} walks rows that it does not keep", kernel_.kernel.name);
  plan_staged();
  if (!staged_.empty()) plan_numbers();
  std::int64_t bytes = gathered_bytes();
  for (const Staged& load : staged_) {
    const auto& stage = stages_[passes_[load.pass].stage].stage;
    const std::int64_t each = blocks_.lanes * abi::size_of(stage.body[load.value].dtype);
    bytes = std::max(bytes, load.at + load.count * blocks_.threads * each);
  }
  if (bytes > kMostMemory + 1024) {
    unsupported("kernel {}: {} bytes to gather columns in", kernel_.kernel.name, bytes);
  }
  if (bytes != 0) out_.line("__shared__ alignas(16) char memory[{}];", bytes);
  for (std::size_t n = 0; n < numbers_.size(); ++n) {
    out_.line("{} next{};", type_of(kernel_.kernel.params[numbers_[n].buffer].dtype), n);
  }
  phase(Phase::first);
  const std::string first = walk_->teams > 1 ? "q" : "0";
  for (std::size_t p = 0; p < passes_.size(); ++p) stage_row(p, first);
  out_.open(fmt::format("for (int w = {}; w < {}; w += {})", first, walk_->rows, walk_->teams));
  out_.append(walk_->outer("w"));
  for (std::size_t n = 0; n < numbers_.size(); ++n) {
    out_.line("const auto own{} = next{};", n, n);
  }
  bool shares = false;  // memory that the next row writes again
  for (std::size_t p = 0; p < passes_.size(); ++p) {
    const Stage& stage = stages_[passes_[p].stage].stage;
    if (stage.phase != Phase::each) continue;
    pass(p);
    stage_row(p, fmt::format("w + {}", walk_->teams));
    for (const loop::Instruction& i : stage.body.instructions) {
      const std::size_t params = kernel_.kernel.params.size();
      shares = shares || (i.opcode == loop::Opcode::load && i.buffer >= params &&
                          !kernel_.loops.scratch[i.buffer - params].walks);
    }
  }
  if (shares) out_.raw(blocks_.team > 32 ? "__syncthreads();" : "__syncwarp();");
  out_.close();
  if (walk_->teams > 1) {
    if (!staged_.empty()) out_.raw("__syncthreads();");
    join_teams();
    out_.open("if (q == 0)");
  }
  phase(Phase::last);
  if (walk_->teams > 1) out_.close();
}

// --- The next row --------------------------------------------------------------------------------

// Whether the load is of memory that nobody writes here, at a place that differs from row to row.
bool StageText::is_of_row(const loop::Instruction& load) const {
  const auto& outer = kernel_.loops.outer;
  if (load.buffer >= kernel_.kernel.params.size() || kernel_.aliasing ||
      kernel_.kernel.params[load.buffer].role != schedule::ParamRole::in) {
    return false;
  }
  return std::any_of(
      outer.end() - static_cast<std::ptrdiff_t>(kernel_.loops.walked), outer.end(),
      [&](const loop::Dim& dim) { return sym::contains(load.indices[0], dim.variable); });
}

// Loads that are one for the whole row.
void StageText::plan_numbers() {
  for (const Pass& p : passes_) {
    const Stage& stage = stages_[p.stage].stage;
    if (stage.phase != Phase::each || stage.inner.empty()) continue;
    for (const loop::Instruction& i : stage.body.instructions) {
      if (!is_direct(stage, i) || !is_of_row(i) ||
          sym::contains(i.indices[0], stage.inner.front().variable)) {
        continue;
      }
      const bool known = std::any_of(numbers_.begin(), numbers_.end(), [&](const Number& n) {
        return n.buffer == i.buffer && n.offset == i.indices[0];
      });
      if (!known) numbers_.push_back({i.buffer, i.indices[0]});
    }
  }
}

// Loads of walked rows in whole accesses of 8 or 16 bytes, as far as there is memory.
void StageText::plan_staged() {
  std::int64_t at = 0;
  for (std::size_t p = 0; p < passes_.size(); ++p) {
    const Stage& stage = stages_[passes_[p].stage].stage;
    if (stage.phase != Phase::each || stage.inner.empty()) continue;
    const Place place = row_place(stage);
    if (!place.whole.empty() || place.lanes == 1) continue;
    const BodyText body(kernel_, stage.body, place);
    const std::size_t before = staged_.size();
    for (loop::Val v = 0; v < stage.body.instructions.size(); ++v) {
      const loop::Instruction& i = stage.body[v];
      if (!is_direct(stage, i) || i.buffer >= kernel_.kernel.params.size()) continue;
      const schedule::Param& param = kernel_.kernel.params[i.buffer];
      const bool is_known = std::any_of(keep_.known[p].begin(), keep_.known[p].end(),
                                        [&](const KeepPlan::Use& use) { return use.value == v; });
      const std::int64_t bytes = blocks_.lanes * abi::size_of(i.dtype);
      const bool fits = bytes % 8 == 0 &&
                        param.alignment % std::min<std::int64_t>(bytes, 16) == 0 &&
                        body.access_width(i.buffer, i.indices[0]) == blocks_.lanes;
      if (is_known || !fits || !is_of_row(i)) continue;
      const std::int64_t step = std::int64_t{blocks_.team} * blocks_.lanes;
      const std::int64_t count = (*stage.inner.front().extent.constant() + step - 1) / step;
      const std::int64_t size = count * blocks_.threads * bytes;
      if (at + size > kMostMemory) continue;
      staged_.push_back({p, v, at, count});
      at += size;
    }
    if (staged_.size() != before) ++staged_passes_;
  }
}

// What this pass reads of the row has come: into registers.
void StageText::unstage(const Stage& stage, std::size_t pass) {
  std::vector<const Staged*> loads;
  for (const Staged& load : staged_) {
    if (load.pass == pass) loads.push_back(&load);
  }
  if (loads.empty()) return;
  for (const Staged* load : loads) {
    out_.line("Pack<{}, {}> row{}[{}];", type_of(stage.body[load->value].dtype), blocks_.lanes,
              load->at, load->count);
  }
  out_.line("wait_for_copies<{}>();", staged_passes_ - 1);
  positions(stage, true, [&](const Place&) {
    for (const Staged* load : loads) {
      const std::string type =
          fmt::format("Pack<{}, {}>", type_of(stage.body[load->value].dtype), blocks_.lanes);
      out_.line("row{0}[k] = (({1}*)(memory + {0}))[k * {2} + threadIdx.x];", load->at, type,
                blocks_.threads);
      for (std::size_t k = 0; k < keep_.kept.size(); ++k) {
        const KeptValue& kept = keep_.kept[k];
        if (kept.first_pass != pass || kept.value != load->value) continue;
        out_.line("c{}[k] = row{}[k];", k, load->at);
        fetched_[k] = true;
      }
    }
  });
}

// Begins to copy what this pass reads of a row. Whoever waits for copies counts them by such
// groups, so there is one even where there is no row.
void StageText::stage_row(std::size_t pass, const std::string& row) {
  const bool any = std::any_of(staged_.begin(), staged_.end(),
                               [&](const Staged& load) { return load.pass == pass; });
  if (!any) return;
  const Stage& stage = stages_[passes_[pass].stage].stage;
  out_.open(fmt::format("if ({} < {})", row, walk_->rows));
  out_.line("const int next = {};", row);
  out_.append(walk_->outer("next"));
  if (pass == staged_.front().pass) {
    for (std::size_t n = 0; n < numbers_.size(); ++n) {
      out_.line("next{} = p{}[{}];", n, numbers_[n].buffer,
                index_text(numbers_[n].offset, symbols_));
    }
  }
  positions(stage, true, [&](const Place& place) {
    for (const Staged& load : staged_) {
      if (load.pass != pass) continue;
      const loop::Instruction& i = stage.body[load.value];
      out_.line("copy_ahead<{}>(memory + {} + (k * {} + threadIdx.x) * {}, p{} + ({}));",
                blocks_.lanes * abi::size_of(i.dtype), load.at, blocks_.threads,
                blocks_.lanes * abi::size_of(i.dtype), i.buffer,
                index_text(i.indices[0], place.symbols));
    }
  });
  out_.close();
  out_.raw("commit_copies();");
}

// --- The end -------------------------------------------------------------------------------------

// Of one team's sums.
std::int64_t StageText::gathered_bytes(const schedule::Scratch& scratch) const {
  const std::int64_t step = std::int64_t{blocks_.team} * blocks_.lanes;
  const std::int64_t count = (*scratch.elements.constant() + step - 1) / step;
  return scratch.walks ? count * step * abi::size_of(scratch.dtype) : 0;
}

std::int64_t StageText::gathered_bytes() const {
  std::int64_t all = 0;
  for (const schedule::Scratch& scratch : kernel_.loops.scratch) all += gathered_bytes(scratch);
  return all * walk_->teams / 2;
}

void StageText::join_teams() {
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int half = {}; half > 0; half /= 2)", walk_->teams / 2));
  const auto each = [&](std::string_view what, std::string_view team) {
    std::int64_t at = 0;
    for (std::size_t s = 0; s < kernel_.loops.scratch.size(); ++s) {
      const schedule::Scratch& scratch = kernel_.loops.scratch[s];
      if (!scratch.walks) continue;
      out_.line("{}<{}>(sums{}, (Pack<{}, {}>*)(memory + {}), {}, t);", what, blocks_.team, s,
                type_of(scratch.dtype), blocks_.lanes, at, team);
      at += gathered_bytes(scratch) * walk_->teams / 2;
    }
  };
  out_.open("if (q >= half && q < 2 * half)");
  each("put_sums", "q - half");
  out_.close();
  out_.raw("__syncthreads();");
  out_.open("if (q < half)");
  each("add_sums", "q");
  out_.close();
  out_.raw("__syncthreads();");
  out_.close();
}

// --- Sums of a row -------------------------------------------------------------------------------

// All of a pass at once, each lane with a sum of its own: so many chains of additions beside each
// other.
void StageText::sums_of_row(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  const std::string type = type_of(stage.accumulator);
  const std::size_t count = prepared.reductions.size();
  const int lanes = blocks_.lanes;
  out_.line("{} parts[{}][{}] = {{}};", type, count, lanes);
  std::vector<std::uint32_t> wanted;
  for (const PreparedReduction& reduction : prepared.reductions) wanted.push_back(reduction.yield);
  positions(stage, true, [&](const Place& place) {
    BodyText body = body_of(stage, place, pass);
    body.write(out_, wanted, {}, [&](Writer& out, const auto& yields, const std::string& active) {
      for (std::size_t r = 0; r < count; ++r) {
        const std::uint32_t yield = prepared.reductions[r].yield;
        const DType from = stage.body[stage.body.yields[yield]].dtype;
        out.line("{}parts[{}][{}] += {};", active.empty() ? "" : fmt::format("if ({}) ", active), r,
                 place.lanes > 1 ? "l" : "0", cast_text(yields[yield], from, stage.accumulator));
      }
    });
  });
  out_.line("{} sums[{}];", type, count);
  out_.line("#pragma unroll");
  out_.line("for (int r = 0; r < {}; ++r) sums[r] = sum_of(parts[r]);", count);
  if (blocks_.team <= 32) {
    out_.line("sum_warp<{}>(sums);", blocks_.team);
  } else {
    // The next row has slots of its own, so that nobody writes what others still read.
    const int number = kernel_.names++;
    const std::int64_t slots = blocks_.team / 32 * static_cast<std::int64_t>(count);
    out_.line("__shared__ {} slots{}[{}];", type, number, 2 * slots);
    out_.line("sum_block<{}>(sums, slots{} + (w & 1) * {});", blocks_.team, number, slots);
  }
  for (std::size_t r = 0; r < count; ++r) {
    define_row(prepared.reductions[r].rows[0], fmt::format("sums[{}]", r), stage.accumulator);
  }
}

}  // namespace inkle::codegen::cuda
