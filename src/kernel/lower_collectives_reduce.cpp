// Reductions over axes, lowered: each step of their association as an exchange of lanes, of warps,
// of rows of a block, of blocks of a cluster.
#include <algorithm>
#include <bit>

#include "base/error.h"
#include "kernel/lower_collectives_emit.h"

namespace inkle::kernel {
namespace {

using loop::Opcode;

constexpr std::int64_t kWarp = 32;
// So many rows of a column are joined without a loop.
constexpr std::int64_t kMostUnrolledRows = 16;

bool is_power_of_two(std::int64_t n) { return std::has_single_bit(static_cast<std::uint64_t>(n)); }

}  // namespace

Values CollectiveLowering::reduce(const Operation& o) {
  Values states = exchange(o.operands, plan_.shuffled);
  if (plan_.by_warps) {
    states = across_warps(states);
  } else {
    for (const ThreadAxis& axis : plan_.stored) states = columns(states, axis);
  }
  if (!plan_.cluster.empty()) states = across_cluster(states);
  return states;
}

Values CollectiveLowering::merge(const Values& a, const Values& b) {
  Values both = a;
  both.insert(both.end(), b.begin(), b.end());
  return inlined(merge_, both);
}

// --- Lanes of a warp -----------------------------------------------------------------------------

// The exchanges of all states stand before the joins, so that they do not wait for each other.
Values CollectiveLowering::exchange_all(const Values& states, std::int64_t by) {
  return merge(states, shuffled(states, shuffle(ShuffleKind::exclusive_or, by)));
}

Values CollectiveLowering::exchange(const Values& states, std::span<const ThreadAxis> axes) {
  Values out = states;
  for (const ThreadAxis& axis : axes) {
    for (std::int64_t left = axis.extent; left > 1; left /= 2) {
      if (is_chain(info_, left)) {
        out = chain(out, axis, left);
        break;
      }
      out = exchange_all(out, left / 2 * axis.stride);
    }
  }
  return out;
}

// The states of the first `count` positions of an axis, one after the other.
Values CollectiveLowering::chain(const Values& states, const ThreadAxis& axis, std::int64_t count) {
  const Expr first = lane() - axis.variable * axis.stride;
  Values out;
  for (std::int64_t p = 0; p < count; ++p) {
    const Values part = from_lane(states, first + p * axis.stride);
    out = p == 0 ? part : merge(out, part);
  }
  return out;
}

// --- Warps of a block ----------------------------------------------------------------------------

Values CollectiveLowering::across_warps(const Values& states) {
  const std::int64_t warps = plan_.threads / kWarp;
  const Expr first = vector_lane() * warps;
  Expr own = first;
  for (const ThreadAxis& axis : threads_) {
    if (axis.stride >= kWarp) own = own + axis.variable * (axis.stride / kWarp);
  }
  if_zero(position(plan_.shuffled), [&] {
    for (std::size_t s = 0; s < states.size(); ++s) store_scratch(info_.scratch[s], own, states[s]);
  });
  outside([&] { barrier(Scope::block); });
  // The first of the team's warps.
  Expr team = own;
  for (const ThreadAxis& axis : plan_.stored) {
    team = team - axis.variable * (axis.stride / kWarp);
  }
  return joined_warps(team);
}

// The states of a team's warps, in scratch memory. Each lane takes those of one warp and they are
// exchanged again; where that is not how they are to be associated, each thread takes all.
Values CollectiveLowering::joined_warps(Expr first) {
  const std::vector<ThreadAxis>& axes = plan_.stored;
  const bool by_lanes = std::ranges::all_of(axes, [&](const ThreadAxis& axis) {
    return is_power_of_two(axis.extent) && !ends_in_chain(info_, axis.extent);
  });
  const auto load_all = [&](Expr place) {
    Values out;
    for (const MemoryId scratch : info_.scratch) out.push_back(load_scratch(scratch, place));
    return out;
  };
  if (!by_lanes) {
    std::int64_t count = 1;
    for (const ThreadAxis& axis : axes) count *= axis.extent;
    std::vector<Values> parts;
    for (std::int64_t p = 0; p < count; ++p) {
      Expr place = first;
      std::int64_t rest = p;
      for (const ThreadAxis& axis : axes) {
        place = place + rest % axis.extent * (axis.stride / kWarp);
        rest /= axis.extent;
      }
      parts.push_back(load_all(place));
    }
    return tree(std::move(parts), axes);
  }
  const Expr lane = position(plan_.shuffled);
  // Neighbouring axes count as one.
  Expr place = first;
  std::int64_t inner = 1;
  for (std::size_t a = 0; a < axes.size();) {
    std::int64_t extent = axes[a].extent;
    std::size_t next = a + 1;
    for (; next < axes.size() && axes[next].stride == axes[a].stride * extent; ++next) {
      extent *= axes[next].extent;
    }
    place = place + sym::mod(sym::floordiv(lane, inner), extent) * (axes[a].stride / kWarp);
    inner *= extent;
    a = next;
  }
  Values out = load_all(place);
  inner = 1;
  for (const ThreadAxis& axis : axes) {
    for (std::int64_t by = axis.extent / 2; by > 0; by /= 2) {
      out = exchange_all(out, by * inner);
    }
    inner *= axis.extent;
  }
  return out;
}

// States joined by one thread as `Collective` says; row-major over the axes, the last first.
Values CollectiveLowering::tree(std::vector<Values> parts, std::span<const ThreadAxis> axes) {
  std::size_t stride = 1;
  for (const ThreadAxis& axis : axes) {
    const auto extent = static_cast<std::size_t>(axis.extent);
    for (std::size_t base = 0; base < parts.size(); base += stride * extent) {
      const auto join = [&](std::size_t to, std::size_t from) {
        parts[base + to * stride] = merge(parts[base + to * stride], parts[base + from * stride]);
      };
      for (std::size_t left = extent; left > 1; left = (left + 1) / 2) {
        if (is_chain(info_, static_cast<std::int64_t>(left))) {
          for (std::size_t p = 1; p < left; ++p) join(0, p);
          break;
        }
        const std::size_t half = (left + 1) / 2;
        for (std::size_t p = 0; p + half < left; ++p) join(p, p + half);
      }
    }
    stride *= extent;
  }
  return parts[0];
}

// --- Rows of a block -----------------------------------------------------------------------------

namespace {

// Places of scratch memory: [row][lane][column], so that the threads of a warp lie side by side.
struct Columns {
  std::int64_t lanes = 1;
  std::int64_t count = 1;  // columns
  Expr column;
  [[nodiscard]] Expr place(Expr row_and_lane) const { return row_and_lane * count + column; }
};

}  // namespace

// Runs `body` for all (row, lane) below `rows`, shared among the threads of the axis.
void CollectiveLowering::column_rows(const ThreadAxis& axis, Expr rows,
                                     const std::function<void(Expr)>& body) {
  const auto count = rows.constant();
  if (count && *count == axis.extent) return body(axis.variable);
  if (count && *count == 1) {
    return if_zero(axis.variable, [&] { body(context_.constant(0)); });
  }
  if (count && *count < axis.extent) {
    const ValueId is_below =
        builder_.compute(Opcode::less, DType::boolean,
                         {builder_.index(axis.variable), builder_.integer(DType::i64, *count)});
    builder_.branch(is_below, [&] {
      body(axis.variable);
      return Values{};
    });
    return;
  }
  Loop info;
  info.begin = axis.variable;
  info.end = rows;
  info.step = context_.constant(axis.extent);
  info.kind = LoopKind::rolled;
  builder_.loop(std::move(info), {}, [&](Expr p, const Values&) {
    body(p);
    return Values{};
  });
}

// Lets the two states of a place lie beside each other, where a compiler makes one access of both.
void CollectiveLowering::interleave(std::span<const MemoryId> scratch) {
  if (scratch.size() != 2 || scratch[0] > scratch[1]) return;
  Memory& first = kernel_.memories[scratch[0]];
  Memory& second = kernel_.memories[scratch[1]];
  const std::int64_t bytes = abi::size_of(first.dtype);
  const auto is_used = [&](MemoryId m) {
    return interleaved_.contains(m) || std::ranges::find(left_, m) != left_.end();
  };
  const auto places = element_count(first).constant();
  if (is_used(scratch[0]) || is_used(scratch[1]) || !places || first.shape.size() != 1 ||
      second.shape != first.shape || abi::size_of(second.dtype) != bytes || bytes > 8 ||
      first.of != kNone || second.of != kNone) {
    return;
  }
  first.shape = {context_.constant(2 * *places)};
  first.alignment = std::max<std::int32_t>(first.alignment, static_cast<std::int32_t>(2 * bytes));
  second.shape = {context_.constant(2 * *places - 1)};
  second.alignment = static_cast<std::int32_t>(bytes);
  second.of = scratch[0];
  second.offset = bytes;
  interleaved_.insert(scratch.begin(), scratch.end());
}

// Rows are joined by halves, whose joins all threads share; the last ones one after the other, a
// result by one thread.
Values CollectiveLowering::columns(const Values& states, const ThreadAxis& axis) {
  const Columns at{lanes(), plan_.threads / axis.extent, position(others({&axis, 1}))};
  const Expr lane = vector_lane();
  const std::vector<MemoryId>& scratch = info_.scratch;
  interleave(scratch);
  // In a vector region only a barrier that is written here can stand between what others still
  // read there and what comes now.
  const bool is_left = std::ranges::any_of(
      scratch, [&](MemoryId m) { return std::ranges::find(left_, m) != left_.end(); });
  if (is_left && !vector_lane_.is_null()) outside([&] { barrier(Scope::block); });
  left_.insert(left_.end(), scratch.begin(), scratch.end());
  for (std::size_t s = 0; s < states.size(); ++s) {
    store_scratch(scratch[s], at.place(axis.variable * at.lanes + lane), states[s]);
  }
  const auto load_all = [&](Expr row_and_lane) {
    Values out;
    for (const MemoryId m : scratch) out.push_back(load_scratch(m, at.place(row_and_lane)));
    return out;
  };
  const auto store_all = [&](Expr row_and_lane, const Values& values) {
    for (std::size_t s = 0; s < values.size(); ++s) {
      store_scratch(scratch[s], at.place(row_and_lane), values[s]);
    }
  };
  // Joins as many rows as are beyond `half`.
  const auto halve = [&](Expr half, Expr joined) {
    column_rows(axis, joined * at.lanes, [&](Expr p) {
      const Values mine = load_all(p);
      store_all(p, merge(mine, load_all(p + half * at.lanes)));
    });
    barrier(Scope::block);
  };
  outside([&] {
    barrier(Scope::block);
    std::int64_t left = axis.extent;
    const auto goes_on = [&] { return left > 1 && left >= info_.sequential; };
    std::int64_t steps = 0;
    for (; goes_on(); left = (left + 1) / 2) ++steps;
    if (steps > 1 && is_power_of_two(axis.extent)) {
      builder_.loop(LoopKind::rolled, context_.constant(steps), {}, [&](Expr step, const Values&) {
        const ValueId shifted =
            builder_.compute(Opcode::shift_right, DType::i64,
                             {builder_.integer(DType::i64, axis.extent / 2), builder_.index(step)});
        const Expr half = builder_.bind(shifted, {left, axis.extent / 2});
        halve(half, half);
        return Values{};
      });
    } else {
      std::int64_t rows = axis.extent;
      for (std::int64_t step = 0; step < steps; ++step) {
        const std::int64_t half = (rows + 1) / 2;
        halve(context_.constant(half), context_.constant(rows - half));
        rows = half;
      }
    }
    if (left == 1) return;
    column_rows(axis, context_.constant(at.lanes), [&](Expr l) {
      Values joined = load_all(l);
      if (left <= kMostUnrolledRows) {
        for (std::int64_t row = 1; row < left; ++row) {
          joined = merge(joined, load_all(l + row * at.lanes));
        }
      } else {
        Loop rows;
        rows.begin = context_.constant(1);
        rows.end = context_.constant(left);
        rows.step = context_.constant(1);
        joined = builder_.loop(std::move(rows), joined, [&](Expr row, const Values& carried) {
          return merge(carried, load_all(l + row * at.lanes));
        });
      }
      store_all(l, joined);
    });
    barrier(Scope::block);
  });
  return load_all(lane);
}

// --- Blocks of a cluster -------------------------------------------------------------------------

// One thread of each team leaves its block's states, and each thread joins those of all blocks.
Values CollectiveLowering::across_cluster(const Values& states) {
  std::vector<ThreadAxis> members = plan_.shuffled;
  members.insert(members.end(), plan_.stored.begin(), plan_.stored.end());
  const Expr place = vector_lane() * plan_.teams + position(others(members));
  std::vector<MemoryId> memories = info_.scratch;
  if (!plan_.stored.empty()) {
    // The scratch memory is still being read.
    for (MemoryId& m : memories) m = cluster_memory(m);
  }
  if_zero(position(members), [&] {
    for (std::size_t s = 0; s < states.size(); ++s) store_scratch(memories[s], place, states[s]);
  });
  outside([&] { barrier(Scope::cluster); });
  Expr first = context_.constant(0);
  std::int64_t count = 1;
  for (const ThreadAxis& axis : axes_of(kernel_, AxisKind::cluster)) {
    const auto is_it = [&](const ThreadAxis& member) { return member.axis == axis.axis; };
    if (std::ranges::any_of(plan_.cluster, is_it)) {
      count *= axis.extent;
    } else {
      first = first + axis.variable * axis.stride;
    }
  }
  std::vector<Values> parts;
  for (std::int64_t p = 0; p < count; ++p) {
    Expr rank = first;
    std::int64_t rest = p;
    for (const ThreadAxis& axis : plan_.cluster) {
      rank = rank + rest % axis.extent * axis.stride;
      rest /= axis.extent;
    }
    const auto constant = rank.constant();
    const ValueId at = constant ? builder_.integer(DType::i64, *constant) : builder_.index(rank);
    Values part;
    for (const MemoryId m : memories) part.push_back(load_scratch(m, place, at));
    parts.push_back(std::move(part));
  }
  return tree(std::move(parts), plan_.cluster);
}

// As many places as there are teams, beside a collective's scratch memory.
MemoryId CollectiveLowering::cluster_memory(MemoryId scratch) {
  Memory made = kernel_.memories[scratch];
  const auto taken = [&](const std::string& name) {
    return std::ranges::any_of(kernel_.memories, [&](const Memory& m) { return m.name == name; });
  };
  std::string name = made.name + ".all";
  while (taken(name)) name += "_";
  made.name = name;
  made.shape.back() = context_.constant(plan_.teams * lanes());
  return builder_.memory(std::move(made));
}

}  // namespace inkle::kernel
