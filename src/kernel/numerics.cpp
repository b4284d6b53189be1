#include "kernel/numerics.h"

#include <algorithm>

#include "kernel/lanes.h"

namespace inkle::kernel {

using loop::Opcode;

namespace {

bool has_effects(const Operation& o) {
  switch (o.op) {
    case Op::constant:
    case Op::index:
    case Op::divide_index:
    case Op::function:
      return false;
    case Op::load:
      return std::get<Access>(o.detail).order != Order::weak;
    default:
      return true;
  }
}

// Integer division reports a divisor of 0.
bool may_report(const Kernel& kernel, const Operation& o) {
  const Opcode opcode = std::get<Compute>(o.detail).opcode;
  return opcode >= Opcode::div && opcode <= Opcode::fmod &&
         !abi::is_float(kernel.type_of(o.results[0]).dtype);
}

class Numerics {
 public:
  explicit Numerics(Kernel& kernel) : k_(kernel), varies_(varies_by_lane(kernel)) {
    users_.resize(kernel.values.size());
    is_yielded_.assign(kernel.values.size(), false);
    collect(kernel.body);
  }

  void run() {
    in_vector(k_.body, false, [&](OperationId o) { round_trip(o); });
    // Roundings are users now: of a chain, the last operation first.
    users_.assign(k_.values.size(), {});
    collect(k_.body);
    in_vector(k_.body, false, [&](OperationId o) { quotient(o); });
    in_vector(k_.body, false, [&](OperationId o) { exponential(o); });
    in_vector(k_.body, false, [&](OperationId o) { error_function(o); });
    drop_unused(k_);
  }

 private:
  void collect(RegionId region) {
    for (const OperationId o : k_.regions[region].operations) {
      for (const ValueId v : k_.operations[o].operands) users_[v].push_back(o);
      for (const RegionId inside : k_.operations[o].regions) collect(inside);
    }
    for (const ValueId v : k_.regions[region].yields) is_yielded_[v] = true;
  }

  // Calls f with the operations, or those in vector regions alone.
  template <class F>
  void in_vector(RegionId region, bool inside, const F& f) {
    for (const OperationId o : k_.regions[region].operations) {
      f(o);
      inside_ = inside;
      for (const RegionId r : k_.operations[o].regions) {
        const bool is_vector = k_.operations[o].op == Op::vector;
        inside_ = inside || is_vector;
        in_vector(r, inside_, f);
        inside_ = inside;
      }
    }
  }

  const Operation* definition(ValueId v) const {
    const OperationId o = k_.values[v].definition;
    return o == kNone ? nullptr : &k_.operations[o];
  }
  static bool is(const Operation& o, Opcode opcode) {
    return o.op == Op::compute && std::get<Compute>(o.detail).opcode == opcode;
  }
  DType dtype(ValueId v) const { return k_.type_of(v).dtype; }

  void become(OperationId o, NamedFunction function, Values operands) {
    Operation& op = k_.operations[o];
    for (const ValueId v : op.operands) std::erase(users_[v], o);
    for (const ValueId v : operands) users_[v].push_back(o);
    op.op = Op::function;
    op.operands = std::move(operands);
    op.detail = Function{function};
  }

  void round_trip(OperationId o) {
    const Operation& op = k_.operations[o];
    if (!is(op, Opcode::cast) || dtype(op.results[0]) != DType::f32) return;
    const Operation* narrow = definition(op.operands[0]);
    if (narrow == nullptr || !is(*narrow, Opcode::cast)) return;
    const DType to = dtype(narrow->results[0]);
    const ValueId x = narrow->operands[0];
    if (!abi::is_reduced_float(to) || dtype(x) != DType::f32) return;
    become(o, to == DType::bf16 ? NamedFunction::round_bf16 : NamedFunction::round_f16, {x});
  }

  // Whether the operation rounds its operand to f16 or bf16.
  bool rounds(const Operation& o) const {
    if (o.op == Op::function) {
      const NamedFunction f = std::get<Function>(o.detail).function;
      return f == NamedFunction::round_bf16 || f == NamedFunction::round_f16;
    }
    return is(o, Opcode::cast) && abi::is_reduced_float(dtype(o.results[0]));
  }

  bool is_single(ValueId v) const {
    return inside_ && varies_[v] && !is_yielded_[v] && dtype(v) == DType::f32;
  }

  void quotient(OperationId o) {
    const Operation& op = k_.operations[o];
    if (!is(op, Opcode::div) || !is_single(op.results[0]) || varies_[op.operands[1]]) return;
    for (const OperationId user : users_[op.results[0]]) {
      if (!rounds(k_.operations[user])) return;
    }
    become(o, NamedFunction::quotient, op.operands);
  }

  void exponential(OperationId o) {
    const Operation& op = k_.operations[o];
    if (!is(op, Opcode::exp) || !is_single(op.results[0])) return;
    for (const OperationId id : users_[op.results[0]]) {
      const Operation& user = k_.operations[id];
      const bool divides = user.op == Op::function &&
                           std::get<Function>(user.detail).function == NamedFunction::quotient &&
                           user.operands[1] != op.results[0];
      if (!rounds(user) && !divides) return;
    }
    become(o, NamedFunction::exp_term, op.operands);
  }

  // Of the value, and of sums and products with it, only roundings are used.
  bool is_only_rounded(ValueId v) const {
    if (is_yielded_[v] || dtype(v) != DType::f32) return false;
    return std::ranges::all_of(users_[v], [&](OperationId id) {
      const Operation& user = k_.operations[id];
      if (rounds(user)) return true;
      const bool passes = is(user, Opcode::mul) || is(user, Opcode::add);
      return passes && is_only_rounded(user.results[0]);
    });
  }

  void error_function(OperationId o) {
    const Operation& op = k_.operations[o];
    if (!is(op, Opcode::add) || dtype(op.results[0]) != DType::f32) return;
    for (const std::size_t i : {0, 1}) {
      const Operation* one = definition(op.operands[i]);
      const Operation* erf = definition(op.operands[1 - i]);
      if (one == nullptr || erf == nullptr || one->op != Op::constant) continue;
      if (std::get<Immediate>(one->detail).real != 1 || !is(*erf, Opcode::erf)) continue;
      if (!is_only_rounded(op.results[0])) continue;
      become(o, NamedFunction::erf_plus_one, {erf->operands[0]});
      return;
    }
  }

  Kernel& k_;
  std::vector<bool> varies_;
  std::vector<std::vector<OperationId>> users_;
  std::vector<bool> is_yielded_;
  bool inside_ = false;
};

class Dropper {
 public:
  explicit Dropper(Kernel& kernel) : k_(kernel), uses_(kernel.values.size(), 0) { count(k_.body); }

  void run() { drop(k_.body); }

 private:
  void count(RegionId region) {
    for (const OperationId o : k_.regions[region].operations) {
      for (const ValueId v : k_.operations[o].operands) ++uses_[v];
      for (const RegionId r : k_.operations[o].regions) count(r);
    }
    for (const ValueId v : k_.regions[region].yields) ++uses_[v];
  }

  void drop(RegionId region) {
    auto& operations = k_.regions[region].operations;
    std::vector<OperationId> kept;
    for (auto at = operations.rbegin(); at != operations.rend(); ++at) {
      const Operation& op = k_.operations[*at];
      for (const RegionId r : op.regions) drop(r);
      const bool effects = op.op == Op::compute ? may_report(k_, op) : has_effects(op);
      const bool used = std::ranges::any_of(op.results, [&](ValueId v) { return uses_[v] != 0; });
      if (effects || used) {
        kept.push_back(*at);
        continue;
      }
      for (const ValueId v : op.operands) --uses_[v];
    }
    std::ranges::reverse(kept);
    operations = std::move(kept);
  }

  Kernel& k_;
  std::vector<int> uses_;
};

}  // namespace

void numerics(Kernel& kernel, sym::Context&) {
  // All that is rewritten is rounded to f16 or bf16.
  const auto is_reduced = [](const Value& v) { return abi::is_reduced_float(v.type.dtype); };
  if (std::ranges::any_of(kernel.values, is_reduced)) return Numerics(kernel).run();
  drop_unused(kernel);
}

void drop_unused(Kernel& kernel) { Dropper(kernel).run(); }

}  // namespace inkle::kernel
