#include "kernel/builder.h"

#include <utility>

#include "base/error.h"
#include "kernel/derive.h"
#include "kernel/function.h"
#include "sym/symbols.h"

namespace inkle::kernel {

namespace {

ValueId new_value(Kernel& kernel, Type type, OperationId definition, RegionId region) {
  kernel.values.push_back({type, definition, region});
  return static_cast<ValueId>(kernel.values.size() - 1);
}

RegionId new_region(Kernel& kernel, const TypeList& arguments) {
  kernel.regions.emplace_back();
  const auto id = static_cast<RegionId>(kernel.regions.size() - 1);
  for (const Type& type : arguments) {
    const ValueId value = new_value(kernel, type, kNone, id);
    kernel.regions[id].arguments.push_back(value);
  }
  return id;
}

}  // namespace

Builder::Builder(Kernel& kernel, sym::Context& context) : kernel_(kernel), context_(context) {
  constexpr std::size_t kUsual = 192;
  if (kernel_.body == kNone) {
    kernel_.operations.reserve(kUsual);
    kernel_.values.reserve(kUsual);
    kernel_.body = new_region(kernel_, {});
  }
  region_ = kernel_.body;
}

MemoryId Builder::parameter(Memory memory) {
  INKLE_CHECK(kernel_.memories.size() == kernel_.parameter_count,
              "kernel {}: parameter {} comes after the kernel's own memory", kernel_.name,
              memory.name);
  ++kernel_.parameter_count;
  return this->memory(std::move(memory));
}

MemoryId Builder::memory(Memory memory) {
  kernel_.memories.push_back(std::move(memory));
  return static_cast<MemoryId>(kernel_.memories.size() - 1);
}

Expr Builder::axis(AxisKind kind, Expr extent) {
  const Expr variable = context_.index(extent);
  kernel_.launch.axes.push_back({kind, variable, extent});
  return variable;
}

Values Builder::operation(Op op, const Values& operands, const TypeList& results, Detail detail,
                          const std::vector<RegionSpec>& regions) {
  Regions inside;
  for (const RegionSpec& spec : regions) {
    const RegionId id = new_region(kernel_, spec.arguments);
    const RegionId outside = std::exchange(region_, id);
    const Values arguments = kernel_.regions[id].arguments;
    Values yields = spec.body ? spec.body(arguments) : Values();
    kernel_.regions[id].yields = std::move(yields);
    region_ = outside;
    inside.push_back(id);
  }
  const auto id = static_cast<OperationId>(kernel_.operations.size());
  Values values;
  for (const Type& type : results) values.push_back(new_value(kernel_, type, id, kNone));
  Operation& made = kernel_.operations.emplace_back();
  made.op = op;
  made.operands = operands;
  made.results = values;
  made.regions = std::move(inside);
  made.detail = std::move(detail);
  kernel_.regions[region_].operations.push_back(id);
  return values;
}

ValueId Builder::real(DType dtype, double value) {
  return operation(Op::constant, {}, {scalar_type(dtype)}, Immediate{value, 0})[0];
}

ValueId Builder::integer(DType dtype, std::int64_t value) {
  return operation(Op::constant, {}, {scalar_type(dtype)}, Immediate{0, value})[0];
}

ValueId Builder::index(Expr expression, DType dtype) {
  return operation(Op::index, {}, {scalar_type(dtype)}, IndexOf{expression})[0];
}

ValueId Builder::compute(loop::Opcode opcode, DType result, const Values& operands, Form form) {
  return operation(Op::compute, operands, {scalar_type(result)}, Compute{opcode, form})[0];
}

ValueId Builder::function(NamedFunction function, const Values& operands) {
  TypeList types;
  for (const ValueId v : operands) types.push_back(type_of(v));
  return operation(Op::function, operands, {function_type(function, types)}, Function{function})[0];
}

ValueId Builder::cast(ValueId value, DType to) {
  if (type_of(value).dtype == to) return value;
  return compute(loop::Opcode::cast, to, {value});
}

Expr Builder::indirect(ValueId value, Expr extent) {
  const Expr symbol = context_.index(extent);
  operation(Op::indirect, {value}, {scalar_type(DType::i64)}, Symbolic{symbol, extent});
  return symbol;
}

namespace {

TypeList types_of(const Kernel& kernel, const Values& values) {
  TypeList types;
  for (const ValueId value : values) types.push_back(kernel.type_of(value));
  return types;
}

}  // namespace

Values Builder::loop(LoopKind kind, Expr end, const Values& initial, const LoopBody& body) {
  Loop info;
  info.kind = kind;
  info.begin = context_.constant(0);
  info.end = end;
  info.step = context_.constant(1);
  info.variable = context_.index(end);
  return loop(std::move(info), initial, body);
}

Values Builder::loop(Loop info, const Values& initial, const LoopBody& body) {
  if (info.variable.is_null()) {
    info.variable = sym::fresh(context_, facts_of(info));
  }
  const Expr variable = info.variable;
  const TypeList types = types_of(kernel_, initial);
  return operation(Op::loop, initial, types, std::move(info),
                   {{types, [&](const Values& carried) { return body(variable, carried); }}});
}

Values Builder::repeat(const Values& initial, const Body& body) {
  const TypeList types = types_of(kernel_, initial);
  return operation(Op::repeat, initial, types, {}, {{types, body}});
}

Values Builder::branch(ValueId condition, const std::function<Values()>& then,
                       const std::function<Values()>& otherwise, Branch info) {
  // The results' types are those of what `then` yields, known once it has run.
  const RegionId taken = new_region(kernel_, {});
  const RegionId not_taken = new_region(kernel_, {});
  const RegionId outside = std::exchange(region_, taken);
  kernel_.regions[taken].yields = then();
  region_ = not_taken;
  if (otherwise) {
    Values yields = otherwise();
    kernel_.regions[not_taken].yields = std::move(yields);
  }
  region_ = outside;
  const Values yields = kernel_.regions[taken].yields;
  const Values results =
      operation(Op::branch, {condition}, types_of(kernel_, yields), std::move(info));
  kernel_.operations.back().regions = {taken, not_taken};
  return results;
}

Values Builder::vector(std::int32_t width, std::int32_t native,
                       const std::function<Values(Expr lane)>& body) {
  const Expr lane = context_.index(context_.constant(width));
  const RegionId inside = new_region(kernel_, {});
  const RegionId outside = std::exchange(region_, inside);
  Values yields = body(lane);
  kernel_.regions[inside].yields = yields;
  region_ = outside;
  const Values results =
      operation(Op::vector, {}, types_of(kernel_, yields), Vector{lane, width, native});
  kernel_.operations.back().regions = {inside};
  return results;
}

ValueId Builder::load(Access access) {
  const DType dtype = kernel_.memories.at(access.memory).dtype;
  return operation(Op::load, {}, {scalar_type(dtype)}, std::move(access))[0];
}

ValueId Builder::load(MemoryId memory, std::vector<Expr> indices, Form form) {
  Access access;
  access.memory = memory;
  access.indices = std::move(indices);
  access.form = form;
  return load(std::move(access));
}

void Builder::store(Access access, ValueId value) {
  operation(Op::store, {value}, {}, std::move(access));
}

void Builder::store(MemoryId memory, std::vector<Expr> indices, ValueId value, Form form) {
  Access access;
  access.memory = memory;
  access.indices = std::move(indices);
  access.form = form;
  store(std::move(access), value);
}

Values Builder::reduce(Collective info, const Values& states,
                       const std::function<Values(const Values&, const Values&)>& merge) {
  const TypeList types = types_of(kernel_, states);
  TypeList both = types;
  both.insert(both.end(), types.begin(), types.end());
  const auto body = [&](const Values& arguments) {
    const auto middle = arguments.begin() + static_cast<std::ptrdiff_t>(states.size());
    return merge(Values(arguments.begin(), middle), Values(middle, arguments.end()));
  };
  return operation(Op::reduce, states, types, std::move(info), {{both, body}});
}

void Builder::barrier(Barrier info) { operation(Op::barrier, {}, {}, info); }

Expr bind(Builder& builder, ValueId value, sym::Range range) {
  const Expr symbol = sym::fresh(builder.context(), {.range = range});
  builder.operation(Op::bind, {value}, {scalar_type(DType::i64)}, Symbolic{symbol, {}});
  return symbol;
}

}  // namespace inkle::kernel
