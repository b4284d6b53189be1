#include "capi/results.h"

#include <algorithm>

#include "base/error.h"
#include "capi/weights.h"

namespace inkle::capi {

void Results::begin(std::int64_t program, std::size_t outputs) {
  if (program != program_) slots_.clear();
  program_ = program;
  values_.clear();
  values_.reserve(outputs);
  geometry_.resize(2 * outputs);
  used_ = 0;
  has_begun_ = false;
}

void* Results::memory(Piece& piece, std::int64_t bytes) {
  if (piece.block.bytes() < bytes || piece.block.data() == nullptr) {
    piece.block = {};  // before the new one is had
    piece.block = runtime::cpu::Block(std::max<std::int64_t>(bytes, 1), "a result");
  }
  return piece.block.data();
}

runtime::common::HostTensor Results::make_output(abi::DType dtype,
                                                 std::span<const std::int64_t> sizes,
                                                 std::span<const std::int64_t> strides) {
  if (used_ == pieces_.size()) pieces_.emplace_back();
  Piece& piece = pieces_[used_++];
  piece.sizes.assign(sizes.begin(), sizes.end());
  piece.strides.assign(strides.begin(), strides.end());
  void* const data = memory(piece, span_bytes(dtype, sizes, strides));
  return {&piece,
          {.data = data,
           .dtype = dtype,
           .rank = static_cast<std::int32_t>(sizes.size()),
           .sizes = piece.sizes.data(),
           .strides = piece.strides.data()}};
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
