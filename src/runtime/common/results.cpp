#include "runtime/common/results.h"

#include <algorithm>
#include <cstddef>

namespace inkle::runtime::common {
namespace {

using Kind = abi::BufferDecl::Kind;

bool is_all_of(const abi::TensorView& view, const abi::TensorView& storage) {
  return view.data == storage.data && view.dtype == storage.dtype && view.rank == storage.rank &&
         std::equal(view.sizes, view.sizes + storage.rank, storage.sizes) &&
         std::equal(view.strides, view.strides + storage.rank, storage.strides);
}

void describe(const ResultSource& s, const abi::PlanOutput& declared, Output& output) {
  const abi::PlanBuffer root = s.facts.roots[declared.index];
  const abi::BufferDecl& decl = s.plan.buffers[root];
  abi::TensorView storage = s.view_of(root);
  output.handle = s.handles[root];
  if (decl.kind == Kind::argument) {
    output.argument = s.facts.tensor_number[decl.index];
    storage = s.call.tensors[static_cast<std::size_t>(output.argument)];  // no aligned copy of it
  } else if (decl.kind == Kind::constant) {
    const HostTensor made = s.call.host->make_output(decl.dtype, {storage.sizes, decl.sizes.size()},
                                                     {storage.strides, decl.sizes.size()});
    s.copy_constant(root, made.view, s.slots[decl.bytes]);
    storage.data = made.view.data;
    output.handle = made.handle;
  }
  const abi::DType dtype = s.plan.buffers[declared.index].dtype;
  const std::int64_t offset = s.slots[declared.offset] * abi::size_of(dtype);
  output.view = {.data = static_cast<std::byte*>(storage.data) + offset,
                 .dtype = dtype,
                 .device = storage.device,
                 .rank = static_cast<std::int32_t>(declared.sizes.size()),
                 .sizes = s.numbers.of(declared.sizes, s.slots),
                 .strides = s.numbers.of(declared.strides, s.slots)};
  output.is_whole = is_all_of(output.view, storage);
}

}  // namespace

void give_results(const ResultSource& source) {
  for (std::size_t i = 0; i < source.plan.outputs.size(); ++i) {
    const abi::PlanOutput& declared = source.plan.outputs[i];
    Output output{.kind = declared.kind};
    switch (declared.kind) {
      case abi::PlanOutput::Kind::none:
        break;
      case abi::PlanOutput::Kind::integer:
        output.integer = source.slots[declared.index];
        break;
      case abi::PlanOutput::Kind::argument:
        output.argument = source.facts.tensor_number[declared.index];
        output.is_whole = true;
        output.view = source.call.tensors[static_cast<std::size_t>(output.argument)];
        break;
      case abi::PlanOutput::Kind::buffer:
        describe(source, declared, output);
        break;
    }
    source.call.host->give(static_cast<std::uint32_t>(i), output);
  }
}

}  // namespace inkle::runtime::common
