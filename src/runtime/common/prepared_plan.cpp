#include "runtime/common/prepared_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace inkle::runtime::common {
namespace {

using abi::BufferDecl;
using abi::PlanBuffer;
using Kind = BufferDecl::Kind;

class Planner {
 public:
  Planner(const abi::Plan& plan, const PlanFacts& facts, const SizeProgram& sizes,
          std::int64_t alignment)
      : plan_(plan),
        facts_(facts),
        sizes_(sizes),
        alignment_(alignment),
        group_of_(plan.buffers.size(), kNoGroup),
        groups_(2) {}

  std::vector<PreparedGroup> run() {
    for (step_ = 0; step_ < plan_.steps.size(); ++step_) {
      const abi::PlanStep& step = plan_.steps[step_];
      if (step.prepare) {
        add(step);
      } else {
        check_ordinary(step);
      }
    }
    std::erase_if(groups_, [](const PreparedGroup& g) { return g.steps.empty(); });
    for (PreparedGroup& g : groups_) place(g);
    return std::move(groups_);
  }

 private:
  static constexpr std::uint8_t kNoGroup = 0xff;

  [[noreturn]] void fail(std::string_view what) const {
    user_error("plan {}, step {}: {}", plan_.name, step_, what);
  }
  [[nodiscard]] Kind kind_of(PlanBuffer root) const { return plan_.buffers[root].kind; }
  [[nodiscard]] const std::string& name_of(PlanBuffer b) const { return plan_.buffers[b].name; }

  void must_be_constant(abi::Slot slot) const {
    if (!sizes_.is_constant(slot)) fail("a prepare step with a size that depends on arguments");
  }
  void must_be_constant(std::span<const abi::Slot> slots) const {
    for (const abi::Slot s : slots) must_be_constant(s);
  }

  // Roots of the buffers that a step touches; checks its slots.
  std::vector<PlanBuffer> touched(const abi::PlanStep& step) const {
    std::vector<PlanBuffer> result;
    if (const auto* launch = std::get_if<abi::Launch>(&step.action)) {
      must_be_constant(launch->sizes);
      must_be_constant(launch->extent);
      must_be_constant(launch->extents);
      must_be_constant(launch->grain);
      must_be_constant(launch->scratch_bytes);
      for (const PlanBuffer b : launch->buffers) result.push_back(facts_.roots[b]);
      for (const abi::TensorMap& m : launch->maps) {
        must_be_constant(m.sizes);
        must_be_constant(m.strides);
        result.push_back(facts_.roots[m.buffer]);
      }
    } else {
      abi::for_each_operand(std::get<abi::LibraryCall>(step.action), [&](const abi::Operand& o) {
        must_be_constant(o.offset);
        must_be_constant(o.sizes);
        must_be_constant(o.strides);
        result.push_back(facts_.roots[o.buffer]);
      });
    }
    for (const PlanBuffer b : result) {
      const BufferDecl& decl = plan_.buffers[b];
      must_be_constant(decl.sizes);
      must_be_constant(decl.strides);
      must_be_constant(decl.bytes);
    }
    return result;
  }

  // A step joins the second group when it reads a weight, or a result of that group. Each buffer
  // has one writer, the first step that touches it, so one not yet seen is this step's result.
  void add(const abi::PlanStep& step) {
    const std::vector<PlanBuffer> all = touched(step);
    const bool reads_weights = std::any_of(all.begin(), all.end(), [&](PlanBuffer b) {
      return kind_of(b) == Kind::argument || group_of_[b] == 1;
    });
    const std::uint8_t number = reads_weights ? 1 : 0;
    PreparedGroup& group = groups_[number];
    bool writes = false;
    for (const PlanBuffer b : all) {
      if (kind_of(b) == Kind::argument) add_weight(group, b);
      if (kind_of(b) != Kind::prepared || group_of_[b] != kNoGroup) continue;
      group_of_[b] = number;
      group.made.push_back(b);
      writes = true;
    }
    if (!writes) fail("a prepare step without a prepared buffer of its own");
    group.steps.push_back(static_cast<std::uint32_t>(step_));
  }

  void add_weight(PreparedGroup& group, PlanBuffer b) const {
    const BufferDecl& decl = plan_.buffers[b];
    const auto tensor = static_cast<std::uint32_t>(facts_.tensor_number[decl.index]);
    const std::int64_t bytes = sizes_.constant_slots()[decl.bytes];
    for (const PreparedGroup::Weight& w : group.weights) {
      if (w.tensor == tensor) return;
    }
    if (bytes > 0) group.weights.push_back({tensor, bytes});
  }

  // What runs in every call reads prepared buffers that are there, and writes none as far as can be
  // seen: a launch does not say which buffers it writes.
  void check_ordinary(const abi::PlanStep& step) const {
    const auto use = [&](PlanBuffer b, bool writes) {
      const PlanBuffer root = facts_.roots[b];
      if (kind_of(root) != Kind::prepared) return;
      if (writes) fail(fmt::format("only a prepare step may write {}", name_of(root)));
      if (group_of_[root] == kNoGroup) {
        fail(fmt::format("{} is not prepared by an earlier step", name_of(root)));
      }
    };
    if (const auto* launch = std::get_if<abi::Launch>(&step.action)) {
      for (const PlanBuffer b : launch->buffers) use(b, false);
    } else if (const auto* call = std::get_if<abi::LibraryCall>(&step.action)) {
      const abi::Operand* const result = &abi::result_of(*call);
      abi::for_each_operand(
          *call, [&](const abi::Operand& operand) { use(operand.buffer, &operand == result); });
    } else if (const auto* eager = std::get_if<abi::EagerCall>(&step.action)) {
      for (const abi::EagerArgument& a : eager->arguments) {
        if (a.kind == abi::EagerArgument::Kind::buffer) use(a.index, false);
      }
    } else if (const auto* copy = std::get_if<abi::CopyStep>(&step.action)) {
      use(copy->from, false);
      use(copy->to, true);
    }
  }

  void place(PreparedGroup& group) const {
    for (const PlanBuffer b : group.made) {
      const std::int64_t bytes = sizes_.constant_slots()[plan_.buffers[b].bytes];
      if (bytes < 0) user_error("plan {}: {} has {} bytes", plan_.name, name_of(b), bytes);
      group.offsets.push_back(group.bytes);
      group.bytes += (bytes + alignment_ - 1) / alignment_ * alignment_;
    }
  }

  const abi::Plan& plan_;
  const PlanFacts& facts_;
  const SizeProgram& sizes_;
  std::int64_t alignment_;
  std::vector<std::uint8_t> group_of_;  // by buffer
  std::vector<PreparedGroup> groups_;
  std::size_t step_ = 0;
};

}  // namespace

std::vector<PreparedGroup> plan_prepared(const abi::Plan& plan, const PlanFacts& facts,
                                         const SizeProgram& sizes, std::int64_t alignment) {
  return Planner(plan, facts, sizes, alignment).run();
}

PreparedGroup merged(const std::vector<PreparedGroup>& groups) {
  PreparedGroup all;
  for (const PreparedGroup& g : groups) {
    all.weights.insert(all.weights.end(), g.weights.begin(), g.weights.end());
    all.steps.insert(all.steps.end(), g.steps.begin(), g.steps.end());
    all.made.insert(all.made.end(), g.made.begin(), g.made.end());
    for (const std::int64_t offset : g.offsets) all.offsets.push_back(all.bytes + offset);
    all.bytes += g.bytes;
  }
  return all;
}

void PreparedGroup::identify(const Call& call, bool is_sampled,
                             std::vector<WeightIdentity>& result) const {
  const bool is_versioned = !call.versions.empty();
  result.resize(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Weight& w = weights[i];
    result[i] = {static_cast<const std::byte*>(call.tensors[w.tensor].data), w.bytes,
                 is_versioned ? call.versions[w.tensor] : 0, is_sampled, is_versioned};
  }
}

void PreparedGroup::bind(std::byte* block, std::span<void*> buffers) const {
  for (std::size_t i = 0; i < made.size(); ++i) buffers[made[i]] = block + offsets[i];
}

}  // namespace inkle::runtime::common
