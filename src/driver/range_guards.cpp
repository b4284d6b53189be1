#include "driver/range_guards.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "sym/expr.h"

namespace inkle::driver {
namespace {

// The slot of a range, where it depends on the arguments.
std::optional<abi::Slot> slot_of(const abi::Plan& plan, const SizeRange& range) {
  using Op = abi::SizeInstruction::Op;
  const abi::PlanArgument& argument = plan.arguments[range.argument];
  for (const abi::SizeInstruction& i : plan.size_program) {
    const bool is_size = !argument.is_integer && i.result == argument.sizes[range.dimension];
    const bool is_argument = argument.is_integer && i.op == Op::argument &&
                             i.immediate == static_cast<std::int64_t>(range.argument);
    if (is_argument || (is_size && i.op != Op::constant)) return i.result;
  }
  return std::nullopt;
}

}  // namespace

std::vector<SizeRange> ranges_of(const graph::Graph& graph) {
  std::vector<SizeRange> ranges;
  const auto add = [&](std::size_t argument, std::size_t dimension, sym::Expr size) {
    if (size.kind() != sym::Kind::symbol) return;
    const sym::SymbolInfo& info = graph.context().info(size);
    ranges.push_back({static_cast<std::uint32_t>(argument), static_cast<std::uint32_t>(dimension),
                      info.range.low, info.range.high, info.divisor});
  };
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const graph::Input& input = graph.inputs[i];
    if (input.value.is_none()) {
      add(i, 0, input.symbol);
      continue;
    }
    const graph::Type& type = graph.type(input.value);
    for (std::size_t d = 0; d < type.rank(); ++d) add(i, d, type.sizes[d]);
  }
  return ranges;
}

abi::Plan with_guards(abi::Plan plan, const std::vector<SizeRange>& ranges) {
  std::set<abi::Slot> known;
  using Op = abi::SizeInstruction::Op;
  using Relation = abi::Guard::Relation;
  const auto constant = [&](std::int64_t value) {
    const abi::Slot slot = plan.slot_count++;
    plan.size_program.push_back({.op = Op::constant, .result = slot, .immediate = value});
    return slot;
  };
  for (const SizeRange& range : ranges) {
    const std::optional<abi::Slot> slot = slot_of(plan, range);
    if (!slot || !known.insert(*slot).second) continue;
    const abi::PlanArgument& argument = plan.arguments[range.argument];
    const std::string message =
        argument.is_integer
            ? fmt::format("argument {}", argument.name)
            : fmt::format("argument {}, size of dimension {}", argument.name, range.dimension);
    const bool is_always = !argument.is_integer && range.low <= 0;
    if (!is_always && range.low > sym::Range::kMin) {
      plan.guards.push_back({Relation::less_equal, constant(range.low), *slot, message});
    }
    if (range.high < sym::Range::kMax) {
      plan.guards.push_back({Relation::less_equal, *slot, constant(range.high), message});
    }
    if (range.divisor > 1) {
      const abi::Slot divisor = constant(range.divisor), rest = plan.slot_count++;
      plan.size_program.push_back({.op = Op::mod, .result = rest, .a = *slot, .b = divisor});
      plan.guards.push_back({Relation::equal, rest, constant(0),
                             fmt::format("{}, modulo {}", message, range.divisor)});
    }
  }
  return plan;
}

}  // namespace inkle::driver
