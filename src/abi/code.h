// What a plan names by number and a process has in memory: machine code and bytes of constants.
// A plan with its code makes an Executable of a runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "abi/plan.h"

namespace inkle::abi {

// A generated kernel: void(buffers, sizes, scratch, begin, end) over [0, extent), split between
// threads in chunks of at least `grain`. scratch: private to the thread, 64-byte aligned.
using KernelFunction = void (*)(void* const* buffers, const std::int64_t* sizes, void* scratch,
                                std::int64_t begin, std::int64_t end);

// Bytes that live as long as a copy of `owner` does: a vector, or part of a mapped file.
struct SharedBytes {
  std::span<const std::byte> data;
  std::shared_ptr<const void> owner;

  SharedBytes() = default;
  explicit SharedBytes(std::shared_ptr<const std::vector<std::byte>> bytes)
      : data(bytes->data(), bytes->size()), owner(std::move(bytes)) {}
  SharedBytes(std::span<const std::byte> bytes, std::shared_ptr<const void> kept_by)
      : data(bytes), owner(std::move(kept_by)) {}
};

// Machine code for a device, with the kernels of one or more steps.
struct DeviceImage {
  std::string architecture;
  std::shared_ptr<const std::vector<std::byte>> data;
};

struct Code {
  std::vector<KernelFunction> functions;            // by kernel of the plan; null for a device's
  std::vector<DeviceImage> images;                  // DeviceKernel::image
  std::vector<SharedBytes> constants;               // by constant of the plan: elements in order
  std::vector<std::shared_ptr<const void>> owners;  // what keeps `functions` valid

  // By kernel, for packages and reports; empty where they are not known. The object file that
  // `functions` was loaded from, and the text of a device's kernel.
  std::vector<SharedBytes> objects;
  std::vector<std::shared_ptr<const std::string>> sources;
};

struct PlanAndCode {
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const Code> code;
};

}  // namespace inkle::abi
