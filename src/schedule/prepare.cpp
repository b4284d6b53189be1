#include "schedule/prepare.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "loop/builder.h"

namespace inkle::schedule {

using loop::BodyBuilder;
using loop::Instruction;
using loop::Opcode;
using loop::Val;
using sym::Expr;
using Map = std::vector<std::pair<Expr, Expr>>;

namespace {

class Preparer {
 public:
  Preparer(const Kernel& kernel, const LoopKernel& loops, sym::Context& context)
      : kernel_(kernel), loops_(loops), context_(context) {}

  PreparedKernel run(PrepareOptions options) {
    for (const Stage& stage : loops_.stages) {
      PreparedStage prepared;
      prepared.stage = flattened(stage);
      forward(prepared.stage);
      if (stage.kind == StageKind::reduction) {
        for (std::uint32_t r = 0; r < loop::result_count(stage.reduce); ++r) {
          prepared.rows.push_back(stage.first_row + r);
        }
      }
      done_.push_back(std::move(prepared));
    }
    drop_unread();
    if (options.join_softmax) join_exponentials();
    if (options.join_columns || options.join_rows) join_passes(options.join_rows);
    PreparedKernel result{std::move(done_), std::vector<bool>(loops_.scratch.size(), false)};
    for (const PreparedStage& p : result.stages) {
      for (const Instruction& i : p.stage.body.instructions) {
        if (i.opcode == Opcode::load && is_scratch(i.buffer)) {
          result.scratch_used[i.buffer - kernel_.params.size()] = true;
        }
      }
    }
    return result;
  }

 private:
  bool is_scratch(std::uint32_t buffer) const { return buffer >= kernel_.params.size(); }

  Expr variable_of(Expr extent) {
    for (const auto& [e, variable] : variables_) {
      if (e == extent) return variable;
    }
    variables_.emplace_back(extent, context_.index(extent));
    return variables_.back().second;
  }

  // All inner loops as one, the last fastest.
  Stage flattened(const Stage& stage) {
    Stage flat = stage;
    if (stage.inner.empty()) {
      if (stage.kind != StageKind::scan) return flat;
      // A dimension of one element still gets a loop.
      const Expr one = context_.constant(1);
      flat.inner = {{context_.index(one), one}};
      return flat;
    }
    Expr extent = context_.constant(1);
    for (const loop::Dim& dim : stage.inner) extent = extent * dim.extent;
    const Expr variable = variable_of(extent);
    Map map;
    Expr rest = variable;
    for (std::size_t d = stage.inner.size(); d-- > 0;) {
      const loop::Dim& dim = stage.inner[d];
      const bool divides = d != 0 && !dim.extent.is_constant(0);  // else there is no iteration
      map.emplace_back(dim.variable, divides ? sym::mod(rest, dim.extent) : rest);
      if (divides) rest = sym::floordiv(rest, dim.extent);
    }
    flat.inner = {{variable, extent}};
    flat.body = {};
    BodyBuilder builder(flat.body, context_);
    Map renamed;
    flat.body.yields = loop::inline_body(stage.body, map, builder, nullptr, &renamed);
    map.insert(map.end(), renamed.begin(), renamed.end());
    for (StageStore& store : flat.stores) store.offset = sym::substitute(store.offset, map);
    return flat;
  }

  struct Source {
    const Stage* stage;
    const StageStore* store;
  };

  // Whether what `source` computed for this yield can be computed again in `stage`: no stage since,
  // itself included, has written to what it reads.
  bool can_repeat(std::size_t source, Val yield, const Stage& stage) const {
    loop::Body made = done_[source].stage.body;
    made.yields = {yield};
    loop::drop_unused(made, {});
    // In the stage itself, each position reads before it writes.
    const auto own = [&](const StageStore& store, const Instruction& load) {
      return stage.inner.empty() || (store.offset == load.indices[0] &&
                                     sym::contains(store.offset, stage.inner.front().variable));
    };
    return std::none_of(
        made.instructions.begin(), made.instructions.end(), [&](const Instruction& i) {
          if (i.opcode != Opcode::load) return false;
          for (std::size_t s = source; s < done_.size(); ++s) {
            for (const StageStore& store : done_[s].stage.stores) {
              if (store.target == i.buffer) return true;
            }
          }
          return std::any_of(
              stage.stores.begin(), stage.stores.end(),
              [&](const StageStore& store) { return store.target == i.buffer && !own(store, i); });
        });
  }

  // The store that made what a load of `stage` reads, if both have the same index.
  std::optional<Source> source_of(const Instruction& load, const Stage& stage) const {
    // Sums that sequential rows accumulate change in each iteration.
    if (is_scratch(load.buffer) && loops_.scratch[load.buffer - kernel_.params.size()].is_carried) {
      return std::nullopt;
    }
    for (std::size_t s = done_.size(); s-- > 0;) {
      const Stage& earlier = done_[s].stage;
      for (const StageStore& store : earlier.stores) {
        if (store.target != load.buffer) continue;
        const bool same_place =
            earlier.inner.empty() ||
            (!stage.inner.empty() && earlier.inner.front() == stage.inner.front());
        const bool fits = earlier.kind == StageKind::pointwise && same_place &&
                          store.mode == loop::StoreMode::overwrite &&
                          store.offset == load.indices.front() &&
                          can_repeat(s, earlier.body.yields[store.yield], stage);
        if (!fits) return std::nullopt;
        return Source{&earlier, &store};
      }
    }
    return std::nullopt;
  }

  void forward(Stage& stage) {
    const bool any = std::any_of(
        stage.body.instructions.begin(), stage.body.instructions.end(),
        [&](const auto& i) { return i.opcode == Opcode::load && source_of(i, stage).has_value(); });
    if (!any) return;
    loop::Body body;
    BodyBuilder builder(body, context_);
    Map renamed;
    const auto on_load = [&](BodyBuilder& to, Instruction load) -> Val {
      const auto source = source_of(load, stage);
      if (!source) return to.append(std::move(load));
      const std::vector<Val> yields = loop::inline_body(
          source->stage->body, {}, to,
          [](BodyBuilder& b, Instruction inner) { return b.append(std::move(inner)); });
      const Val value = yields[source->store->yield];
      if (load.operand_count == 0) return value;
      return to.select(load.operands[0], value, load.operands[1]);
    };
    body.yields = loop::inline_body(stage.body, {}, builder, on_load, &renamed);
    stage.body = std::move(body);
    std::vector<Expr> offsets;
    for (StageStore& store : stage.stores) {
      store.offset = sym::substitute(store.offset, renamed);
      offsets.push_back(store.offset);
    }
    // Values that other stores of the stage need are not loaded again.
    loop::drop_unused(stage.body, std::move(offsets));
  }

  void drop_unread() {
    for (std::size_t s = done_.size(); s-- > 0;) {
      std::vector<bool> read(loops_.scratch.size(), false);
      for (std::size_t after = s + 1; after < done_.size(); ++after) {
        for (const Instruction& i : done_[after].stage.body.instructions) {
          if (i.opcode == Opcode::load && is_scratch(i.buffer)) {
            read[i.buffer - kernel_.params.size()] = true;
          }
        }
      }
      std::erase_if(done_[s].stage.stores, [&](const StageStore& store) {
        if (!is_scratch(store.target)) return false;
        const std::size_t scratch = store.target - kernel_.params.size();
        return !read[scratch] && !loops_.scratch[scratch].is_carried;
      });
      const StageKind kind = done_[s].stage.kind;
      if ((kind == StageKind::pointwise || kind == StageKind::scatter) &&
          done_[s].stage.stores.empty()) {
        done_.erase(done_.begin() + static_cast<std::ptrdiff_t>(s));
      }
    }
  }

  // reduce.max of y and reduce.sum of exp(y - that maximum), next to each other.
  void join_exponentials() {
    for (std::size_t s = 0; s + 1 < done_.size(); ++s) {
      const Stage& top = done_[s].stage;
      const Stage& sum = done_[s + 1].stage;
      const bool kinds = top.kind == StageKind::reduction && sum.kind == StageKind::reduction &&
                         top.reduce == loop::ReduceOp::max && sum.reduce == loop::ReduceOp::sum &&
                         top.accumulator == sum.accumulator && top.inner == sum.inner &&
                         !top.inner.empty();
      if (!kinds || (top.accumulator != abi::DType::f32 && top.accumulator != abi::DType::f64)) {
        continue;
      }
      const Instruction& yield = sum.body[sum.body.yields[0]];
      if (yield.opcode != Opcode::exp) continue;
      const Instruction& shifted = sum.body[yield.operands[0]];
      if (shifted.opcode != Opcode::sub) continue;
      const Instruction& row = sum.body[shifted.operands[1]];
      if (row.opcode != Opcode::row || row.integer != done_[s].rows[0] ||
          loops_.rows[done_[s].rows[0]] != top.accumulator) {
        continue;
      }
      if (!same_value(top.body, top.body.yields[0], sum.body, shifted.operands[0])) continue;
      done_[s].stage.reduce = loop::ReduceOp::online_softmax;
      done_[s].rows.push_back(done_[s + 1].rows[0]);
      done_.erase(done_.begin() + static_cast<std::ptrdiff_t>(s) + 1);
    }
  }

  // --- One pass over columns, or a row --------------------------------------------------------

  void join_passes(bool sums_only) {
    for (PreparedStage& p : done_) {
      if (p.stage.kind != StageKind::reduction) continue;
      p.reductions = {{p.stage.reduce, p.stage.accumulator, 0, p.rows}};
    }
    const bool aliasing = std::any_of(kernel_.params.begin(), kernel_.params.end(),
                                      [](const Param& p) { return p.may_alias; });
    if (aliasing) return;
    const auto is_sum = [](const PreparedStage& p) {
      return p.stage.kind == StageKind::reduction && p.stage.reduce == loop::ReduceOp::sum;
    };
    for (std::size_t s = 0; s + 1 < done_.size();) {
      const bool fits =
          !sums_only || (is_sum(done_[s]) && is_sum(done_[s + 1]) &&
                         done_[s].stage.accumulator == done_[s + 1].stage.accumulator);
      if (fits && can_share_pass(done_[s], done_[s + 1])) {
        share_pass(done_[s], done_[s + 1]);
        done_.erase(done_.begin() + static_cast<std::ptrdiff_t>(s) + 1);
      } else {
        ++s;
      }
    }
  }

  static bool touches(const Stage& stage, const std::vector<StageStore>& stores) {
    const auto is_target = [&](std::uint32_t buffer) {
      return std::any_of(stores.begin(), stores.end(),
                         [&](const StageStore& store) { return store.target == buffer; });
    };
    return std::any_of(stage.body.instructions.begin(), stage.body.instructions.end(),
                       [&](const Instruction& i) {
                         return i.opcode == Opcode::load && is_target(i.buffer);
                       }) ||
           std::any_of(stage.stores.begin(), stage.stores.end(),
                       [&](const StageStore& store) { return is_target(store.target); });
  }

  // The second stage needs nothing that the first has to finish before, and changes nothing that
  // the first reads.
  static bool can_share_pass(const PreparedStage& a, const PreparedStage& b) {
    const auto is_simple = [](const PreparedStage& p) {
      return p.stage.kind == StageKind::pointwise || p.stage.kind == StageKind::reduction;
    };
    if (!is_simple(a) || !is_simple(b) || a.stage.inner.empty() ||
        !(a.stage.inner == b.stage.inner)) {
      return false;
    }
    const auto needs_row = [&](const Instruction& i) {
      if (i.opcode != Opcode::row) return false;
      return std::any_of(a.reductions.begin(), a.reductions.end(), [&](const auto& reduction) {
        const auto& rows = reduction.rows;
        return std::find(rows.begin(), rows.end(), i.integer) != rows.end();
      });
    };
    const auto& body = b.stage.body.instructions;
    return std::none_of(body.begin(), body.end(), needs_row) && !touches(b.stage, a.stage.stores) &&
           !touches(a.stage, b.stage.stores);
  }

  void share_pass(PreparedStage& a, PreparedStage& b) {
    loop::Body body;
    BodyBuilder builder(body, context_);
    std::vector<StageStore> stores;
    std::vector<Val> yields;
    for (PreparedStage* p : {&a, &b}) {
      const auto first = static_cast<std::uint32_t>(yields.size());
      Map renamed;
      const std::vector<Val> made =
          loop::inline_body(p->stage.body, {}, builder, nullptr, &renamed);
      yields.insert(yields.end(), made.begin(), made.end());
      for (StageStore store : p->stage.stores) {
        store.offset = sym::substitute(store.offset, renamed);
        store.yield += first;
        stores.push_back(store);
      }
      for (PreparedReduction& reduction : p->reductions) reduction.yield += first;
    }
    body.yields = std::move(yields);
    if (b.stage.kind == StageKind::reduction) a.stage.kind = StageKind::reduction;
    a.stage.body = std::move(body);
    a.stage.stores = std::move(stores);
    a.rows.insert(a.rows.end(), b.rows.begin(), b.rows.end());
    a.reductions.insert(a.reductions.end(), b.reductions.begin(), b.reductions.end());
  }

  static bool same_value(const loop::Body& a, Val x, const loop::Body& b, Val y) {
    Instruction i = a[x];
    Instruction j = b[y];
    if (i.operand_count != j.operand_count || i.opcode == Opcode::indirect) return false;
    for (std::size_t k = 0; k < i.operand_count; ++k) {
      if (!same_value(a, i.operands[k], b, j.operands[k])) return false;
    }
    i.operands = {};
    j.operands = {};
    return i == j;
  }

  const Kernel& kernel_;
  const LoopKernel& loops_;
  sym::Context& context_;
  std::vector<std::pair<Expr, Expr>> variables_;
  std::vector<PreparedStage> done_;
};

}  // namespace

PreparedKernel prepare(const Kernel& kernel, const LoopKernel& loops, PrepareOptions options,
                       sym::Context& context) {
  return Preparer(kernel, loops, context).run(options);
}

}  // namespace inkle::schedule
