// A launch in progress: which part of the interpreter does what a thread runs.
#include "kernel/interpret_machine.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace inkle::kernel {

Machine::Machine(const Kernel& kernel, const Program& program, std::span<const Instance> instances,
                 const InterpretOptions& options)
    : code_(kernel, program),
      most_steps_(options.max_steps),
      agents_(kernel.threads()),
      findings_(program, agents_, options.max_findings),
      memory_(kernel, instances, findings_),
      watchers_(wakeups_),
      blocks_(code_, memory_, agents_, wakeups_, options.resident),
      order_(agents_, findings_),
      histories_(options.interleaving == Interleaving::random, options.seed + 1),
      addresses_(code_, memory_, findings_),
      accesses_(code_, memory_, addresses_, order_, histories_, watchers_, findings_),
      scalars_(code_, findings_),
      control_(code_, findings_, watchers_),
      barriers_(kernel, agents_, findings_, wakeups_),
      meetings_(wakeups_),
      collectives_(code_, memory_, findings_, meetings_,
                   [this](Thread& thread, std::uint32_t entry) { run_merge(thread, entry); }),
      phase_barriers_(code_, addresses_, agents_, findings_, wakeups_),
      copies_(code_, addresses_, order_, agents_, phase_barriers_, findings_,
              options.interleaving == Interleaving::in_order),
      fragments_(code_, addresses_, accesses_, order_, agents_, findings_, meetings_) {}

void Machine::run(Thread& thread, std::int64_t steps) {
  while (steps-- > 0 && !findings_.is_stopped()) {
    if (++steps_ > most_steps_) {
      findings_.stop(fmt::format("no end within {} steps", most_steps_));
      return;
    }
    if (!step(thread)) return;
  }
}

void Machine::run_merge(Thread& thread, std::uint32_t entry) {
  const std::uint32_t pc = std::exchange(thread.pc, entry);
  while (code_.at(thread).code != Code::region_end && !findings_.is_stopped()) {
    ++steps_;
    if (!step(thread)) INKLE_CHECK(false, "the merge of a collective waits");
  }
  thread.pc = pc;
}

bool Machine::step(Thread& thread) {
  const Instruction& i = code_.at(thread);
  switch (i.code) {
    case Code::move:
      scalars_.move(thread, i);
      break;
    case Code::index:
    case Code::divide_index:
    case Code::compute:
    case Code::function:
      scalars_.compute(thread, i);
      break;
    case Code::indirect:
    case Code::bind:
      scalars_.indirect(thread, i);
      break;
    case Code::mask_and:
    case Code::mask_and_not:
      scalars_.mask(thread, i);
      break;
    case Code::jump:
    case Code::jump_if_not:
    case Code::jump_unless_any:
    case Code::loop_test:
    case Code::loop_next:
    case Code::part_end:
    case Code::repeat_begin:
    case Code::repeat_head:
    case Code::repeat_compare:
    case Code::repeat_again:
    case Code::role_test:
      return control_.run(thread, i);
    case Code::finish:
      retire(thread);
      return false;
    case Code::load:
    case Code::store:
    case Code::atomic:
      if (stops_at_visible_ && !thread.is_granted &&
          code_.program().accesses[i.detail].order != Order::weak) {
        thread.status = Status::visible;
        return false;
      }
      thread.is_granted = false;
      if (i.code == Code::load) {
        accesses_.load(thread, i);
      } else if (i.code == Code::store) {
        accesses_.store(thread, i);
      } else {
        accesses_.atomic(thread, i);
      }
      break;
    default:
      return machine_operation(thread, i);
  }
  ++thread.pc;
  return true;
}

// Operations by which threads work together or with asynchronous agents.
bool Machine::machine_operation(Thread& thread, const Instruction& i) {
  const Kernel& kernel = code_.kernel();
  switch (i.code) {
    case Code::barrier:
      return barriers_.barrier(thread, i);
    case Code::reduce:
    case Code::scan:
    case Code::broadcast:
      return collectives_.collective(thread, i);
    case Code::transpose:
      collectives_.transpose(thread, i);
      ++thread.pc;
      return true;
    case Code::shuffle:
      return collectives_.shuffle(thread, i);
    case Code::barrier_wait:
      return phase_barriers_.wait(thread, i);
    case Code::map_head:
      fragments_.map_head(thread, i);
      return true;
    case Code::map_next:
      fragments_.map_next(thread, i);
      return true;
    case Code::convert_layout:
    case Code::mma:
      return fragments_.together(thread, i);
    case Code::fragment_fill:
      fragments_.fill(thread, i);
      break;
    case Code::fragment_load:
    case Code::fragment_store:
      fragments_.load_or_store(thread, i);
      break;
    case Code::fence:
      order_.fence(thread, kernel.detail<Fence>(i.operation));
      break;
    case Code::copy_async:
      copies_.copy(thread, i);
      break;
    case Code::copy_commit:
      commit(thread.copies);
      break;
    case Code::copy_wait:
      wait(thread, thread.copies, kernel.detail<Count>(i.operation).count);
      break;
    case Code::bulk_commit:
      commit(thread.bulks);
      break;
    case Code::bulk_wait:
      wait(thread, thread.bulks, kernel.detail<Count>(i.operation).count);
      break;
    case Code::mma_commit:
      commit(thread.multiplies);
      break;
    case Code::mma_wait:
      wait(thread, thread.multiplies, kernel.detail<Count>(i.operation).count);
      break;
    case Code::mma_fence:
      thread.fenced_stamp = thread.stamp;
      break;
    case Code::barrier_init:
      phase_barriers_.init(thread, i);
      break;
    case Code::barrier_arrive:
      phase_barriers_.arrive(thread, i);
      break;
    case Code::tma_load:
      copies_.bulk_load(thread, i);
      break;
    case Code::tma_store:
      copies_.bulk_store(thread, i);
      break;
    case Code::dependency_wait:
      thread.has_waited_for_dependency = true;
      break;
    case Code::report:
      for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
        if (code_.is_active(thread, i, l))
          findings_.fail(kernel.detail<Report>(i.operation).status);
      }
      break;
    default:
      INKLE_CHECK(false, "an instruction of the interpreter has no meaning");
  }
  ++thread.pc;
  return true;
}

void Machine::retire(Thread& thread) {
  if (!blocks_.finish(thread)) return;
  copies_.check_finished(thread);
  blocks_.release(*thread.block);
}

// --- Schedules -----------------------------------------------------------------------------------

Visible Machine::visible_of(Thread& thread) {
  const Instruction& i = code_.at(thread);
  const AccessCode& access = code_.program().accesses[i.detail];
  Visible visible{thread.order, 0, i.code != Code::load};
  if (i.width > 1) return visible;
  const MemoryLocation location = addresses_.locate(thread, access, 0, false);
  if (location.storage == nullptr) return visible;
  std::uint64_t owner = static_cast<std::uint64_t>(thread.block->instance);
  if (code_.kernel().memories[access.memory].space == Space::shared) {
    const Block* block = addresses_.block_of(thread, access, 0, false);
    owner = (1ULL << 32) + block->page;
  }
  visible.location = ((owner * 4099 + access.memory) << 24) +
                     static_cast<std::uint64_t>(location.byte - location.offset) + 1;
  return visible;
}

void Machine::report_stuck() {
  findings_.stop();
  // One finding for each operation at which threads wait.
  std::vector<OperationId> operations;
  for (const Thread* thread : blocks_.threads()) {
    if (thread->status == Status::finished) continue;
    const OperationId operation = code_.at(*thread).operation;
    if (std::find(operations.begin(), operations.end(), operation) == operations.end()) {
      operations.push_back(operation);
    }
  }
  for (const OperationId operation : operations) {
    Finding finding;
    finding.operation = operation;
    std::int64_t waiting = 0;
    const Thread* first = nullptr;
    for (const Thread* thread : blocks_.threads()) {
      if (thread->status == Status::finished || code_.at(*thread).operation != operation) continue;
      if (first == nullptr) first = thread;
      ++waiting;
    }
    finding.agents = {agents_.at(first->channel)};
    const Op op = operation == kNone ? Op::constant : code_.kernel()[operation].op;
    const bool is_collective = op == Op::barrier || op == Op::reduce || op == Op::scan ||
                               op == Op::broadcast || op == Op::shuffle || op == Op::mma ||
                               op == Op::convert_layout;
    finding.kind = is_collective ? ReportKind::divergence : ReportKind::hang;
    const bool spins = first->status == Status::spinning;
    finding.message = fmt::format("{} threads {} here for ever{}", waiting, spins ? "spin" : "wait",
                                  blocks_.has_unstarted() ? ", other blocks have not started" : "");
    findings_.add(std::move(finding));
  }
}

RunResult Machine::take_result() {
  RunResult result = findings_.take();
  result.steps = steps_;
  return result;
}

RunResult interpret(const Kernel& kernel, std::span<const Instance> instances,
                    const InterpretOptions& options) {
  const Program program = flatten(kernel);
  Machine machine(kernel, program, instances, options);
  run_schedule(machine, options);
  return machine.take_result();
}

}  // namespace inkle::kernel
