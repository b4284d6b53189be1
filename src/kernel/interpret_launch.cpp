#include "kernel/interpret_launch.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"

namespace inkle::kernel {

LaunchMemory::LaunchMemory(const Kernel& kernel, std::span<const Instance> instances,
                           Findings& findings)
    : kernel_(kernel) {
  if (static_cast<std::int32_t>(instances.size()) != kernel.launch.instances) {
    user_error("kernel {}: {} instances instead of {}", kernel.name, instances.size(),
               kernel.launch.instances);
  }
  for (const Instance& instance : instances) bind_instance(instance, findings);
}

void LaunchMemory::bind_instance(const Instance& instance, Findings& findings) {
  if (instance.sizes.size() != kernel_.sizes.size()) {
    user_error("kernel {}: {} sizes instead of {}", kernel_.name, instance.sizes.size(),
               kernel_.sizes.size());
  }
  if (instance.arguments.size() != kernel_.parameter_count) {
    user_error("kernel {}: {} arguments instead of {}", kernel_.name, instance.arguments.size(),
               kernel_.parameter_count);
  }
  Table& table = tables_.emplace_back();
  table.sizes = instance.sizes;
  arguments_.insert(arguments_.end(), instance.arguments.begin(), instance.arguments.end());
  bind_layouts(table, instance);
  bind_storages(table, instance, findings);
}

void LaunchMemory::bind_layouts(Table& table, const Instance& instance) {
  const auto value = [&](Expr e) {
    return sym::evaluate(e, [&](Expr symbol) {
      const auto at = std::find(kernel_.sizes.begin(), kernel_.sizes.end(), symbol);
      if (at == kernel_.sizes.end()) user_error("{} is no size", symbol.name());
      return instance.sizes[static_cast<std::size_t>(at - kernel_.sizes.begin())];
    });
  };
  std::int64_t blocks = 1;
  for (const Axis& axis : kernel_.launch.axes) {
    table.extents.push_back(value(axis.extent));
    if (axis.kind == AxisKind::task || axis.kind == AxisKind::grid) {
      blocks *= table.extents.back();
    }
  }
  table.clusters = blocks;
  for (const Memory& memory : kernel_.memories) {
    Layout& layout = table.layouts.emplace_back();
    for (const Expr extent : memory.shape) layout.shape.push_back(value(extent));
    if (memory.shape.empty()) {  // as many elements as the argument has
      const auto bytes =
          static_cast<std::int64_t>(instance.arguments.at(table.layouts.size() - 1).data.size());
      layout.shape.push_back(bytes / element_bytes(memory));
    }
    layout.strides.resize(layout.shape.size());
    std::int64_t stride = 1;
    for (std::size_t d = layout.shape.size(); d-- > 0;) {
      layout.strides[d] = stride;
      stride *= layout.shape[d] + (d + 1 == layout.shape.size() ? memory.padding : 0);
    }
    layout.elements = stride;
    layout.element_bytes = element_bytes(memory);
    layout.swizzle = memory.swizzle;
    table.privates.push_back(table.private_slots);
    if (memory.space == Space::registers || memory.space == Space::stack) {
      table.private_slots += layout.elements;
    }
  }
}

void LaunchMemory::bind_storages(Table& table, const Instance& instance, Findings& findings) {
  table.storages.resize(kernel_.memories.size());
  table.offsets.resize(kernel_.memories.size());
  for (MemoryId m = 0; m < kernel_.memories.size(); ++m) {
    const Memory& memory = kernel_.memories[m];
    const Layout& layout = table.layouts[m];
    const std::int64_t bytes = layout.elements * layout.element_bytes;
    std::span<std::byte> data;
    if (memory.space == Space::workspace) {
      data = workspaces_.emplace_back(static_cast<std::size_t>(bytes));
    } else if (memory.space == Space::global) {
      data = instance.arguments[m].data;
      if (static_cast<std::int64_t>(data.size()) < bytes) {
        user_error("kernel {}: parameter {} has {} bytes instead of {}", kernel_.name, memory.name,
                   data.size(), bytes);
      }
      if (reinterpret_cast<std::uintptr_t>(data.data()) %
              static_cast<std::uintptr_t>(std::max(memory.alignment, 1)) !=
          0) {
        findings.add({ReportKind::misaligned,
                      kNone,
                      kNone,
                      m,
                      0,
                      bytes,
                      {},
                      fmt::format("the argument is not aligned to {} bytes", memory.alignment)});
      }
    } else {
      continue;
    }
    // Arguments that overlap share one storage, byte by byte.
    for (const auto& other : storages_) {
      const std::byte* begin = other->data();
      if (data.data() < begin + other->bytes() && begin < data.data() + bytes && bytes > 0) {
        if (data.data() < begin || data.data() + bytes > begin + other->bytes()) {
          user_error("kernel {}: parameter {} overlaps another and is not inside of it",
                     kernel_.name, memory.name);
        }
        table.storages[m] = other.get();
        table.offsets[m] = data.data() - begin;
      }
    }
    if (table.storages[m] == nullptr) {
      const bool is_alone = !memory.may_alias;
      storages_.push_back(
          std::make_unique<Storage>(data.data(), bytes, is_alone ? layout.element_bytes : 1,
                                    memory.role != Role::out || memory.space == Space::workspace));
      table.storages[m] = storages_.back().get();
    } else if (table.storages[m]->unit() != 1 &&
               table.storages[m]->unit() != layout.element_bytes) {
      user_error("kernel {}: parameters overlap and are not said to", kernel_.name);
    }
  }
}

MemoryLocation LaunchMemory::location_of(Block& block, MemoryId memory,
                                         std::int64_t element) const {
  const Table& table = this->table(block);
  const Layout& layout = table.layouts[memory];
  const std::int64_t byte = element * layout.element_bytes;
  if (kernel_.memories[memory].space == Space::shared) {
    const std::int64_t offset = kernel_.memories[memory].offset;
    return {block.shared[memory].get(), offset + swizzled(byte, layout.swizzle), offset};
  }
  return {table.storages[memory], table.offsets[memory] + byte, table.offsets[memory]};
}

void LaunchMemory::start(Block& block) const {
  block.shared.resize(kernel_.memories.size());
  block.phase_barriers.resize(kernel_.memories.size());
  for (MemoryId m = 0; m < kernel_.memories.size(); ++m) {
    const Layout& layout = table(block).layouts[m];
    if (kernel_.memories[m].space == Space::shared && kernel_.memories[m].of != kNone) {
      block.shared[m] = block.shared[kernel_.memories[m].of];
    } else if (kernel_.memories[m].space == Space::shared) {
      block.shared[m] =
          std::make_shared<Storage>(layout.elements * layout.element_bytes, layout.element_bytes);
    } else if (kernel_.memories[m].space == Space::barrier) {
      block.phase_barriers[m].resize(static_cast<std::size_t>(layout.elements));
    }
  }
}

void LaunchMemory::check_written(Findings& findings) const {
  for (std::size_t n = 0; n < tables_.size(); ++n) {
    const Table& table = tables_[n];
    for (MemoryId m = 0; m < kernel_.memories.size(); ++m) {
      const Memory& memory = kernel_.memories[m];
      if (table.storages[m] == nullptr) continue;
      Storage& storage = *table.storages[m];
      const std::int64_t bytes = table.layouts[m].elements * table.layouts[m].element_bytes;
      const bool is_workspace = memory.space == Space::workspace;
      const Writes writes =
          is_workspace ? Writes::any : arguments_[n * kernel_.parameter_count + m].writes;
      const bool all =
          writes == Writes::exactly_once || (writes == Writes::by_role && memory.role == Role::out);
      const bool once = writes == Writes::exactly_once || writes == Writes::at_most_once;
      for (std::int64_t b = 0; b < bytes; b += storage.unit()) {
        const std::int64_t byte = table.offsets[m] + b;
        const Storage::Cell& cell = storage.cell(byte / storage.unit());
        Finding finding{ReportKind::not_written, kNone, kNone, m, b, b + storage.unit(), {}, {}};
        if (is_workspace) {
          const std::byte* begin = storage.data() + byte;
          if (std::all_of(begin, begin + storage.unit(),
                          [](std::byte x) { return x == std::byte{}; })) {
            continue;
          }
          finding.kind = ReportKind::workspace_left;
          finding.message = "the workspace is not 0 after the launch";
          findings.add(std::move(finding));
        } else if (all && cell.writes == 0) {
          finding.message = "it was never written";
          findings.add(std::move(finding));
        } else if (once && cell.writes > 1) {
          finding.kind = ReportKind::written_again;
          finding.message = "it is written more than once";
          findings.add(std::move(finding));
        }
      }
    }
  }
}

}  // namespace inkle::kernel
