// Random joint graphs: forward and backward graph together compute what the joint graph does, bit
// by bit, and what is kept is the least that any choice would keep. A failure prints the seed and
// the graph.
#include "partition/partition.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/text.h"
#include "ops/interpreter.h"
#include "ops/table.h"
#include "partition/max_flow.h"
#include "partition/roles.h"

namespace inkle::partition {
namespace {

using abi::DType;
using graph::Builder;
using graph::Graph;
using graph::ValueId;
using ops::RefTensor;

constexpr std::int64_t kSide = 3;

// Two forward outputs, then gradients; inputs, weights and two tangents.
class RandomJoint {
 public:
  explicit RandomJoint(std::uint32_t seed)
      : random_(seed),
        is_saved_(seed % 2 == 1),
        graph_(std::make_shared<sym::Context>(), ops::op_table()),
        b_(graph_) {}

  Graph make(std::size_t forward_nodes, std::size_t backward_nodes) {
    for (const char* name : {"x", "y"}) add_input(name, false);
    for (const char* name : {"w", "v"}) add_input(name, true);
    const std::size_t primals = values_.size();
    for (std::size_t i = 0; i < forward_nodes; ++i) step();
    std::vector<ValueId> outputs{values_.back(), pick(primals)};
    for (const char* name : {"t", "u"}) add_input(name, false);
    const std::size_t first_tangent = values_.size() - 2;
    // The backward starts from a tangent; some of it needs none.
    for (std::size_t i = 0; i < backward_nodes; ++i) {
      const ValueId late = pick(first_tangent);
      values_.push_back(binary(late, pick(0)));
      if (below(4) == 0) step();
    }
    for (int i = 0; i < 3; ++i) outputs.push_back(pick(first_tangent));
    for (const ValueId v : outputs) {
      graph_.outputs.push_back({.value = v});
      graph::Type& type = graph_.type(v);
      if (!type.strides) type.strides = graph::contiguous_strides(graph_.context(), type.sizes);
    }
    graph::settle_views(graph_);
    return std::move(graph_);
  }

  Joint info() const {
    Joint info{.forward_outputs = 2};
    info.is_tangent = {false, false, false, false, true, true};
    info.is_static = {false, false, true, true, false, false};
    info.is_written.assign(6, false);
    info.is_saved_input = {is_saved_, false, false, false, false, false};
    return info;
  }

 private:
  std::uint32_t below(std::size_t n) { return random_() % static_cast<std::uint32_t>(n); }
  ValueId pick(std::size_t from) { return values_[from + below(values_.size() - from)]; }

  void add_input(std::string name, bool is_parameter) {
    const graph::Sizes sizes(2, graph_.context().constant(kSide));
    const ValueId v = graph_.add_value(
        {DType::f32, {}, sizes, graph::contiguous_strides(graph_.context(), sizes)});
    graph_.inputs.push_back({.name = std::move(name), .value = v, .is_parameter = is_parameter});
    values_.push_back(v);
  }

  ValueId binary(ValueId a, ValueId b) {
    static constexpr std::string_view kOps[] = {"add", "mul", "sub", "mm"};
    return b_.node(kOps[below(4)], {a, b});
  }

  void step() {
    const ValueId v = pick(0);
    switch (below(6)) {
      case 0:
        return values_.push_back(b_.node("sin", {v}));
      case 1:
        return values_.push_back(b_.node("t", {v}));
      case 2:
        return values_.push_back(b_.node("relu", {v}));
      default:
        return values_.push_back(binary(v, pick(0)));
    }
  }

  std::mt19937 random_;
  bool is_saved_;  // the first input, by the host's own partition
  Graph graph_;
  Builder b_;
  std::vector<ValueId> values_;
};

RefTensor random_tensor(std::mt19937& random) {
  RefTensor t(DType::f32, {kSide, kSide});
  for (std::size_t i = 0; i < t.count(); ++i) {
    t.set(i, static_cast<double>(random() % 1000) / 500 - 1);
  }
  t.round();
  return t;
}

std::vector<RefTensor> run(const Graph& graph, std::vector<RefTensor> inputs) {
  std::vector<RefTensor> results;
  for (auto& output : ops::interpret(graph, inputs, {})) {
    results.push_back(std::move(output.tensor.value()));
  }
  return results;
}

void expect_same(const RefTensor& a, const RefTensor& b) {
  ASSERT_EQ(a.sizes, b.sizes);
  for (std::size_t i = 0; i < a.count(); ++i) {
    const bool both_nan = std::isnan(a.real(i)) && std::isnan(b.real(i));
    ASSERT_TRUE(both_nan || a.real(i) == b.real(i)) << a.real(i) << " and " << b.real(i);
  }
}

void expect_graphs_compute(const Graph& joint, const TrainingGraphs& graphs, std::uint32_t seed) {
  graph::verify(graphs.forward);
  graph::verify(graphs.backward);
  std::mt19937 random(seed);
  std::vector<RefTensor> inputs;
  for (std::size_t i = 0; i < joint.inputs.size(); ++i) inputs.push_back(random_tensor(random));
  const std::vector<RefTensor> wanted = run(joint, inputs);
  const std::vector<RefTensor> first = run(graphs.forward, {inputs.begin(), inputs.begin() + 4});
  std::vector<RefTensor> kept(first.begin() + 2, first.end());
  ASSERT_EQ(kept.size(), graphs.kept.size());
  kept.insert(kept.end(), inputs.begin() + 4, inputs.end());
  const std::vector<RefTensor> second = run(graphs.backward, kept);
  ASSERT_EQ(2 + second.size(), wanted.size());
  for (std::size_t i = 0; i < 2; ++i) expect_same(first[i], wanted[i]);
  for (std::size_t i = 0; i < second.size(); ++i) expect_same(second[i], wanted[2 + i]);
}

TEST(Partition, ForwardAndBackwardComputeWhatTheJointGraphDoes) {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    RandomJoint maker(seed);
    const Graph joint = maker.make(14, 10);
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, graph::to_string(joint)));
    const Joint info = maker.info();
    const std::int64_t all = find_cut(joint, info, {}, Weigh::nothing).bytes;
    for (const Weigh weigh : {Weigh::time, Weigh::kernels, Weigh::bytes, Weigh::nothing}) {
      Joint limited = info;
      limited.most_bytes = all;
      TrainingGraphs graphs = partition(joint, limited, {}, weigh);
      EXPECT_LE(graphs.bytes, all);
      graphs.settle_strides();
      expect_graphs_compute(joint, graphs, seed);
    }
    if (testing::Test::HasFailure()) return;
  }
}

// Bytes kept when exactly the nodes of `again` are computed again; nothing if that cannot be.
std::optional<std::int64_t> bytes_kept(const Graph& joint, const Roles& roles,
                                       const std::vector<bool>& again) {
  std::vector<bool> known(joint.value_count());
  for (std::uint32_t v = 0; v < known.size(); ++v) known[v] = roles.is_read_late({v});
  std::int64_t bytes = 0;
  for (std::size_t i = joint.nodes.size(); i-- > 0;) {
    if (roles.is_late(i) || !roles.in_backward(i)) continue;
    for (const ValueId v : joint.nodes[i].results) {
      if (!known[v.index]) continue;
      if (again[i]) {
        graph::for_each_operand(joint.nodes[i], [&](ValueId o) { known[o.index] = true; });
      } else if (!roles.may_keep(v)) {
        return std::nullopt;
      } else {
        bytes += roles.lives_anyway(v) ? 0 : bytes_of(joint, v);
      }
    }
  }
  for (std::size_t i = 0; i < joint.inputs.size(); ++i) {
    const bool is_read = known[joint.inputs[i].value.index];
    if (is_read && !roles.is_tangent(i) && !roles.may_keep_input(i)) return std::nullopt;
  }
  return bytes;
}

TEST(Partition, KeepsTheLeastBytes) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    RandomJoint maker(seed);
    const Graph joint = maker.make(9, 5);
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, graph::to_string(joint)));
    const Joint info = maker.info();
    const Roles roles(joint, info);
    std::vector<std::size_t> open;
    std::vector<bool> again(joint.nodes.size());
    for (std::size_t i = 0; i < joint.nodes.size(); ++i) {
      if (roles.is_late(i) || !roles.in_backward(i)) continue;
      again[i] = !roles.in_forward(i) || joint.nodes[i].op->name == "t";
      if (!again[i] && joint.nodes[i].op->name != "mm") open.push_back(i);
    }
    std::int64_t least = std::int64_t{1} << 60;
    for (std::size_t choice = 0; choice < std::size_t{1} << open.size(); ++choice) {
      for (std::size_t k = 0; k < open.size(); ++k) again[open[k]] = (choice >> k & 1) != 0;
      if (const auto bytes = bytes_kept(joint, roles, again)) least = std::min(least, *bytes);
    }
    // Less where a value that only the backward needs is smaller than what it is made of.
    const Cut cut = find_cut(joint, info, {}, Weigh::bytes);
    EXPECT_LE(cut.bytes, least);
    bool computes_early = false;
    for (std::size_t i = 0; i < joint.nodes.size(); ++i) {
      computes_early = computes_early || (cut.in_forward[i] && !roles.in_forward(i));
    }
    if (!computes_early) {
      EXPECT_EQ(cut.bytes, least);
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Partition, LongGraphsTakeMilliseconds) {
  RandomJoint maker(1);
  const Graph joint = maker.make(4000, 3000);
  const auto start = std::chrono::steady_clock::now();
  (void)partition(joint, maker.info(), {});
  (void)partition(joint, maker.info(), {}, Weigh::kernels);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 3.0);  // 0.05 s each on two cores, without sanitizers
}

TEST(MaxFlow, OfASmallNetwork) {
  // Two ways of 3 and 4 that share an edge of 5.
  MaxFlow flow(5);
  flow.add(0, 1, 3);
  flow.add(0, 2, 4);
  flow.add(1, 3, 9);
  flow.add(2, 3, 9);
  flow.add(3, 4, 5);
  EXPECT_EQ(flow.run(0, 4), 5);
  EXPECT_TRUE(flow.is_source_side(3));
  EXPECT_FALSE(flow.is_source_side(4));
}

TEST(MaxFlow, WithoutALimit) {
  MaxFlow flow(3);
  flow.add(0, 1, MaxFlow::kUnlimited);
  flow.add(1, 2, MaxFlow::kUnlimited);
  EXPECT_GE(flow.run(0, 2), MaxFlow::kUnlimited);
}

}  // namespace
}  // namespace inkle::partition
