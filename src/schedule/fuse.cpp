// The order of fusion: each nest, in program order, joins the best group that it may join, and then
// the best pair of groups becomes one, until there is none. What is good is fusion_score.h's.
#include <algorithm>
#include <queue>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "schedule/fusion_score.h"
#include "schedule/group.h"
#include "schedule/inline.h"
#include "schedule/linear.h"

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
// Elementwise groups that share no element become one kernel if results that then live longer have
// at most so many bytes: a launch takes about as long as to read them from memory.
constexpr std::int64_t kMostHeld = std::int64_t{4} << 20;
// Producers of a nest with more of them than this are not merged in pairs.
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

// Elementwise, and the last loop goes from element to element of all that it touches.
bool is_dense(const Group& group, const Program& program) {
  if (!group.open || group.outer.empty()) return false;
  const sym::Expr last = group.outer.back().variable;
  const auto fits = [&](BufferId b, const std::vector<sym::Expr>& indices) {
    const sym::Expr offset = linear_offset(program.buffers[b], indices, *program.context);
    if (!sym::contains(offset, last)) return true;
    const auto stride = sym::stride(offset, last);
    return stride && stride->is_constant(1);
  };
  return std::all_of(group.members.begin(), group.members.end(), [&](const Member& member) {
    const auto& body = member.nest.body.instructions;
    const auto& stores = member.nest.stores;
    return member.inner.empty() &&
           std::all_of(body.begin(), body.end(),
                       [&](const loop::Instruction& i) {
                         return i.opcode != loop::Opcode::load || fits(i.buffer, i.indices);
                       }) &&
           std::all_of(stores.begin(), stores.end(), [&](const loop::Store& store) {
             return fits(store.buffer, store.indices) && sym::contains(store.indices.back(), last);
           });
  });
}

class Fuser {
 public:
  Fuser(const Program& program, const abi::Target& device, const FuseOptions& options)
      : program_(program),
        device_(device),
        options_(options),
        rulebook_(program, device, options),
        mutated_(mutated_buffers(program)),
        updated_(updated_buffers(program)),
        writer_(program.buffers.size()),
        group_of_(program.nests.size()) {}

  std::vector<Group> run() {
    find_dependencies();
    for (std::size_t n = 0; n < program_.nests.size(); ++n) place(n);
    join_groups();
    if (device_.launches_cost) merge_neighbours();
    std::vector<Group> ordered;
    for (const std::size_t g : order()) ordered.push_back(std::move(groups_[g]));
    return ordered;
  }

 private:
  void find_dependencies() {
    const std::size_t count = program_.nests.size();
    before_.resize(count);
    std::vector<std::vector<std::size_t>> readers(program_.buffers.size());
    std::vector<std::vector<std::size_t>> writers(program_.buffers.size());
    const auto storage = [&](BufferId b) { return program_.buffers[b].writes_into.value_or(b); };
    std::optional<std::size_t> call;
    for (std::size_t n = 0; n < count; ++n) {
      auto& before = before_[n];
      // What eager does besides, as drawing random numbers, it does in the program's order.
      if (program_.nests[n].kind == NestKind::eager) {
        if (call) before.push_back(*call);
        call = n;
      }
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
      for (const BufferId b : loop::writes(program_.nests[n])) {
        writers[storage(b)].push_back(n);
        if (!writer_[b]) writer_[b] = n;
      }
    }
  }

  // Nests that touch memory which is written twice stay alone: their order must not change. Not so
  // an input that one nest overwrites: join() checks its readers.
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

  void report(std::size_t g, std::size_t n, bool yes, const FusionScore& score,
              std::string_view why) const {
    if (!log_enabled(LogChannel::fusion)) return;
    const Nest& leader = program_.nests[nests_[g].front()];
    const Nest& nest = program_.nests[n];
    log(LogChannel::fusion, "fuse n{} ({}) + n{} ({})  {}   {}: {}", nests_[g].front(),
        leader.label, n, nest.label, yes ? "yes" : "no", why, to_string(score));
  }

  // Producers of nest n that do not depend on each other become one group if n can join that: the
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
    std::string why;
    if (!both || !join(*both, program_.nests[n], program_, options_.inverts, why)) return false;
    if (groups_after(n, a)[b] || groups_after(n, b)[a]) return false;
    report(a, nests_[b].front(), true, rulebook_.score_fusion(touched_[a], touched_[b]),
           "both are read by one consumer");
    groups_[a] = std::move(*both);
    for (const std::size_t m : nests_[b]) group_of_[m] = a;
    nests_[a].insert(nests_[a].end(), nests_[b].begin(), nests_[b].end());
    touched_[a].add(touched_[b]);
    groups_[b] = Group{};
    nests_[b].clear();
    touched_[b] = {};
    fusable_[b] = false;
    return true;
  }

  // Whether a scatter's points may come in any order: sums of integers are the same in all.
  bool may_run_at_once(const Nest& nest) const {
    if (!device_.scatters_at_once || !options_.deterministic) return device_.scatters_at_once;
    return std::all_of(nest.stores.begin(), nest.stores.end(), [&](const loop::Store& store) {
      return store.mode == loop::StoreMode::atomic_add &&
             !abi::is_float(program_.buffers[store.buffer].dtype);
    });
  }

  // Groups that the nest may join, the best first.
  std::vector<std::pair<FusionScore, std::size_t>> ranked(std::size_t n) const {
    std::vector<std::pair<FusionScore, std::size_t>> all;
    for (const std::size_t g : candidates(n)) {
      if (!fusable_[g] || nests_[g].size() >= kMaxMembers) continue;
      const FusionScore score = rulebook_.score_fusion(touched_[g], rulebook_.touched(n));
      if (score.saved > 0) all.emplace_back(score, g);
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.first.is_better_than(b.first); });
    return all;
  }

  void place(std::size_t n) {
    const Nest& nest = program_.nests[n];
    // Threads of a block share a scan; a consumer would need values of other threads.
    const bool is_scan = nest.kind == NestKind::scan && !rulebook_.shares_rows();
    if ((is_fusable(nest) || is_scan) && !touches_mutated(nest)) {
      if (!is_scan && !rulebook_.is_column_part(nest)) merge_producers(n);
      for (const auto& [score, g] : ranked(n)) {
        if (is_scan && groups_[g].members.front().nest.kind != NestKind::scan) continue;
        std::string why;
        std::optional<Group> joined = rulebook_.can_fuse(groups_[g], nest, why);
        if (joined && makes_cycle(n, g)) {
          joined.reset();
          why = "another kernel lies between them";
        }
        if (joined && joined->inversions > groups_[g].inversions && score.saved < score.held) {
          joined.reset();
          why = "longer lifetimes hold more bytes than are saved";
        }
        report(g, n, joined.has_value(), score, why);
        if (!joined) continue;
        groups_[g] = std::move(*joined);
        nests_[g].push_back(n);
        touched_[g].add(rulebook_.touched(n));
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
    touched_.push_back(rulebook_.touched(n));
  }

  // A pair of groups, the first of which runs before the other or does not depend on it.
  struct Pair {
    FusionScore score;
    std::size_t first = 0, second = 0;
  };

  // The best pair of groups first, until no pair can be one kernel. What a nest could not join when
  // it was placed may be possible with the kernels that its neighbours have become.
  void join_groups() {
    std::set<std::vector<std::size_t>> refused;  // groups and their sizes
    for (bool changed = true; changed;) {
      changed = false;
      std::vector<bool> stale(groups_.size(), false);
      for (const Pair& pair : pairs()) {
        if (stale[pair.first] || stale[pair.second]) continue;
        std::vector<std::size_t> key = {pair.first, nests_[pair.first].size(), pair.second,
                                        nests_[pair.second].size()};
        if (refused.contains(key)) continue;
        const auto join = [&](std::string& why) {
          return joined_pair(pair.first, pair.second, why);
        };
        if (join_pair(pair, join)) {
          stale[pair.first] = stale[pair.second] = changed = true;
        } else {
          refused.insert(std::move(key));
        }
      }
    }
  }

  // Pairs that save bytes, and at least as many as they hold back; the best first.
  std::vector<Pair> pairs() const {
    std::vector<std::pair<std::size_t, std::size_t>> neighbours;
    constexpr std::size_t kNone = ~std::size_t{0};
    std::vector<std::size_t> last(program_.buffers.size(), kNone);  // that touches a buffer
    const auto touch = [&](BufferId b, std::size_t g) {
      if (last[b] != kNone && last[b] != g) neighbours.emplace_back(last[b], g);
      last[b] = g;
    };
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (!may_join(g)) continue;
      for (const BufferId b : touched_[g].reads) touch(b, g);
      for (const BufferId b : touched_[g].writes) touch(b, g);
    }
    std::sort(neighbours.begin(), neighbours.end());
    neighbours.erase(std::unique(neighbours.begin(), neighbours.end()), neighbours.end());
    std::vector<Pair> all;
    for (const auto& [first, second] : neighbours) {
      if (nests_[first].size() + nests_[second].size() > kMaxMembers) continue;
      const FusionScore score = rulebook_.score_fusion(touched_[first], touched_[second]);
      if (score.saved > 0 && score.saved >= score.held) all.push_back({score, first, second});
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Pair& a, const Pair& b) { return a.score.is_better_than(b.score); });
    return all;
  }

  bool may_join(std::size_t g) const {
    return fusable_[g] && !nests_[g].empty() &&
           std::all_of(nests_[g].begin(), nests_[g].end(), [&](std::size_t n) {
             return is_fusable(program_.nests[n]) && !rulebook_.is_column_part(program_.nests[n]);
           });
  }

  // Elementwise groups over equal loops that read parts of one tensor and do not depend on
  // each other: a launch less, as of the copies of queries and keys before attention.
  void merge_neighbours() {
    const std::vector<std::size_t> ordered = order();
    for (std::size_t i = 0; i < ordered.size(); ++i) {
      const std::size_t a = ordered[i];
      if (nests_[a].empty() || !may_join(a) || !is_dense(groups_[a], program_)) continue;
      for (std::size_t j = i + 1; j < ordered.size() && j <= i + kSiblingWindow; ++j) {
        const std::size_t b = ordered[j];
        if (nests_[b].empty() || !may_join(b) || !is_dense(groups_[b], program_)) continue;
        if (nests_[a].size() + nests_[b].size() > kMaxMembers) continue;
        const FusionScore score = rulebook_.score_fusion(touched_[a], touched_[b]);
        // What has little in common may be the same kernel on other tensors (combine.h).
        if (score.saved < std::min(written_bytes(a), written_bytes(b))) continue;
        if (score.feeds || score.held > kMostHeld) continue;
        if (needs(a, b) || needs(b, a)) continue;
        join_pair({score, a, b}, [&](std::string& why) { return merged_pair(a, b, why); });
      }
    }
  }

  std::int64_t written_bytes(std::size_t g) const {
    std::int64_t bytes = 0;
    for (const BufferId b : touched_[g].writes) bytes += rulebook_.bytes(b);
    return bytes;
  }

  std::optional<Group> merged_pair(std::size_t a, std::size_t b, std::string& why) const {
    std::optional<Group> merged = merge(groups_[a], groups_[b]);
    why = merged ? "equal loops" : "outer loops differ";
    if (merged && (has_between(a, b) || has_between(b, a))) {
      merged.reset();
      why = "another kernel lies between them";
    }
    return merged;
  }

  template <class Join>
  bool join_pair(const Pair& pair, const Join& join) {
    const auto [score, a, b] = pair;
    std::string why;
    std::optional<Group> joined = join(why);
    const std::vector<std::size_t> first = nests_[a], second = nests_[b];
    if (joined) {
      const std::int64_t before = peak();
      nests_[a].insert(nests_[a].end(), second.begin(), second.end());
      nests_[b].clear();
      for (const std::size_t n : second) group_of_[n] = a;
      if (peak() > before) {
        joined.reset();
        why = "peak memory would be higher";
        nests_[a] = first;
        nests_[b] = second;
        for (const std::size_t n : second) group_of_[n] = b;
      }
    }
    report(a, second.front(), joined.has_value(), score, why);
    if (!joined) return false;
    groups_[a] = std::move(*joined);
    touched_[a].add(touched_[b]);
    groups_[b] = Group{};
    touched_[b] = {};
    fusable_[b] = false;
    return true;
  }

  // The pair as one group, what the other needs first.
  std::optional<Group> joined_pair(std::size_t a, std::size_t b, std::string& why) const {
    std::optional<Group> joined;
    if (needs(a, b)) {
      joined = prepend(groups_[b], groups_[a], why);
    } else {
      const Group* group = &groups_[a];
      for (const std::size_t n : nests_[b]) {
        joined = rulebook_.can_fuse(*group, program_.nests[n], why);
        if (!joined) break;
        group = &*joined;
      }
      std::string why_before;
      if (!joined && needs(b, a)) {
        joined = prepend(groups_[a], groups_[b], why_before);
        if (joined) why = why_before;
      }
    }
    if (joined && (has_between(a, b) || has_between(b, a))) {
      joined.reset();
      why = "another kernel lies between them";
    }
    return joined;
  }

  // A nest of group a must run after one of group b.
  bool needs(std::size_t a, std::size_t b) const {
    return std::any_of(nests_[a].begin(), nests_[a].end(), [&](std::size_t n) {
      return std::any_of(before_[n].begin(), before_[n].end(),
                         [&](std::size_t m) { return group_of_[m] == b; });
    });
  }

  // Some third group runs after a and before b.
  bool has_between(std::size_t a, std::size_t b) const {
    const std::vector<bool> after_a = groups_after(program_.nests.size(), a);
    return std::any_of(nests_[b].begin(), nests_[b].end(), [&](std::size_t n) {
      return std::any_of(before_[n].begin(), before_[n].end(), [&](std::size_t m) {
        return group_of_[m] != a && group_of_[m] != b && after_a[group_of_[m]];
      });
    });
  }

  // Peak bytes of temporaries that are live between groups.
  std::int64_t peak() const {
    const std::vector<std::size_t> ordered = order();
    std::vector<std::size_t> at(groups_.size());
    for (std::size_t i = 0; i < ordered.size(); ++i) at[ordered[i]] = i;
    std::vector<std::int64_t> change(ordered.size() + 1, 0);
    for (BufferId b = 0; b < program_.buffers.size(); ++b) {
      if (rulebook_.escapes(b) || !writer_[b]) continue;
      const std::size_t first = at[group_of_[*writer_[b]]];
      std::size_t last = first;
      for (const std::size_t n : rulebook_.readers(b)) last = std::max(last, at[group_of_[n]]);
      if (last == first) continue;
      change[first] += rulebook_.bytes(b);
      change[last + 1] -= rulebook_.bytes(b);
    }
    std::int64_t now = 0, most = 0;
    for (const std::int64_t c : change) most = std::max(most, now += c);
    return most;
  }

  // Topological order, the group with the earliest nest first among those that are ready.
  std::vector<std::size_t> order() const {
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
    std::vector<std::size_t> ordered;
    while (!ready.empty()) {
      const std::size_t g = ready.top();
      ready.pop();
      ordered.push_back(g);
      for (const std::size_t a : after[g]) {
        if (--waiting[a] == 0) ready.push(a);
      }
    }
    INKLE_CHECK(ordered.size() + merged_away == count, "fusion made a cycle of kernels");
    return ordered;
  }

  const Program& program_;
  const abi::Target& device_;
  const FuseOptions& options_;
  FusionRulebook rulebook_;
  std::vector<bool> mutated_;
  std::vector<bool> updated_;                       // inputs that one elementwise nest overwrites
  std::vector<std::vector<std::size_t>> before_;    // nests that must run before
  std::vector<std::optional<std::size_t>> writer_;  // the first nest that writes a buffer
  std::vector<std::size_t> group_of_;
  std::vector<Group> groups_;
  std::vector<std::vector<std::size_t>> nests_;  // of each group
  std::vector<Touched> touched_;                 // by each group
  std::vector<bool> fusable_;
};

}  // namespace

std::vector<Group> fuse(const Program& program, const abi::Target& device,
                        const FuseOptions& options) {
  return Fuser(program, device, options).run();
}

}  // namespace inkle::schedule
