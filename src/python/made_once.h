// What is looked up in torch once. A function-local static will not do for it: Python code, which
// the lookup runs, may let go of the interpreter's lock, and the thread that takes it would wait
// for the static's guard with the lock held, for ever.
#pragma once

#include <memory>

namespace inkle::python {

// Place for an object that is never freed, as the interpreter may be gone by then; a static of its
// own, initialised at compile time. The interpreter's lock must be held.
template <class T>
class MadeOnce {
 public:
  // `make()` gives a std::unique_ptr<T>, and may throw: the next call tries again. Threads that
  // come while it runs call it, too; the first object that is done stays.
  template <class Make>
  T& get(Make&& make) {
    if (made_ == nullptr) {
      std::unique_ptr<T> made = make();
      if (made_ == nullptr) made_ = made.release();
    }
    return *made_;
  }

 private:
  T* made_ = nullptr;
};

}  // namespace inkle::python
