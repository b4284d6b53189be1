// Results of one call after another, in memory that stays; the host of these calls.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "abi/tensor_view.h"
#include "capi/device_memory.h"
#include "runtime/common/executable.h"
#include "runtime/common/host.h"
#include "runtime/cpu/memory_pool.h"

namespace inkle::capi {

enum class Kind : std::uint8_t { tensor, integer, none };

// The strides of an input's view may be null: row-major.
struct Value {
  Kind kind = Kind::none;
  std::int64_t integer = 0;
  abi::TensorView view;
  bool is_borrowed = false;  // of a result: it lies in an input or a weight
};

// What a call on a GPU has taken, until the next one.
struct GpuState {
  std::shared_ptr<runtime::common::Executable> executable;
  std::shared_ptr<DeviceMemory> memory;  // null: the latest call was the processor's
  runtime::cuda::Stream stream = nullptr;
  bool is_pending = false;  // its work may not be done yet
  std::vector<DeviceBlock> blocks;
};

class Results final : public runtime::common::Host {
 public:
  Results() = default;
  ~Results() override;
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;

  // Of the latest call; empty if it failed.
  [[nodiscard]] std::span<const Value> values() const { return values_; }
  void forget() { values_.clear(); }

  // Waits for the work of the latest call. Throws what its kernels met; there are no results then.
  void wait();
  // The same, and results that lie on a GPU are copied to the host's memory.
  void fetch();

  // Of a call on a GPU that has been queued: results that lie in an input or a weight are copied,
  // behind it.
  void own_all();
  // From the GPU, at once, after wait().
  void read(void* to, const void* from, std::int64_t bytes) const;
  [[nodiscard]] runtime::cuda::Stream stream() const { return gpu_.stream; }

  runtime::common::HostTensor make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
                                          std::span<const std::int64_t> strides) override;
  void begin_steps() override { has_begun_ = true; }
  // Throws Unsupported: nothing here runs an op in eager.
  void call(std::uint32_t target, std::span<const runtime::common::EagerOperand> operands,
            std::span<runtime::common::HostTensor> results) override;
  void give(std::uint32_t position, const runtime::common::Output& output) override;

 private:
  friend class Program;
  friend class GpuCall;
  struct Piece {
    runtime::cpu::Block block;
    std::vector<std::int64_t> sizes, strides;
  };
  // For a call of the program of this number.
  void begin(std::int64_t program, std::size_t outputs);
  // The same, on a stream of a GPU.
  void begin_on(std::shared_ptr<runtime::common::Executable> executable,
                std::shared_ptr<DeviceMemory> memory, runtime::cuda::Stream stream);
  [[nodiscard]] void* memory(Piece& piece, std::int64_t bytes);
  // A tensor without memory.
  [[nodiscard]] runtime::common::HostTensor make_place(abi::DType dtype,
                                                       std::span<const std::int64_t> sizes,
                                                       std::span<const std::int64_t> strides);
  [[nodiscard]] abi::Device location() const;

  std::vector<Value> values_;
  std::vector<std::vector<std::int64_t>> geometry_;  // two an output: sizes, strides
  std::deque<Piece> pieces_;                         // outputs, then copies of inputs
  std::size_t used_ = 0;
  bool has_begun_ = false;
  std::shared_ptr<const void> kept_;  // weights that results may lie in

  // Of the call: what the program is given.
  std::int64_t program_ = 0;
  std::vector<abi::TensorView> tensors_;
  std::vector<std::int64_t> integers_, versions_, slots_;
  std::vector<std::vector<std::int64_t>> strides_;  // of inputs that came without

  GpuState gpu_;
};

}  // namespace inkle::capi
