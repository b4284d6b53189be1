#include "codegen/cuda/iterations.h"

#include <bit>

#include "base/error.h"

namespace inkle::codegen::cuda {

using sym::Expr;

void IterationWriter::size_symbols() {
  for (std::size_t s = 0; s < text_.kernel.sizes.size(); ++s) {
    const Expr symbol = text_.kernel.sizes[s];
    const bool wide = !fits32(symbol);
    if (!wide) out_.line("const int s{} = (int)n{};", s, s);
    symbols_[symbol.node()] = {fmt::format("{}{}", wide ? "n" : "s", s), wide};
  }
}

void IterationWriter::decompose(const std::string& number, std::size_t count, bool wide) {
  decompose(out_, number, 0, count, wide);
}

void IterationWriter::decompose(Writer& out, const std::string& number, std::size_t first,
                                std::size_t end, bool wide) {
  const char* type = wide ? "i64" : "int";
  const char* as = wide ? "u64" : "u32";
  std::string rest = number;
  for (std::size_t d = end; d-- > first;) {
    const loop::Dim& dim = loops_.outer[d];
    const std::string variable = fmt::format("i{}", d);
    if (d == first) {
      if (rest != variable) out.line("const {} {} = {};", type, variable, rest);
    } else {
      const std::string extent = index_text(dim.extent, symbols_, wide);
      const std::string above = fmt::format("q{}", d);
      out.line("const {0} {1} = ({0})(({2}){3} / ({2})({4}));", type, above, as, rest, extent);
      out.line("const {0} {1} = ({0})(({2}){3} % ({2})({4}));", type, variable, as, rest, extent);
      rest = above;
    }
    symbols_[dim.variable.node()] = {variable, wide};
  }
}

Expr IterationWriter::iterations(std::size_t count) {
  Expr product = context_.constant(1);
  for (std::size_t d = 0; d < count; ++d) product = product * loops_.outer[d].extent;
  return product;
}

void IterationWriter::begin_rows() {
  const Expr rows = iterations(loops_.outer.size());
  const bool wide = is_wide_extent(rows);
  const char* type = wide ? "i64" : "int";
  const int team = blocks_.team;
  if (!std::has_single_bit(static_cast<std::uint32_t>(team))) {
    unsupported("kernel {}: rows shared by {} threads", text_.kernel.name, team);
  }
  if (team > 32) {
    INKLE_CHECK(team == blocks_.threads, "a team of {} in a block of {}", team, blocks_.threads);
    if (blocks_.cluster > 1) {
      out_.line("const int t = cluster_rank() * {} + threadIdx.x;", team);
      out_.line("const {} row = {} / {};", type, block_, blocks_.cluster);
    } else {
      out_.raw("const int t = threadIdx.x;");
      out_.line("const {} row = {};", type, block_);
    }
  } else {
    out_.line("const int t = threadIdx.x & {};", team - 1);
    out_.line("const {0} row = ({0}){3} * {1} + (threadIdx.x / {2});", type, blocks_.threads / team,
              team, block_);
    out_.line("if (row >= {}) return;", index_text(rows, symbols_, wide));
  }
  decompose("row", loops_.outer.size(), wide);
}

WalkText IterationWriter::begin_walk() {
  const std::size_t first = loops_.outer.size() - loops_.walked;
  Expr rows = context_.constant(1);
  for (std::size_t d = first; d < loops_.outer.size(); ++d) rows = rows * loops_.outer[d].extent;
  WalkText walk;
  walk.teams = blocks_.threads / blocks_.team;
  for (const schedule::Stage& stage : loops_.stages) {
    for (const loop::Dim& dim : stage.inner) {
      if (dim.extent.constant().value_or(0) > 0) continue;
      unsupported("kernel {}: walks rows of unknown length", text_.kernel.name);
    }
  }
  if (blocks_.team % 32 != 0 || !rows.is_constant() || is_wide_extent(rows) ||
      is_wide_extent(iterations(first))) {
    unsupported("kernel {}: walks rows with teams of {} threads", text_.kernel.name, blocks_.team);
  }
  if (walk.teams > 1) {
    out_.line("const int t = threadIdx.x % {};", blocks_.team);
    out_.line("const int q = threadIdx.x / {};", blocks_.team);
  } else {
    out_.raw("const int t = threadIdx.x;");
  }
  out_.line("const int part = {};", block_);
  decompose(out_, "part", 0, first, false);
  walk.rows = rows.constant().value_or(0);
  walk.outer = [this, first](const std::string& row) {
    Writer lines;
    decompose(lines, row, first, loops_.outer.size(), false);
    return lines.text();
  };
  (void)walk.outer("0");  // names the variables
  return walk;
}

void IterationWriter::begin_columns() {
  const std::size_t last = loops_.outer.size() - 1;
  const loop::Dim& dim = loops_.outer[last];
  const Expr groups = sym::ceildiv(dim.extent, blocks_.lanes);
  const Expr rest = iterations(last);
  const bool wide =
      is_wide_extent(rest * groups * blocks_.lanes + std::int64_t{blocks_.threads} * 64);
  const char* type = wide ? "i64" : "int";
  const char* as = wide ? "u64" : "u32";
  const std::string variable = fmt::format("i{}", last);
  const std::string per_row = index_text(groups, symbols_, wide);
  if (blocks_.team == 1) {
    out_.line("const {0} n = ({0}){2} * {1} + threadIdx.x;", type, blocks_.threads, block_);
    out_.line("if (n >= {}) return;", index_text(rest * groups, symbols_, wide));
    if (last == 0) {
      out_.line("const {} {} = n{};", type, variable,
                blocks_.lanes > 1 ? fmt::format(" * {}", blocks_.lanes) : "");
    } else {
      out_.line("const {0} outer = ({0})(({1})n / ({1})({2}));", type, as, per_row);
      out_.line("const {0} {1} = (n - outer * ({2})){3};", type, variable, per_row,
                blocks_.lanes > 1 ? fmt::format(" * {}", blocks_.lanes) : "");
    }
  } else {
    const int across = blocks_.threads / blocks_.team;
    const std::string strips =
        index_text(sym::ceildiv(dim.extent, std::int64_t{across} * blocks_.lanes), symbols_, wide);
    out_.line("const int y = threadIdx.x / {};", across);
    out_.line("const {0} outer = ({0})((u32){3} / ({1})({2}));", type, as, strips, block_);
    out_.line("const {0} {1} = ((({0}){5} - outer * ({2})) * {3} + threadIdx.x % {3}) * {4};", type,
              variable, strips, across, blocks_.lanes, block_);
    out_.line("const bool on = {} < {};", variable, index_text(dim.extent, symbols_, wide));
  }
  symbols_[dim.variable.node()] = {variable, wide};
  if (last > 0) decompose("outer", last, wide);
}

void IterationWriter::begin_tile() {
  const std::size_t last = loops_.outer.size() - 1;
  constexpr int kAcross = schedule::kTileAcross;
  constexpr int kDown = schedule::kTileDown;
  const bool is_shared = blocks_.side != 0;
  const auto tiles = [&](std::size_t d, int threads) {
    const int side = is_shared ? blocks_.side : threads * blocks_.lanes;
    return index_text(sym::ceildiv(loops_.outer[d].extent, side), symbols_, false);
  };
  out_.line("const int across = {} % ({});", block_, tiles(last, kAcross));
  out_.line("const int above = {} / ({});", block_, tiles(last, kAcross));
  out_.line("const int down = above % ({});", tiles(last - 1, kDown));
  out_.line("const int outer = above / ({});", tiles(last - 1, kDown));
  if (!is_shared) {
    out_.line("const int a = (across * {0} + threadIdx.x % {0}) * {1};", kAcross, blocks_.lanes);
    out_.line("const int b = (down * {0} + threadIdx.x / {1}) * {2};", kDown, kAcross,
              blocks_.lanes);
    out_.line("if (a >= {} || b >= {}) return;",
              index_text(loops_.outer[last].extent, symbols_, false),
              index_text(loops_.outer[last - 1].extent, symbols_, false));
  }
  symbols_[loops_.outer[last].variable.node()] = {"a", false};
  symbols_[loops_.outer[last - 1].variable.node()] = {"b", false};
  if (last > 1) decompose("outer", last - 1, false);
}

}  // namespace inkle::codegen::cuda
