// How a check of the verifier fails: with the operation it has reached. For verify*.cpp only.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "kernel/kernel.h"

namespace inkle::kernel {

class Diagnostics {
 public:
  Diagnostics(const Kernel& kernel, std::string_view after_pass)
      : kernel_(kernel), pass_(after_pass) {}
  [[nodiscard]] const Kernel& kernel() const { return kernel_; }

  template <class... Args>
  void require(bool holds, fmt::format_string<Args...> format, Args&&... args) const {
    if (!holds) [[unlikely]]
      fail(fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void fail(const std::string& reason) const;
  // The operation that is being checked from now on; the one before.
  OperationId move_to(OperationId id) { return std::exchange(at_, id); }
  [[nodiscard]] const Memory& memory(MemoryId id) const;  // which must exist

 private:
  const Kernel& kernel_;
  std::string pass_;
  OperationId at_ = kNone;
};

}  // namespace inkle::kernel
