#include "passes/cse.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

namespace inkle::passes {
namespace {

using graph::Argument;
using graph::Graph;
using graph::has;
using graph::Node;
using graph::Trait;
using graph::Type;
using graph::ValueId;

std::uint64_t mix(std::uint64_t seed, std::uint64_t value) {
  return (seed ^ value) * 0x9e3779b97f4a7c15ULL + (seed >> 29);
}

struct ArgumentHash {
  std::uint64_t operator()(graph::None) const { return 1; }
  std::uint64_t operator()(ValueId v) const { return v.index; }
  std::uint64_t operator()(graph::Expr e) const { return e.id(); }
  std::uint64_t operator()(double d) const { return std::bit_cast<std::uint64_t>(d); }
  std::uint64_t operator()(bool b) const { return b ? 3 : 2; }
  std::uint64_t operator()(const std::string& s) const { return std::hash<std::string>()(s); }
  std::uint64_t operator()(graph::DType d) const { return static_cast<std::uint64_t>(d); }
  std::uint64_t operator()(const graph::Device& d) const {
    return static_cast<std::uint64_t>(d.index);
  }
  template <class T>
  std::uint64_t operator()(const std::vector<T>& list) const {
    std::uint64_t h = list.size();
    for (const auto& item : list) h = mix(h, (*this)(static_cast<T>(item)));
    return h;
  }
};

std::uint64_t hash_of(const Node& node) {
  std::uint64_t h = std::hash<const void*>()(node.op);
  for (const Argument& a : node.args) h = mix(mix(h, a.index()), std::visit(ArgumentHash{}, a));
  return h;
}

// 0.0 is not -0.0, and a NaN equals itself: by bits.
bool same(const Argument& a, const Argument& b) {
  if (a.index() != b.index()) return false;
  const auto bits = [](double d) { return std::bit_cast<std::uint64_t>(d); };
  if (const auto* x = std::get_if<double>(&a)) return bits(*x) == bits(std::get<double>(b));
  if (const auto* x = std::get_if<std::vector<double>>(&a)) {
    return std::ranges::equal(*x, std::get<std::vector<double>>(b), {}, bits, bits);
  }
  return a == b;
}

class Merger {
 public:
  explicit Merger(const Graph& graph)
      : out_(graph), map_(graph.value_count()), is_output_(graph::output_values(graph)) {
    for (std::uint32_t i = 0; i < map_.size(); ++i) map_[i] = ValueId{i};
  }

  std::optional<Graph> run() {
    merge_literals();
    std::vector<Node> kept;
    for (Node& node : out_.nodes) {
      graph::replace_operands(node, [&](ValueId v) { return map_[v.index]; });
      if (has(node.op->traits, Trait::effect)) known_.clear();
      if (!merged(node, kept)) kept.push_back(std::move(node));
    }
    if (!changed_) return std::nullopt;
    out_.nodes = std::move(kept);
    for (graph::Output& output : out_.outputs) {
      if (auto* v = std::get_if<ValueId>(&output.value)) *v = map_[v->index];
    }
    graph::settle_views(out_);
    return std::move(out_);
  }

 private:
  void merge_literals() {
    std::vector<std::pair<ValueId, graph::ConstantData>> kept;
    for (const auto& literal : out_.constants) {
      const ValueId value = literal.first;
      const graph::ConstantData& data = literal.second;
      const auto twin = std::ranges::find_if(kept, [&](const auto& other) {
        return !is_output_[value.index] && other.second.dtype == data.dtype &&
               other.second.sizes == data.sizes && out_.type(other.first) == out_.type(value) &&
               (other.second.bytes == data.bytes || *other.second.bytes == *data.bytes);
      });
      if (twin == kept.end()) {
        kept.emplace_back(value, data);
        continue;
      }
      map_[value.index] = twin->first;
      changed_ = true;
    }
    out_.constants = std::move(kept);
  }

  bool merged(const Node& node, const std::vector<Node>& kept) {
    constexpr Trait kNever = Trait::random | Trait::effect | Trait::eager_only;
    if (has(node.op->traits, kNever)) return false;
    const std::uint64_t hash = hash_of(node);
    const auto [begin, end] = known_.equal_range(hash);
    for (auto at = begin; at != end; ++at) {
      const Node& twin = kept[at->second];
      if (twin.op != node.op || twin.keep != node.keep ||
          !std::ranges::equal(twin.args, node.args, same))
        continue;
      if (!may_stand_for(twin, node)) continue;
      for (std::size_t i = 0; i < node.results.size(); ++i) stand_for(twin, node, i);
      changed_ = true;
      return true;
    }
    known_.emplace(hash, kept.size());
    return false;
  }

  // Two outputs that are one value are one computation and a copy, which saves something where the
  // computation is more than a copy.
  static bool is_worth_a_copy(const Node& node) {
    return !has(node.op->traits, Trait::view | Trait::creation | Trait::pointwise);
  }

  bool may_stand_for(const Node& twin, const Node& node) const {
    for (std::size_t i = 0; i < node.results.size(); ++i) {
      const Type& kept = out_.type(twin.results[i]);
      const Type& gone = out_.type(node.results[i]);
      const bool two_outputs =
          is_output_[twin.results[i].index] && is_output_[node.results[i].index];
      if (two_outputs && !is_worth_a_copy(node)) return false;
      if (!graph::type_difference(kept, gone).empty()) return false;
    }
    return twin.results.size() == node.results.size();
  }

  void stand_for(const Node& twin, const Node& node, std::size_t i) {
    const ValueId kept = twin.results[i];
    const ValueId gone = node.results[i];
    map_[gone.index] = kept;
    if (!out_.type(kept).strides) out_.type(kept).strides = out_.type(gone).strides;
    if (is_output_[gone.index]) is_output_[kept.index] = true;
  }

  Graph out_;
  std::vector<ValueId> map_;
  std::vector<bool> is_output_;
  std::unordered_multimap<std::uint64_t, std::size_t> known_;  // position in kept
  bool changed_ = false;
};

}  // namespace

std::optional<Graph> cse(const Graph& graph, PassContext&) { return Merger(graph).run(); }

}  // namespace inkle::passes
