#include "codegen/cuda/memory_text.h"

#include "kernel/lanes.h"

namespace inkle::codegen::cuda {

using kernel::Access;
using kernel::MemoryId;
using kernel::OperationId;
using kernel::RegionId;
using kernel::Space;
using sym::Expr;

MemoryText::MemoryText(const kernel::Kernel& kernel, ValueText& values)
    : k_(kernel), values_(values), packs_(kernel.memories.size(), 0) {
  find_packs(k_.body, 1, {});
}

// Local memory of a thread whose rows all lanes store or load in one vector access.
void MemoryText::find_packs(RegionId region, int lanes, Expr lane) {
  for (const OperationId o : k_.regions[region].operations) {
    const kernel::Operation& op = k_.operations[o];
    const auto* access = std::get_if<Access>(&op.detail);
    if (access != nullptr && access->form == kernel::Form::wide) {
      const kernel::Memory& memory = k_.memories[access->memory];
      const bool own = memory.space == Space::registers || memory.space == Space::stack;
      if (own && memory.shape.back().is_constant(lanes) && access->indices.back() == lane) {
        packs_[access->memory] = lanes;
      }
    }
    const auto* vector = std::get_if<kernel::Vector>(&op.detail);
    for (const RegionId inside : op.regions) {
      if (vector != nullptr)
        find_packs(inside, vector->width, vector->lane);
      else
        find_packs(inside, lanes, lane);
    }
  }
}

ShortText MemoryText::name(MemoryId m) const {
  return numbered(m < k_.parameter_count ? 'p' : 'm', m);
}

void MemoryText::pack_of(Writer& to, const Access& access) const {
  Expr row;
  for (std::size_t d = 0; d + 1 < access.indices.size(); ++d) {
    const Expr at = access.indices[d];
    row = row.is_null() ? at : row * k_.memories[access.memory].shape[d] + at;
  }
  to.add(name(access.memory), "[");
  if (row.is_null())
    to.add("0");
  else
    values_.index(to, row);
  to.add("]");
}

void MemoryText::element(Writer& to, const Access& access) const {
  if (is_packs(access.memory)) {
    pack_of(to, access);
    to.add(".at[");
    values_.index(to, access.indices.back());
  } else {
    to.add(name(access.memory), "[");
    values_.index(to, kernel::linear_index(k_, access));
  }
  to.add("]");
}

void MemoryText::address(Writer& to, const Access& access) const {
  to.add(name(access.memory), " + (");
  values_.index(to, kernel::linear_index(k_, access));
  to.add(")");
}

std::string MemoryText::element(const Access& access) const {
  Writer text;
  element(text, access);
  return text.take();
}

std::string MemoryText::address(const Access& access) const {
  Writer text;
  address(text, access);
  return text.take();
}

}  // namespace inkle::codegen::cuda
