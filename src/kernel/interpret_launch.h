// Memory of a launch: what the instances' arguments and sizes make of the kernel's memories. For
// interpret_*.cpp only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernel/interpret_findings.h"

namespace inkle::kernel {

// Of an instance: its memory and sizes.
struct Table {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> extents;   // of the axes
  std::vector<Layout> layouts;         // by memory
  std::vector<Storage*> storages;      // by memory, global and workspace
  std::vector<std::int64_t> offsets;   // bytes of the memory's first element there
  std::vector<std::int64_t> privates;  // slots of a thread's own memory
  std::int64_t private_slots = 0;
  std::int64_t clusters = 0;  // blocks / blocks of a cluster
};

struct MemoryLocation {
  Storage* storage = nullptr;
  std::int64_t byte = 0;
  std::int64_t offset = 0;  // of the memory's first element in the storage
};

class LaunchMemory {
 public:
  // Throws UserError where arguments or sizes do not fit the parameters.
  LaunchMemory(const Kernel& kernel, std::span<const Instance> instances, Findings& findings);

  [[nodiscard]] std::span<const Table> tables() const { return tables_; }
  [[nodiscard]] const Table& table(const Block& block) const {
    return tables_[static_cast<std::size_t>(block.instance)];
  }
  [[nodiscard]] const Argument& argument(const Block& block, MemoryId memory) const {
    return arguments_[static_cast<std::size_t>(block.instance) * kernel_.parameter_count + memory];
  }
  [[nodiscard]] bool is_private(MemoryId memory) const {
    const Space space = kernel_.memories[memory].space;
    return space == Space::registers || space == Space::stack;
  }
  [[nodiscard]] MemoryLocation location_of(Block& block, MemoryId memory,
                                           std::int64_t element) const;
  // A block's own memory and mbarriers.
  void start(Block& block) const;
  // What must hold when all is done.
  void check_written(Findings& findings) const;

 private:
  void bind_instance(const Instance& instance, Findings& findings);
  void bind_layouts(Table& table, const Instance& instance);
  void bind_storages(Table& table, const Instance& instance, Findings& findings);

  const Kernel& kernel_;
  std::vector<Table> tables_;
  std::vector<Argument> arguments_;  // of all instances
  std::vector<std::unique_ptr<Storage>> storages_;
  std::vector<std::vector<std::byte>> workspaces_;
};

}  // namespace inkle::kernel
