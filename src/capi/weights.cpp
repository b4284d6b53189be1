#include "capi/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "runtime/common/arguments.h"
#include "runtime/common/errors.h"
#include "runtime/cpu/strided_copy.h"

namespace inkle::capi {
namespace {

using runtime::common::WrongArgument;
using runtime::cpu::Block;

std::span<const std::int64_t> sizes_of(const abi::TensorView& t) {
  return {t.sizes, static_cast<std::size_t>(t.rank)};
}

std::span<const std::int64_t> strides_of(const abi::TensorView& t) {
  return {t.strides, static_cast<std::size_t>(t.rank)};
}

bool is_laid_out(const abi::TensorView& t, std::span<const std::int64_t> strides) {
  for (std::size_t d = 0; d < strides.size(); ++d) {
    if (t.sizes[d] == 0) return true;
    if (t.sizes[d] != 1 && t.strides[d] != strides[d]) return false;
  }
  return true;
}

std::shared_ptr<void> memory_of(const std::shared_ptr<runtime::cuda::Device>& gpu,
                                std::int64_t bytes) {
  void* const at = gpu->try_allocate(bytes);
  if (at == nullptr) {
    throw runtime::common::OutOfMemory(
        fmt::format("the GPU has no {} bytes of memory for the weights", bytes));
  }
  return {at, [gpu](void* memory) {
            try {
              const runtime::cuda::Scope scope(*gpu);
              gpu->synchronize_all();  // calls that are queued may still read it
              gpu->free(memory);
            } catch (const Error&) {  // the driver is gone, and its memory with it
              return;
            }
          }};
}

}  // namespace

std::int64_t next_version() {
  static std::atomic<std::int64_t> last = 0;
  return ++last;
}

std::vector<std::int64_t> constants_of(const std::vector<abi::Slot>& slots,
                                       const runtime::common::SizeProgram& sizes,
                                       std::string_view what) {
  std::vector<std::int64_t> values;
  for (const abi::Slot s : slots) {
    if (!sizes.is_constant(s)) user_error("weight {} has sizes that change", what);
    values.push_back(sizes.constant_slots()[s]);
  }
  return values;
}

std::string describe(abi::DType dtype, std::span<const std::int64_t> sizes) {
  return fmt::format("{}[{}]", abi::name_of(dtype), fmt::join(sizes, ","));
}

std::int64_t span_bytes(abi::DType dtype, std::span<const std::int64_t> sizes,
                        std::span<const std::int64_t> strides) {
  std::int64_t last = 0;
  bool is_empty = false;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    std::int64_t step = 0;
    if (sizes[d] < 0 || strides[d] < 0) {
      throw WrongArgument(fmt::format("a size or stride below zero: ({}), ({})",
                                      fmt::join(sizes, ", "), fmt::join(strides, ", ")));
    }
    is_empty |= sizes[d] == 0;
    if (sizes[d] == 0) continue;
    if (__builtin_mul_overflow(sizes[d] - 1, strides[d], &step) ||
        __builtin_add_overflow(last, step, &last)) {
      throw WrongArgument(fmt::format("{} is too large", describe(dtype, sizes)));
    }
  }
  std::int64_t bytes = 0;
  if (is_empty) return 0;
  if (last == INT64_MAX || __builtin_mul_overflow(last + 1, abi::size_of(dtype), &bytes)) {
    throw WrongArgument(fmt::format("{} is too large", describe(dtype, sizes)));
  }
  return bytes;
}

std::vector<std::int64_t> row_major(std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t step = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    strides[d] = step;
    if (sizes[d] > 1 && __builtin_mul_overflow(step, sizes[d], &step)) step = INT64_MAX;
  }
  return strides;
}

void WeightSet::add(std::string name, Tensor tensor) {
  const auto [at, is_new] = tensors_.try_emplace(std::move(name));
  if (!is_new) throw WrongArgument(fmt::format("weight {} is given twice", at->first));
  at->second = std::move(tensor);
  // Vectors and blocks keep their memory when they are moved, but the view is made here, of what
  // stays.
  at->second.view.sizes = at->second.sizes.data();
  at->second.view.strides = at->second.strides.data();
}

std::shared_ptr<const WeightSet> WeightSet::copy_of(std::span<const NamedView> tensors) {
  auto set = std::make_shared<WeightSet>();
  for (const NamedView& given : tensors) {
    const auto sizes = sizes_of(given.tensor);
    Tensor tensor;
    tensor.sizes.assign(sizes.begin(), sizes.end());
    tensor.strides = row_major(sizes);
    (void)span_bytes(given.tensor.dtype, sizes, strides_of(given.tensor));
    const std::int64_t bytes = span_bytes(given.tensor.dtype, sizes, tensor.strides);
    tensor.memory = Block(std::max<std::int64_t>(bytes, 1), "weight " + given.name);
    tensor.view = given.tensor;
    tensor.view.data = tensor.memory.data();
    runtime::cpu::strided_copy(sizes, abi::size_of(given.tensor.dtype), given.tensor.data,
                               strides_of(given.tensor), tensor.view.data, tensor.strides);
    set->add(given.name, std::move(tensor));
  }
  return set;
}

std::shared_ptr<const WeightSet> WeightSet::of_package(
    std::shared_ptr<const package::Package> package, const runtime::common::SizeProgram& sizes) {
  auto set = std::make_shared<WeightSet>();
  const abi::Plan& plan = *package->made().plan;
  for (const package::PackageWeight& weight : package->unchecked_weights()) {
    const abi::PlanArgument& argument = plan.arguments[weight.argument];
    Tensor tensor;
    tensor.sizes = constants_of(argument.sizes, sizes, argument.name);
    tensor.strides = constants_of(argument.strides, sizes, argument.name);
    const std::int64_t bytes = span_bytes(argument.dtype, tensor.sizes, tensor.strides);
    if (static_cast<std::uint64_t>(bytes) != weight.data.size()) {
      user_error("weight {} has {} bytes, {} are needed", argument.name, weight.data.size(), bytes);
    }
    // Read only: what a program writes is copied.
    tensor.view = {.data = const_cast<std::byte*>(weight.data.data()),
                   .dtype = argument.dtype,
                   .rank = static_cast<std::int32_t>(tensor.sizes.size())};
    set->add(argument.name, std::move(tensor));
  }
  set->package_ = std::move(package);
  return set;
}

const abi::TensorView* WeightSet::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.view;
}

void WeightSet::check() const {
  if (package_ == nullptr) return;
  std::call_once(checked_, [this] {
    try {
      package_->check_weights();
    } catch (const UserError& error) {
      throw BadFile(error.what());
    }
  });
}

BoundWeights::BoundWeights(std::shared_ptr<const WeightSet> from, const abi::Plan& plan,
                           std::span<const std::uint32_t> parameters,
                           const runtime::common::SizeProgram& sizes,
                           std::shared_ptr<runtime::cuda::Device> gpu)
    : set(std::move(from)), version(next_version()), gpu_(std::move(gpu)) {
  std::vector<std::string_view> missing;
  for (const std::uint32_t p : parameters) {
    if (set->find(plan.arguments[p].name) == nullptr) missing.push_back(plan.arguments[p].name);
  }
  if (!missing.empty()) {
    throw WrongArgument(fmt::format("weights are missing: {}", fmt::join(missing, ", ")));
  }
  bool is_checked = false;
  for (const std::uint32_t p : parameters) {
    const abi::PlanArgument& argument = plan.arguments[p];
    abi::TensorView view = *set->find(argument.name);
    const auto& wanted = geometry_.emplace_back(constants_of(argument.sizes, sizes, argument.name));
    const auto& steps =
        geometry_.emplace_back(constants_of(argument.strides, sizes, argument.name));
    if (view.dtype != argument.dtype || !std::ranges::equal(sizes_of(view), wanted)) {
      throw WrongArgument(fmt::format("weight {}: expected {}, got {}", argument.name,
                                      describe(argument.dtype, wanted),
                                      describe(view.dtype, sizes_of(view))));
    }
    const bool is_right =
        is_laid_out(view, steps) && runtime::common::is_aligned(view.data, argument.alignment);
    if (argument.is_written || !is_right) {
      if (!std::exchange(is_checked, true)) set->check();
      const std::int64_t bytes = span_bytes(view.dtype, wanted, steps);
      copies_.emplace_back(std::max<std::int64_t>(bytes, 1), "weight " + argument.name);
      runtime::cpu::strided_copy(wanted, abi::size_of(view.dtype), view.data, strides_of(view),
                                 copies_.back().data(), steps);
      view.data = copies_.back().data();
    }
    is_written |= argument.is_written;
    view.sizes = wanted.data();
    view.strides = steps.data();
    views.push_back(view);
  }
  if (gpu_ == nullptr) return;
  if (!is_checked) set->check();
  upload(plan, parameters);
  copies_.clear();
}

// All in one block; what is there twice and never written, once.
void BoundWeights::upload(const abi::Plan& plan, std::span<const std::uint32_t> parameters) {
  constexpr std::int64_t kAlignment = 256;
  std::map<std::pair<const void*, std::int64_t>, std::int64_t> known;
  std::vector<std::int64_t> offsets, sizes;
  std::int64_t all = 0;
  for (std::size_t w = 0; w < views.size(); ++w) {
    const abi::TensorView& view = views[w];
    sizes.push_back(span_bytes(view.dtype, sizes_of(view), strides_of(view)));
    offsets.push_back(all);
    if (!plan.arguments[parameters[w]].is_written) {
      const auto [at, is_new] = known.try_emplace({view.data, sizes[w]}, all);
      offsets[w] = at->second;
      if (!is_new) continue;
    }
    all += (sizes[w] + kAlignment - 1) / kAlignment * kAlignment;
  }
  const runtime::cuda::Scope scope(*gpu_);
  on_gpu_ = memory_of(gpu_, std::max<std::int64_t>(all, 1));
  for (std::size_t w = 0; w < views.size(); ++w) {
    void* const at = static_cast<std::byte*>(on_gpu_.get()) + offsets[w];
    gpu_->copy(at, views[w].data, sizes[w], nullptr);
    views[w].data = at;
    views[w].device = {abi::DeviceKind::cuda, gpu_->index()};
  }
  gpu_->synchronize(nullptr);  // streams of calls do not wait for this one
}

}  // namespace inkle::capi
