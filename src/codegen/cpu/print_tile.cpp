#include "codegen/cpu/print_tile.h"

#include "base/error.h"
#include "codegen/cpu/ir_operations.h"

namespace inkle::codegen::cpu {

using kernel::FragmentType;
using kernel::Op;
using kernel::ValueId;

void print_tile(Ir& ir, const kernel::Kernel& kernel, KernelValues& values, AccessPrinter& access,
                SizeValues& sizes, const kernel::Operation& op) {
  const auto shape_of = [&](ValueId tile) {
    const FragmentType& type = kernel.fragments[kernel.type_of(tile).fragment];
    INKLE_CHECK(type.holder == kernel::Holder::tile, "kernel {}: a fragment that is no tile",
                kernel.name);
    return TileShape{type.rows, type.columns};
  };
  if (const auto* memory = std::get_if<kernel::FragmentAccess>(&op.detail)) {
    const std::int64_t bytes = kernel::element_bytes(kernel.memories[memory->access.memory]);
    Value* row_bytes = sizes(memory->row_stride * bytes);
    Value* address = access.address(memory->access, op.operands[0]);
    if (op.op == Op::fragment_load) {
      const ValueId made = op.results[0];
      return values.define(made, load_tile(ir, shape_of(made), address, row_bytes));
    }
    const ValueId tile = op.operands.back();
    return store_tile(ir, shape_of(tile), values.get(tile, false), address, row_bytes);
  }
  const ValueId made = op.results[0];
  if (op.op == Op::fragment_fill) return values.define(made, zero_tile(ir, shape_of(made)));
  const int terms = shape_of(op.operands[1]).columns;
  values.define(
      made, multiply_tiles(ir, shape_of(made), terms, values.get(op.operands[0], false),
                           values.get(op.operands[1], false), values.get(op.operands[2], false)));
}

}  // namespace inkle::codegen::cpu
