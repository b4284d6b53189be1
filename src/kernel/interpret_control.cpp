#include "kernel/interpret_control.h"

#include <algorithm>

namespace inkle::kernel {

bool ThreadControl::run(Thread& thread, const Instruction& i) {
  ++thread.pc;
  switch (i.code) {
    case Code::jump:
      thread.pc = i.target;
      return true;
    case Code::jump_if_not:
      if (code_.get(thread, code_.operand(i, 0), thread.lane) == 0) thread.pc = i.target;
      return true;
    case Code::jump_unless_any:
      for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
        if (code_.get(thread, code_.operand(i, 0), l) != 0) return true;
      }
      thread.pc = i.target;
      return true;
    case Code::loop_test: {
      const std::int64_t step = code_.get(thread, code_.operand(i, 2), 0);
      if (step <= 0) {
        findings_.stop(fmt::format("a loop has the step {}", step));
        return false;
      }
      if (code_.get(thread, code_.operand(i, 0), 0) >= code_.get(thread, code_.operand(i, 1), 0))
        thread.pc = i.target;
      return true;
    }
    case Code::loop_next:
      set_slot(
          thread, code_.operand(i, 0), 0,
          code_.get(thread, code_.operand(i, 0), 0) + code_.get(thread, code_.operand(i, 1), 0));
      thread.pc = i.target;
      return true;
    case Code::part_end: {
      const std::int64_t length = code_.get(thread, code_.operand(i, 2), 0) * i.detail;
      set_slot(thread, i.result, 0,
               std::min(code_.get(thread, code_.operand(i, 0), 0) + length,
                        code_.get(thread, code_.operand(i, 1), 0)));
      return true;
    }
    case Code::role_test: {
      const std::int64_t warp = thread.number / 32;
      if (warp < i.detail || warp >= i.detail + i.width) thread.pc = i.target;
      return true;
    }
    case Code::repeat_begin:
      if (thread.frames.empty()) watchers_.begin(thread);
      thread.frames.push_back({thread.reads.size(), thread.changes, false});
      return true;
    case Code::repeat_head:
      thread.reads.resize(thread.frames.back().first_read);
      thread.frames.back().changes = thread.changes;
      thread.frames.back().has_moved = false;
      return true;
    case Code::repeat_compare:
      repeat_compare(thread, i);
      return true;
    default:
      return repeat_again(thread, i);
  }
}

void ThreadControl::repeat_compare(Thread& thread, const Instruction& i) const {
  const std::uint32_t count = i.operand_count / 2;
  for (std::uint32_t o = 0; o < count; ++o) {
    const Ref next = code_.operand(i, o);
    const Ref carried = code_.operand(i, count + o);
    thread.frames.back().has_moved |=
        next.bits != carried.bits &&
        (next.varies() || code_.get(thread, next, 0) != code_.get(thread, carried, 0));
  }
}

// An iteration that has changed nothing is the same again until something that it has read changes.
bool ThreadControl::repeat_again(Thread& thread, const Instruction& i) {
  Frame& frame = thread.frames.back();
  if (code_.get(thread, code_.operand(i, 0), 0) == 0) {
    thread.frames.pop_back();
    if (thread.frames.empty()) watchers_.end(thread);
    return true;
  }
  thread.pc = i.target;
  bool changed = frame.has_moved || frame.changes != thread.changes;
  for (std::size_t r = frame.first_read; r < thread.reads.size(); ++r) {
    changed |= thread.reads[r].has_changed;
  }
  if (changed) return true;
  thread.status = Status::spinning;
  return false;
}

}  // namespace inkle::kernel
