#include "schedule/expand_row_staged.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace inkle::schedule::expansion {

using kernel::Op;
using loop::Instruction;
using loop::Opcode;
using loop::Val;

namespace {

// Of a block's static shared memory, what reductions do not take.
constexpr std::int64_t kMostMemory = kStaticShared - 1024;
constexpr std::int64_t kCopyBytes = 16;

}  // namespace

StagedRows::StagedRows(BlockExpansion& x, const RowTeam& team, const RowShape& shape,
                       const RowLoops& loops, KeptRow& keep)
    : x_(x), b_(x.e.b), team_(team), shape_(shape), loops_(loops), keep_(keep) {
  plan_copies();
  if (!copies_.empty()) plan_scalars();
}

// --- The plan ------------------------------------------------------------------------------------

// Whether the load is of memory that the kernel does not write, at an address that varies by row.
bool StagedRows::is_of_row(const Instruction& load) const {
  const auto& outer = x_.loops().outer;
  const auto& params = x_.e.scheduled.params;
  if (load.buffer >= params.size() || x_.e.aliasing || params[load.buffer].role != ParamRole::in) {
    return false;
  }
  return std::any_of(
      outer.end() - static_cast<std::ptrdiff_t>(x_.loops().sequential), outer.end(),
      [&](const loop::Dim& dim) { return sym::contains(load.indices[0], dim.variable); });
}

// Loads of the next row in whole accesses of 8 or 16 bytes, as far as shared memory reaches.
void StagedRows::plan_copies() {
  const std::int64_t lanes = x_.blocks.lanes;
  for (std::size_t p = 0; p < keep_.passes().size(); ++p) {
    const Stage& stage = keep_.stage_of(p).stage;
    if (stage.phase != Phase::each || stage.inner.empty()) continue;
    if (shape_.is_ragged(stage) || lanes == 1) continue;
    const std::size_t before = copies_.size();
    for (Val v = 0; v < stage.body.instructions.size(); ++v) {
      const Instruction& i = stage.body[v];
      if (keep_.is_known(p, v) || !is_direct(x_, stage, i) || !is_of_row(i)) continue;
      const std::int64_t bytes = lanes * abi::size_of(i.dtype);
      const std::int32_t alignment = x_.e.scheduled.params[i.buffer].alignment;
      if (bytes % 8 != 0 || alignment % std::min(bytes, kCopyBytes) != 0 ||
          shape_.packed_lanes(stage, v) != lanes) {
        continue;
      }
      const std::int64_t count = shape_.accesses_of(stage);
      const std::int64_t size = count * x_.blocks.threads * bytes;
      if (bytes_ + size > kMostMemory) continue;
      copies_.push_back({p, v, count});
      bytes_ += size;
    }
    if (copies_.size() != before) ++copied_passes_;
  }
}

// Loads that are uniform across the row.
void StagedRows::plan_scalars() {
  for (const RowPass& p : keep_.passes()) {
    const Stage& stage = x_.prepared.stages[p.stage].stage;
    if (stage.phase != Phase::each || stage.inner.empty()) continue;
    for (const Instruction& i : stage.body.instructions) {
      if (!is_direct(x_, stage, i) || !is_of_row(i) ||
          sym::contains(i.indices[0], stage.inner.front().variable)) {
        continue;
      }
      if (scalar_of(i) == nullptr) scalars_.push_back({i.buffer, i.indices[0]});
    }
  }
}

const StagedRows::Scalar* StagedRows::scalar_of(const Instruction& load) const {
  if (load.opcode != Opcode::load || load.operand_count != 0) return nullptr;
  const auto found = std::find_if(scalars_.begin(), scalars_.end(), [&](const Scalar& s) {
    return s.buffer == load.buffer && s.offset == load.indices[0];
  });
  return found == scalars_.end() ? nullptr : &*found;
}

void StagedRows::place(kernel::Memory memory) {
  std::int64_t offset = 0;
  for (Copy& load : copies_) {
    const DType dtype = keep_.stage_of(load.pass).stage.body[load.value].dtype;
    memory.name = fmt::format("row{}", b_.kernel().memories.size());
    memory.dtype = dtype;
    memory.offset = offset;
    memory.shape = {x_.context().constant(load.count), x_.context().constant(x_.blocks.threads),
                    x_.context().constant(x_.blocks.lanes)};
    offset += load.count * x_.blocks.threads * x_.blocks.lanes * abi::size_of(dtype);
    load.memory = b_.memory(memory);
  }
}

Values StagedRows::zeros() const {
  Values zeros;
  for (const Scalar& s : scalars_) zeros.push_back(zero(b_, x_.e.scheduled.params[s.buffer].dtype));
  return zeros;
}

// --- The next row --------------------------------------------------------------------------------

bool StagedRows::has_copies(std::size_t pass) const {
  return std::any_of(copies_.begin(), copies_.end(),
                     [&](const Copy& load) { return load.pass == pass; });
}

// The variables of the sequential loops at another row.
Replacements StagedRows::at_row(Expr row) const {
  const auto& outer = x_.loops().outer;
  const std::size_t first = outer.size() - x_.loops().sequential;
  Replacements map;
  unravel_outer(x_, row, first, outer.size(), [&](const loop::Dim& dim, Expr value) {
    const bool is_bound = dim.variable != outer[first].variable;
    map.emplace_back(dim.variable, is_bound ? bind_new(x_, value, dim.extent) : value);
  });
  return map;
}

Values StagedRows::copy_row(std::size_t pass, Expr row, std::int64_t end,
                            const Values& scalars) const {
  if (!has_copies(pass)) return scalars;
  const Stage& stage = keep_.stage_of(pass).stage;
  const Values after = if_less(b_, row, x_.context().constant(end), scalars, [&] {
    const Replacements map = at_row(row);
    Values next = scalars;
    if (pass == copies_.front().pass) {
      for (std::size_t n = 0; n < scalars_.size(); ++n) {
        kernel::Access from;
        from.memory = x_.e.memories[scalars_[n].buffer];
        from.indices = {sym::substitute(scalars_[n].offset, map)};
        from.constant = true;
        next[n] = b_.load(std::move(from));
      }
    }
    (void)loops_.kept(stage, {}, {}, [&](const RowPlace& place, const Values&) {
      for (const Copy& load : copies_) {
        if (load.pass == pass) copy(stage, load, place, map);
      }
      return Values();
    });
    return next;
  });
  b_.operation(Op::copy_commit, {}, {}, {});
  return after;
}

void StagedRows::copy(const Stage& stage, const Copy& load, const RowPlace& place,
                      const Replacements& row) const {
  const Instruction& i = stage.body[load.value];
  Replacements map = row;
  map.emplace_back(stage.inner.front().variable, place.base);
  const Expr from = sym::substitute(i.indices[0], map);
  const std::int64_t size = abi::size_of(i.dtype);
  const std::int64_t elements = std::min(x_.blocks.lanes * size, kCopyBytes) / size;
  for (std::int64_t e = 0; e < x_.blocks.lanes; e += elements) {
    kernel::Copy copy;
    copy.elements = static_cast<std::int32_t>(elements);
    copy.from.memory = x_.e.memories[i.buffer];
    copy.from.indices = {from + e};
    copy.to.memory = load.memory;
    copy.to.indices = {place.number, thread_of_block(), x_.context().constant(e)};
    b_.operation(Op::copy_async, {}, {}, std::move(copy));
  }
}

Expr StagedRows::thread_of_block() const {
  const RowTeam::Threads& at = team_.at();
  return at.number.is_null() ? at.thread
                             : at.number * std::int64_t{x_.blocks.rows().team} + at.thread;
}

void StagedRows::take(const Stage& stage, std::size_t pass) {
  if (!has_copies(pass)) return;
  for (Copy& load : copies_) {
    if (load.pass != pass) continue;
    const auto kept = keep_.fetch(pass, load.value);
    load.registers =
        kept ? *kept
             : registers(b_, "row", stage.body[load.value].dtype, {load.count, x_.blocks.lanes});
  }
  kernel::Count count;
  count.count = static_cast<std::int64_t>(copied_passes_) - 1;
  b_.operation(Op::copy_wait, {}, {}, std::move(count));
  (void)loops_.kept(stage, {}, {}, [&](const RowPlace& place, const Values&) {
    in_vector(b_, x_.blocks.lanes, [&](Expr lane) {
      for (const Copy& load : copies_) {
        if (load.pass != pass) continue;
        const ValueId x =
            b_.load(load.memory, {place.number, thread_of_block(), lane}, kernel::Form::wide);
        b_.store(element_of(load.registers, place.number, lane), x);
      }
    });
    return Values();
  });
}

// --- Bodies of the row ---------------------------------------------------------------------------

bool StagedRows::is_given(const Stage& stage, std::size_t pass, Val v) const {
  const auto is_it = [&](const Copy& load) { return load.pass == pass && load.value == v; };
  return std::any_of(copies_.begin(), copies_.end(), is_it) ||
         (!own_.empty() && scalar_of(stage.body[v]) != nullptr);
}

void StagedRows::provide(const Stage& stage, std::size_t pass, const RowPlace& place, Expr lane,
                         BodyExpander& body) const {
  for (const Copy& load : copies_) {
    if (load.pass != pass) continue;
    body.know(load.value, b_.load(element_of(load.registers, place.number, lane)));
  }
  if (own_.empty()) return;
  for (Val v = 0; v < stage.body.instructions.size(); ++v) {
    const Scalar* scalar = scalar_of(stage.body[v]);
    if (scalar != nullptr) body.know(v, own_[static_cast<std::size_t>(scalar - scalars_.data())]);
  }
}

}  // namespace inkle::schedule::expansion
