#include "capi/results.h"

#include <algorithm>

#include "base/error.h"
#include "capi/weights.h"

namespace inkle::capi {

Results::~Results() {
  if (!gpu_.is_pending) return;
  try {
    const runtime::cuda::Scope scope(gpu_.memory->device());
    gpu_.memory->device().synchronize_all();
  } catch (const Error&) {  // the driver is gone, and its work with it
    return;
  }
}

void Results::begin(std::int64_t program, std::size_t outputs) {
  if (program != program_) slots_.clear();
  program_ = program;
  values_.clear();
  values_.reserve(outputs);
  geometry_.resize(2 * outputs);
  used_ = 0;
  has_begun_ = false;
}

void Results::begin_on(std::shared_ptr<runtime::common::Executable> executable,
                       std::shared_ptr<DeviceMemory> memory, runtime::cuda::Stream stream) {
  // What the call before queued on this stream comes first; on another one, it has to be done.
  if (gpu_.is_pending && (gpu_.memory != memory || gpu_.stream != stream)) {
    const runtime::cuda::Scope scope(gpu_.memory->device());
    gpu_.memory->device().synchronize_all();
  }
  gpu_.blocks.clear();
  gpu_.executable = std::move(executable);
  gpu_.memory = std::move(memory);
  gpu_.stream = stream;
  gpu_.is_pending = gpu_.memory != nullptr;
}

abi::Device Results::location() const {
  return {abi::DeviceKind::cuda, gpu_.memory->device().index()};
}

void Results::wait() {
  if (!gpu_.is_pending) return;
  try {
    const runtime::cuda::Scope scope(gpu_.memory->device());
    gpu_.memory->device().synchronize(gpu_.stream);
    gpu_.is_pending = false;
    gpu_.executable->throw_failures();
  } catch (...) {
    forget();
    throw;
  }
}

void Results::fetch() {
  if (gpu_.memory == nullptr) return;
  runtime::cuda::Device& device = gpu_.memory->device();
  for (Value& value : values_) {
    abi::TensorView& view = value.view;
    if (value.kind != Kind::tensor || view.device.kind == abi::DeviceKind::cpu) continue;
    const auto rank = static_cast<std::size_t>(view.rank);
    const auto made = make_output(view.dtype, {view.sizes, rank}, {view.strides, rank});
    const std::int64_t bytes = span_bytes(view.dtype, {view.sizes, rank}, {view.strides, rank});
    const runtime::cuda::Scope scope(device);
    device.copy(made.view.data, view.data, bytes, gpu_.stream);
    view.data = made.view.data;
    view.device = {};
    value.is_borrowed = false;
    gpu_.is_pending = true;
  }
  wait();
}

void* Results::memory(Piece& piece, std::int64_t bytes) {
  if (piece.block.bytes() < bytes || piece.block.data() == nullptr) {
    piece.block = {};  // before the new one is had
    piece.block = runtime::cpu::Block(std::max<std::int64_t>(bytes, 1), "a result");
  }
  return piece.block.data();
}

void Results::own_all() {
  for (Value& value : values_) {
    abi::TensorView& view = value.view;
    if (!value.is_borrowed || view.device.kind == abi::DeviceKind::cpu) continue;
    const auto rank = static_cast<std::size_t>(view.rank);
    const std::int64_t bytes = span_bytes(view.dtype, {view.sizes, rank}, {view.strides, rank});
    gpu_.blocks.push_back(gpu_.memory->take(bytes, gpu_.stream, "a result"));
    const runtime::cuda::Scope scope(gpu_.memory->device());
    gpu_.memory->device().copy(gpu_.blocks.back().data(), view.data, bytes, gpu_.stream);
    view.data = gpu_.blocks.back().data();
    value.is_borrowed = false;
  }
}

void Results::read(void* to, const void* from, std::int64_t bytes) const {
  const runtime::cuda::Scope scope(gpu_.memory->device());
  gpu_.memory->device().copy(to, from, bytes, gpu_.stream);
  gpu_.memory->device().synchronize(gpu_.stream);
}

runtime::common::HostTensor Results::make_place(abi::DType dtype,
                                                std::span<const std::int64_t> sizes,
                                                std::span<const std::int64_t> strides) {
  if (used_ == pieces_.size()) pieces_.emplace_back();
  Piece& piece = pieces_[used_++];
  piece.sizes.assign(sizes.begin(), sizes.end());
  piece.strides.assign(strides.begin(), strides.end());
  return {&piece,
          {.dtype = dtype,
           .rank = static_cast<std::int32_t>(sizes.size()),
           .sizes = piece.sizes.data(),
           .strides = piece.strides.data()}};
}

runtime::common::HostTensor Results::make_output(abi::DType dtype,
                                                 std::span<const std::int64_t> sizes,
                                                 std::span<const std::int64_t> strides) {
  auto made = make_place(dtype, sizes, strides);
  made.view.data = memory(*static_cast<Piece*>(made.handle), span_bytes(dtype, sizes, strides));
  return made;
}

void Results::call(std::uint32_t target,
                   std::span<const runtime::common::EagerOperand> /*operands*/,
                   std::span<runtime::common::HostTensor> /*results*/) {
  unsupported("op number {} needs a framework, which is not here", target);
}

void Results::give(std::uint32_t position, const runtime::common::Output& output) {
  INKLE_CHECK(position == values_.size(), "result {} after {}", position, values_.size());
  Value value;
  if (output.kind == abi::PlanOutput::Kind::integer) {
    value = {.kind = Kind::integer, .integer = output.integer, .view = {}};
  } else if (output.kind != abi::PlanOutput::Kind::none) {
    std::vector<std::int64_t>& sizes = geometry_[2 * position];
    std::vector<std::int64_t>& strides = geometry_[2 * position + 1];
    sizes.assign(output.view.sizes, output.view.sizes + output.view.rank);
    strides.assign(output.view.strides, output.view.strides + output.view.rank);
    value = {.kind = Kind::tensor, .integer = 0, .view = output.view};
    value.is_borrowed = output.argument >= 0;
    value.view.sizes = sizes.data();
    value.view.strides = strides.data();
  }
  values_.push_back(value);
}

}  // namespace inkle::capi
