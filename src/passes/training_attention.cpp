#include "passes/training_attention.h"

#include <unordered_map>

#include "graph/builder.h"
#include "passes/written_attention.h"

namespace inkle::passes {
namespace {

using graph::Argument;
using graph::Builder;
using graph::Expr;
using graph::Graph;
using graph::Node;
using graph::None;
using graph::Rewriter;
using graph::Sizes;
using graph::ValueId;
using written_attention::Found;
using written_attention::Mask;
using written_attention::Part;

class Writer {
 public:
  Writer(Rewriter& rewriter, Found& found) : r_(rewriter), b_(rewriter.builder()), found_(found) {}

  ValueId part(Part part, const Sizes& sizes) {
    if (part == Part::out) {
      found_.forward = b_.nodes("attend", operands());
      return shaped(found_.forward[0], sizes, false);
    }
    gradient();
    const bool transposed =
        part == Part::dq_transposed || part == Part::dk_transposed || part == Part::dv_transposed;
    const std::size_t n = part == Part::dq || part == Part::dq_transposed   ? 0
                          : part == Part::dk || part == Part::dk_transposed ? 1
                                                                            : 2;
    return shaped(found_.backward[n], sizes, transposed);
  }

  void gradient() {
    if (!found_.backward.empty()) return;
    std::vector<Argument> args = operands();
    args.insert(args.begin(), stack(found_.grad, found_.scores[2], found_.values));
    args.insert(args.begin() + 4, {found_.forward[0], found_.forward[1]});
    found_.backward = b_.nodes("attend_backward", std::move(args));
  }

 private:
  // The operand over (batch, head, rows, columns).
  ValueId stack(ValueId old, Expr rows, Expr columns) {
    const ValueId v = r_.mapped(old);
    if (b_.type(v).rank() == 4) return v;
    return b_.node("reshape", {v, Sizes{found_.scores[0], found_.scores[1], rows, columns}});
  }
  ValueId turn(ValueId v) { return b_.node("transpose", {v, b_.integer(-2), b_.integer(-1)}); }
  ValueId shaped(ValueId v, const Sizes& sizes, bool transposed) {
    if (transposed) v = turn(v);
    return b_.type(v).rank() == sizes.size() ? v : b_.node("reshape", {v, sizes});
  }

  Argument mask() {
    const Mask& m = found_.mask;
    if (m.added.is_none() && m.flags.is_none()) return None{};
    ValueId v = r_.mapped(m.flags.is_none() ? m.added : m.flags);
    if (!m.flags.is_none() && !m.keeps) v = b_.node("logical_not", {v});
    while (b_.type(v).rank() < 2) v = b_.node("unsqueeze", {v, b_.integer(0)});
    const bool is_flat = found_.scores[1].is_constant(1) && b_.type(v).rank() == 3;
    return is_flat ? b_.node("unsqueeze", {v, b_.integer(1)}) : v;
  }

  // From query on.
  std::vector<Argument> operands() {
    const Sizes& s = found_.scores;
    const auto& drops = found_.dropout;
    const ValueId q = stack(found_.q, s[2], found_.features);
    const ValueId k = turn(stack(found_.kt, found_.features, s[3]));
    const ValueId v = stack(found_.v, s[3], found_.values);
    return {q,
            k,
            v,
            mask(),
            drops ? Argument(r_.mapped(drops->seed)) : Argument(None{}),
            drops ? drops->number : b_.integer(0),
            drops ? drops->p : 0.0,
            false,
            found_.scale,
            found_.safe,
            found_.mask.hidden};
  }

  Rewriter& r_;
  Builder& b_;
  Found& found_;
};

}  // namespace

std::optional<Graph> training_attention(const Graph& graph, PassContext&) {
  std::vector<Found> all = written_attention::find(graph, abi::DeviceKind::cpu);
  if (all.empty()) return std::nullopt;
  std::unordered_map<std::size_t, std::pair<std::size_t, Part>> parts;
  std::unordered_map<std::size_t, std::size_t> late;
  for (std::size_t f = 0; f < all.size(); ++f) {
    for (const auto& [node, part] : all[f].parts) parts[node] = {f, part};
    late[all[f].first_late] = f;
  }
  Rewriter rewriter(graph, graph.name);
  return std::move(rewriter).run([&](Rewriter& r, const Node&,
                                     const Node& node) -> std::optional<std::vector<ValueId>> {
    const auto n = static_cast<std::size_t>(&node - graph.nodes.data());
    if (const auto at = late.find(n); at != late.end()) Writer(r, all[at->second]).gradient();
    const auto at = parts.find(n);
    if (at == parts.end()) return std::nullopt;
    const auto [f, part] = at->second;
    return std::vector<ValueId>{Writer(r, all[f]).part(part, graph.type(node.results[0]).sizes)};
  });
}

}  // namespace inkle::passes
