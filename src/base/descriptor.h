// A file descriptor that is closed with its owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace inkle {

class Descriptor {
 public:
  // Of open() and the like; below 0: none.
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int number() const { return number_; }
  // Whether all that was written has arrived; errno says why not.
  [[nodiscard]] bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

}  // namespace inkle
