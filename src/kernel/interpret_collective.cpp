#include "kernel/interpret_collective.h"

#include <algorithm>

#include "base/error.h"
#include "kernel/collective.h"

namespace inkle::kernel {

void Collectives::merge(Thread& thread, const MergeCode& code, State& first, const State& second) {
  for (std::size_t s = 0; s < first.size(); ++s) {
    set_slot(thread, code.first[s], 0, first[s]);
    set_slot(thread, code.second[s], 0, second[s]);
  }
  run_merge_(thread, code.entry);
  for (std::size_t s = 0; s < first.size(); ++s)
    first[s] = code_.get(thread, code.yields[s], thread.lane);
}

bool Collectives::collective(Thread& thread, const Instruction& i) {
  const auto& info = code_.kernel().detail<Collective>(i.operation);
  if (info.lanes) {
    over_lanes(thread, i);
    ++thread.pc;
    return true;
  }
  const Block& block = *thread.block;
  const Table& table = memory_.table(block);
  // Number of the group, and of the thread in it.
  std::uint64_t group = static_cast<std::uint64_t>(block.instance);
  std::int64_t position = 0;
  std::int64_t participants = 1;
  for (std::size_t a = 0; a < table.extents.size(); ++a) {
    const std::int64_t at = code_.get(thread, code_.program().axes[a], 0);
    const bool takes_part =
        std::find(info.axes.begin(), info.axes.end(), static_cast<AxisId>(a)) != info.axes.end();
    if (takes_part) {
      position = position * table.extents[a] + at;
      participants *= table.extents[a];
    } else {
      group = group * static_cast<std::uint64_t>(table.extents[a]) + static_cast<std::uint64_t>(at);
    }
  }
  Rendezvous* meeting = meetings_.meet(thread, group, position, participants);
  if (meeting == nullptr) return false;
  over_axes(meeting->participants, i);
  meetings_.release(*meeting);
  return true;
}

// Participant 0 of each axis, the last first, gets the others' states.
void Collectives::reduce(std::span<Thread* const> participants, const Instruction& i,
                         States& states) {
  const auto& info = code_.kernel().detail<Collective>(i.operation);
  const MergeCode& code = code_.program().merges[i.detail];
  const Table& table = memory_.table(*participants[0]->block);
  const std::size_t n = participants.size();
  std::size_t stride = 1;
  for (std::size_t a = info.axes.size(); a > 0;) {
    std::size_t extent = 1;
    const AxisKind kind = code_.kernel().launch.axes[info.axes[a - 1]].kind;
    do {
      extent *= static_cast<std::size_t>(table.extents[info.axes[--a]]);
    } while (a > 0 && counts_as_one(info, kind) &&
             code_.kernel().launch.axes[info.axes[a - 1]].kind == kind);
    for (std::size_t base = 0; base < n; base += stride * extent) {
      const auto join = [&](std::size_t to, std::size_t from) {
        const std::size_t first = base + to * stride;
        merge(*participants[first], code, states[first], states[base + from * stride]);
      };
      for (std::size_t left = extent; left > 1; left = (left + 1) / 2) {
        if (static_cast<std::int64_t>(left) < info.sequential) {
          for (std::size_t p = 1; p < left; ++p) join(0, p);
          break;
        }
        const std::size_t half = (left + 1) / 2;
        for (std::size_t p = 0; p + half < left; ++p) join(p, p + half);
      }
    }
    stride *= extent;
  }
}

void Collectives::over_axes(std::span<Thread* const> participants, const Instruction& i) {
  const auto& info = code_.kernel().detail<Collective>(i.operation);
  const MergeCode& code = code_.program().merges[i.detail];
  const std::uint32_t count = static_cast<std::uint32_t>(code.dtypes.size());
  const auto n = participants.size();
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
    States states(n);
    for (std::size_t p = 0; p < n; ++p) {
      participants[p]->lane = l;
      for (std::uint32_t s = 0; s < count; ++s) {
        states[p].push_back(code_.get(*participants[p], code_.operand(i, s), l));
      }
    }
    const auto result = [&](std::uint32_t s) {
      return code_.operand(i, i.operand_count - count + s);
    };
    const auto give = [&](std::size_t p, const State& values) {
      for (std::uint32_t s = 0; s < count; ++s) set_slot(*participants[p], result(s), l, values[s]);
    };
    if (i.code == Code::broadcast) {
      for (std::size_t p = 0; p < n; ++p) give(p, states.at(static_cast<std::size_t>(info.from)));
    } else if (i.code == Code::reduce) {
      reduce(participants, i, states);
      for (std::size_t p = 0; p < n; ++p) give(p, states[0]);
    } else {
      // Prefixes one after the other; exclusive: `first` of participant 0 before them.
      State total;
      for (std::uint32_t s = 0; s < count && info.exclusive; ++s) {
        total.push_back(code_.get(*participants[0], code_.operand(i, count + s), l));
      }
      for (std::size_t p = 0; p < n; ++p) {
        if (info.exclusive) {
          give(p, total);
          if (p == 0) {
            total = states[0];
          } else {
            merge(*participants[p], code, total, states[p]);
          }
        } else {
          if (p == 0) {
            total = states[0];
          } else {
            merge(*participants[p], code, total, states[p]);
          }
          give(p, total);
        }
      }
    }
  }
  // What crosses warps goes through the scratch memory.
  for (Thread* thread : participants) {
    thread->lane = 0;
    for (const MemoryId memory : info.scratch) {
      Storage& storage = *thread->block->shared[memory];
      for (std::int64_t u = 0; u < storage.units(); ++u) storage.cell(u).is_initialised = false;
    }
  }
}

void Collectives::all_lanes(const Thread& thread, const Instruction& i) {
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
    if (code_.is_active(thread, i, l)) continue;
    findings_.add(ReportKind::divergence, thread, kNone, 0, 0,
                  fmt::format("lane {} is masked off in a collective of lanes", l));
  }
}

void Collectives::transpose(Thread& thread, const Instruction& i) {
  all_lanes(thread, i);
  const auto width = static_cast<std::uint32_t>(i.width);
  for (std::uint32_t to = 0; to < width; ++to) {
    for (std::uint32_t from = 0; from < width; ++from) {
      set_slot(thread, code_.operand(i, width + to), from,
               code_.get(thread, code_.operand(i, from), to));
    }
  }
}

// Of the lanes of a vector region: copies in pairs until one is left, then lanes by halves.
void Collectives::over_lanes(Thread& thread, const Instruction& i) {
  const auto& info = code_.kernel().detail<Collective>(i.operation);
  const MergeCode& code = code_.program().merges[i.detail];
  const auto count = static_cast<std::uint32_t>(code.dtypes.size());
  const auto width = static_cast<std::size_t>(i.width);
  States states(width);
  all_lanes(thread, i);
  for (std::uint32_t l = 0; l < width; ++l) {
    for (std::uint32_t s = 0; s < count; ++s)
      states[l].push_back(code_.get(thread, code_.operand(i, s), l));
  }
  const auto result = [&](std::uint32_t s) {
    return code_.operand(i, i.operand_count - count + s);
  };
  if (i.code == Code::scan) {
    State total = states[0];
    for (std::uint32_t l = 0; l < width; ++l) {
      for (std::uint32_t s = 0; s < count && info.exclusive; ++s) {
        set_slot(thread, result(s), l,
                 l == 0 ? code_.get(thread, code_.operand(i, count + s), 0) : total[s]);
      }
      if (l > 0) merge(thread, code, total, states[l]);
      for (std::uint32_t s = 0; s < count && !info.exclusive; ++s) {
        set_slot(thread, result(s), l, total[s]);
      }
    }
    return;
  }
  if (i.code == Code::broadcast) {
    for (std::uint32_t s = 0; s < count; ++s) {
      set_slot(thread, result(s), 0, states.at(static_cast<std::size_t>(info.from))[s]);
    }
    return;
  }
  const auto native = static_cast<std::size_t>(i.target);
  for (std::size_t apart = 1; apart < width / native; apart *= 2) {
    for (std::size_t c = 0; c + apart < width / native; c += 2 * apart) {
      for (std::size_t l = 0; l < native; ++l) {
        merge(thread, code, states[c * native + l], states[(c + apart) * native + l]);
      }
    }
  }
  for (std::size_t left = native; left > 1; left = (left + 1) / 2) {
    const std::size_t half = (left + 1) / 2;
    for (std::size_t l = 0; l + half < left; ++l) merge(thread, code, states[l], states[l + half]);
  }
  for (std::uint32_t s = 0; s < count; ++s) set_slot(thread, result(s), 0, states[0][s]);
}

// --- Shuffles

bool Collectives::shuffle(Thread& thread, const Instruction& i) {
  const auto& info = code_.kernel().detail<Shuffle>(i.operation);
  const std::int64_t size = info.whole_warp ? 32 : info.width;
  const std::int64_t first = thread.number / size * size;
  const std::int64_t there =
      std::min(size, static_cast<std::int64_t>(thread.block->threads.size()) - first);
  if (there < size) {
    findings_.add(
        ReportKind::divergence, thread, kNone, 0, 0,
        fmt::format("{} lanes are to take part and the block has {} of them", size, there));
  }
  Rendezvous* meeting = meetings_.meet_neighbours(thread, size, there);
  if (meeting == nullptr) return false;
  exchange(meeting->participants, i);
  meetings_.release(*meeting);
  return true;
}

void Collectives::exchange(std::span<Thread* const> lanes, const Instruction& i) const {
  const auto& info = code_.kernel().detail<Shuffle>(i.operation);
  const std::int64_t width = info.width;
  for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(i.width); ++l) {
    std::vector<std::int64_t> values;
    for (Thread* thread : lanes) values.push_back(code_.get(*thread, code_.operand(i, 0), l));
    for (std::size_t p = 0; p < lanes.size(); ++p) {
      const std::int64_t lane = static_cast<std::int64_t>(p) % width;
      const std::int64_t base = static_cast<std::int64_t>(p) - lane;
      const std::int64_t by =
          i.operand_count > 1 ? code_.get(*lanes[p], code_.operand(i, 1), l) : info.by;
      std::int64_t from = lane;
      switch (info.kind) {
        case ShuffleKind::exclusive_or:
          from = lane ^ by;
          break;
        case ShuffleKind::up:
          from = lane - by;
          break;
        case ShuffleKind::down:
          from = lane + by;
          break;
        case ShuffleKind::from:
          from = by & (width - 1);
          break;
      }
      if (from < 0 || from >= width) from = lane;  // its own value
      const auto source = static_cast<std::size_t>(base + from);
      if (source < values.size()) set_slot(*lanes[p], i.result, l, values[source]);
    }
  }
}

}  // namespace inkle::kernel
