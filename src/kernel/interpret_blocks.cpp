#include "kernel/interpret_blocks.h"

#include <algorithm>
#include <random>

namespace inkle::kernel {

Blocks::Blocks(const ThreadCode& code, const LaunchMemory& memory, Agents& agents, Wakeups& wakeups,
               std::int64_t most_resident)
    : code_(code),
      memory_(memory),
      agents_(agents),
      wakeups_(wakeups),
      cluster_size_(code.kernel().cluster()),
      most_resident_(code.kernel().launch.co_resident ? 0 : most_resident) {
  for (std::size_t n = 0; n < memory.tables().size(); ++n) {
    for (std::int64_t c = 0; c < memory.tables()[n].clusters; ++c) {
      units_.emplace_back(static_cast<std::int32_t>(n), c);
    }
  }
}

void Blocks::set_order(Interleaving order, std::uint64_t seed) {
  if (order == Interleaving::reverse) std::reverse(units_.begin(), units_.end());
  if (order == Interleaving::random) {
    std::mt19937_64 random(seed);
    for (std::size_t i = units_.size(); i > 1; --i) std::swap(units_[i - 1], units_[random() % i]);
  }
}

bool Blocks::start() {
  bool any = false;
  while (has_unstarted()) {
    if (most_resident_ > 0 && resident_ > 0 && resident_ + cluster_size_ > most_resident_) break;
    const auto [instance, number] = units_[next_unit_++];
    start_cluster(instance, number);
    any = true;
  }
  return any;
}

void Blocks::start_cluster(std::int32_t instance, std::int64_t number) {
  Cluster& cluster = *clusters_.emplace_back(std::make_unique<Cluster>());
  cluster.alive = cluster_size_;
  resident_ += cluster_size_;
  for (std::int64_t rank = 0; rank < cluster_size_; ++rank) {
    Block& block = *cluster.blocks.emplace_back(std::make_unique<Block>());
    block.cluster = &cluster;
    block.instance = instance;
    block.rank = rank;
    block.number = number * cluster_size_ + rank;
    block.page = agents_.add_block(instance, block.number, number);
    memory_.start(block);
    const std::int64_t threads = code_.kernel().threads();
    block.alive = threads;
    block.warps.resize(static_cast<std::size_t>((threads + 31) / 32));
    block.threads.resize(static_cast<std::size_t>(threads));
    for (std::uint32_t t = 0; t < block.threads.size(); ++t) start_thread(block, t);
  }
}

void Blocks::start_thread(Block& block, std::uint32_t number) {
  const Table& table = memory_.table(block);
  Thread& thread = block.threads[number];
  thread.block = &block;
  thread.number = number;
  thread.channel = {block.page, number};
  thread.slots.resize(code_.program().slots);
  thread.privates.resize(static_cast<std::size_t>(table.private_slots));
  thread.private_state.resize(thread.privates.size());
  for (std::size_t s = 0; s < code_.program().sizes.size(); ++s) {
    set_slot(thread, code_.program().sizes[s], 0, table.sizes[s]);
  }
  std::int64_t rest_of_threads = number;
  std::int64_t rest_of_blocks = block.number;
  for (std::size_t a = code_.kernel().launch.axes.size(); a-- > 0;) {
    const bool is_thread = code_.kernel().launch.axes[a].kind == AxisKind::thread;
    std::int64_t& rest = is_thread ? rest_of_threads : rest_of_blocks;
    set_slot(thread, code_.program().axes[a], 0, rest % table.extents[a]);
    rest /= table.extents[a];
  }
  thread.order = threads_.size();
  threads_.push_back(&thread);
  wakeups_.wake(thread);
  ++unfinished_;
}

bool Blocks::finish(Thread& thread) {
  thread.status = Status::finished;
  --unfinished_;
  return --thread.block->alive == 0;
}

void Blocks::release(Block& finished) {
  Cluster& cluster = *finished.cluster;
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

}  // namespace inkle::kernel
