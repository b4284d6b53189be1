#include "kernel/verify_structure.h"

#include "kernel/names.h"

namespace inkle::kernel {

StructureChecker::StructureChecker(Diagnostics& diagnostics, const TypeChecker& types)
    : d_(diagnostics),
      k_(d_.kernel()),
      types_(types),
      defined_(k_.values.size()),
      used_(k_.values.size()),
      seen_regions_(k_.regions.size()),
      seen_operations_(k_.operations.size()) {}

void StructureChecker::run() {
  region(k_.body);
  const Region& body = k_.regions[k_.body];
  d_.require(body.arguments.empty() && body.yields.empty(), "the body takes or yields values");
}

bool StructureChecker::has_operation(Op op) const {
  for (std::size_t o = 0; o < k_.operations.size(); ++o) {
    if (seen_operations_[o] && k_.operations[o].op == op) return true;
  }
  return false;
}

void StructureChecker::use(ValueId value) {
  d_.require(value < k_.values.size(), "an operand that is no value");
  d_.require(defined_[value], "value {} is used where it is not defined", value);
  used_[value] = true;
}

void StructureChecker::region(RegionId id) {
  d_.require(id < k_.regions.size(), "a region that does not exist");
  d_.require(!seen_regions_[id], "region {} is in two places", id);
  seen_regions_[id] = true;
  const Region& region = k_.regions[id];
  const std::size_t outside_count = in_scope_.size();
  const auto define = [&](ValueId v) {
    d_.require(v < k_.values.size(), "a result that is no value");
    d_.require(!defined_[v], "value {} is defined twice", v);
    const Type& type = k_.type_of(v);
    d_.require(type.kind != TypeKind::fragment || type.fragment < k_.fragments.size(),
               "value {} is of an unknown fragment", v);
    if (type.kind == TypeKind::scalar && !abi::is_computable(type.dtype)) {
      d_.fail(fmt::format("a value of {}", abi::name_of(type.dtype)));
    }
    defined_[v] = true;
    in_scope_.push_back(v);
  };
  for (const ValueId v : region.arguments) {
    define(v);
    d_.require(k_.values[v].definition == kNone && k_.values[v].region == id,
               "argument {} does not name its region", v);
  }
  for (const OperationId at : region.operations) {
    d_.require(at < k_.operations.size(), "an operation that does not exist");
    d_.require(!seen_operations_[at], "operation {} is in two places", at);
    seen_operations_[at] = true;
    const OperationId outside = d_.move_to(at);
    const Operation& o = k_[at];
    for (const ValueId v : o.operands) use(v);
    operation(at, o);
    for (const ValueId v : o.results) {
      define(v);
      d_.require(k_.values[v].definition == at, "result {} does not name its operation", v);
    }
    types_.check(o);
    d_.move_to(outside);
  }
  for (const ValueId v : region.yields) use(v);
  for (; in_scope_.size() > outside_count; in_scope_.pop_back()) defined_[in_scope_.back()] = false;
  // Values of the body stay undefined behind it: they must not be used there.
}

void StructureChecker::operation(OperationId id, const Operation& o) {
  types_.check_detail(o);
  const bool may_have_regions = (o.op >= Op::loop && o.op <= Op::roles) || o.op == Op::reduce ||
                                o.op == Op::scan || o.op == Op::fragment_map;
  if (o.regions.empty() && !may_have_regions) return;
  for (const RegionId r : o.regions) {
    region(r);
    d_.move_to(id);
  }
  regions(o);
}

void StructureChecker::region_takes(RegionId id, std::span<const Type> arguments,
                                    std::span<const Type> yields) const {
  types_.same(types_.of(k_.regions[id].arguments), arguments, "the region takes values");
  types_.same(types_.of(k_.regions[id].yields), yields, "the region yields values");
}

void StructureChecker::regions(const Operation& o) const {
  const auto count = [&](std::size_t wanted) {
    d_.require(o.regions.size() == wanted, "{} regions, not {}", o.regions.size(), wanted);
  };
  // The types that results have; they are checked to be those of values first.
  for (const ValueId v : o.results) d_.require(v < k_.values.size(), "a result that is no value");
  const Types operands = types_.of(o.operands);
  const Types results = types_.of(o.results);
  const auto list = [](std::span<const Type> types) {
    return std::vector<Type>(types.begin(), types.end());
  };
  switch (o.op) {
    case Op::loop: {
      count(1);
      std::span<const Type> states = operands;
      if (std::get<Loop>(o.detail).is_lowered) {
        const Type bound = scalar_type(DType::i64);
        d_.require(operands.size() >= 2 && operands[0] == bound && operands[1] == bound,
                   "a lowered loop without bounds");
        states = states.subspan(2);
      }
      types_.same(results, states, "results");
      return region_takes(o.regions[0], states, states);
    }
    case Op::repeat: {
      count(1);
      types_.same(results, operands, "results");
      std::vector<Type> yields = list(operands);
      yields.insert(yields.begin(), scalar_type(DType::boolean));
      return region_takes(o.regions[0], operands, yields);
    }
    case Op::branch:
      count(2);
      for (const RegionId r : o.regions) region_takes(r, {}, results);
      return;
    case Op::vector:
      count(1);
      return region_takes(o.regions[0], {}, results);
    case Op::fold: {
      const bool is_chunked = std::get<Fold>(o.detail).chunked_loop >= 0;
      count(is_chunked ? 3 : 1);
      types_.same(results, operands, "results");
      if (!is_chunked) return region_takes(o.regions[0], operands, operands);
      const Types states = types_.of(k_.regions[o.regions[0]].arguments);
      std::vector<Type> both = list(operands);
      both.insert(both.end(), states.begin(), states.end());
      region_takes(o.regions[0], states, states);
      region_takes(o.regions[1], operands, states);
      return region_takes(o.regions[2], both, operands);
    }
    case Op::roles:
      count(std::get<Roles>(o.detail).roles.size());
      for (const RegionId r : o.regions) region_takes(r, {}, {});
      return;
    case Op::reduce:
    case Op::scan: {
      count(1);
      std::vector<Type> both = list(results);
      both.insert(both.end(), results.begin(), results.end());
      const bool is_exclusive = std::get<Collective>(o.detail).exclusive;
      types_.same(operands, is_exclusive ? std::span<const Type>(both) : results, "states");
      return region_takes(o.regions[0], both, results);
    }
    case Op::fragment_map: {
      count(1);
      const auto elements = [&](std::span<const Type> types) {
        std::vector<Type> out;
        for (const Type& t : types) out.push_back(scalar_type(t.dtype));
        return out;
      };
      return region_takes(o.regions[0], elements(operands), elements(results));
    }
    default:
      count(0);
  }
}

}  // namespace inkle::kernel
