// A host without any framework: tensors of its own memory, no ops in eager.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <variant>
#include <vector>

#include "frontend/pt2/tensor_data.h"
#include "runtime/common/host.h"

namespace inkle::cli {

// Serves one call of a plan; results() are what it gave.
class PlainHost : public runtime::common::Host {
 public:
  // Nothing, an integer, or a tensor of its own memory.
  using Result = std::variant<std::monostate, std::int64_t, frontend::pt2::TensorData>;

  // With `keep` false, tensors that are given are not copied and results stay empty: for timing.
  explicit PlainHost(bool keep = true) : keep_(keep) {}

  runtime::common::HostTensor make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
                                          std::span<const std::int64_t> strides) override;
  // Throws Unsupported: nothing here can run an op in eager.
  void call(std::uint32_t target, std::span<const runtime::common::EagerOperand> operands,
            std::span<runtime::common::HostTensor> results) override;
  void give(std::uint32_t position, const runtime::common::Output& output) override;

  [[nodiscard]] const std::vector<Result>& results() const { return results_; }
  [[nodiscard]] std::vector<Result> take_results() { return std::move(results_); }

 private:
  bool keep_;
  std::deque<frontend::pt2::TensorData> tensors_;
  std::vector<Result> results_;
};

}  // namespace inkle::cli
