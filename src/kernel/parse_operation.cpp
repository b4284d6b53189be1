#include "kernel/parse_operation.h"

#include <fmt/format.h>

#include "kernel/derive.h"
#include "kernel/function.h"

namespace inkle::kernel {

using loop::Opcode;

// `word` is a name of the set, with a suffix behind a dot, or an opcode or a
// named function.
Values OperationParser::operation(std::string_view word, const RegionParser::Wanted& wanted) {
  const std::size_t dot = word.find('.');
  const std::string_view base = word.substr(0, dot);
  const std::string_view suffix =
      dot == std::string_view::npos ? std::string_view() : word.substr(dot + 1);
  const auto opcode = loop::opcode_from_name(base);
  if (opcode && is_compute(*opcode)) return compute(*opcode, suffix);
  if (const auto function = function_from_name(word)) {
    s_.expect("(");
    Values operands = regions_.values(")");
    const TypeList types = regions_.types_of(operands);
    const std::string wrong = check_function(*function, types);
    if (!wrong.empty()) text_.refuse(wrong);
    return regions_.append(Op::function, std::move(operands), {function_type(*function, types)},
                           Function{*function});
  }
  const auto op = kOps.find(base);
  const bool is_named = op && *op != Op::constant && *op != Op::compute && *op != Op::function &&
                        *op != Op::indirect && *op != Op::bind;
  const bool has_suffix = op == Op::atomic || op == Op::shuffle || op == Op::mma;
  const bool may_have = has_suffix || op == Op::index || op == Op::divide_index;
  if (!is_named || (suffix.empty() ? has_suffix : !may_have)) {
    text_.refuse(fmt::format("'{}' is no operation", word));
  }
  return dispatch(*op, suffix, wanted);
}

Values OperationParser::dispatch(Op op, std::string_view suffix,
                                 const RegionParser::Wanted& wanted) {
  switch (op) {
    case Op::index: {
      s_.expect("(");
      const Expr e = symbols_.expression();
      s_.expect(")");
      const DType dtype = suffix.empty() ? DType::i64 : text_.dtype(suffix);
      return regions_.append(op, {}, {scalar_type(dtype)}, IndexOf{e});
    }
    case Op::divide_index:
      return divide_index(suffix);
    case Op::loop:
    case Op::repeat:
    case Op::branch:
    case Op::vector:
    case Op::fold:
    case Op::roles:
      return control_.operation(op);
    case Op::load:
      return load();
    case Op::store:
      return store();
    case Op::atomic:
      return atomic(suffix, wanted);
    case Op::prefetch: {
      Values operands;
      ValueId rank = kNone;
      Access a = access(operands, &rank);
      return regions_.append(op, std::move(operands), {}, std::move(a));
    }
    case Op::reduce:
    case Op::scan:
    case Op::broadcast:
      return collective(op);
    case Op::transpose: {
      s_.expect("(");
      Values operands = regions_.values(")");
      const TypeList types = regions_.types_of(operands);
      return regions_.append(op, std::move(operands), types, {});
    }
    case Op::shuffle:
      return shuffle(suffix);
    case Op::barrier:
      return barrier();
    case Op::fence:
      return fence();
    case Op::copy_async:
      return copy();
    case Op::copy_wait:
    case Op::barrier_init:
    case Op::barrier_arrive:
    case Op::barrier_wait:
    case Op::bulk_wait:
    case Op::mma_wait:
      return count_operation(op);
    case Op::tma_load:
    case Op::tma_store:
      return bulk(op);
    case Op::fragment_fill:
    case Op::fragment_load:
    case Op::fragment_store:
    case Op::convert_layout:
      return fragment(op);
    case Op::fragment_map:
      return fragment_map();
    case Op::mma:
      return mma(suffix);
    case Op::report: {
      Report report;
      if (s_.next_is_number()) report.status = text_.count("status");
      return regions_.append(op, {}, {}, report);
    }
    case Op::copy_commit:
    case Op::bulk_commit:
    case Op::mma_fence:
    case Op::mma_commit:
    case Op::dependency_wait:
    case Op::launch_dependents:
      return regions_.append(op, {}, {}, {});
    case Op::constant:
    case Op::compute:
    case Op::function:
    case Op::indirect:
    case Op::bind:
      break;  // written otherwise
  }
  text_.refuse("no operation");
}

Values OperationParser::divide_index(std::string_view suffix) {
  IndexDivision info;
  info.modulo = suffix == "modulo";
  if (!suffix.empty() && !info.modulo) text_.refuse(fmt::format("'divide_index.{}'", suffix));
  s_.expect("(");
  Values operands = regions_.values(")");
  info.non_negative = s_.accept("non_negative");
  info.narrow = s_.accept("narrow");
  if (operands.size() != 2 || regions_.type_of(operands[0]) != regions_.type_of(operands[1])) {
    text_.refuse("a quotient of indices needs two of one type");
  }
  const Type type = regions_.type_of(operands[0]);
  return regions_.append(Op::divide_index, std::move(operands), {type}, info);
}

Values OperationParser::compute(Opcode opcode, std::string_view suffix) {
  Compute info{opcode, Form::each};
  DType to = DType::f32;
  if (opcode == Opcode::cast || opcode == Opcode::bitcast) {
    to = text_.dtype(suffix);
  } else if (opcode == Opcode::random && !suffix.empty()) {
    info.form = text_.suffix_named(kForms, suffix, "form");
  } else if (!suffix.empty()) {
    text_.refuse(fmt::format("{} has no form", loop::name_of(opcode)));
  }
  s_.expect("(");
  Values operands = regions_.values(")");
  const TypeList types = regions_.types_of(operands);
  if (types.size() != loop::operand_count(opcode)) {
    text_.refuse(fmt::format("{} of {} operands, not {}", loop::name_of(opcode), types.size(),
                             loop::operand_count(opcode)));
  }
  const Type result = scalar_type(result_of(opcode, types, to));
  const std::string wrong = check_compute(opcode, types, result);
  if (!wrong.empty()) text_.refuse(wrong);
  return regions_.append(Op::compute, std::move(operands), {result}, info);
}

// --- Memory
// ----------------------------------------------------------------------------------------

// The operands that it names come behind `operands`, but for the rank.
Access OperationParser::access(Values& operands, ValueId* rank) {
  Access a;
  a.memory = declarations_.memory_id();
  const std::size_t dimensions = rank_of(k_.memories[a.memory]);
  std::size_t indices = 0;
  if (s_.accept("{")) {
    a.is_lowered = true;
    indices = dimensions;
    operands.push_back(regions_.index_value());
    a.has_lane_offset = s_.accept(",");
    if (a.has_lane_offset) operands.push_back(regions_.index_value());
    s_.expect("}");
  } else if (s_.accept("(")) {
    a.indices_are_operands = true;
    while (!s_.accept(")")) {
      if (indices++ > 0) s_.expect(",");
      operands.push_back(regions_.index_value());
    }
  } else {
    s_.expect("[");
    a.indices = symbols_.expressions("]");
    indices = a.indices.size();
  }
  if (indices != dimensions) {
    text_.refuse(fmt::format("{} indices into '{}' of rank {}", indices, k_.memories[a.memory].name,
                             dimensions));
  }
  for (const Form form : {Form::wide, Form::splat}) {
    if (s_.accept(name_of(form))) a.form = form;
  }
  for (const Hint hint : {Hint::once, Hint::lasting, Hint::first, Hint::early}) {
    if (s_.accept(name_of(hint))) a.hint = hint;
  }
  a.constant = s_.accept("constant");
  for (const std::string_view order : kOrders.names) {
    if (!s_.accept(order)) continue;
    a.order = *kOrders.find(order);
    a.scope = text_.named(kScopes, "scope");
    break;
  }
  if (rank != nullptr && s_.accept("at")) {
    a.remote = true;
    *rank = regions_.index_value();
  }
  return a;
}

Values OperationParser::load() {
  Values operands;
  ValueId rank = kNone;
  Access a = access(operands, &rank);
  if (a.remote) operands.push_back(rank);
  const DType dtype = k_.memories[a.memory].dtype;
  if (!abi::is_computable(dtype)) s_.fail("a value of a type without arithmetic");
  return regions_.append(Op::load, std::move(operands), {scalar_type(dtype)}, std::move(a));
}

Values OperationParser::store() {
  Values operands;
  ValueId rank = kNone;
  Access a = access(operands, &rank);
  s_.expect("=");
  operands.push_back(regions_.value());
  regions_.expect_types({regions_.type_of(operands.back())},
                        {scalar_type(k_.memories[a.memory].dtype)}, "a stored value");
  if (a.remote) operands.push_back(rank);
  return regions_.append(Op::store, std::move(operands), {}, std::move(a));
}

Values OperationParser::atomic(std::string_view suffix, const RegionParser::Wanted& wanted) {
  Atomic info;
  info.op = text_.suffix_named(kAtomicOps, suffix, "atomic operation");
  info.needs_old = wanted.is_value || !wanted.names.empty();
  Values operands;
  ValueId rank = kNone;
  info.access = access(operands, &rank);
  const Type type = scalar_type(k_.memories[info.access.memory].dtype);
  for (int n = info.op == AtomicOp::compare_exchange ? 2 : 1; n > 0; --n) {
    s_.expect(",");
    operands.push_back(regions_.value());
    regions_.expect_types({regions_.type_of(operands.back())}, {type},
                          "an operand of an atomic operation");
  }
  if (info.access.remote) operands.push_back(rank);
  return regions_.append(Op::atomic, std::move(operands), {type}, std::move(info));
}

// --- Threads
// ---------------------------------------------------------------------------------------

Values OperationParser::collective(Op op) {
  Collective info;
  if (op == Op::scan) info.exclusive = s_.accept("exclusive");
  s_.expect("over");
  if (s_.accept("lanes")) {
    info.lanes = true;
  } else {
    do {
      info.axes.push_back(declarations_.axis_id());
    } while (s_.accept(","));
  }
  if (s_.accept("sequential")) info.sequential = text_.count("number of participants");
  if (op == Op::broadcast) {
    s_.expect("from");
    info.from = text_.count("participant");
  }
  s_.expect("of");
  s_.expect("(");
  Values states = regions_.values(")");
  TypeList types = regions_.types_of(states);
  if (types.empty()) text_.refuse("a collective without states");
  if (s_.accept("using")) {
    do {
      info.scratch.push_back(declarations_.memory_id());
    } while (s_.accept(","));
  }
  if (op == Op::broadcast) {
    if (types.size() != 1) text_.refuse("broadcast of one value");
    return regions_.append(op, std::move(states), types, std::move(info));
  }
  if (info.exclusive) {
    if (types.size() % 2 != 0)
      text_.refuse("an exclusive scan takes states and as many first ones");
    const TypeList firsts(types.begin() + static_cast<std::ptrdiff_t>(types.size() / 2),
                          types.end());
    types.resize(types.size() / 2);
    regions_.expect_types(firsts, types, "first states");
  }
  s_.expect("merge");
  const auto list = regions_.arguments(nullptr);
  TypeList taken;
  for (const auto& [unused, type] : list) taken.push_back(type);
  TypeList both = types;
  both.insert(both.end(), types.begin(), types.end());
  regions_.expect_types(taken, both, "merge takes values");
  const auto [id, yields] = regions_.region(list);
  regions_.expect_types(yields, types, "merge yields values");
  return regions_.append(op, std::move(states), types, std::move(info), {id});
}

Values OperationParser::shuffle(std::string_view suffix) {
  Shuffle info;
  info.kind = text_.suffix_named(kShuffleKinds, suffix, "shuffle");
  s_.expect("(");
  Values operands = regions_.values(")");
  if (operands.size() == 1) {
    s_.expect("by");
    info.by = text_.count("distance");
  } else if (operands.size() != 2 || regions_.type_of(operands[1]) != scalar_type(DType::i32)) {
    text_.refuse("shuffle takes a value, and an i32 where the distance is no constant");
  }
  const Type type = regions_.type_of(operands[0]);
  if (type.kind != TypeKind::scalar) text_.refuse("shuffle of what is no scalar");
  if (s_.accept("width")) info.width = text_.count("width");
  if (s_.accept("partial")) info.whole_warp = false;
  return regions_.append(Op::shuffle, std::move(operands), {type}, info);
}

Values OperationParser::barrier() {
  Barrier info;
  info.scope = text_.named(kScopes, "scope");
  if (s_.accept("number")) info.number = text_.count("number");
  if (s_.accept("threads")) info.threads = text_.count("number of threads");
  if (s_.accept("arrive")) {
    info.part = Barrier::Part::arrive;
  } else if (s_.accept("wait")) {
    info.part = Barrier::Part::wait;
  }
  return regions_.append(Op::barrier, {}, {}, info);
}

Values OperationParser::fence() {
  Fence info;
  const Scanner::Mark start = s_.mark();
  if (const auto order = kOrders.find(s_.identifier())) {
    info.order = *order;
  } else {
    s_.reset(start);
  }
  info.scope = text_.named(kScopes, "scope");
  info.proxy = s_.accept("proxy");
  return regions_.append(Op::fence, {}, {}, info);
}

// --- Asynchronous copies
// ---------------------------------------------------------------------------

Values OperationParser::copy() {
  Copy info;
  info.elements = text_.count("number of elements");
  Values operands;
  s_.expect("from");
  info.from = access(operands, nullptr);
  s_.expect("to");
  info.to = access(operands, nullptr);
  return regions_.append(Op::copy_async, std::move(operands), {}, std::move(info));
}

Values OperationParser::count_operation(Op op) {
  Count info;
  Values operands;
  if (op == Op::copy_wait || op == Op::bulk_wait || op == Op::mma_wait) {
    info.count = text_.count("number of groups");
    return regions_.append(op, {}, {}, std::move(info));
  }
  ValueId rank = kNone;
  info.access = access(operands, &rank);
  if (op == Op::barrier_init) {
    s_.expect("count");
    info.count = text_.count("number of arrivals");
  } else if (op == Op::barrier_arrive) {
    if (s_.accept("bytes")) info.count = text_.count("number of bytes");
  } else {
    info.has_phase = s_.accept("phase");
    if (info.has_phase) operands.push_back(regions_.value());
    s_.expect("parity");
    const ValueId parity = regions_.value();
    const Type type = regions_.type_of(parity);
    if (type != scalar_type(DType::boolean) && type != scalar_type(DType::i32)) {
      text_.refuse("a parity that is no bool or i32");
    }
    operands.push_back(parity);
  }
  if (info.access.remote) operands.push_back(rank);
  return regions_.append(op, std::move(operands), {}, std::move(info));
}

Values OperationParser::bulk(Op op) {
  Bulk info;
  Values operands;
  info.map = declarations_.memory_id();
  s_.expect("(");
  std::size_t indices = 0;
  while (!s_.accept(")")) {
    if (indices++ > 0) s_.expect(",");
    operands.push_back(regions_.index_value());
  }
  if (indices != k_.memories[info.map].shape.size()) {
    text_.refuse(fmt::format("{} indices into '{}' of rank {}", indices, k_.memories[info.map].name,
                             k_.memories[info.map].shape.size()));
  }
  s_.expect(op == Op::tma_load ? "to" : "from");
  info.shared = access(operands, nullptr);
  if (op == Op::tma_load) {
    s_.expect("signals");
    info.barrier = access(operands, nullptr);
  }
  return regions_.append(op, std::move(operands), {}, std::move(info));
}

}  // namespace inkle::kernel
