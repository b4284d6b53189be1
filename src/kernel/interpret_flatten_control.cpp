// Loops, branches, vector regions, folds and roles as jumps and masks.
#include "base/error.h"
#include "kernel/interpret_flatten.h"

namespace inkle::kernel {

void Flattener::counted_loop(const Loop& info, OperationId id, const std::function<void()>& body) {
  const Ref begin =
      info.is_lowered ? out_.ref(kernel_[id].operands[0]) : indices_.index_slot(info.begin, id);
  const Ref end =
      info.is_lowered ? out_.ref(kernel_[id].operands[1]) : indices_.index_slot(info.end, id);
  const Ref step = indices_.index_slot(info.step, id);
  const Ref variable = out_.slot(1, false);
  indices_.define(info.variable, variable);
  out_.move(scalar_type(DType::i64), variable, begin, id);
  const std::uint32_t head = out_.here();
  out_.emit(Code::loop_test, id, std::array{variable, end, step});
  body();
  out_.emit(Code::loop_next, id, std::array{variable, step}).target = head;
  out_.land(head);
}

void Flattener::loop(OperationId id) {
  const Operation& op = kernel_[id];
  const std::size_t bounds = kernel_.detail<Loop>(id).is_lowered ? 2 : 0;
  const std::vector<Ref> carried = out_.carried_slots(std::span(op.operands).subspan(bounds), id);
  const RegionId body = op.regions.at(0);
  counted_loop(kernel_.detail<Loop>(id), id, [&] {
    out_.bind_all(kernel_.regions[body].arguments, carried);
    region(body);
    out_.move_all(kernel_.regions[body].yields, carried, id);
  });
  for (std::size_t i = 0; i < carried.size(); ++i) out_.bind(op.results[i], carried[i]);
}

void Flattener::repeat(OperationId id) {
  const Operation& op = kernel_[id];
  const std::vector<Ref> carried = out_.carried_slots(op.operands, id);
  const RegionId body = op.regions.at(0);
  out_.emit(Code::repeat_begin, id);
  const std::uint32_t head = out_.here();
  out_.emit(Code::repeat_head, id);
  out_.bind_all(kernel_.regions[body].arguments, carried);
  region(body);
  const Values& yields = kernel_.regions[body].yields;
  const std::span<const ValueId> next = std::span(yields).subspan(1);
  INKLE_CHECK(!out_.ref(yields[0]).varies(), "a repeat's condition varies by lane");
  std::vector<Ref> compared = out_.refs(next);
  compared.insert(compared.end(), carried.begin(), carried.end());
  out_.emit(Code::repeat_compare, id, compared);
  // The condition may be a carried value.
  const Ref again = out_.slot(1, false);
  out_.move(scalar_type(DType::boolean), again, out_.ref(yields[0]), id);
  out_.move_all(next, carried, id);
  out_.emit(Code::repeat_again, id, std::array{again}).target = head;
  for (std::size_t i = 0; i < carried.size(); ++i) out_.bind(op.results[i], carried[i]);
}

void Flattener::branch(OperationId id) {
  const Operation& op = kernel_[id];
  std::vector<Ref> results;
  for (const ValueId result : op.results) {
    results.push_back(out_.value_slot(kernel_.type_of(result), true));
    out_.bind(result, results.back());
  }
  if (out_.ref(op.operands[0]).varies()) return masked_branch(id, results);
  const std::uint32_t test = out_.here();
  out_.emit(Code::jump_if_not, id, std::array{out_.ref(op.operands[0])});
  region(op.regions[0]);
  out_.move_all(kernel_.regions[op.regions[0]].yields, results, id);
  const std::uint32_t end = out_.here();
  out_.emit(Code::jump, id);
  out_.land(test);
  region(op.regions[1]);
  out_.move_all(kernel_.regions[op.regions[1]].yields, results, id);
  out_.land(end);
}

// Both regions run, each by its lanes.
void Flattener::masked_branch(OperationId id, std::span<const Ref> results) {
  const Operation& op = kernel_[id];
  const Ref condition = out_.ref(op.operands[0]);
  const Ref outside = lanes_.mask;
  const Ref masks[] = {out_.slot(lanes_.width, true), out_.slot(lanes_.width, true)};
  const Code codes[] = {Code::mask_and, Code::mask_and_not};
  for (int i = 0; i < 2; ++i) {
    Instruction& made = out_.emit(codes[i], id, std::array{condition});
    made.mask = outside;
    made.result = masks[i];
    made.width = lanes_.width;
    if (i == 0) made.detail = static_cast<std::uint32_t>(kernel_.detail<Branch>(id).limit);
  }
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t test = out_.here();
    out_.emit(Code::jump_unless_any, id, std::array{masks[i]}).width = lanes_.width;
    lanes_.mask = masks[i];
    const RegionId body = op.regions.at(static_cast<std::size_t>(i));
    region(body);
    out_.move_all(kernel_.regions[body].yields, results, id);
    lanes_.mask = outside;
    out_.land(test);
  }
}

void Flattener::vector(OperationId id) {
  const Operation& op = kernel_[id];
  const auto& info = kernel_.detail<Vector>(id);
  INKLE_CHECK(lanes_.width == 0, "a vector region inside of another");
  lanes_.width = info.width;
  lanes_.native = info.native;
  lanes_.lane = info.lane;
  const Ref lane{static_cast<std::uint32_t>(out_.program().pool.size()) | Ref::kPool |
                 Ref::kVaries};
  for (std::int32_t l = 0; l < info.width; ++l) out_.program().pool.push_back(l);
  indices_.define(info.lane, lane);
  region(op.regions[0]);
  lanes_.width = 0;
  lanes_.native = 1;
  const Values& yields = kernel_.regions[op.regions[0]].yields;
  for (std::size_t i = 0; i < yields.size(); ++i) {
    const Type& type = kernel_.type_of(yields[i]);
    const Ref to = out_.value_slot(type, false);
    out_.move(type, to, out_.ref(yields[i]), id);  // of a value that varies, that of lane 0
    out_.bind(op.results[i], to);
  }
}

// --- Folds

void Flattener::fold(OperationId id) {
  const Operation& op = kernel_[id];
  const std::vector<Ref> totals = out_.carried_slots(op.operands, id);
  fold_level(id, 0, totals, totals);
  for (std::size_t i = 0; i < totals.size(); ++i) out_.bind(op.results[i], totals[i]);
}

void Flattener::fold_level(OperationId id, std::size_t level, std::span<const Ref> totals,
                           std::span<const Ref> states) {
  const auto& info = kernel_.detail<Fold>(id);
  if (level == info.loops.size()) {
    const RegionId step = kernel_[id].regions[0];
    out_.bind_all(kernel_.regions[step].arguments, states);
    region(step);
    out_.move_all(kernel_.regions[step].yields, states, id);
    return;
  }
  if (static_cast<std::int32_t>(level) == info.chunked_loop) return fold_parts(id, level, totals);
  counted_loop(info.loops[level], id, [&] { fold_level(id, level + 1, totals, states); });
}

void Flattener::fold_parts(OperationId id, std::size_t level, std::span<const Ref> totals) {
  const auto& info = kernel_.detail<Fold>(id);
  const Operation& op = kernel_[id];
  const RegionId begin = op.regions.at(1);
  const RegionId merge = op.regions.at(2);
  const Loop& cut = info.loops[level];
  const Type index = scalar_type(DType::i64);
  const Ref end = indices_.index_slot(cut.end, id);
  const Ref step = indices_.index_slot(cut.step, id);
  const Ref part = out_.slot(1, false);
  const Ref part_end = out_.slot(1, false);
  const Ref variable = out_.slot(1, false);
  out_.move(index, part, indices_.index_slot(cut.begin, id), id);
  const std::uint32_t head = out_.here();
  out_.emit(Code::loop_test, id, std::array{part, end, step});
  out_.bind_all(kernel_.regions[begin].arguments, totals);
  region(begin);
  const std::vector<Ref> states = out_.carried_slots(kernel_.regions[begin].yields, id);
  Instruction& limit = out_.emit(Code::part_end, id, std::array{part, end, step});
  limit.result = part_end;
  limit.detail = static_cast<std::uint32_t>(info.chunk);
  out_.move(index, variable, part, id);
  indices_.define(cut.variable, variable);
  const std::uint32_t inner = out_.here();
  out_.emit(Code::loop_test, id, std::array{variable, part_end, step});
  fold_level(id, level + 1, totals, states);
  out_.emit(Code::loop_next, id, std::array{variable, step}).target = inner;
  out_.land(inner);
  std::vector<Ref> both(totals.begin(), totals.end());
  both.insert(both.end(), states.begin(), states.end());
  out_.bind_all(kernel_.regions[merge].arguments, both);
  region(merge);
  out_.move_all(kernel_.regions[merge].yields, totals, id);
  // A part that is not full ends the loop: part_end is the loop's end then.
  out_.move(index, part, part_end, id);
  out_.emit(Code::jump, id).target = head;
  out_.land(head);
}

void Flattener::roles(OperationId id) {
  const Operation& op = kernel_[id];
  const auto& info = kernel_.detail<Roles>(id);
  std::vector<std::uint32_t> ends;
  for (std::size_t i = 0; i < info.roles.size(); ++i) {
    const std::uint32_t test = out_.here();
    Instruction& made = out_.emit(Code::role_test, id);
    made.detail = static_cast<std::uint32_t>(info.roles[i].first_warp);
    made.width = info.roles[i].warps;
    region(op.regions[i]);
    ends.push_back(out_.here());
    out_.emit(Code::jump, id);
    out_.land(test);
  }
  for (const std::uint32_t end : ends) out_.land(end);
}

void Flattener::collective(OperationId id) {
  const Operation& op = kernel_[id];
  const bool merges = op.op != Op::broadcast;
  MergeCode code;
  const std::size_t count = op.results.size();
  for (const ValueId result : op.results) code.dtypes.push_back(kernel_.type_of(result).dtype);
  if (merges) {
    const std::int32_t width = std::exchange(lanes_.width, 0);
    const Ref mask = std::exchange(lanes_.mask, Ref{});
    const std::uint32_t over = out_.here();
    out_.emit(Code::jump, id);
    std::vector<Ref> arguments;
    for (std::size_t i = 0; i < 2 * count; ++i) arguments.push_back(out_.slot(1, false));
    out_.bind_all(kernel_.regions[op.regions.at(0)].arguments, arguments);
    code.entry = out_.here();
    code.first.assign(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(count));
    code.second.assign(arguments.begin() + static_cast<std::ptrdiff_t>(count), arguments.end());
    region(op.regions[0]);
    code.yields = out_.refs(kernel_.regions[op.regions[0]].yields);
    out_.emit(Code::region_end, id);
    out_.land(over);
    lanes_.width = width;
    lanes_.mask = mask;
  }
  const auto& info = kernel_.detail<Collective>(id);
  const std::vector<Ref> operands = out_.refs(op.operands);
  const bool varies = lanes_.width > 0 && (info.lanes ? op.op == Op::scan : any_varies(operands));
  std::vector<Ref> all = operands;
  for (const ValueId result : op.results) {
    out_.bind(result, out_.value_slot(kernel_.type_of(result), varies));
    all.push_back(out_.ref(result));
  }
  const Code kind = op.op == Op::reduce ? Code::reduce
                    : op.op == Op::scan ? Code::scan
                                        : Code::broadcast;
  Instruction& made = out_.emit(kind, id, all);
  made.width = info.lanes || varies ? lanes_.width : 1;
  made.mask = lanes_.mask;
  made.detail = static_cast<std::uint32_t>(out_.program().merges.size());
  made.target = static_cast<std::uint32_t>(lanes_.native);
  out_.program().merges.push_back(std::move(code));
}

void Flattener::transpose(OperationId id) {
  const Operation& op = kernel_[id];
  std::vector<Ref> all = out_.refs(op.operands);
  for (const ValueId result : op.results) {
    out_.bind(result, out_.value_slot(kernel_.type_of(result), true));
    all.push_back(out_.ref(result));
  }
  Instruction& made = out_.emit(Code::transpose, id, all);
  made.width = lanes_.width;
  made.mask = lanes_.mask;
}

void Flattener::fragment_map(OperationId id) {
  const Operation& op = kernel_[id];
  const auto& info = kernel_.detail<FragmentMap>(id);
  const RegionId body = op.regions.at(0);
  const Ref counter = out_.slot(1, false);
  std::vector<Ref> operands = {counter, out_.slot(1, false), out_.slot(1, false)};
  indices_.define(info.row, operands[1]);
  indices_.define(info.column, operands[2]);
  std::vector<Ref> arguments;
  for (std::size_t i = 0; i < op.operands.size(); ++i) arguments.push_back(out_.slot(1, false));
  out_.bind_all(kernel_.regions[body].arguments, arguments);
  operands.insert(operands.end(), arguments.begin(), arguments.end());
  for (const ValueId value : op.operands) operands.push_back(out_.ref(value));
  out_.move(scalar_type(DType::i64), counter, out_.constant(0), id);
  const std::uint32_t head = out_.here();
  out_.emit(Code::map_head, id, operands);
  region(body);
  std::vector<Ref> next = {counter};
  for (const ValueId value : kernel_.regions[body].yields) next.push_back(out_.ref(value));
  for (const ValueId result : op.results) {
    out_.bind(result, out_.value_slot(kernel_.type_of(result), true));
    next.push_back(out_.ref(result));
  }
  out_.emit(Code::map_next, id, next).target = head;
  out_.land(head);
}

}  // namespace inkle::kernel
