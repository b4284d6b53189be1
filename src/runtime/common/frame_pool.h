// Frames that no call is using. One call takes one; a frame that an exception left halfway is not
// given back.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace inkle::runtime::common {

template <class Frame>
class FramePool {
 public:
  // The one that was used last, whose memory is still warm; null if all are in use.
  [[nodiscard]] std::unique_ptr<Frame> take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return nullptr;
    std::unique_ptr<Frame> frame = std::move(idle_.back());
    idle_.pop_back();
    return frame;
  }
  // That one, or a new one.
  template <class Make>
  [[nodiscard]] std::unique_ptr<Frame> take_or(Make&& make) {
    std::unique_ptr<Frame> frame = take();
    return frame ? std::move(frame) : make();
  }
  void give_back(std::unique_ptr<Frame> frame) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(frame));
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    idle_.clear();
  }

  // visit(Frame&) for each that is idle.
  template <class Visit>
  void for_each(Visit&& visit) const {
    const std::lock_guard lock(mutex_);
    for (const auto& frame : idle_) visit(*frame);
  }
  // visit(const Frame&) of the one that was used last, or `otherwise` while none is idle.
  template <class Result, class Visit>
  [[nodiscard]] Result latest(Result otherwise, Visit&& visit) const {
    const std::lock_guard lock(mutex_);
    return idle_.empty() ? std::move(otherwise) : visit(std::as_const(*idle_.back()));
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Frame>> idle_;
};

}  // namespace inkle::runtime::common
