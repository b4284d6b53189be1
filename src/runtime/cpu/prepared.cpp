#include "runtime/cpu/prepared.h"

#include <algorithm>
#include <string_view>

#include "abi/arena.h"
#include "base/error.h"

namespace inkle::runtime::cpu {
namespace {

using abi::BufferDecl;
using abi::PlanBuffer;
using Kind = BufferDecl::Kind;

class Planner {
 public:
  Planner(const abi::Plan& plan, std::span<const PlanBuffer> roots,
          std::span<const std::int32_t> tensor_number, const SizeProgram& sizes,
          std::span<const std::unique_ptr<LibraryStep>> library)
      : plan_(plan),
        roots_(roots),
        tensor_number_(tensor_number),
        sizes_(sizes),
        library_(library),
        group_of_(plan.buffers.size(), kNoGroup),
        groups_(2) {}

  std::vector<PreparedGroup> run() {
    std::size_t next_library = 0;
    for (step_ = 0; step_ < plan_.steps.size(); ++step_) {
      const abi::Step& step = plan_.steps[step_];
      const LibraryStep* call = nullptr;
      if (std::holds_alternative<abi::LibraryCall>(step.action)) {
        call = library_[next_library++].get();
      }
      if (step.prepare) {
        add(step, call);
      } else {
        check_ordinary(step, call);
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
  std::vector<PlanBuffer> touched(const abi::Step& step, const LibraryStep* call) const {
    std::vector<PlanBuffer> result;
    if (const auto* launch = std::get_if<abi::Launch>(&step.action)) {
      must_be_constant(launch->sizes);
      must_be_constant(launch->extent);
      must_be_constant(launch->extents);
      must_be_constant(launch->grain);
      must_be_constant(launch->scratch_bytes);
      for (const PlanBuffer b : launch->buffers) result.push_back(roots_[b]);
    } else {
      for (const abi::Operand* o : call->operands()) {
        if (o == nullptr) continue;
        must_be_constant(o->offset);
        must_be_constant(o->sizes);
        must_be_constant(o->strides);
        result.push_back(o->buffer);
      }
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
  void add(const abi::Step& step, const LibraryStep* call) {
    const std::vector<PlanBuffer> all = touched(step, call);
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
    const auto tensor = static_cast<std::uint32_t>(tensor_number_[decl.index]);
    const std::int64_t bytes = sizes_.constant_slots()[decl.bytes];
    for (const PreparedGroup::Weight& w : group.weights) {
      if (w.tensor == tensor) return;
    }
    if (bytes > 0) group.weights.push_back({tensor, bytes});
  }

  // What runs in every call reads prepared buffers that are there, and writes none as far as can be
  // seen: a launch does not say which buffers it writes.
  void check_ordinary(const abi::Step& step, const LibraryStep* call) const {
    const auto use = [&](PlanBuffer b, bool writes) {
      const PlanBuffer root = roots_[b];
      if (kind_of(root) != Kind::prepared) return;
      if (writes) fail(fmt::format("only a prepare step may write {}", name_of(root)));
      if (group_of_[root] == kNoGroup) {
        fail(fmt::format("{} is not prepared by an earlier step", name_of(root)));
      }
    };
    if (const auto* launch = std::get_if<abi::Launch>(&step.action)) {
      for (const PlanBuffer b : launch->buffers) use(b, false);
    } else if (call != nullptr) {
      const auto operands = call->operands();
      for (std::size_t i = 0; i < operands.size(); ++i) {
        if (operands[i] == nullptr) continue;
        use(operands[i]->buffer, i == static_cast<std::size_t>(Role::destination));
      }
    } else if (const auto* eager = std::get_if<abi::EagerCall>(&step.action)) {
      for (const abi::EagerArgument& a : eager->arguments) {
        if (a.kind == abi::EagerArgument::Kind::buffer) use(a.index, false);
      }
    } else {
      const auto& copy = std::get<abi::CopyStep>(step.action);
      use(copy.from, false);
      use(copy.to, true);
    }
  }

  void place(PreparedGroup& group) const {
    for (const PlanBuffer b : group.made) {
      const std::int64_t bytes = sizes_.constant_slots()[plan_.buffers[b].bytes];
      if (bytes < 0) user_error("plan {}: {} has {} bytes", plan_.name, name_of(b), bytes);
      group.offsets.push_back(group.bytes);
      group.bytes +=
          (bytes + abi::kArenaAlignment - 1) / abi::kArenaAlignment * abi::kArenaAlignment;
    }
  }

  const abi::Plan& plan_;
  std::span<const PlanBuffer> roots_;
  std::span<const std::int32_t> tensor_number_;
  const SizeProgram& sizes_;
  std::span<const std::unique_ptr<LibraryStep>> library_;
  std::vector<std::uint8_t> group_of_;  // by buffer
  std::vector<PreparedGroup> groups_;
  std::size_t step_ = 0;
};

}  // namespace

PreparedSet::PreparedSet(std::span<const WeightIdentity> weights, std::int64_t bytes,
                         std::int64_t generation, WeightCache& packed)
    : stamps_(weights.begin(), weights.end()),
      generation_(generation),
      packed_(packed),
      memory_(std::max<std::int64_t>(bytes, 1), "what is derived from weights") {}

PreparedSet::~PreparedSet() { packed_.forget(data(), data() + bytes()); }

bool PreparedSet::is_of(std::span<const WeightIdentity> weights) const {
  return std::equal(stamps_.begin(), stamps_.end(), weights.begin(), weights.end(),
                    [](const WeightStamp& s, const WeightIdentity& w) { return s.is_of(w); });
}

std::pair<std::shared_ptr<const PreparedSet>, bool> PreparedSets::get(
    std::span<const WeightIdentity> weights, const std::function<void(const PreparedSet&)>& fill) {
  // Made under the lock: another thread that wants the same set must wait for it anyway.
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const auto& e) { return e->is_of(weights); });
  if (found != entries_.end()) {
    if ((*found)->is_current(weights)) {
      entries_.splice(entries_.begin(), entries_, found);
      return {entries_.front(), false};
    }
    entries_.erase(found);
  }
  const auto count = [&] { return static_cast<std::int64_t>(entries_.size()) + 1; };
  while (!entries_.empty() &&
         (entries_.size() == kMostSets || count() * set_bytes_ > limit_bytes_)) {
    entries_.pop_back();
  }
  auto made =
      std::make_shared<const PreparedSet>(weights, set_bytes_, next_generation_++, *packed_);
  fill(*made);
  entries_.push_front(made);
  return {std::move(made), true};
}

bool PreparedSets::contains(const PreparedSet& set) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const auto& e) { return e.get() == &set; });
}

std::int64_t PreparedSets::bytes() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(entries_.size()) * set_bytes_;
}

std::vector<PreparedGroup> plan_prepared(const abi::Plan& plan, std::span<const PlanBuffer> roots,
                                         std::span<const std::int32_t> tensor_number,
                                         const SizeProgram& sizes,
                                         std::span<const std::unique_ptr<LibraryStep>> library) {
  return Planner(plan, roots, tensor_number, sizes, library).run();
}

}  // namespace inkle::runtime::cpu
