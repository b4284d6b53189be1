// Sets of weights by name, and one as a program's arguments.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/tensor_view.h"
#include "base/error.h"
#include "package/package.h"
#include "runtime/common/size_program.h"
#include "runtime/cpu/memory_pool.h"
#include "runtime/cuda/device.h"

namespace inkle::capi {

// A file turns out to be damaged after it was loaded.
class BadFile : public UserError {
 public:
  using UserError::UserError;
};

struct NamedView {
  std::string name;
  abi::TensorView tensor;
};

// Immutable, but for knowing whether it has been checked.
class WeightSet {
 public:
  // Copies the tensors. Throws UserError for a name that comes twice.
  [[nodiscard]] static std::shared_ptr<const WeightSet> copy_of(std::span<const NamedView> tensors);
  // Those of a package, where they lie.
  [[nodiscard]] static std::shared_ptr<const WeightSet> of_package(
      std::shared_ptr<const package::Package> package, const runtime::common::SizeProgram& sizes);

  // Null if there is none. The view lives as long as this object.
  [[nodiscard]] const abi::TensorView* find(std::string_view name) const;
  // Of a package: its hashes, once. Throws BadFile if a weight is damaged.
  void check() const;

 private:
  struct Tensor {
    std::vector<std::int64_t> sizes, strides;
    runtime::cpu::Block memory;  // of a copy
    abi::TensorView view;
  };
  void add(std::string name, Tensor tensor);

  std::map<std::string, Tensor, std::less<>> tensors_;
  std::shared_ptr<const package::Package> package_;
  mutable std::once_flag checked_;
};

// A set as the arguments of one program. What the program writes, and what lies otherwise than it
// wants, are copies.
struct BoundWeights {
  // Throws UserError naming the weights that are missing, or what one should be. Weights of a GPU
  // are checked and copied there now.
  BoundWeights(std::shared_ptr<const WeightSet> from, const abi::Plan& plan,
               std::span<const std::uint32_t> parameters, const runtime::common::SizeProgram& sizes,
               std::shared_ptr<runtime::cuda::Device> gpu = nullptr);

  std::shared_ptr<const WeightSet> set;
  std::vector<abi::TensorView> views;  // by parameter
  // Unequal for any two sets of a process, so that nothing derived from one is used with another.
  std::int64_t version = 0;
  bool is_written = false;  // by calls, which then run one after another
  std::mutex mutex;

 private:
  void upload(const abi::Plan& plan, std::span<const std::uint32_t> parameters);

  std::shared_ptr<runtime::cuda::Device> gpu_;  // null: the processor
  std::shared_ptr<void> on_gpu_;                // one block for all
  std::vector<runtime::cpu::Block> copies_;
  std::deque<std::vector<std::int64_t>> geometry_;
};

// Unequal for any two calls in a process: the version of a weight.
[[nodiscard]] std::int64_t next_version();

// Sizes or strides of constant slots.
[[nodiscard]] std::vector<std::int64_t> constants_of(const std::vector<abi::Slot>& slots,
                                                     const runtime::common::SizeProgram& sizes,
                                                     std::string_view what);
// "f32[3,4]".
[[nodiscard]] std::string describe(abi::DType dtype, std::span<const std::int64_t> sizes);
// Bytes from the first element to behind the last; throws UserError for sizes or strides below 0,
// or too large for 64 bits.
[[nodiscard]] std::int64_t span_bytes(abi::DType dtype, std::span<const std::int64_t> sizes,
                                      std::span<const std::int64_t> strides);
[[nodiscard]] std::vector<std::int64_t> row_major(std::span<const std::int64_t> sizes);

}  // namespace inkle::capi
