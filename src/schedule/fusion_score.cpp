#include "schedule/fusion_score.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "schedule/inline.h"
#include "schedule/linear.h"
#include "schedule/matcher.h"
#include "schedule/sequential_rows.h"

namespace inkle::schedule {

using loop::BufferId;
using loop::Nest;
using loop::NestKind;
using loop::Program;

namespace {

std::int64_t bytes_of(const loop::Buffer& buffer) {
  std::int64_t bytes = abi::size_of(buffer.dtype);
  for (const sym::Expr size : buffer.sizes) {
    bytes *= std::max<std::int64_t>(sym::hint(size).value_or(1), 1);
  }
  return bytes;
}

template <class T>
bool has(const std::vector<T>& list, const T& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

template <class T>
void unite(std::vector<T>& sorted, const std::vector<T>& others) {
  const auto middle = static_cast<std::ptrdiff_t>(sorted.size());
  sorted.insert(sorted.end(), others.begin(), others.end());
  std::inplace_merge(sorted.begin(), sorted.begin() + middle, sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
}

}  // namespace

void Touched::add(const Touched& other) {
  unite(nests, other.nests);
  unite(reads, other.reads);
  unite(writes, other.writes);
}

bool FusionScore::is_better_than(const FusionScore& other) const {
  if (feeds != other.feeds) return feeds;
  // Of about the same worth the nearer: what a few bytes more have drawn away, nests after it miss.
  const auto magnitude = [](const FusionScore& s) {
    return std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(s.saved - s.held, 0)));
  };
  if (magnitude(*this) != magnitude(other)) return magnitude(*this) > magnitude(other);
  if (distance != other.distance) return distance < other.distance;
  return saved - held > other.saved - other.held;
}

std::string to_string(const FusionScore& score) {
  return fmt::format("saves {} bytes, {}, {} nests apart, holds {} bytes", score.saved,
                     score.feeds ? "feeds" : "shares", score.distance, score.held);
}

FusionRulebook::FusionRulebook(const Program& program, const abi::Target& target,
                               const FuseOptions& options)
    : program_(program),
      target_(target),
      rules_(target.fusion),
      options_(options),
      readers_(program.buffers.size()),
      escapes_(program.buffers.size(), false) {
  for (BufferId b = 0; b < program.buffers.size(); ++b) {
    const loop::Buffer& buffer = program.buffers[b];
    bytes_.push_back(bytes_of(buffer));
    escapes_[b] = buffer.role != loop::BufferRole::temporary || buffer.writes_into.has_value();
  }
  for (const auto& output : program.outputs) {
    if (output.kind == loop::ProgramOutput::Kind::buffer) escapes_[output.buffer] = true;
  }
  for (std::size_t n = 0; n < program.nests.size(); ++n) {
    Touched touched{{n}, loop::reads(program.nests[n]), loop::writes(program.nests[n])};
    std::sort(touched.reads.begin(), touched.reads.end());
    std::sort(touched.writes.begin(), touched.writes.end());
    for (const BufferId b : touched.reads) readers_[b].push_back(n);
    touched_.push_back(std::move(touched));
  }
}

std::optional<Group> FusionRulebook::can_fuse(const Group& group, const Nest& nest,
                                              std::string& why) const {
  std::optional<Group> joined = is_column_part(nest)
                                    ? join_sequential_rows(group, nest, program_, why)
                                    : join(group, nest, program_, options_.inverts, why);
  if (!joined) return std::nullopt;
  if (starves(group, *joined)) {
    why = "few long rows would leave the device idle";
    return std::nullopt;
  }
  if (needs_other_places(*joined)) {
    why = "threads would exchange too many values";
    return std::nullopt;
  }
  return joined;
}

FusionScore FusionRulebook::score_fusion(const Touched& first, const Touched& second) const {
  FusionScore score;
  const auto has_in = [](const auto& sorted, auto value) {
    return std::binary_search(sorted.begin(), sorted.end(), value);
  };
  const auto is_inside = [&](std::size_t n) {
    return has_in(first.nests, n) || has_in(second.nests, n);
  };
  // What one makes and the other reads: one read less, and no write if it has no other reader.
  const auto feed = [&](BufferId b) {
    score.feeds = true;
    score.saved += bytes_[b];
    if (!escapes_[b] && std::all_of(readers_[b].begin(), readers_[b].end(), is_inside)) {
      score.saved += bytes_[b];
    }
  };
  for (const BufferId b : second.reads) {
    if (has_in(first.writes, b)) {
      feed(b);
    } else if (has_in(first.reads, b)) {
      score.saved += bytes_[b];
    }
  }
  for (const BufferId b : second.writes) {
    if (has_in(first.reads, b) && !has_in(first.writes, b)) feed(b);
  }
  const std::size_t end = first.nests.back(), begin = second.nests.front();
  score.distance = begin > end ? begin - end - 1 : 0;
  if (score.distance == 0) return score;
  for (const BufferId b : second.writes) {
    const bool is_read = !std::all_of(readers_[b].begin(), readers_[b].end(), is_inside);
    if (!escapes_[b] && is_read) score.held += bytes_[b];
  }
  return score;
}

bool FusionRulebook::is_column_part(const Nest& nest) const {
  return nest.stores.size() == 1 && has(options_.column_parts, nest.stores[0].buffer);
}

// Whether what lies next to each other in memory are different outer iterations.
bool FusionRulebook::accumulates_columns(const Group& group) const {
  if (group.outer.empty()) return false;
  const auto is_dense = [](Expr offset, Expr variable) {
    const auto stride = sym::stride(offset, variable);
    return sym::contains(offset, variable) && stride && stride->is_constant(1);
  };
  bool columns = false;
  for (const Member& member : group.members) {
    if (member.inner.empty()) continue;
    const Expr inner = member.inner.back().variable;
    for (const loop::Instruction& i : member.nest.body.instructions) {
      if (i.opcode != loop::Opcode::load) continue;
      const Expr offset = linear_offset(program_.buffers[i.buffer], i.indices, *program_.context);
      if (!sym::contains(offset, inner)) continue;
      const bool varies =
          std::any_of(group.outer.begin(), group.outer.end(),
                      [&](const loop::Dim& dim) { return sym::contains(offset, dim.variable); });
      if (varies && is_dense(offset, inner)) return false;
      columns = columns || is_dense(offset, group.outer.back().variable);
    }
  }
  return columns;
}

// A block has a long row alone: with few of them it is better to write what rows share
// and to let all blocks read it.
// Reductions of equal length lose nothing.
bool FusionRulebook::starves(const Group& before, const Group& joined) const {
  if (!shares_rows() || joined.members.size() < 2) return false;
  const Member& last = joined.members.back();
  const bool shares_work = last.nest.kind == NestKind::pointwise && !last.inner.empty();
  const bool takes_loops = extent_hint(joined.outer) < extent_hint(before.outer);
  if (!shares_work && !takes_loops) return false;
  std::int64_t longest = 0;
  for (const Member& member : joined.members) {
    longest = std::max(longest, extent_hint(member.inner));
  }
  if (accumulates_columns(joined)) {
    const std::int64_t columns = extent_hint(joined.outer);
    const std::int64_t wanted = std::int64_t{target_.parallelism} * target_.resident_threads / 8;
    return columns * longest >= rules_.many_elements &&
           columns * std::min<std::int64_t>(rules_.column_team, longest) / rules_.column_team <
               wanted;
  }
  const double threads = static_cast<double>(extent_hint(joined.outer)) *
                         static_cast<double>(std::min<std::int64_t>(longest, rules_.row_threads));
  return longest >= rules_.long_row &&
         threads < static_cast<double>(rules_.row_threads) * target_.parallelism / 2;
}

// Whether the last member needs values that the group computes at other indices along its
// inner loops, which the threads of a block would have to exchange: a column has too many for
// that, and so has a long row.
bool FusionRulebook::needs_other_places(const Group& joined) const {
  if (!shares_rows()) return false;
  const Member& last = joined.members.back();
  for (const loop::Instruction& i : last.nest.body.instructions) {
    if (i.opcode != loop::Opcode::load) continue;
    const auto made = find_store(joined, i.buffer);
    if (!made || made->member == &last) continue;
    const std::vector<loop::Dim>& inner = made->member->inner;
    const bool is_of_row = std::none_of(made->store->indices.begin(), made->store->indices.end(),
                                        [&](Expr index) { return contains_any(index, inner); });
    if (is_of_row || is_same_place(i, last, *made->store, *made->member)) continue;
    const auto elements = extent_product(inner, *program_.context).constant();
    const std::int64_t size = abi::size_of(program_.buffers[i.buffer].dtype);
    if (accumulates_columns(joined) || !elements || *elements * size > rules_.kept_of_row)
      return true;
  }
  return false;
}

bool FusionRulebook::is_same_place(const loop::Instruction& load, const Member& reader,
                                   const loop::Store& store, const Member& maker) const {
  const std::vector<loop::Dim>& inner = maker.inner;
  if (load.operand_count != 0) return false;
  if (reader.inner.size() != inner.size()) {  // loops that are one, or several, may be the same
    sym::Context& context = *program_.context;
    return extent_product(reader.inner, context) == extent_product(inner, context);
  }
  std::vector<std::pair<Expr, Expr>> map;
  for (std::size_t d = 0; d < inner.size(); ++d) {
    if (!(reader.inner[d].extent == inner[d].extent)) return false;
    map.emplace_back(reader.inner[d].variable, inner[d].variable);
  }
  for (std::size_t d = 0; d < load.indices.size(); ++d) {
    if (!(sym::substitute(load.indices[d], map) == store.indices[d])) return false;
  }
  return true;
}

}  // namespace inkle::schedule
