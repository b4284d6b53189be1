#include "cli/host.h"

#include "base/error.h"

namespace inkle::cli {

runtime::common::HostTensor PlainHost::make_output(abi::DType dtype,
                                                   std::span<const std::int64_t> sizes,
                                                   std::span<const std::int64_t> strides) {
  tensors_.push_back(frontend::pt2::make_tensor(dtype, {sizes.begin(), sizes.end()},
                                                {strides.begin(), strides.end()}));
  return {&tensors_.back(), tensors_.back().view()};
}

void PlainHost::call(std::uint32_t target,
                     std::span<const runtime::common::EagerOperand> /*operands*/,
                     std::span<runtime::common::HostTensor> /*results*/) {
  unsupported("op number {} needs PyTorch's eager mode, which is not here", target);
}

void PlainHost::give(std::uint32_t position, const runtime::common::Output& output) {
  if (!keep_) return;
  results_.resize(std::max<std::size_t>(results_.size(), position + std::size_t{1}));
  switch (output.kind) {
    case abi::PlanOutput::Kind::none:
      return;
    case abi::PlanOutput::Kind::integer:
      results_[position] = output.integer;
      return;
    case abi::PlanOutput::Kind::buffer:
    case abi::PlanOutput::Kind::argument:
      results_[position] = frontend::pt2::rearranged(output.view);
      return;
  }
}

}  // namespace inkle::cli
