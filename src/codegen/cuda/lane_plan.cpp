#include "codegen/cuda/lane_plan.h"

#include <algorithm>

#include "base/error.h"
#include "kernel/lanes.h"
#include "sym/symbols.h"

namespace inkle::codegen::cuda {

using kernel::Access;
using kernel::Form;
using kernel::Op;
using kernel::Operation;
using kernel::OperationId;
using kernel::RegionId;
using kernel::ValueId;
using sym::Expr;

namespace {

constexpr std::uint32_t kNowhere = kernel::kNone;

bool is_narrowing(const kernel::Kernel& k, const Operation& op) {
  return op.op == Op::compute &&
         std::get<kernel::Compute>(op.detail).opcode == loop::Opcode::cast &&
         abi::is_reduced_float(k.type_of(op.results[0]).dtype) &&
         k.type_of(op.operands[0]).dtype == abi::DType::f32;
}

bool writes(const Operation& op) {
  switch (op.op) {
    case Op::store:
    case Op::atomic:
    case Op::report:
    case Op::copy_async:
      return true;
    default:
      return false;
  }
}

// Whether what the operation reads may be written by this kernel.
bool reads_changing(const Operation& op) {
  if (op.op != Op::load) return false;
  const auto& access = std::get<Access>(op.detail);
  return !access.constant;
}

// Operations that are printed by themselves: no operation of a lane moves across them.
bool is_control(Op op) {
  switch (op) {
    case Op::loop:
    case Op::repeat:
    case Op::fold:
    case Op::branch:
    case Op::barrier:
    case Op::fence:
    case Op::reduce:
    case Op::scan:
    case Op::broadcast:
    case Op::roles:
    case Op::vector:
    case Op::copy_async:
    case Op::copy_commit:
    case Op::copy_wait:
    case Op::dependency_wait:
      return true;
    default:
      return false;
  }
}

// Whether the predicate holds for all expressions of the operation: of its index, its accesses or
// its bounds.
template <class Predicate>
bool all_expressions(const Operation& op, const Predicate& holds) {
  if (const auto* access = kernel::access_of(op)) {
    const auto* copy = std::get_if<kernel::Copy>(&op.detail);
    return std::ranges::all_of(access->indices, holds) &&
           (copy == nullptr || std::ranges::all_of(copy->from.indices, holds));
  }
  if (const auto* index = std::get_if<kernel::IndexOf>(&op.detail)) return holds(index->expression);
  if (const auto* loop = std::get_if<kernel::Loop>(&op.detail)) {
    return holds(loop->begin) && holds(loop->end) && holds(loop->step);
  }
  const auto* symbolic = std::get_if<kernel::Symbolic>(&op.detail);
  return symbolic == nullptr || symbolic->extent.is_null() || holds(symbolic->extent);
}

}  // namespace

const Operation* first_counter(const kernel::Kernel& kernel, const Operation& op) {
  if (op.op != Op::compute) return nullptr;
  const auto& detail = std::get<kernel::Compute>(op.detail);
  if (detail.opcode != loop::Opcode::random || detail.form != Form::wide) return nullptr;
  const Operation& counter = kernel.operations[kernel.values[op.operands[1]].definition];
  INKLE_CHECK(counter.op == Op::index, "kernel {}: a random number's counter is no index",
              kernel.name);
  return &counter;
}

struct LanePlan::Effects {
  bool reads = false;    // memory that this kernel may write
  bool writes = false;   // or sets the status
  bool control = false;  // stands by itself
  void add(const Effects& other) {
    reads = reads || other.reads;
    writes = writes || other.writes;
    control = control || other.control;
  }
};

struct LanePlan::Open {
  Segment segment;
  bool writes = false;        // lanes or what comes after them
  bool after_writes = false;  // what comes after them
};

LanePlan::LanePlan(const kernel::Kernel& kernel)
    : k_(kernel),
      varies_(kernel::varies_by_lane(kernel)),
      is_lane_(kernel.values.size(), false),
      is_stored_(kernel.values.size(), false),
      segment_of_(kernel.values.size(), kNowhere),
      widths_(kernel.operations.size(), 1),
      pairs_(kernel.operations.size(), false),
      plans_(kernel.regions.size()) {
  for (const Operation& op : k_.operations) {
    if (op.op == Op::indirect || op.op == Op::bind) {
      symbols_[std::get<kernel::Symbolic>(op.detail).symbol.node()] = op.results[0];
    }
  }
  find_vectors(k_.body);
  find_pairs();
  for (const OperationId o : vectors_) {
    lane_ = std::get<kernel::Vector>(k_.operations[o].detail).lane;
    plan(k_.operations[o].regions[0]);
    note_uses(k_.operations[o].regions[0]);
  }
}

// --- Vector regions --------------------------------------------------------------------------

void LanePlan::find_vectors(RegionId region) {
  for (const OperationId o : k_.regions[region].operations) {
    const Operation& op = k_.operations[o];
    if (op.op == Op::vector) {
      vectors_.push_back(o);
      find_widths(op.regions[0], std::get<kernel::Vector>(op.detail));
      continue;
    }
    for (const RegionId inside : op.regions) find_vectors(inside);
  }
}

void LanePlan::find_widths(RegionId region, const kernel::Vector& vector) {
  for (const OperationId o : k_.regions[region].operations) {
    const Operation& op = k_.operations[o];
    for (const RegionId inside : op.regions) find_widths(inside, vector);
    const auto* access = std::get_if<Access>(&op.detail);
    if (access == nullptr || access->form != Form::wide) continue;
    const kernel::Memory& memory = k_.memories[access->memory];
    if (memory.space == kernel::Space::registers || memory.space == kernel::Space::stack) {
      const bool whole =
          memory.shape.back().is_constant(vector.width) && access->indices.back() == vector.lane;
      widths_[o] = whole ? vector.width : 1;
    } else {
      widths_[o] = kernel::access_width(k_, *access, vector.lane, vector.width);
    }
  }
}

// Casts whose results only vector accesses store.
void LanePlan::find_pairs() {
  std::vector<OperationId> casts;
  for (OperationId o = 0; o < k_.operations.size(); ++o) {
    const Operation& op = k_.operations[o];
    if (is_narrowing(k_, op) && varies_[op.results[0]]) casts.push_back(o);
  }
  if (casts.empty()) return;
  std::vector<bool> other(k_.values.size(), false);
  for (OperationId o = 0; o < k_.operations.size(); ++o) {
    const Operation& op = k_.operations[o];
    const bool stores = op.op == Op::store && widths_[o] > 1;
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (!stores || i + 1 != op.operands.size()) other[op.operands[i]] = true;
    }
  }
  for (const kernel::Region& region : k_.regions) {
    for (const ValueId v : region.yields) other[v] = true;
  }
  for (const OperationId o : casts) pairs_[o] = !other[k_.operations[o].results[0]];
}

LanePlan::Effects LanePlan::effects(const Operation& op) const {
  Effects all{reads_changing(op), writes(op), is_control(op.op) && op.op != Op::branch};
  for (const RegionId r : op.regions) {
    for (const OperationId o : k_.regions[r].operations) all.add(effects(k_.operations[o]));
  }
  return all;
}

bool LanePlan::varies(Expr e) const {
  return !sym::all_symbols(e, [&](Expr s) {
    if (s == lane_) return false;
    const auto found = symbols_.find(s.node());
    return found == symbols_.end() || !varies_[found->second];
  });
}

bool LanePlan::is_after(OperationId o) const {
  const Operation& op = k_.operations[o];
  if (pairs_[o]) return true;
  if (op.op != Op::store) return false;
  const auto& access = std::get<Access>(op.detail);
  return access.form == Form::splat || widths_[o] > 1;
}

// Run by the lanes in order.
bool LanePlan::is_lane_operation(OperationId o) const {
  const Operation& op = k_.operations[o];
  switch (op.op) {
    case Op::branch:
      return varies_[op.operands[0]];
    case Op::load:
      return varies_[op.results[0]] && widths_[o] == 1;
    case Op::store:
    case Op::atomic: {
      const Access& access = *kernel::access_of(op);
      if (access.form == Form::splat) return false;
      return varies_[op.operands.back()] ||
             !all_expressions(op, [&](Expr e) { return !varies(e); });
    }
    case Op::compute:
      return varies_[op.results[0]] && std::get<kernel::Compute>(op.detail).form != Form::wide;
    default:
      return !is_control(op.op) && !op.results.empty() && varies_[op.results[0]];
  }
}

// Calls f with the values of the symbols of the operation's expressions.
template <class F>
void LanePlan::for_each_symbol(const Operation& op, const F& f) const {
  if (symbols_.empty()) return;
  const auto visit = [&](Expr s) {
    const auto found = symbols_.find(s.node());
    if (found != symbols_.end()) f(found->second);
    return true;
  };
  (void)all_expressions(op, [&](Expr e) { return sym::all_symbols(e, visit); });
}

// Calls f with the values that the operation needs; `inside`: also those of its regions.
template <class F>
void LanePlan::for_each_use(const Operation& op, bool inside, const F& f) const {
  if (const kernel::Operation* counter = first_counter(k_, op)) {
    f(op.operands[0]);
    for_each_symbol(*counter, f);
    return;
  }
  for (const ValueId v : op.operands) f(v);
  for_each_symbol(op, f);
  if (!inside) return;
  for (const RegionId r : op.regions) {
    for (const OperationId o : k_.regions[r].operations) for_each_use(k_.operations[o], true, f);
    for (const ValueId v : k_.regions[r].yields) f(v);
  }
}

// Whether the operation needs what the lanes of the segment make.
bool LanePlan::needs_lanes(OperationId o, std::uint32_t segment) const {
  bool needs = false;
  for_each_use(k_.operations[o], true,
               [&](ValueId v) { needs = needs || (is_lane_[v] && segment_of_[v] == segment); });
  return needs;
}

void LanePlan::flush(Open& open, std::vector<Segment>& done) {
  Segment& s = open.segment;
  if (!s.before.empty() || !s.lanes.empty() || !s.after.empty()) done.push_back(std::move(s));
  open = Open();
  open.segment.number = segments_++;
}

void LanePlan::place(OperationId o, Open& open, std::vector<Segment>& done) {
  const Operation& op = k_.operations[o];
  const Effects does = effects(op);
  if (is_after(o)) {
    open.segment.after.push_back(o);
    open.after_writes = open.after_writes || does.writes;
    open.writes = open.writes || does.writes;
    return;
  }
  if (is_lane_operation(o)) {
    if (open.after_writes && (does.reads || does.writes)) flush(open, done);
    open.segment.lanes.push_back(o);
    open.writes = open.writes || does.writes;
    take_lanes(o, open.segment.number);
    return;
  }
  const bool alone = does.control || does.writes;
  const bool has_lanes = !open.segment.lanes.empty();
  if (alone || (open.writes && does.reads) || (has_lanes && needs_lanes(o, open.segment.number))) {
    flush(open, done);
  }
  open.segment.before.push_back(o);
  for (const RegionId inside : op.regions) plan(inside);
  if (alone) flush(open, done);
}

void LanePlan::plan(RegionId region) {
  std::vector<Segment> done;
  Open open;
  open.segment.number = segments_++;
  for (const OperationId o : k_.regions[region].operations) place(o, open, done);
  flush(open, done);
  // What the region yields is assigned by the lanes of the last segment.
  if (done.empty() || !done.back().after.empty()) {
    done.push_back(std::move(open.segment));
  }
  plans_[region] = std::move(done);
}

void LanePlan::take_lanes(OperationId o, std::uint32_t segment) {
  const auto take = [&](const kernel::Values& values) {
    for (const ValueId v : values) {
      is_lane_[v] = true;
      segment_of_[v] = segment;
    }
  };
  const Operation& op = k_.operations[o];
  take(op.results);
  for (const RegionId r : op.regions) {
    take(k_.regions[r].arguments);
    for (const OperationId inside : k_.regions[r].operations) take_lanes(inside, segment);
  }
}

void LanePlan::note_use(ValueId v, std::uint32_t segment) {
  if (is_lane_[v] && segment_of_[v] != segment) is_stored_[v] = true;
}

void LanePlan::note_uses(RegionId region) {
  const std::vector<Segment>& all = plans_[region];
  for (const Segment& segment : all) {
    for (const auto* list : {&segment.before, &segment.after}) {
      for (const OperationId o : *list) {
        const Operation& op = k_.operations[o];
        for_each_use(op, false, [&](ValueId v) { note_use(v, kNowhere); });
        for (const RegionId inside : op.regions) note_uses(inside);
      }
    }
    for (const OperationId o : segment.lanes) {
      for_each_use(k_.operations[o], true, [&](ValueId v) { note_use(v, segment.number); });
    }
  }
  for (const ValueId v : k_.regions[region].yields) note_use(v, all.back().number);
}

}  // namespace inkle::codegen::cuda
