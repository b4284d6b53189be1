// Which thread runs next.
#include <random>

#include "kernel/interpret_machine.h"

namespace inkle::kernel {
namespace {

// A thread that does not wait is stopped after so many steps: it may spin in a way that is not seen
// to be spinning.
constexpr std::int64_t kLongRun = 20'000;

class Chooser {
 public:
  Chooser(Machine& machine, const InterpretOptions& options)
      : machine_(machine), order_(options.interleaving), random_(options.seed) {
    constexpr std::int64_t kRuns[] = {3, 20, 200, kLongRun};
    longest_ = order_ == Interleaving::random ? kRuns[options.seed % 4] : kLongRun;
  }

  // The next ready thread; null if there is none.
  Thread* next() {
    std::vector<Thread*>& threads = machine_.threads();
    const std::size_t n = threads.size();
    if (n == 0) return nullptr;
    std::size_t from = last_ % n;
    if (order_ == Interleaving::random) from = random_() % n;
    for (std::size_t k = 0; k < n; ++k) {
      const std::size_t at = order_ == Interleaving::reverse ? (from + n - k) % n : (from + k) % n;
      if (threads[at]->status != Status::ready) continue;
      last_ = at;
      return threads[at];
    }
    return nullptr;
  }
  std::int64_t steps() {
    if (order_ != Interleaving::random) return kLongRun;
    return 1 + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(longest_));
  }
  // Copies are done at once in order, as late as can be in reverse.
  bool copies_now() { return order_ == Interleaving::random && random_() % 4 == 0; }
  std::size_t copy(std::size_t count) {
    return order_ == Interleaving::random ? random_() % count : count - 1;
  }
  void go_on() {
    const std::size_t n = machine_.threads().size();
    last_ = order_ == Interleaving::reverse ? (last_ + n - 1) % n : (last_ + 1) % n;
  }
  void newest() {
    if (order_ == Interleaving::reverse) last_ = machine_.threads().size() - 1;
  }

 private:
  Machine& machine_;
  Interleaving order_;
  std::mt19937_64 random_;
  std::int64_t longest_ = 1;
  std::size_t last_ = 0;
};

}  // namespace

void run_schedule(Machine& machine, const InterpretOptions& options) {
  Chooser chooser(machine, options);
  machine.set_units_order(options.interleaving, options.seed);
  std::vector<BulkCopy>& copies = machine.bulk_copies();
  const auto perform_one = [&] {
    const auto at = static_cast<std::ptrdiff_t>(chooser.copy(copies.size()));
    BulkCopy copy = std::move(copies[static_cast<std::size_t>(at)]);
    copies.erase(copies.begin() + at);
    machine.perform(std::move(copy));
  };
  while (!machine.is_stopped()) {
    if (machine.start_blocks()) chooser.newest();
    if (!copies.empty() && chooser.copies_now()) perform_one();
    if (Thread* thread = chooser.next()) {
      machine.run(*thread, chooser.steps());
      if (thread->status == Status::ready) chooser.go_on();
    } else if (!copies.empty()) {
      perform_one();
    } else if (machine.is_done()) {
      machine.finish();
      return;
    } else if (!machine.start_blocks()) {
      machine.report_stuck();
    }
  }
}

}  // namespace inkle::kernel
