// All orders of the accesses by which threads synchronise, and the runs of check().
//
// Only accesses that are at least relaxed do not commute: races of others are found in every order
// of those. A run is repeated from the start for each order; sleep sets leave out orders that
// differ only in the order of independent accesses (Godefroid 1996).
#include <algorithm>
#include <cstring>
#include <set>

#include "kernel/interpret_machine.h"

namespace inkle::kernel {
namespace {

bool is_same(const Visible& a, const Visible& b) { return a.thread == b.thread; }

bool is_independent(const Visible& a, const Visible& b) {
  if (a.thread == b.thread) return false;
  if (!a.writes && !b.writes) return true;
  return a.location != 0 && b.location != 0 && a.location != b.location;
}

struct Node {
  std::vector<Visible> candidates, sleep, done;
  Visible chosen;
};

bool contains(const std::vector<Visible>& list, const Visible& v) {
  return std::any_of(list.begin(), list.end(), [&](const Visible& x) { return is_same(x, v); });
}

bool choose(Node& node) {
  for (const Visible& candidate : node.candidates) {
    if (contains(node.sleep, candidate) || contains(node.done, candidate)) continue;
    node.chosen = candidate;
    return true;
  }
  return false;
}

std::vector<Visible> sleep_after(const Node& node) {
  std::vector<Visible> sleep;
  for (const auto* list : {&node.sleep, &node.done}) {
    for (const Visible& v : *list) {
      if (is_independent(v, node.chosen)) sleep.push_back(v);
    }
  }
  return sleep;
}

// Everything that threads do between accesses by which they synchronise.
void run_invisible(Machine& machine) {
  for (bool any = true; any && !machine.is_stopped();) {
    any = machine.blocks().start();
    for (std::size_t t = 0; t < machine.blocks().threads().size(); ++t) {
      while (machine.blocks().threads()[t]->status == Status::ready && !machine.is_stopped()) {
        machine.run(*machine.blocks().threads()[t], 100'000);
        any = true;
      }
    }
    std::vector<BulkCopy> copies = std::exchange(machine.bulk_copies(), {});
    for (BulkCopy& copy : copies) machine.perform(std::move(copy));
    any |= !copies.empty();
  }
}

// One run along `nodes`, which it extends; false: an order that others stand for.
bool run_order(Machine& machine, std::vector<Node>& nodes) {
  machine.stop_at_visible();
  for (std::size_t depth = 0;; ++depth) {
    run_invisible(machine);
    if (machine.is_stopped()) return true;
    std::vector<Visible> candidates;
    for (Thread* thread : machine.blocks().threads()) {
      if (thread->status == Status::visible) candidates.push_back(machine.visible_of(*thread));
    }
    if (candidates.empty()) {
      if (machine.blocks().is_done()) {
        machine.finish();
      } else {
        machine.report_stuck();
      }
      return true;
    }
    if (depth == nodes.size()) {
      Node node;
      if (depth > 0) node.sleep = sleep_after(nodes.back());
      node.candidates = std::move(candidates);
      if (!choose(node)) return false;
      nodes.push_back(std::move(node));
    }
    Thread& thread = *machine.blocks().threads()[nodes[depth].chosen.thread];
    thread.is_granted = true;
    machine.wakeups().wake(thread);
  }
}

// Copies of the arguments, as aligned as they are and overlapping as they do.
class Copies {
 public:
  explicit Copies(std::span<const Instance> instances)
      : instances_(instances.begin(), instances.end()) {
    for (Instance& instance : instances_) {
      for (Argument& argument : instance.arguments) argument.data = copy(argument.data);
    }
  }
  [[nodiscard]] std::span<const Instance> instances() const { return instances_; }
  [[nodiscard]] std::vector<std::vector<std::byte>> contents() const {
    std::vector<std::vector<std::byte>> result;
    for (const Instance& instance : instances_) {
      for (const Argument& argument : instance.arguments) {
        result.emplace_back(argument.data.begin(), argument.data.end());
      }
    }
    return result;
  }

 private:
  static constexpr std::uintptr_t kAlignment = 256;
  struct Piece {
    std::span<std::byte> from;
    std::byte* to = nullptr;
  };

  std::span<std::byte> copy(std::span<std::byte> data) {
    if (data.empty()) return data;
    for (const Piece& piece : pieces_) {
      if (data.data() >= piece.from.data() &&
          data.data() + data.size() <= piece.from.data() + piece.from.size()) {
        return {piece.to + (data.data() - piece.from.data()), data.size()};
      }
    }
    std::vector<std::byte>& memory = memory_.emplace_back(data.size() + 2 * kAlignment);
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
    const std::uintptr_t wanted = reinterpret_cast<std::uintptr_t>(data.data()) % kAlignment;
    std::byte* to = memory.data() + (wanted + kAlignment - begin % kAlignment) % kAlignment;
    std::memcpy(to, data.data(), data.size());
    pieces_.push_back({data, to});
    return {to, data.size()};
  }

  std::vector<Instance> instances_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<Piece> pieces_;
};

class Checker {
 public:
  Checker(const Kernel& kernel, std::span<const Instance> instances, const CheckOptions& options)
      : kernel_(kernel),
        program_(flatten(kernel)),
        instances_(instances.begin(), instances.end()),
        options_(options) {}

  CheckResult run() {
    std::vector<std::int64_t> residents = {0};
    if (options_.limit_residency && !kernel_.launch.co_resident) residents = {0, 1, 2};
    for (const std::int64_t resident : residents) {
      schedule(Interleaving::in_order, 0, resident);
      schedule(Interleaving::reverse, 0, resident);
    }
    for (int seed = 0; seed < options_.seeds; ++seed) {
      const auto number = static_cast<std::uint64_t>(seed);
      schedule(Interleaving::random, number, residents[number % residents.size()]);
    }
    if (options_.max_orders > 0) {
      bool all = true;
      for (const std::int64_t resident : residents) all &= explore(resident);
      result_.all_orders = all && result_.findings.empty();
    }
    return std::move(result_);
  }

 private:
  InterpretOptions interpret_options(std::int64_t resident) const {
    InterpretOptions options;
    options.resident = resident;
    options.max_steps = options_.max_steps;
    return options;
  }

  void schedule(Interleaving interleaving, std::uint64_t seed, std::int64_t resident) {
    if (!result_.findings.empty()) return;
    InterpretOptions options = interpret_options(resident);
    options.interleaving = interleaving;
    options.seed = seed;
    Copies copies(instances_);
    Machine machine(kernel_, program_, copies.instances(), options);
    run_schedule(machine, options);
    std::string name = interleaving == Interleaving::in_order  ? "in order"
                       : interleaving == Interleaving::reverse ? "reverse"
                                                               : fmt::format("seed {}", seed);
    take(machine, copies, std::move(name), resident);
  }

  bool explore(std::int64_t resident) {
    std::vector<Node> nodes;
    for (;;) {
      if (!result_.findings.empty()) return false;
      if (++tried_ > options_.max_orders) return false;
      Copies copies(instances_);
      Machine machine(kernel_, program_, copies.instances(), interpret_options(resident));
      if (run_order(machine, nodes)) {
        ++result_.orders;
        take(machine, copies, fmt::format("order {}", result_.orders), resident);
      }
      // The next order differs as late as can be.
      while (!nodes.empty()) {
        Node& node = nodes.back();
        node.done.push_back(node.chosen);
        if (choose(node)) break;
        nodes.pop_back();
      }
      if (nodes.empty()) return true;
    }
  }

  void take(Machine& machine, const Copies& copies, std::string name, std::int64_t resident) {
    RunResult run = machine.take_result();
    ++result_.runs;
    result_.steps += run.steps;
    if (result_.status == 0) result_.status = run.status;
    if (resident > 0) name += fmt::format(", {} resident", resident);
    result_.findings = std::move(run.findings);
    if (result_.findings.empty() && options_.compare_results) compare(copies);
    if (!result_.findings.empty()) result_.schedule = std::move(name);
  }

  void compare(const Copies& copies) {
    std::vector<std::vector<std::byte>> contents = copies.contents();
    if (result_.results.empty()) {
      result_.results = std::move(contents);
      return;
    }
    for (std::size_t a = 0; a < contents.size(); ++a) {
      const auto [x, y] = std::mismatch(contents[a].begin(), contents[a].end(),
                                        result_.results[a].begin(), result_.results[a].end());
      if (x == contents[a].end()) continue;
      const std::int64_t at = x - contents[a].begin();
      const auto memory = static_cast<MemoryId>(a % kernel_.parameter_count);
      result_.findings.push_back({ReportKind::differs,
                                  kNone,
                                  kNone,
                                  memory,
                                  at,
                                  at + 1,
                                  {},
                                  "the result is another than that of the schedule before"});
      return;
    }
  }

  const Kernel& kernel_;
  Program program_;
  std::vector<Instance> instances_;
  CheckOptions options_;
  CheckResult result_;
  std::int64_t tried_ = 0;  // orders, with those that others stand for
};

}  // namespace

CheckResult check(const Kernel& kernel, std::span<const Instance> instances,
                  const CheckOptions& options) {
  return Checker(kernel, instances, options).run();
}

}  // namespace inkle::kernel
