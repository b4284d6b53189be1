// Canonical text of kernels: names are given in order of appearance and terms are sorted, so that
// kernels of equal structure print alike whatever graph they come from.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/concat.h"
#include "base/error.h"
#include "base/text.h"
#include "schedule/kernel.h"

namespace inkle::schedule {
namespace {

using loop::Instruction;
using loop::Opcode;

class Printer {
 public:
  explicit Printer(const Kernel& kernel) : kernel_(kernel) {}

  std::string run() {
    out_ = "kernel(";
    for (std::size_t p = 0; p < kernel_.params.size(); ++p) {
      const Param& param = kernel_.params[p];
      const char* role = param.role == ParamRole::in    ? "in"
                         : param.role == ParamRole::out ? "out"
                                                        : "inout";
      append(out_, {p == 0 ? "" : ", ", role, " ", numbered('p', static_cast<std::int64_t>(p)),
                    ": ", abi::name_of(param.dtype), " align ", digits(param.alignment),
                    param.may_alias ? " alias" : ""});
    }
    out_ += ")";
    for (std::size_t s = 0; s < kernel_.sizes.size(); ++s) {
      const std::string& own = name(kernel_.sizes[s], numbered('s', static_cast<std::int64_t>(s)));
      append(out_, {s == 0 ? " sizes " : ", ", own, facts_of(kernel_.sizes[s])});
    }
    if (kernel_.instances > 1) out_ += fmt::format(" table of {}", kernel_.instances);
    out_ += " {\n";
    if (const auto* loops = std::get_if<LoopKernel>(&kernel_.body)) {
      print(*loops);
    } else if (const auto* gemm = std::get_if<GemmKernel>(&kernel_.body)) {
      print(*gemm);
    } else {
      print(std::get<AttentionKernel>(kernel_.body));
    }
    if (kernel_.last_block) print(*kernel_.last_block);
    for (const Beside& beside : kernel_.beside) {
      out_ += fmt::format("}} beside, {} {{\n", to_string(beside.blocks));
      print(beside.loops);
      if (beside.last_block) print(*beside.last_block);
    }
    return out_ + "}\n";
  }

 private:
  void print(const LastBlock& last_block) {
    for (const LastBlock::Part& part : last_block.parts) {
      out_ += fmt::format("}} then the last block{}{}, {} {{\n",
                          last_block.by_strips ? " of a strip" : "",
                          last_block.after_reads ? " to read" : "", to_string(part.blocks));
      for (const std::uint32_t cell : last_block.cells) out_ += fmt::format("  cell p{}\n", cell);
      print(part.loops);
    }
  }

  // What generated code may rely on: 32-bit counts, whole vectors, indices that are in range.
  static std::string facts_of(Expr size) {
    const auto [low, high] = sym::bounds(size);
    std::int64_t divisor = 1;
    if (size.kind() == sym::Kind::symbol) divisor = size.context().info(size).divisor;
    return fmt::format(" in {}..{}{}", low, high == sym::Range::kMax ? "" : std::to_string(high),
                       divisor == 1 ? "" : fmt::format(" by {}", divisor));
  }

  std::string text(Expr e) {
    using sym::Kind;
    if (e.is_null()) return "none";  // of a kernel that is not whole, in an error or a key
    switch (e.kind()) {
      case Kind::constant:
        return digits(*e.constant());
      case Kind::symbol: {
        const auto is_it = [&](const auto& entry) { return entry.first == e.id(); };
        const auto at = std::find_if(names_.rbegin(), names_.rend(), is_it);
        return at != names_.rend() ? at->second : e.name();
      }
      case Kind::add:
        return sorted(e, "+");
      case Kind::mul:
        return sorted(e, "*");
      case Kind::min:
        return concat({"min(", sorted(e, ","), ")"});
      case Kind::max:
        return concat({"max(", sorted(e, ","), ")"});
      case Kind::floordiv:
      case Kind::mod:
        return concat({e.kind() == Kind::mod ? "mod(" : "floordiv(", text(e.operands()[0]), ",",
                       text(e.operands()[1]), ")"});
    }
    return "?";
  }

  std::string sorted(Expr e, std::string_view separator) {
    std::vector<std::string> parts;
    parts.reserve(e.operands().size());
    for (const Expr operand : e.operands()) {
      const bool nested = e.kind() == sym::Kind::mul && operand.kind() == sym::Kind::add;
      parts.push_back(nested ? concat({"(", text(operand), ")"}) : text(operand));
    }
    std::sort(parts.begin(), parts.end());
    std::string out = std::move(parts.front());
    for (std::size_t i = 1; i < parts.size(); ++i) append(out, {separator, parts[i]});
    return out;
  }

  const std::string& name(Expr symbol, std::string given) {
    return names_.emplace_back(symbol.id(), std::move(given)).second;
  }

  std::string target(std::uint32_t number) const {
    const std::size_t params = kernel_.params.size();
    return number < params ? numbered('p', number)
                           : numbered('t', static_cast<std::int64_t>(number - params));
  }

  void loops(std::span<const Dim> dims, char letter, int& next, std::string& indent,
             std::string_view word = "for") {
    for (const Dim& dim : dims) {
      const std::string extent = text(dim.extent);
      const std::string& own = name(dim.variable, numbered(letter, next++));
      append(out_, {indent, word, " ", own, " in ", extent, " {\n"});
      indent += "  ";
    }
  }

  void close(std::size_t count, std::string& indent) {
    for (std::size_t i = 0; i < count; ++i) {
      indent.resize(indent.size() - 2);
      append(out_, {indent, "}\n"});
    }
  }

  void print(const LoopKernel& kernel) {
    std::string indent = "  ";
    for (std::size_t s = 0; s < kernel.scratch.size(); ++s) {
      const Scratch& scratch = kernel.scratch[s];
      out_ += fmt::format("{}scratch t{}: {}[{}]{}\n", indent, s, abi::name_of(scratch.dtype),
                          text(scratch.elements), scratch.is_carried ? " carried" : "");
    }
    int next = 0;
    const std::span<const Dim> outer = kernel.outer;
    loops(outer.first(outer.size() - kernel.sequential), 'i', next, indent);
    print_stages(kernel, Phase::first, indent);
    loops(outer.last(kernel.sequential), 'i', next, indent, "sequential");
    print_stages(kernel, Phase::each, indent);
    close(kernel.sequential, indent);
    print_stages(kernel, Phase::last, indent);
    close(kernel.outer.size() - kernel.sequential, indent);
  }

  void print_stages(const LoopKernel& kernel, Phase phase, std::string& indent) {
    for (const Stage& stage : kernel.stages) {
      if (stage.phase == phase) print(kernel, stage, indent);
    }
  }

  static std::string_view order_of(Association association) {
    switch (association) {
      case Association::free:
        return "";
      case Association::rows:
        return " rows";
      case Association::columns:
        return " columns";
    }
    return "";
  }

  void print(const LoopKernel& kernel, const Stage& stage, std::string& indent) {
    int next_inner = 0;
    if (stage.kind == StageKind::scan) {
      out_ += fmt::format("{}scan.{} in {}\n", indent, loop::name_of(stage.reduce),
                          abi::name_of(stage.accumulator));
    } else if (stage.kind == StageKind::scatter) {
      out_ += indent + "scatter\n";
    } else if (stage.kind == StageKind::reduction) {
      std::string rows;
      for (std::size_t r = 0; r < loop::result_count(stage.reduce); ++r) {
        const std::size_t row = stage.first_row + r;
        append(rows, {r == 0 ? "" : ", ", numbered('r', static_cast<std::int64_t>(row)), ": ",
                      abi::name_of(kernel.rows[row])});
      }
      append(out_, {indent, rows, " = reduce.", loop::name_of(stage.reduce), " in ",
                    abi::name_of(stage.accumulator), order_of(stage.association), "\n"});
    }
    loops(stage.inner, 'j', next_inner, indent);
    print(stage.body, indent);
    for (const StageStore& store : stage.stores) {
      append(out_, {indent, target(store.target), "[", text(store.offset),
                    store.mode == loop::StoreMode::atomic_add ? "] += " : "] = ",
                    stage.kind == StageKind::scan ? "running %" : "%",
                    digits(stage.body.yields[store.yield]), "\n"});
    }
    if (stage.kind == StageKind::reduction) {
      append(out_, {indent, "yield %", digits(stage.body.yields.front()), "\n"});
    }
    close(stage.inner.size(), indent);
  }

  void print(const loop::Body& body, const std::string& indent) {
    for (std::size_t v = 0; v < body.instructions.size(); ++v) {
      const Instruction& i = body.instructions[v];
      append(out_, {indent, "%", digits(static_cast<std::int64_t>(v)), ": ", abi::name_of(i.dtype),
                    " = ", loop::name_of(i.opcode), "("});
      const std::size_t begin = out_.size();
      switch (i.opcode) {
        case Opcode::constant:
          out_ += abi::is_float(i.dtype) ? print_double(i.real) : digits(i.integer);
          break;
        case Opcode::load:
          append(out_, {target(i.buffer), "[", text(i.indices.front()), "]"});
          break;
        case Opcode::index:
          out_ += text(i.indices.front());
          break;
        case Opcode::row:
          out_ += numbered('r', i.integer);
          break;
        case Opcode::indirect: {
          const Expr position = i.indices.front();
          const Expr extent = position.context().info(position).extent;
          append(out_, {name(position, numbered('x', indirects_++))});
          append(out_, {extent.is_null() ? facts_of(position) : concat({" below ", text(extent)})});
          break;
        }
        default:
          break;
      }
      for (const loop::Val operand : i.used()) {
        append(out_, {out_.size() == begin ? "%" : ", %", digits(operand)});
      }
      out_ += ")\n";
    }
  }

  void print(const AttentionKernel& a) {
    const char* const letters[] = {"b", "h", "i", "j"};
    for (std::size_t v = 0; v < a.variables.size(); ++v) name(a.variables[v], letters[v]);
    out_ += fmt::format(
        "  attention {} batch {} heads {} kv_heads {} q {} kv {} head_dim {} value_dim {} scale "
        "{}{}{}{}{}",
        abi::name_of(a.dtype), text(a.batch), text(a.heads), text(a.kv_heads), text(a.q_length),
        text(a.kv_length), text(a.head_dim), text(a.value_dim), print_double(a.scale),
        a.is_causal ? " causal" : "", a.safe ? " safe" : "",
        a.has_mask ? fmt::format(" mask {}", abi::name_of(a.mask_dtype)) : "",
        a.has_lse ? " lse" : "");
    if (a.hidden != loop::kHides) out_ += fmt::format(" hidden {}", print_double(a.hidden));
    if (a.dropout) {
      out_ += fmt::format(" dropout {} number {}", print_double(a.dropout->p), a.dropout->number);
    }
    if (a.has_statistics) out_ += " statistics";
    if (a.is_gradient) out_ += " gradient";
    out_ += "\n";
    for (std::size_t p = 0; p < a.offsets.size(); ++p) {
      out_ += fmt::format("  p{}[{}]\n", p, text(a.offsets[p]));
    }
  }

  void print(const GemmKernel& g) {
    const char* const letters[] = {"b", "i", "j", "k"};
    for (std::size_t v = 0; v < g.variables.size(); ++v) name(g.variables[v], letters[v]);
    out_ +=
        fmt::format("  gemm batch {} rows {} columns {} terms {} panel {} group {}{}\n",
                    text(g.batch), text(g.rows), text(g.columns), text(g.terms), g.panel, g.group,
                    g.tiles   ? " tiles"
                    : g.pairs ? " pairs"
                              : "");
    out_ += fmt::format("  p0[{}]\n  p1[{}]\n", text(g.a), text(g.b));
    for (const GemmKernel::Boxes& b : g.boxes) {
      out_ += fmt::format("  boxes [{}] of", fmt::join(b.box, ","));
      for (std::size_t d = 0; d < b.sizes.size(); ++d) {
        out_ += fmt::format(" {}:{}", text(b.sizes[d]), text(b.strides[d]));
      }
      out_ += fmt::format(" swizzle {}{}\n", b.swizzle, b.terms_last ? "" : " transposed");
    }
    if (!g.left.instructions.empty()) {
      print(g.left, "  ");
      out_ += fmt::format("  left operand %{}", g.left.yields.front());
      out_ += g.left_terms.is_null() ? "\n" : fmt::format(" terms {}\n", text(g.left_terms));
    }
    if (!g.right.instructions.empty()) {
      print(g.right, "  ");
      out_ += fmt::format("  right operand %{}\n", g.right.yields.front());
    }
    if (g.partials) out_ += fmt::format("  partial sums in p{}\n", *g.partials);
    print(g.epilogue, "  ");
    for (const StageStore& store : g.stores) {
      out_ += fmt::format("  {}[{}] = %{}\n", target(store.target), text(store.offset),
                          g.epilogue.yields[store.yield]);
    }
  }

  const Kernel& kernel_;
  std::string out_;
  std::vector<std::pair<std::uint32_t, std::string>> names_;  // by symbol; the last one holds
  int indirects_ = 0;
};

}  // namespace

std::string to_string(const Kernel& kernel) { return Printer(kernel).run(); }

std::string to_string(const BlockSchedule& b) {
  std::string mapping = "tile";
  BlockSchedule::Rows all;  // what a mapping lacks is told as for one thread
  if (const auto* rows = std::get_if<BlockSchedule::Rows>(&b.mapping)) {
    mapping = "rows";
    all = *rows;
  } else if (const auto* columns = std::get_if<BlockSchedule::Columns>(&b.mapping)) {
    mapping = "columns";
    all.team = columns->team;
    all.unroll = columns->unroll;
  }
  const std::int32_t side = b.is<BlockSchedule::Tile>() ? b.tile().side : 0;
  return fmt::format(
      "schedule blocks {} threads {} team {} lanes {} cluster {}{} unroll {}{}{}{}{}", mapping,
      b.threads, all.team, b.lanes, all.cluster, all.keep ? " keep" : "", all.unroll,
      all.chunk != 0 ? fmt::format(" chunk {}", all.chunk) : "",
      side != 0 ? fmt::format(" side {}", side) : "", b.recent ? " recent" : "",
      b.lasting ? " lasting" : "");
}

BlockSchedule parse_blocks(std::string_view text) {
  Scanner scanner(text, "schedule");
  BlockSchedule b;
  std::string mapping(scanner.identifier());
  if (mapping == "schedule") {  // all of what to_string writes
    (void)scanner.identifier();
    mapping = scanner.identifier();
  }
  BlockSchedule::Rows rows;
  BlockSchedule::Tile tile;
  const std::pair<std::string_view, std::int32_t*> numbers[] = {
      {"threads", &b.threads},    {"team", &rows.team},     {"lanes", &b.lanes},
      {"cluster", &rows.cluster}, {"unroll", &rows.unroll}, {"chunk", &rows.chunk},
      {"side", &tile.side}};
  const std::pair<std::string_view, bool*> flags[] = {
      {"keep", &rows.keep}, {"recent", &b.recent}, {"lasting", &b.lasting}};
  while (!scanner.at_end()) {
    const std::string name(scanner.identifier());
    const auto flag = std::find_if(std::begin(flags), std::end(flags),
                                   [&](const auto& f) { return f.first == name; });
    if (flag != std::end(flags)) {
      *flag->second = true;
      continue;
    }
    const auto at = std::find_if(std::begin(numbers), std::end(numbers),
                                 [&](const auto& n) { return n.first == name; });
    if (at == std::end(numbers)) user_error("a block schedule has no '{}'", name);
    *at->second = static_cast<std::int32_t>(scanner.integer());
  }
  BlockSchedule::Rows lacking = rows;  // of what the mapping has, nothing
  if (mapping == "rows") {
    b.mapping = rows;
    lacking = {};
  } else if (mapping == "columns") {
    b.mapping = BlockSchedule::Columns{.team = rows.team, .unroll = rows.unroll};
    lacking.team = lacking.unroll = 1;
  } else if (mapping == "tile") {
    b.mapping = std::exchange(tile, {});
  } else {
    user_error("a block schedule has no '{}'", mapping);
  }
  if (lacking != BlockSchedule::Rows{} || tile != BlockSchedule::Tile{}) {
    user_error("a block schedule of '{}' in '{}' has fields of another mapping", mapping, text);
  }
  return b;
}

std::string to_string(const Schedule& s) {
  if (const auto& p = s.gemm) {
    return fmt::format(
        "schedule products rows {} columns {} stages {} terms {} group {} blocks {}{}{}", p->rows,
        p->columns, p->stages, p->terms, p->group, p->blocks, p->ping_pong ? " ping_pong" : "",
        p->parts > 1 ? fmt::format(" parts {}", p->parts) : "");
  }
  if (s.blocks) return to_string(*s.blocks);
  return fmt::format(
      "schedule vector {} lanes {} unroll {} block {}{} row_block {} column_block {} grain {}",
      s.vector_outer ? "outer" : "inner", s.lanes, s.unroll, s.block, s.strips ? " strips" : "",
      s.row_block, s.column_block, s.grain);
}

Expr AttentionKernel::columns_of(std::size_t param) const {
  if (param == mask_at()) return kv_length;
  if (param == statistics_at()) return head_dim.context().constant(2);
  const bool is_value = param == 2 || param == 3 || (is_gradient && (param == 4 || param == 8));
  if (param < 4 || is_gradient) return is_value ? value_dim : head_dim;
  return head_dim.context().constant(1);
}

namespace {

template <class AnyKernel, class F>
void visit_loops(AnyKernel& kernel, const F& f) {
  const auto ends = [&](auto& last_block) {
    if (!last_block) return;
    for (auto& part : last_block->parts) f(part.loops);
  };
  auto* body = std::get_if<LoopKernel>(&kernel.body);
  if (body == nullptr) return;
  f(*body);
  ends(kernel.last_block);
  for (auto& beside : kernel.beside) {
    f(beside.loops);
    ends(beside.last_block);
  }
}

}  // namespace

void for_each_loops(Kernel& kernel, const std::function<void(LoopKernel&)>& f) {
  visit_loops(kernel, f);
}
void for_each_loops(const Kernel& kernel, const std::function<void(const LoopKernel&)>& f) {
  visit_loops(kernel, f);
}

Expr chunks_of(const LoopKernel& loops, const BlockSchedule& b, sym::Context& context) {
  Expr length = context.constant(1);
  for (const Dim& dim : loops.stages.front().inner) length = length * dim.extent;
  return sym::ceildiv(length, std::int64_t{b.threads} * b.lanes * b.rows().chunk);
}

Expr grid_extent(const LoopKernel& loops, const BlockSchedule& b, sym::Context& context) {
  Expr rest = context.constant(1);
  const std::size_t count = loops.outer.size() - loops.sequential;
  const auto multiply = [&](std::size_t loops_taken) {
    for (std::size_t d = 0; d < loops_taken; ++d) rest = rest * loops.outer[d].extent;
  };
  if (const auto* rows = std::get_if<BlockSchedule::Rows>(&b.mapping)) {
    multiply(count);
    if (loops.sequential != 0) return rest;
    if (rows->chunk != 0) return rest * chunks_of(loops, b, context);
    return sym::ceildiv(rest, b.threads / rows->team) * rows->cluster;
  }
  if (const auto* columns = std::get_if<BlockSchedule::Columns>(&b.mapping)) {
    multiply(count - 1);
    const Expr last = loops.outer.back().extent;
    if (columns->team == 1) return sym::ceildiv(rest * sym::ceildiv(last, b.lanes), b.threads);
    return rest * sym::ceildiv(last, std::int64_t{b.threads / columns->team} * b.lanes);
  }
  const std::int64_t side = b.tile().side;
  multiply(count - 2);
  const std::int64_t across = side != 0 ? side : std::int64_t{kTileAcross} * b.lanes;
  const std::int64_t down = side != 0 ? side : std::int64_t{kTileDown} * b.lanes;
  return rest * sym::ceildiv(loops.outer[count - 1].extent, across) *
         sym::ceildiv(loops.outer[count - 2].extent, down);
}

Expr parallel_extent(const Kernel& kernel, const Schedule& schedule, sym::Context& context) {
  Expr extent = context.constant(1);
  if (const auto* attention = std::get_if<AttentionKernel>(&kernel.body)) {
    if (attention->is_gradient) return attention->batch * attention->kv_heads;
    return attention->batch * attention->heads *
           sym::ceildiv(attention->q_length, schedule.row_block);
  }
  if (const auto* gemm = std::get_if<GemmKernel>(&kernel.body)) {
    if (const auto& tile = schedule.gemm) {
      const Expr tiles = gemm->batch * sym::ceildiv(gemm->rows, tile->rows) *
                         sym::ceildiv(gemm->columns, tile->columns) * tile->parts;
      return sym::min(tiles, context.constant(tile->blocks));
    }
    return gemm->batch * sym::ceildiv(gemm->rows, schedule.row_block) *
           sym::ceildiv(gemm->columns, schedule.column_block);
  }
  if (schedule.blocks) {
    Expr blocks = grid_extent(std::get<LoopKernel>(kernel.body), *schedule.blocks, context);
    for (const Beside& beside : kernel.beside) {
      blocks = blocks + grid_extent(beside.loops, beside.blocks, context);
    }
    return blocks;
  }
  const auto& loops = std::get<LoopKernel>(kernel.body);
  const auto& outer = loops.outer;
  for (std::size_t d = 0; d + loops.sequential < outer.size(); ++d) {
    const bool blocked = schedule.vector_outer && d + 1 == outer.size();
    extent = extent * (blocked ? sym::ceildiv(outer[d].extent, schedule.block) : outer[d].extent);
  }
  return extent;
}

}  // namespace inkle::schedule
