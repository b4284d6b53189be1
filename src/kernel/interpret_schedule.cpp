// Which thread runs next.
#include <algorithm>
#include <random>

#include "kernel/interpret_machine.h"

namespace inkle::kernel {
namespace {

// A thread that does not wait is stopped after so many steps: it may spin in a way that is not seen
// to be spinning.
constexpr std::int64_t kLongRun = 20'000;

// Picks among the threads that are ready. In order: the first of the launch; reverse: the last.
class Chooser {
 public:
  Chooser(Machine& machine, const InterpretOptions& options)
      : machine_(machine), order_(options.interleaving), random_(options.seed) {
    constexpr std::int64_t kRuns[] = {3, 20, 200, kLongRun};
    longest_ = order_ == Interleaving::random ? kRuns[options.seed % 4] : kLongRun;
  }

  // Takes the next ready thread out; null if there is none.
  Thread* take() {
    collect();
    for (;;) {
      if (ready_.empty()) {
        for (Thread* thread : stopped_) add(thread);
        stopped_.clear();
      }
      if (ready_.empty()) return nullptr;
      if (order_ == Interleaving::random) {
        std::swap(ready_[random_() % ready_.size()], ready_.back());
      } else {
        std::ranges::pop_heap(ready_, [this](Thread* a, Thread* b) { return is_later(a, b); });
      }
      Thread* thread = ready_.back();
      ready_.pop_back();
      thread->is_listed = false;
      // One that was let go on by its own arrival may wait again by now.
      if (thread->status == Status::ready) return thread;
    }
  }
  // After it has run: one that is still ready was stopped, and lets others go first.
  void give_back(Thread& thread) {
    if (thread.status != Status::ready || thread.is_listed) return;
    thread.is_listed = true;
    if (order_ == Interleaving::random) {
      ready_.push_back(&thread);
    } else {
      stopped_.push_back(&thread);
    }
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

 private:
  [[nodiscard]] bool is_later(const Thread* a, const Thread* b) const {
    return order_ == Interleaving::reverse ? a->order < b->order : a->order > b->order;
  }
  void add(Thread* thread) {
    ready_.push_back(thread);
    if (order_ == Interleaving::random) return;
    std::ranges::push_heap(ready_, [this](Thread* a, Thread* b) { return is_later(a, b); });
  }
  void collect() {
    for (Thread* thread : machine_.wakeups().woken()) add(thread);
    machine_.wakeups().woken().clear();
  }

  Machine& machine_;
  Interleaving order_;
  std::mt19937_64 random_;
  std::int64_t longest_ = 1;
  std::vector<Thread*> ready_, stopped_;
};

}  // namespace

void run_schedule(Machine& machine, const InterpretOptions& options) {
  Chooser chooser(machine, options);
  machine.blocks().set_order(options.interleaving, options.seed);
  std::vector<BulkCopy>& copies = machine.bulk_copies();
  const auto perform_one = [&] {
    const auto at = static_cast<std::ptrdiff_t>(chooser.copy(copies.size()));
    BulkCopy copy = std::move(copies[static_cast<std::size_t>(at)]);
    copies.erase(copies.begin() + at);
    machine.perform(std::move(copy));
  };
  while (!machine.is_stopped()) {
    machine.blocks().start();
    if (!copies.empty() && chooser.copies_now()) perform_one();
    if (Thread* thread = chooser.take()) {
      machine.run(*thread, chooser.steps());
      chooser.give_back(*thread);
    } else if (!copies.empty()) {
      perform_one();
    } else if (machine.blocks().is_done()) {
      machine.finish();
      return;
    } else if (!machine.blocks().start()) {
      machine.report_stuck();
    }
  }
}

}  // namespace inkle::kernel
