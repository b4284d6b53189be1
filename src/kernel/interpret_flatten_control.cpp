// Loops, branches, vector regions, folds and roles as jumps and masks.
#include "base/error.h"
#include "kernel/interpret_flatten.h"

namespace inkle::kernel {

// Slots of carried values, holding the initial ones. In a vector region each lane has its own.
std::vector<Ref> Flattener::carried_slots(std::span<const ValueId> initial, OperationId id) {
  std::vector<Ref> carried;
  for (const ValueId value : initial) {
    const Type& type = kernel_.type_of(value);
    carried.push_back(value_slot(type, true));
    move(type, carried.back(), ref(value), id);
  }
  return carried;
}

void Flattener::counted_loop(const Loop& info, OperationId id, const std::function<void()>& body) {
  const Ref begin = info.is_lowered ? ref(kernel_[id].operands[0]) : index_slot(info.begin, id);
  const Ref end = info.is_lowered ? ref(kernel_[id].operands[1]) : index_slot(info.end, id);
  const Ref step = index_slot(info.step, id);
  const Ref variable = slot(1, false);
  symbols_[info.variable.id()] = variable;
  move(scalar_type(DType::i64), variable, begin, id);
  const std::uint32_t head = here();
  emit(Code::loop_test, id, std::array{variable, end, step});
  body();
  emit(Code::loop_next, id, std::array{variable, step}).target = head;
  program_.code[head].target = here();
}

void Flattener::loop(OperationId id) {
  const Operation& op = kernel_[id];
  const std::size_t bounds = kernel_.detail<Loop>(id).is_lowered ? 2 : 0;
  const std::vector<Ref> carried = carried_slots(std::span(op.operands).subspan(bounds), id);
  const RegionId body = op.regions.at(0);
  counted_loop(kernel_.detail<Loop>(id), id, [&] {
    bind_arguments(body, carried);
    region(body);
    move_all(kernel_.regions[body].yields, carried, id);
  });
  for (std::size_t i = 0; i < carried.size(); ++i) values_[op.results[i]] = carried[i];
}

void Flattener::repeat(OperationId id) {
  const Operation& op = kernel_[id];
  const std::vector<Ref> carried = carried_slots(op.operands, id);
  const RegionId body = op.regions.at(0);
  emit(Code::repeat_begin, id);
  const std::uint32_t head = here();
  emit(Code::repeat_head, id);
  bind_arguments(body, carried);
  region(body);
  const std::vector<ValueId>& yields = kernel_.regions[body].yields;
  const std::span<const ValueId> next = std::span(yields).subspan(1);
  INKLE_CHECK(!ref(yields[0]).varies(), "a repeat's condition varies by lane");
  std::vector<Ref> compared = refs(next);
  compared.insert(compared.end(), carried.begin(), carried.end());
  emit(Code::repeat_compare, id, compared);
  // The condition may be a carried value.
  const Ref again = slot(1, false);
  move(scalar_type(DType::boolean), again, ref(yields[0]), id);
  move_all(next, carried, id);
  emit(Code::repeat_again, id, std::array{again}).target = head;
  for (std::size_t i = 0; i < carried.size(); ++i) values_[op.results[i]] = carried[i];
}

void Flattener::branch(OperationId id) {
  const Operation& op = kernel_[id];
  std::vector<Ref> results;
  for (const ValueId result : op.results) {
    results.push_back(value_slot(kernel_.type_of(result), true));
    values_[result] = results.back();
  }
  if (ref(op.operands[0]).varies()) return masked_branch(id, results);
  const std::uint32_t test = here();
  emit(Code::jump_if_not, id, std::array{ref(op.operands[0])});
  region(op.regions[0]);
  move_all(kernel_.regions[op.regions[0]].yields, results, id);
  const std::uint32_t end = here();
  emit(Code::jump, id);
  program_.code[test].target = here();
  region(op.regions[1]);
  move_all(kernel_.regions[op.regions[1]].yields, results, id);
  program_.code[end].target = here();
}

// Both regions run, each by its lanes.
void Flattener::masked_branch(OperationId id, std::span<const Ref> results) {
  const Operation& op = kernel_[id];
  const Ref condition = ref(op.operands[0]);
  const Ref outside = mask_;
  const Ref masks[] = {slot(width_, true), slot(width_, true)};
  const Code codes[] = {Code::mask_and, Code::mask_and_not};
  for (int i = 0; i < 2; ++i) {
    Instruction& made = emit(codes[i], id, std::array{condition});
    made.mask = outside;
    made.result = masks[i];
    made.width = width_;
    if (i == 0) made.detail = static_cast<std::uint32_t>(kernel_.detail<Branch>(id).limit);
  }
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t test = here();
    emit(Code::jump_unless_any, id, std::array{masks[i]}).width = width_;
    mask_ = masks[i];
    const RegionId body = op.regions.at(static_cast<std::size_t>(i));
    region(body);
    move_all(kernel_.regions[body].yields, results, id);
    mask_ = outside;
    program_.code[test].target = here();
  }
}

void Flattener::vector(OperationId id) {
  const Operation& op = kernel_[id];
  const auto& info = kernel_.detail<Vector>(id);
  INKLE_CHECK(width_ == 0, "a vector region inside of another");
  width_ = info.width;
  native_ = info.native;
  lane_ = info.lane;
  const Ref lane{static_cast<std::uint32_t>(program_.pool.size()) | Ref::kPool | Ref::kVaries};
  for (std::int32_t l = 0; l < info.width; ++l) program_.pool.push_back(l);
  symbols_[info.lane.id()] = lane;
  region(op.regions[0]);
  width_ = 0;
  native_ = 1;
  const std::vector<ValueId>& yields = kernel_.regions[op.regions[0]].yields;
  for (std::size_t i = 0; i < yields.size(); ++i) {
    const Type& type = kernel_.type_of(yields[i]);
    const Ref to = value_slot(type, false);
    move(type, to, ref(yields[i]), id);  // of a value that varies, that of lane 0
    values_[op.results[i]] = to;
  }
}

// --- Folds

void Flattener::fold(OperationId id) {
  const Operation& op = kernel_[id];
  const std::vector<Ref> totals = carried_slots(op.operands, id);
  fold_level(id, 0, totals, totals);
  for (std::size_t i = 0; i < totals.size(); ++i) values_[op.results[i]] = totals[i];
}

void Flattener::fold_level(OperationId id, std::size_t level, std::span<const Ref> totals,
                           std::span<const Ref> states) {
  const auto& info = kernel_.detail<Fold>(id);
  if (level == info.loops.size()) {
    const RegionId step = kernel_[id].regions[0];
    bind_arguments(step, states);
    region(step);
    move_all(kernel_.regions[step].yields, states, id);
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
  const Ref end = index_slot(cut.end, id);
  const Ref step = index_slot(cut.step, id);
  const Ref part = slot(1, false);
  const Ref part_end = slot(1, false);
  const Ref variable = slot(1, false);
  move(index, part, index_slot(cut.begin, id), id);
  const std::uint32_t head = here();
  emit(Code::loop_test, id, std::array{part, end, step});
  bind_arguments(begin, totals);
  region(begin);
  const std::vector<Ref> states = carried_slots(kernel_.regions[begin].yields, id);
  Instruction& limit = emit(Code::part_end, id, std::array{part, end, step});
  limit.result = part_end;
  limit.detail = static_cast<std::uint32_t>(info.chunk);
  move(index, variable, part, id);
  symbols_[cut.variable.id()] = variable;
  const std::uint32_t inner = here();
  emit(Code::loop_test, id, std::array{variable, part_end, step});
  fold_level(id, level + 1, totals, states);
  emit(Code::loop_next, id, std::array{variable, step}).target = inner;
  program_.code[inner].target = here();
  std::vector<Ref> both(totals.begin(), totals.end());
  both.insert(both.end(), states.begin(), states.end());
  bind_arguments(merge, both);
  region(merge);
  move_all(kernel_.regions[merge].yields, totals, id);
  // A part that is not full ends the loop: part_end is the loop's end then.
  move(index, part, part_end, id);
  emit(Code::jump, id).target = head;
  program_.code[head].target = here();
}

void Flattener::roles(OperationId id) {
  const Operation& op = kernel_[id];
  const auto& info = kernel_.detail<Roles>(id);
  std::vector<std::uint32_t> ends;
  for (std::size_t i = 0; i < info.roles.size(); ++i) {
    const std::uint32_t test = here();
    Instruction& made = emit(Code::role_test, id);
    made.detail = static_cast<std::uint32_t>(info.roles[i].first_warp);
    made.width = info.roles[i].warps;
    region(op.regions[i]);
    ends.push_back(here());
    emit(Code::jump, id);
    program_.code[test].target = here();
  }
  for (const std::uint32_t end : ends) program_.code[end].target = here();
}

void Flattener::collective(OperationId id) {
  const Operation& op = kernel_[id];
  const bool merges = op.op != Op::broadcast;
  MergeCode code;
  const std::size_t count = op.results.size();
  for (const ValueId result : op.results) code.dtypes.push_back(kernel_.type_of(result).dtype);
  if (merges) {
    const std::int32_t width = std::exchange(width_, 0);
    const Ref mask = std::exchange(mask_, Ref{});
    const std::uint32_t over = here();
    emit(Code::jump, id);
    std::vector<Ref> arguments;
    for (std::size_t i = 0; i < 2 * count; ++i) arguments.push_back(slot(1, false));
    bind_arguments(op.regions.at(0), arguments);
    code.entry = here();
    code.first.assign(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(count));
    code.second.assign(arguments.begin() + static_cast<std::ptrdiff_t>(count), arguments.end());
    region(op.regions[0]);
    code.yields = refs(kernel_.regions[op.regions[0]].yields);
    emit(Code::region_end, id);
    program_.code[over].target = here();
    width_ = width;
    mask_ = mask;
  }
  const auto& info = kernel_.detail<Collective>(id);
  const std::vector<Ref> operands = refs(op.operands);
  const bool varies = width_ > 0 && (info.lanes ? op.op == Op::scan : any_varies(operands));
  std::vector<Ref> all = operands;
  for (const ValueId result : op.results) {
    values_[result] = value_slot(kernel_.type_of(result), varies);
    all.push_back(values_[result]);
  }
  const Code kind = op.op == Op::reduce ? Code::reduce
                    : op.op == Op::scan ? Code::scan
                                        : Code::broadcast;
  Instruction& made = emit(kind, id, all);
  made.width = info.lanes || varies ? width_ : 1;
  made.mask = mask_;
  made.detail = static_cast<std::uint32_t>(program_.merges.size());
  made.target = static_cast<std::uint32_t>(native_);
  program_.merges.push_back(std::move(code));
}

void Flattener::transpose(OperationId id) {
  const Operation& op = kernel_[id];
  std::vector<Ref> all = refs(op.operands);
  for (const ValueId result : op.results) {
    values_[result] = value_slot(kernel_.type_of(result), true);
    all.push_back(values_[result]);
  }
  Instruction& made = emit(Code::transpose, id, all);
  made.width = width_;
  made.mask = mask_;
}

void Flattener::fragment_map(OperationId id) {
  const Operation& op = kernel_[id];
  const auto& info = kernel_.detail<FragmentMap>(id);
  const RegionId body = op.regions.at(0);
  const Ref counter = slot(1, false);
  std::vector<Ref> operands = {counter, slot(1, false), slot(1, false)};
  symbols_[info.row.id()] = operands[1];
  symbols_[info.column.id()] = operands[2];
  std::vector<Ref> arguments;
  for (std::size_t i = 0; i < op.operands.size(); ++i) arguments.push_back(slot(1, false));
  bind_arguments(body, arguments);
  operands.insert(operands.end(), arguments.begin(), arguments.end());
  for (const ValueId value : op.operands) operands.push_back(ref(value));
  move(scalar_type(DType::i64), counter, constant(0), id);
  const std::uint32_t head = here();
  emit(Code::map_head, id, operands);
  region(body);
  std::vector<Ref> next = {counter};
  for (const ValueId value : kernel_.regions[body].yields) next.push_back(ref(value));
  for (const ValueId result : op.results) {
    values_[result] = value_slot(kernel_.type_of(result), true);
    next.push_back(values_[result]);
  }
  emit(Code::map_next, id, next).target = head;
  program_.code[head].target = here();
}

}  // namespace inkle::kernel
