// The order of fusion: each nest, in program order, joins the best group that it may join.
#include <algorithm>
#include <queue>

#include "base/error.h"
#include "base/log.h"
#include "schedule/group.h"
#include "schedule/inline.h"
#include "schedule/linear.h"
#include "schedule/matcher.h"
#include "schedule/walk.h"

namespace inkle::schedule {
namespace {

using loop::BufferId;
using loop::Nest;
using loop::NestKind;
using loop::Program;

// A group grows to at most this many nests: beyond, compile time and register pressure rise with
// no byte saved that a second kernel would not also find in cache.
constexpr std::size_t kMaxMembers = 24;
// Groups looked at for a shared input when there is no dependency: the nearest ones.
constexpr std::size_t kSiblingWindow = 8;
// Of a nest with more producers, no two are looked at together.
constexpr std::size_t kMostProducers = 8;

bool is_fusable(const Nest& nest) {
  return nest.kind == NestKind::pointwise || nest.kind == NestKind::reduction;
}

// Inputs that one nest overwrites and no view or call writes.
std::vector<bool> updated_buffers(const Program& program) {
  std::vector<int> writers(program.buffers.size(), 0);
  std::vector<bool> updated(program.buffers.size(), false);
  for (const Nest& nest : program.nests) {
    for (const BufferId b : loop::writes(nest)) {
      ++writers[b];
      updated[b] =
          nest.kind == NestKind::pointwise && program.buffers[b].role == loop::BufferRole::input;
    }
  }
  for (const loop::Buffer& buffer : program.buffers) {
    if (buffer.writes_into) updated[*buffer.writes_into] = false;
  }
  for (BufferId b = 0; b < updated.size(); ++b) updated[b] = updated[b] && writers[b] == 1;
  return updated;
}

class Fuser {
 public:
  Fuser(const Program& program, const abi::Target& device, const std::vector<BufferId>& gathered,
        bool deterministic)
      : program_(program),
        device_(device),
        rules_(device.fusion),
        gathered_(gathered),
        deterministic_(deterministic),
        mutated_(mutated_buffers(program)),
        updated_(updated_buffers(program)),
        group_of_(program.nests.size()) {}

  std::vector<Group> run() {
    find_dependencies();
    for (std::size_t n = 0; n < program_.nests.size(); ++n) place(n);
    return in_order();
  }

 private:
  void find_dependencies() {
    const std::size_t count = program_.nests.size();
    before_.resize(count);
    std::vector<std::vector<std::size_t>> readers(program_.buffers.size());
    std::vector<std::vector<std::size_t>> writers(program_.buffers.size());
    const auto storage = [&](BufferId b) { return program_.buffers[b].writes_into.value_or(b); };
    for (std::size_t n = 0; n < count; ++n) {
      auto& before = before_[n];
      for (const BufferId b : loop::reads(program_.nests[n])) {
        const auto& w = writers[storage(b)];
        before.insert(before.end(), w.begin(), w.end());
      }
      for (const BufferId b : loop::writes(program_.nests[n])) {
        const auto& w = writers[storage(b)];
        const auto& r = readers[storage(b)];
        before.insert(before.end(), w.begin(), w.end());
        before.insert(before.end(), r.begin(), r.end());
      }
      std::sort(before.begin(), before.end());
      before.erase(std::unique(before.begin(), before.end()), before.end());
      std::erase(before, n);
      for (const BufferId b : loop::reads(program_.nests[n])) readers[storage(b)].push_back(n);
      for (const BufferId b : loop::writes(program_.nests[n])) writers[storage(b)].push_back(n);
    }
  }

  // Nests that touch memory which is written twice stay alone: their order is their meaning. Not
  // so an input that one nest overwrites: join() looks at who reads it.
  bool touches_mutated(const Nest& nest) const {
    const auto is_mutated = [&](BufferId b) {
      return (mutated_[b] && !updated_[b]) || program_.buffers[b].writes_into.has_value();
    };
    const auto r = loop::reads(nest);
    const auto w = loop::writes(nest);
    return std::any_of(r.begin(), r.end(), is_mutated) ||
           std::any_of(w.begin(), w.end(), is_mutated);
  }

  // Groups that must run after `target`, of those that hold nests before n; itself too.
  std::vector<bool> groups_after(std::size_t n, std::size_t target) const {
    std::vector<bool> after(groups_.size(), false);
    after[target] = true;
    // Groups are not ordered by their nests, so close the relation.
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t m = 0; m < n; ++m) {
        if (after[group_of_[m]]) continue;
        for (const std::size_t b : before_[m]) {
          if (after[group_of_[b]]) {
            after[group_of_[m]] = true;
            changed = true;
            break;
          }
        }
      }
    }
    return after;
  }

  // Some group other than `target` lies on a path from it to nest n.
  bool makes_cycle(std::size_t n, std::size_t target) const {
    const std::vector<bool> after = groups_after(n, target);
    return std::any_of(before_[n].begin(), before_[n].end(), [&](std::size_t b) {
      return group_of_[b] != target && after[group_of_[b]];
    });
  }

  std::vector<std::size_t> candidates(std::size_t n) const {
    std::vector<std::size_t> result;
    const auto add = [&](std::size_t g) {
      if (std::find(result.begin(), result.end(), g) == result.end()) result.push_back(g);
    };
    std::vector<std::size_t> producers(before_[n].rbegin(), before_[n].rend());
    for (const std::size_t b : producers) add(group_of_[b]);
    const std::size_t first = groups_.size() > kSiblingWindow ? groups_.size() - kSiblingWindow : 0;
    for (std::size_t g = groups_.size(); g-- > first;) add(g);
    return result;
  }

  void report(std::size_t g, std::size_t n, bool yes, std::string_view why) const {
    if (!log_enabled(LogChannel::fusion)) return;
    const Nest& leader = program_.nests[nests_[g].front()];
    const Nest& nest = program_.nests[n];
    log(LogChannel::fusion, "fuse n{} ({}) + n{} ({})  {}   {}", nests_[g].front(), leader.label, n,
        nest.label, yes ? "yes" : "no", why);
  }

  // Producers of nest n that know nothing of each other become one group if n can join that: the
  // two log-softmaxes of a divergence.
  void merge_producers(std::size_t n) {
    std::vector<std::size_t> producers;
    for (const std::size_t b : before_[n]) {
      const std::size_t g = group_of_[b];
      const bool is_new = std::find(producers.begin(), producers.end(), g) == producers.end();
      if (is_new && fusable_[g]) producers.push_back(g);
    }
    if (producers.size() > kMostProducers) return;
    for (std::size_t i = 1; i < producers.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (fusable_[producers[j]] && merge_pair(n, producers[j], producers[i])) break;
      }
    }
  }

  bool merge_pair(std::size_t n, std::size_t a, std::size_t b) {
    if (nests_[a].size() + nests_[b].size() >= kMaxMembers) return false;
    std::optional<Group> both = merge(groups_[a], groups_[b]);
    std::string why_not;
    if (!both || !join(*both, program_.nests[n], program_, why_not)) return false;
    if (groups_after(n, a)[b] || groups_after(n, b)[a]) return false;
    report(a, nests_[b].front(), true, "both are read by a third");
    groups_[a] = std::move(*both);
    for (const std::size_t m : nests_[b]) group_of_[m] = a;
    nests_[a].insert(nests_[a].end(), nests_[b].begin(), nests_[b].end());
    groups_[b] = Group{};
    nests_[b].clear();
    fusable_[b] = false;
    return true;
  }

  bool is_gathered(const Nest& nest) const {
    return nest.stores.size() == 1 &&
           std::find(gathered_.begin(), gathered_.end(), nest.stores[0].buffer) != gathered_.end();
  }

  // Threads of a block share a row, and its memory.
  bool shares_rows() const { return rules_.row_threads > 0; }

  // Whether a scatter's points may come in any order: sums of integers are the same in all.
  bool may_run_at_once(const Nest& nest) const {
    if (!device_.scatters_at_once || !deterministic_) return device_.scatters_at_once;
    return std::all_of(nest.stores.begin(), nest.stores.end(), [&](const loop::Store& store) {
      return store.mode == loop::StoreMode::atomic_add &&
             !abi::is_float(program_.buffers[store.buffer].dtype);
    });
  }

  // Whether what lies next to each other in memory are different outer iterations.
  bool walks_columns(const Group& group) const {
    if (group.outer.empty()) return false;
    const auto is_dense = [](Expr offset, Expr variable) {
      const auto stride = sym::stride(offset, variable);
      return sym::contains(offset, variable) && stride && stride->is_constant(1);
    };
    bool columns = false;
    for (const Member& member : group.members) {
      if (member.inner.empty()) continue;
      const Expr inner = member.inner.back().variable;
      for (const loop::Instruction& i : member.nest.body.instructions) {
        if (i.opcode != loop::Opcode::load) continue;
        const Expr offset = linear_offset(program_.buffers[i.buffer], i.indices, *program_.context);
        if (!sym::contains(offset, inner)) continue;
        const bool varies =
            std::any_of(group.outer.begin(), group.outer.end(),
                        [&](const loop::Dim& dim) { return sym::contains(offset, dim.variable); });
        if (varies && is_dense(offset, inner)) return false;
        columns = columns || is_dense(offset, group.outer.back().variable);
      }
    }
    return columns;
  }

  // A block has a long row alone: with few of them it is better to write what rows share
  // and to let all blocks read it.
  // Reductions that are alike long have nothing to lose.
  bool starves(const Group& before, const Group& joined) const {
    if (!shares_rows() || joined.members.size() < 2) return false;
    const Member& last = joined.members.back();
    const bool shares_work = last.nest.kind == NestKind::pointwise && !last.inner.empty();
    const bool takes_loops = extent_hint(joined.outer) < extent_hint(before.outer);
    if (!shares_work && !takes_loops) return false;
    std::int64_t longest = 0;
    for (const Member& member : joined.members) {
      longest = std::max(longest, extent_hint(member.inner));
    }
    if (walks_columns(joined)) {
      const std::int64_t columns = extent_hint(joined.outer);
      const std::int64_t wanted = std::int64_t{device_.parallelism} * device_.resident_threads / 8;
      return columns * longest >= rules_.many_elements &&
             columns * std::min<std::int64_t>(rules_.column_team, longest) / rules_.column_team <
                 wanted;
    }
    const double threads = static_cast<double>(extent_hint(joined.outer)) *
                           static_cast<double>(std::min<std::int64_t>(longest, rules_.row_threads));
    return longest >= rules_.long_row &&
           threads < static_cast<double>(rules_.row_threads) * device_.parallelism / 2;
  }

  // Whether the last member needs values that the group makes at other places along its
  // inner loops, which the threads of a block would have to hand over: of a column there are too
  // many for that, and of a long row.
  bool needs_other_places(const Group& joined) const {
    if (!shares_rows()) return false;
    const Member& last = joined.members.back();
    for (const loop::Instruction& i : last.nest.body.instructions) {
      if (i.opcode != loop::Opcode::load) continue;
      const auto made = find_store(joined, i.buffer);
      if (!made || made->member == &last) continue;
      const std::vector<loop::Dim>& inner = made->member->inner;
      const bool is_of_row = std::none_of(made->store->indices.begin(), made->store->indices.end(),
                                          [&](Expr index) { return contains_any(index, inner); });
      if (is_of_row || is_same_place(i, last, *made)) continue;
      const auto elements = extent_product(inner, *program_.context).constant();
      const std::int64_t size = abi::size_of(program_.buffers[i.buffer].dtype);
      if (walks_columns(joined) || !elements || *elements * size > rules_.kept_of_row) return true;
    }
    return false;
  }

  bool is_same_place(const loop::Instruction& load, const Member& reader,
                     const StoreOf& made) const {
    const std::vector<loop::Dim>& inner = made.member->inner;
    if (load.operand_count != 0) return false;
    if (reader.inner.size() != inner.size()) {  // loops that are one, or several, may be the same
      sym::Context& context = *program_.context;
      return extent_product(reader.inner, context) == extent_product(inner, context);
    }
    std::vector<std::pair<Expr, Expr>> map;
    for (std::size_t d = 0; d < inner.size(); ++d) {
      if (!(reader.inner[d].extent == inner[d].extent)) return false;
      map.emplace_back(reader.inner[d].variable, inner[d].variable);
    }
    for (std::size_t d = 0; d < load.indices.size(); ++d) {
      if (!(sym::substitute(load.indices[d], map) == made.store->indices[d])) return false;
    }
    return true;
  }

  void place(std::size_t n) {
    const Nest& nest = program_.nests[n];
    // Threads of a block share a scan; what follows would find its values with other threads.
    const bool is_scan = nest.kind == NestKind::scan && !shares_rows();
    if ((is_fusable(nest) || is_scan) && !touches_mutated(nest)) {
      if (!is_scan && !is_gathered(nest)) merge_producers(n);
      for (const std::size_t g : candidates(n)) {
        if (!fusable_[g] || nests_[g].size() >= kMaxMembers) continue;
        if (is_scan && groups_[g].members.front().nest.kind != NestKind::scan) continue;
        std::string why_not;
        std::optional<Group> joined = is_gathered(nest)
                                          ? gather(groups_[g], nest, program_, why_not)
                                          : join(groups_[g], nest, program_, why_not);
        if (joined && makes_cycle(n, g)) {
          joined.reset();
          why_not = "another kernel lies between them";
        }
        if (joined && starves(groups_[g], *joined)) {
          joined.reset();
          why_not = "few long rows would leave the device idle";
        }
        if (joined && needs_other_places(*joined)) {
          joined.reset();
          why_not = "threads would have to hand over too much";
        }
        report(g, n, joined.has_value(), joined ? "shared loops" : why_not);
        if (!joined) continue;
        groups_[g] = std::move(*joined);
        nests_[g].push_back(n);
        group_of_[n] = g;
        return;
      }
    }
    group_of_[n] = groups_.size();
    const bool may_lead = is_fusable(nest) || is_scan;
    fusable_.push_back(may_lead && !touches_mutated(nest));
    if (is_fusable(nest) || nest.kind == NestKind::scan || nest.kind == NestKind::scatter) {
      groups_.push_back(make_group(nest, *program_.context, may_run_at_once(nest)));
    } else {
      Group alone;
      alone.open = false;
      alone.members.push_back({nest, {}});
      groups_.push_back(std::move(alone));
    }
    nests_.push_back({n});
  }

  // Topological order, the group with the earliest nest first among those that are ready.
  std::vector<Group> in_order() {
    const std::size_t count = groups_.size();
    std::vector<std::vector<std::size_t>> after(count);
    std::vector<std::size_t> waiting(count, 0);
    for (std::size_t n = 0; n < program_.nests.size(); ++n) {
      for (const std::size_t b : before_[n]) {
        if (group_of_[b] == group_of_[n]) continue;
        after[group_of_[b]].push_back(group_of_[n]);
        ++waiting[group_of_[n]];
      }
    }
    const auto later = [&](std::size_t a, std::size_t b) {
      return nests_[a].front() > nests_[b].front();
    };
    std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(later)> ready(later);
    std::size_t merged_away = 0;
    for (std::size_t g = 0; g < count; ++g) {
      if (nests_[g].empty()) {
        ++merged_away;
      } else if (waiting[g] == 0) {
        ready.push(g);
      }
    }
    std::vector<Group> ordered;
    while (!ready.empty()) {
      const std::size_t g = ready.top();
      ready.pop();
      ordered.push_back(std::move(groups_[g]));
      for (const std::size_t a : after[g]) {
        if (--waiting[a] == 0) ready.push(a);
      }
    }
    INKLE_CHECK(ordered.size() + merged_away == count, "fusion made a cycle of kernels");
    return ordered;
  }

  const Program& program_;
  const abi::Target& device_;
  const abi::FusionRules& rules_;
  const std::vector<BufferId>& gathered_;
  bool deterministic_;
  std::vector<bool> mutated_;
  std::vector<bool> updated_;                     // inputs that one elementwise nest overwrites
  std::vector<std::vector<std::size_t>> before_;  // nests that must run before
  std::vector<std::size_t> group_of_;
  std::vector<Group> groups_;
  std::vector<std::vector<std::size_t>> nests_;  // of each group
  std::vector<bool> fusable_;
};

}  // namespace

std::vector<Group> fuse(const Program& program, const abi::Target& device,
                        const std::vector<BufferId>& gathered, bool deterministic) {
  return Fuser(program, device, gathered, deterministic).run();
}

}  // namespace inkle::schedule
