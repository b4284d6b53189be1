// Set-up of a launch: memory of the instances, blocks as they become resident, checks at the end.
#include "kernel/interpret_machine.h"

#include <algorithm>
#include <random>

#include "base/error.h"
#include "loop/scalar.h"

namespace inkle::kernel {

Machine::Machine(const Kernel& kernel, const Program& program, std::span<const Instance> instances,
                 const InterpretOptions& options)
    : kernel_(kernel), program_(program), options_(options), random_(options.seed + 1) {
  threads_per_block_ = kernel.threads();
  cluster_size_ = kernel.cluster();
  is_gpu_ = std::any_of(kernel.launch.axes.begin(), kernel.launch.axes.end(),
                        [](const Axis& axis) { return axis.kind != AxisKind::task; });
  if (static_cast<std::int32_t>(instances.size()) != kernel.launch.instances) {
    user_error("kernel {}: {} instances instead of {}", kernel.name, instances.size(),
               kernel.launch.instances);
  }
  for (std::size_t n = 0; n < instances.size(); ++n) {
    bind_instance(instances[n], static_cast<std::int32_t>(n));
  }
}

void Machine::bind_instance(const Instance& instance, std::int32_t number) {
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
  bind_storages(table, instance);
  for (std::int64_t c = 0; c < table.clusters; ++c) units_.emplace_back(number, c);
}

void Machine::bind_layouts(Table& table, const Instance& instance) {
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

void Machine::bind_storages(Table& table, const Instance& instance) {
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
        add({ReportKind::misaligned,
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

void Machine::set_units_order(Interleaving order, std::uint64_t seed) {
  if (order == Interleaving::reverse) std::reverse(units_.begin(), units_.end());
  if (order == Interleaving::random) {
    std::mt19937_64 random(seed);
    for (std::size_t i = units_.size(); i > 1; --i) std::swap(units_[i - 1], units_[random() % i]);
  }
}

bool Machine::start_blocks() {
  bool any = false;
  const bool limited = options_.resident > 0 && !kernel_.launch.co_resident;
  while (next_unit_ < units_.size()) {
    if (limited && resident_ > 0 && resident_ + cluster_size_ > options_.resident) break;
    const auto [instance, number] = units_[next_unit_++];
    start_cluster(instance, number);
    any = true;
  }
  return any;
}

void Machine::start_cluster(std::int32_t instance, std::int64_t number) {
  Cluster& cluster = *clusters_.emplace_back(std::make_unique<Cluster>());
  cluster.alive = cluster_size_;
  resident_ += cluster_size_;
  for (std::int64_t rank = 0; rank < cluster_size_; ++rank) {
    Block& block = *cluster.blocks.emplace_back(std::make_unique<Block>());
    block.cluster = &cluster;
    block.instance = instance;
    block.rank = rank;
    block.number = number * cluster_size_ + rank;
    block.page = static_cast<std::uint32_t>(pages_.size());
    pages_.push_back({instance, block.number, number, {}});
    const Table& table = tables_[static_cast<std::size_t>(instance)];
    block.shared.resize(kernel_.memories.size());
    block.phase_barriers.resize(kernel_.memories.size());
    for (MemoryId m = 0; m < kernel_.memories.size(); ++m) {
      const Layout& layout = table.layouts[m];
      if (kernel_.memories[m].space == Space::shared && kernel_.memories[m].of != kNone) {
        block.shared[m] = block.shared[kernel_.memories[m].of];
      } else if (kernel_.memories[m].space == Space::shared) {
        block.shared[m] =
            std::make_shared<Storage>(layout.elements * layout.element_bytes, layout.element_bytes);
      } else if (kernel_.memories[m].space == Space::barrier) {
        block.phase_barriers[m].resize(static_cast<std::size_t>(layout.elements));
      }
    }
    block.alive = threads_per_block_;
    block.channels = static_cast<std::uint32_t>(threads_per_block_);
    block.warps.resize(static_cast<std::size_t>((threads_per_block_ + 31) / 32));
    block.threads.resize(static_cast<std::size_t>(threads_per_block_));
    for (std::uint32_t t = 0; t < block.threads.size(); ++t) start_thread(block, t);
  }
}

void Machine::start_thread(Block& block, std::uint32_t number) {
  const Table& table = tables_[static_cast<std::size_t>(block.instance)];
  Thread& thread = block.threads[number];
  thread.block = &block;
  thread.number = number;
  thread.channel = {block.page, number};
  thread.slots.resize(program_.slots);
  thread.privates.resize(static_cast<std::size_t>(table.private_slots));
  thread.private_state.resize(thread.privates.size());
  for (std::size_t s = 0; s < program_.sizes.size(); ++s) {
    set(thread, program_.sizes[s], 0, table.sizes[s]);
  }
  std::int64_t rest_of_threads = number;
  std::int64_t rest_of_blocks = block.number;
  for (std::size_t a = kernel_.launch.axes.size(); a-- > 0;) {
    const bool is_thread = kernel_.launch.axes[a].kind == AxisKind::thread;
    std::int64_t& rest = is_thread ? rest_of_threads : rest_of_blocks;
    set(thread, program_.axes[a], 0, rest % table.extents[a]);
    rest /= table.extents[a];
  }
  thread.order = live_.size();
  live_.push_back(&thread);
  wake(thread);
  ++unfinished_;
}

void Machine::retire(Thread& thread) {
  thread.status = Status::finished;
  --unfinished_;
  Block& block = *thread.block;
  if (--block.alive > 0) return;
  check_finished(thread);
  Cluster& cluster = *block.cluster;
  if (--cluster.alive > 0) return;
  resident_ -= cluster_size_;
  // Threads of a finished cluster are never looked at again; bulk copies may still read its memory.
  for (const auto& each : cluster.blocks) {
    for (Thread& old : each->threads) {
      old.slots = {};
      old.privates = {};
      old.private_state = {};
      old.seen = old.fenced = {};
    }
  }
}

void Machine::stop(const std::string& why) {
  is_stopped_ = true;
  result_.is_complete = false;
  if (why.empty()) return;
  Finding finding;
  finding.kind = ReportKind::hang;
  finding.message = why;
  add(std::move(finding));
}

void Machine::finish() {
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
          add(std::move(finding));
        } else if (all && cell.writes == 0) {
          finding.message = "nobody has written it";
          add(std::move(finding));
        } else if (once && cell.writes > 1) {
          finding.kind = ReportKind::written_again;
          finding.message = "it is written more than once";
          add(std::move(finding));
        }
      }
    }
  }
}

RunResult Machine::take_result() { return std::move(result_); }

RunResult interpret(const Kernel& kernel, std::span<const Instance> instances,
                    const InterpretOptions& options) {
  const Program program = flatten(kernel);
  Machine machine(kernel, program, instances, options);
  run_schedule(machine, options);
  return machine.take_result();
}

}  // namespace inkle::kernel
