#include "kernel/lower_collectives_reduce.h"

#include <algorithm>
#include <bit>

namespace inkle::kernel {
namespace {

using loop::Opcode;

// So many rows of a column are joined without a loop.
constexpr std::int64_t kMostUnrolledRows = 16;

bool is_power_of_two(std::int64_t n) { return std::has_single_bit(static_cast<std::uint64_t>(n)); }

class ReduceLowering {
 public:
  ReduceLowering(CollectiveEmitter& emit, CollectiveScratch& scratch,
                 const LoweredCollective& collective)
      : emit_(emit), scratch_(scratch), builder_(emit.builder()), collective_(collective) {}
  Values lowered(const Values& operands);

 private:
  Values merge(const Values& a, const Values& b);
  Values exchange_all(const Values& states, std::int64_t by);
  Values exchange(const Values& states, std::span<const ThreadAxis> axes);
  Values chain(const Values& states, const ThreadAxis& axis, std::int64_t count);
  Values across_warps(const Values& states);
  Values joined_warps(Expr first);
  Values tree(std::vector<Values> parts, std::span<const ThreadAxis> axes);
  void column_rows(const ThreadAxis& axis, Expr rows, const std::function<void(Expr)>& body);
  Values columns(const Values& states, const ThreadAxis& axis);
  Values across_cluster(const Values& states);
  MemoryId cluster_memory(MemoryId scratch);

  CollectiveEmitter& emit_;
  CollectiveScratch& scratch_;
  Builder& builder_;
  const LoweredCollective& collective_;
};

}  // namespace

Values ReduceLowering::lowered(const Values& operands) {
  Values states = exchange(operands, collective_.plan.shuffled);
  if (collective_.plan.by_warps) {
    states = across_warps(states);
  } else {
    for (const ThreadAxis& axis : collective_.plan.stored) states = columns(states, axis);
  }
  if (!collective_.plan.cluster.empty()) states = across_cluster(states);
  return states;
}

Values ReduceLowering::merge(const Values& a, const Values& b) {
  return emit_.merge(collective_.merge, a, b);
}

// --- Lanes of a warp -----------------------------------------------------------------------------

// The exchanges of all states stand before the joins, so that they do not wait for each other.
Values ReduceLowering::exchange_all(const Values& states, std::int64_t by) {
  return merge(states, emit_.shuffled(states, collective_.shuffle(ShuffleKind::exclusive_or, by)));
}

Values ReduceLowering::exchange(const Values& states, std::span<const ThreadAxis> axes) {
  Values out = states;
  for (const ThreadAxis& axis : axes) {
    for (std::int64_t left = axis.extent; left > 1; left /= 2) {
      if (is_chain(collective_.info, left)) {
        out = chain(out, axis, left);
        break;
      }
      out = exchange_all(out, left / 2 * axis.stride);
    }
  }
  return out;
}

// The states of the first `count` positions of an axis, one after the other.
Values ReduceLowering::chain(const Values& states, const ThreadAxis& axis, std::int64_t count) {
  const Expr first = emit_.lane() - axis.variable * axis.stride;
  Values out;
  for (std::int64_t p = 0; p < count; ++p) {
    const Values part = emit_.from_lane(collective_, states, first + p * axis.stride);
    out = p == 0 ? part : merge(out, part);
  }
  return out;
}

// --- Warps of a block ----------------------------------------------------------------------------

Values ReduceLowering::across_warps(const Values& states) {
  const std::int64_t warps = collective_.plan.threads / kLanesOfWarp;
  const Expr first = emit_.vector_lane() * warps;
  Expr own = first;
  for (const ThreadAxis& axis : emit_.threads()) {
    if (axis.stride >= kLanesOfWarp) own = own + axis.variable * (axis.stride / kLanesOfWarp);
  }
  emit_.if_zero(emit_.position(collective_.plan.shuffled), [&] {
    for (std::size_t s = 0; s < states.size(); ++s)
      scratch_.store(collective_.info.scratch[s], own, states[s]);
  });
  emit_.block_barrier();
  // The first of the team's warps.
  Expr team = own;
  for (const ThreadAxis& axis : collective_.plan.stored) {
    team = team - axis.variable * (axis.stride / kLanesOfWarp);
  }
  return joined_warps(team);
}

// The states of a team's warps, in scratch memory. Each lane takes those of one warp and they are
// exchanged again; where that is not how they are to be associated, each thread takes all.
Values ReduceLowering::joined_warps(Expr first) {
  const std::vector<ThreadAxis>& axes = collective_.plan.stored;
  const bool by_lanes = std::ranges::all_of(axes, [&](const ThreadAxis& axis) {
    return is_power_of_two(axis.extent) && !ends_in_chain(collective_.info, axis.extent);
  });
  const auto load_all = [&](Expr place) {
    Values out;
    for (const MemoryId scratch : collective_.info.scratch)
      out.push_back(scratch_.load(scratch, place));
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
        place = place + rest % axis.extent * (axis.stride / kLanesOfWarp);
        rest /= axis.extent;
      }
      parts.push_back(load_all(place));
    }
    return tree(std::move(parts), axes);
  }
  const Expr lane = emit_.position(collective_.plan.shuffled);
  // Neighbouring axes count as one.
  Expr place = first;
  std::int64_t inner = 1;
  for (std::size_t a = 0; a < axes.size();) {
    std::int64_t extent = axes[a].extent;
    std::size_t next = a + 1;
    for (; next < axes.size() && axes[next].stride == axes[a].stride * extent; ++next) {
      extent *= axes[next].extent;
    }
    place = place + sym::mod(sym::floordiv(lane, inner), extent) * (axes[a].stride / kLanesOfWarp);
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
Values ReduceLowering::tree(std::vector<Values> parts, std::span<const ThreadAxis> axes) {
  std::size_t stride = 1;
  for (const ThreadAxis& axis : axes) {
    const auto extent = static_cast<std::size_t>(axis.extent);
    for (std::size_t base = 0; base < parts.size(); base += stride * extent) {
      const auto join = [&](std::size_t to, std::size_t from) {
        parts[base + to * stride] = merge(parts[base + to * stride], parts[base + from * stride]);
      };
      for (std::size_t left = extent; left > 1; left = (left + 1) / 2) {
        if (is_chain(collective_.info, static_cast<std::int64_t>(left))) {
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

// Layout of scratch memory: [row][lane][column], so that threads of a warp have adjacent elements.
struct Columns {
  std::int64_t lanes = 1;
  std::int64_t count = 1;  // columns
  Expr column;
  [[nodiscard]] Expr place(Expr row_and_lane) const { return row_and_lane * count + column; }
};

}  // namespace

// Runs `body` for all (row, lane) below `rows`, shared among the threads of the axis.
void ReduceLowering::column_rows(const ThreadAxis& axis, Expr rows,
                                 const std::function<void(Expr)>& body) {
  const auto count = rows.constant();
  if (count && *count == axis.extent) return body(axis.variable);
  if (count && *count == 1) {
    return emit_.if_zero(axis.variable, [&] { body(builder_.context().constant(0)); });
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
  info.step = builder_.context().constant(axis.extent);
  info.kind = LoopKind::rolled;
  builder_.loop(std::move(info), {}, [&](Expr p, const Values&) {
    body(p);
    return Values{};
  });
}

// Rows are combined by halves, whose combinations all threads share; the last ones sequentially, a
// result by one thread.
Values ReduceLowering::columns(const Values& states, const ThreadAxis& axis) {
  const Columns at{emit_.lanes(), collective_.plan.threads / axis.extent,
                   emit_.position(emit_.others({&axis, 1}))};
  const Expr lane = emit_.vector_lane();
  const std::vector<MemoryId>& scratch = collective_.info.scratch;
  scratch_.interleave(scratch);
  // In a vector region only a barrier that is written here can stand between what others still
  // read there and what comes now.
  if (scratch_.was_read(scratch) && emit_.is_in_vector()) emit_.block_barrier();
  scratch_.mark_read(scratch);
  for (std::size_t s = 0; s < states.size(); ++s) {
    scratch_.store(scratch[s], at.place(axis.variable * at.lanes + lane), states[s]);
  }
  const auto load_all = [&](Expr row_and_lane) {
    Values out;
    for (const MemoryId m : scratch) out.push_back(scratch_.load(m, at.place(row_and_lane)));
    return out;
  };
  const auto store_all = [&](Expr row_and_lane, const Values& values) {
    for (std::size_t s = 0; s < values.size(); ++s) {
      scratch_.store(scratch[s], at.place(row_and_lane), values[s]);
    }
  };
  // Joins as many rows as are beyond `half`.
  const auto halve = [&](Expr half, Expr joined) {
    column_rows(axis, joined * at.lanes, [&](Expr p) {
      const Values mine = load_all(p);
      store_all(p, merge(mine, load_all(p + half * at.lanes)));
    });
    emit_.block_barrier();
  };
  emit_.outside([&] {
    emit_.block_barrier();
    std::int64_t left = axis.extent;
    const auto goes_on = [&] { return left > 1 && left >= collective_.info.sequential; };
    std::int64_t steps = 0;
    for (; goes_on(); left = (left + 1) / 2) ++steps;
    if (steps > 1 && is_power_of_two(axis.extent)) {
      builder_.loop(LoopKind::rolled, builder_.context().constant(steps), {},
                    [&](Expr step, const Values&) {
                      const ValueId shifted = builder_.compute(
                          Opcode::shift_right, DType::i64,
                          {builder_.integer(DType::i64, axis.extent / 2), builder_.index(step)});
                      const Expr half = bind(builder_, shifted, {left, axis.extent / 2});
                      halve(half, half);
                      return Values{};
                    });
    } else {
      std::int64_t rows = axis.extent;
      for (std::int64_t step = 0; step < steps; ++step) {
        const std::int64_t half = (rows + 1) / 2;
        halve(builder_.context().constant(half), builder_.context().constant(rows - half));
        rows = half;
      }
    }
    if (left == 1) return;
    column_rows(axis, builder_.context().constant(at.lanes), [&](Expr l) {
      Values joined = load_all(l);
      if (left <= kMostUnrolledRows) {
        for (std::int64_t row = 1; row < left; ++row) {
          joined = merge(joined, load_all(l + row * at.lanes));
        }
      } else {
        Loop rows;
        rows.begin = builder_.context().constant(1);
        rows.end = builder_.context().constant(left);
        rows.step = builder_.context().constant(1);
        joined = builder_.loop(std::move(rows), joined, [&](Expr row, const Values& carried) {
          return merge(carried, load_all(l + row * at.lanes));
        });
      }
      store_all(l, joined);
    });
    emit_.block_barrier();
  });
  return load_all(lane);
}

// --- Blocks of a cluster -------------------------------------------------------------------------

// One thread of each team stores its block's states, and each thread combines those of all blocks.
Values ReduceLowering::across_cluster(const Values& states) {
  const std::vector<ThreadAxis> members = collective_.members();
  const Expr place =
      emit_.vector_lane() * collective_.plan.teams + emit_.position(emit_.others(members));
  std::vector<MemoryId> memories = collective_.info.scratch;
  if (!collective_.plan.stored.empty()) {
    // The scratch memory is still being read.
    for (MemoryId& m : memories) m = cluster_memory(m);
  }
  emit_.if_zero(emit_.position(members), [&] {
    for (std::size_t s = 0; s < states.size(); ++s) scratch_.store(memories[s], place, states[s]);
  });
  emit_.outside([&] { builder_.barrier(Barrier{.scope = Scope::cluster}); });
  Expr first = builder_.context().constant(0);
  std::int64_t count = 1;
  for (const ThreadAxis& axis : axes_of(builder_.kernel(), AxisKind::cluster)) {
    const auto is_it = [&](const ThreadAxis& member) { return member.axis == axis.axis; };
    if (std::ranges::any_of(collective_.plan.cluster, is_it)) {
      count *= axis.extent;
    } else {
      first = first + axis.variable * axis.stride;
    }
  }
  std::vector<Values> parts;
  for (std::int64_t p = 0; p < count; ++p) {
    Expr rank = first;
    std::int64_t rest = p;
    for (const ThreadAxis& axis : collective_.plan.cluster) {
      rank = rank + rest % axis.extent * axis.stride;
      rest /= axis.extent;
    }
    const auto constant = rank.constant();
    const ValueId at = constant ? builder_.integer(DType::i64, *constant) : builder_.index(rank);
    Values part;
    for (const MemoryId m : memories) part.push_back(scratch_.load(m, place, at));
    parts.push_back(std::move(part));
  }
  return tree(std::move(parts), collective_.plan.cluster);
}

// As many elements as teams and lanes, beside a collective's scratch memory.
MemoryId ReduceLowering::cluster_memory(MemoryId scratch) {
  Memory made = builder_.kernel().memories[scratch];
  const auto taken = [&](const std::string& name) {
    return std::ranges::any_of(builder_.kernel().memories,
                               [&](const Memory& m) { return m.name == name; });
  };
  std::string name = made.name + ".all";
  while (taken(name)) name += "_";
  made.name = name;
  made.shape.back() = builder_.context().constant(collective_.plan.teams * emit_.lanes());
  return builder_.memory(std::move(made));
}

Values lower_reduce(CollectiveEmitter& emit, CollectiveScratch& scratch,
                    const LoweredCollective& collective, const Values& states) {
  return ReduceLowering(emit, scratch, collective).lowered(states);
}

}  // namespace inkle::kernel
