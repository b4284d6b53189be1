#include "schedule/stages.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "loop/builder.h"
#include "schedule/places.h"

namespace inkle::schedule {
namespace {

using loop::BodyBuilder;
using loop::BufferId;
using loop::Instruction;
using loop::NestKind;
using loop::Opcode;
using loop::Program;
using loop::Val;
using Map = std::vector<std::pair<Expr, Expr>>;

class KernelBuilder {
 public:
  KernelBuilder(const Group& group, const Program& program,
                const std::function<bool(BufferId)>& is_external, std::int32_t input_alignment,
                const Associations& associations)
      : group_(group),
        program_(program),
        context_(*program.context),
        is_external_(is_external),
        input_alignment_(input_alignment),
        associations_(associations) {}

  KernelStep run() {
    kernel_.outer = group_.outer;
    kernel_.sequential = group_.sequential;
    for (const Member& member : group_.members) {
      if (member.accumulates) {
        add_accumulation(member);
        continue;
      }
      switch (member.nest.kind) {
        case NestKind::reduction:
          add_reduction(member);
          break;
        case NestKind::scan:
          add_scan(member);
          break;
        case NestKind::scatter:
          add_scatter(member);
          break;
        default:
          add_pointwise(member);
      }
    }
    store_rows();
    drop_unread_scratch();
    for (Draft& draft : drafts_) order_updates(draft);
    std::move(ends_.begin(), ends_.end(), std::back_inserter(drafts_));
    KernelStep step;
    const std::function<bool(BufferId)> internal = [&](BufferId b) { return is_internal(b); };
    place_accesses(drafts_, carried_, {group_, program_, internal, input_alignment_}, kernel_,
                   step);
    for (Draft& draft : drafts_) kernel_.stages.push_back(std::move(draft.stage));
    step.kernel.body = std::move(kernel_);
    for (const Member& m : group_.members) {
      if (!m.nest.source.empty()) add_missing(step.kernel.sources, {&m.nest.source, 1});
    }
    collect_sizes(step.kernel, context_);
    return step;
  }

 private:
  // --- Members to stages --------------------------------------------------------------------

  void add_reduction(const Member& member) {
    Draft draft;
    draft.stage.kind = StageKind::reduction;
    draft.stage.inner = member.inner;
    draft.stage.reduce = member.nest.reduce;
    draft.stage.accumulator = member.nest.accumulator;
    draft.stage.association = association_of(member.nest);
    draft.stage.first_row = static_cast<std::uint32_t>(kernel_.rows.size());
    BodyBuilder builder(draft.stage.body, context_);
    draft.stage.body.yields = copy_body(member.nest.body, {}, builder, nullptr);
    if (const Stage* same = find_reduction(member)) {
      for (const loop::Store& store : member.nest.stores) {
        row_of_[store.buffer] = same->first_row + store.result;
        row_store_[store.buffer] = store.indices;
      }
      return;
    }
    const std::size_t results = loop::result_count(member.nest.reduce);
    std::vector<DType> dtypes(results, member.nest.accumulator);
    for (const loop::Store& store : member.nest.stores) {
      dtypes[store.result] = program_.buffers[store.buffer].dtype;
      row_of_[store.buffer] = draft.stage.first_row + store.result;
      row_store_[store.buffer] = store.indices;
    }
    kernel_.rows.insert(kernel_.rows.end(), dtypes.begin(), dtypes.end());
    drafts_.push_back(std::move(draft));
  }

  Association association_of(const loop::Nest& nest) const {
    const auto found = associations_.find(nest.stores.front().buffer);
    return found == associations_.end() ? Association::free : found->second;
  }

  // A stage that reduces the same values in the same way (a mean and a variance of the same rows).
  const Stage* find_reduction(const Member& member) {
    const std::vector<Dim>& inner = member.inner;
    for (const Draft& draft : drafts_) {
      const Stage& stage = draft.stage;
      if (stage.kind != StageKind::reduction || stage.reduce != member.nest.reduce ||
          stage.accumulator != member.nest.accumulator ||
          stage.association != association_of(member.nest) || stage.inner.size() != inner.size()) {
        continue;
      }
      Map map;
      bool same = true;
      for (std::size_t d = 0; d < inner.size(); ++d) {
        map.emplace_back(inner[d].variable, stage.inner[d].variable);
        same = same && inner[d].extent == stage.inner[d].extent;
      }
      for (const loop::Store& store : member.nest.stores) {
        same = same &&
               kernel_.rows[stage.first_row + store.result] == program_.buffers[store.buffer].dtype;
      }
      if (!same) continue;
      loop::Body body;
      BodyBuilder builder(body, context_);
      body.yields = copy_body(member.nest.body, map, builder, nullptr);
      if (body == stage.body) return &stage;
    }
    return nullptr;
  }

  void add_scan(const Member& member) {
    Draft draft;
    draft.stage.kind = StageKind::scan;
    draft.stage.inner = member.inner;
    draft.stage.reduce = member.nest.reduce;
    draft.stage.accumulator = member.nest.accumulator;
    append(draft, member, {});
    drafts_.push_back(std::move(draft));
    note_written(member, drafts_.size() - 1);
  }

  // Points that run in order add by a load, an addition and a store. Points that run in parallel
  // add by atomics.
  void add_scatter(const Member& member) {
    Draft draft;
    draft.stage.kind = group_.unordered ? StageKind::pointwise : StageKind::scatter;
    draft.stage.inner = member.inner;
    BodyBuilder builder(draft.stage.body, context_);
    Map renamed;
    const std::vector<Val> yields =
        loop::inline_body(member.nest.body, {}, builder, nullptr, &renamed);
    for (const loop::Store& store : member.nest.stores) {
      const DType dtype = program_.buffers[store.buffer].dtype;
      Pending pending{store.buffer,
                      {},
                      loop::StoreMode::overwrite,
                      static_cast<std::uint32_t>(draft.stage.body.yields.size()),
                      true};
      for (const Expr e : store.indices) pending.indices.push_back(sym::substitute(e, renamed));
      Val value = yields[store.result];
      if (group_.unordered) {
        pending.mode = store.mode;
      } else if (store.mode == loop::StoreMode::atomic_add) {
        const DType compute = abi::compute_type(dtype);
        const Val before = builder.load(store.buffer, dtype, pending.indices);
        value = builder.cast(
            builder.add(builder.cast(before, compute), builder.cast(value, compute)), dtype);
      }
      builder.yield(value);
      draft.stores.push_back(std::move(pending));
    }
    drafts_.push_back(std::move(draft));
    note_written(member, drafts_.size() - 1);
  }

  void add_pointwise(const Member& member) {
    for (std::size_t s = drafts_.size(); s-- > earliest_stage(member);) {
      if (merge_into(drafts_[s], member)) {
        note_written(member, s);
        return;
      }
    }
    Draft draft;
    draft.stage.inner = member.inner;
    append(draft, member, {});
    drafts_.push_back(std::move(draft));
    note_written(member, drafts_.size() - 1);
  }

  // An accumulator for each point of `inner`, in scratch: 0 first, added to in each sequential
  // iteration, and stored after the last.
  void add_accumulation(const Member& member) {
    const DType dtype = member.nest.accumulator;
    const auto sums = static_cast<BufferId>(program_.buffers.size() + carried_.size());
    Expr at = context_.constant(0);
    Expr elements = context_.constant(1);
    for (const Dim& dim : member.inner) {
      at = at * dim.extent + dim.variable;
      elements = elements * dim.extent;
    }
    carried_.push_back({dtype, elements, true});
    const auto end = [&](Phase phase, BufferId to, std::vector<Expr> indices) {
      Draft draft;
      draft.stage.phase = phase;
      draft.stage.inner = member.inner;
      BodyBuilder b(draft.stage.body, context_);
      b.yield(phase == Phase::first
                  ? b.constant(dtype, 0.0)
                  : b.cast(b.load(sums, dtype, {at}), program_.buffers[to].dtype));
      draft.stores.push_back({to, std::move(indices), loop::StoreMode::overwrite, 0});
      ends_.push_back(std::move(draft));
    };
    const loop::Store store = member.nest.stores.front();
    end(Phase::first, sums, {at});
    end(Phase::last, store.buffer, store.indices);
    Member each = member;
    each.nest.kind = NestKind::pointwise;
    each.nest.body = {};
    BodyBuilder b(each.nest.body, context_);
    const Val value = loop::inline_body(member.nest.body, {}, b, nullptr).front();
    b.yield(b.add(b.load(sums, dtype, {at}), b.cast(value, dtype)));
    each.nest.stores = {{sums, {at}, loop::StoreMode::overwrite, 0}};
    add_pointwise(each);
  }

  bool is_carried(BufferId buffer) const { return buffer >= program_.buffers.size(); }

  void note_written(const Member& member, std::size_t stage) {
    for (const loop::Store& store : member.nest.stores) written_in_[store.buffer] = stage;
  }

  // The first stage at which everything that the member reads has been made.
  std::size_t earliest_stage(const Member& member) const {
    std::size_t earliest = 0;
    for (const Instruction& i : member.nest.body.instructions) {
      if (i.opcode != Opcode::load) continue;
      if (const auto w = written_in_.find(i.buffer); w != written_in_.end()) {
        earliest = std::max(earliest, w->second);
      }
      if (const auto r = row_of_.find(i.buffer); r != row_of_.end()) {
        for (std::size_t s = 0; s < drafts_.size(); ++s) {
          const Stage& stage = drafts_[s].stage;
          if (stage.kind == StageKind::reduction && stage.first_row <= r->second) {
            earliest = std::max(earliest, last_reduction_before(r->second) + 1);
          }
        }
      }
    }
    return earliest;
  }

  std::size_t last_reduction_before(std::uint32_t row) const {
    std::size_t found = 0;
    for (std::size_t s = 0; s < drafts_.size(); ++s) {
      const Stage& stage = drafts_[s].stage;
      if (stage.kind == StageKind::reduction && stage.first_row <= row) found = s;
    }
    return found;
  }

  bool merge_into(Draft& draft, const Member& member) {
    Stage& stage = draft.stage;
    if (stage.kind != StageKind::pointwise || stage.inner.size() != member.inner.size()) {
      return false;
    }
    Map map;
    for (std::size_t d = 0; d < stage.inner.size(); ++d) {
      if (!(stage.inner[d].extent == member.inner[d].extent)) return false;
      map.emplace_back(member.inner[d].variable, stage.inner[d].variable);
    }
    // What this stage writes may only be read at the point that writes it.
    for (const Instruction& i : member.nest.body.instructions) {
      if (i.opcode != Opcode::load) continue;
      const Pending* store = find_store(draft, i.buffer);
      if (store == nullptr) continue;
      if (i.operand_count != 0) return false;
      for (std::size_t d = 0; d < i.indices.size(); ++d) {
        if (!(sym::substitute(i.indices[d], map) == store->indices[d])) return false;
      }
    }
    append(draft, member, map);
    return true;
  }

  static const Pending* find_store(const Draft& draft, BufferId buffer) {
    const auto at = std::find_if(draft.stores.begin(), draft.stores.end(),
                                 [&](const Pending& p) { return p.buffer == buffer; });
    return at == draft.stores.end() ? nullptr : &*at;
  }

  void append(Draft& draft, const Member& member, const Map& map) {
    loop::Body body;
    BodyBuilder builder(body, context_);
    std::vector<Val> yields = loop::inline_body(
        draft.stage.body, {}, builder,
        [](BodyBuilder& b, Instruction load) { return b.append(std::move(load)); });
    std::vector<Val> forwarded(draft.stores.size());
    for (std::size_t s = 0; s < draft.stores.size(); ++s) {
      forwarded[s] = yields[draft.stores[s].yield];
    }
    const auto forward = [&](BodyBuilder&, const Instruction& load) -> std::optional<Val> {
      for (std::size_t s = 0; s < draft.stores.size(); ++s) {
        if (draft.stores[s].buffer == load.buffer) return forwarded[s];
      }
      return std::nullopt;
    };
    const std::vector<Val> added = copy_body(member.nest.body, map, builder, forward);
    for (const loop::Store& store : member.nest.stores) {
      Pending pending{
          store.buffer, {}, store.mode, static_cast<std::uint32_t>(yields.size() + store.result)};
      for (const Expr e : store.indices) pending.indices.push_back(sym::substitute(e, map));
      draft.stores.push_back(std::move(pending));
    }
    yields.insert(yields.end(), added.begin(), added.end());
    body.yields = std::move(yields);
    draft.stage.body = std::move(body);
  }

  using Forward = std::function<std::optional<Val>(BodyBuilder&, const Instruction&)>;
  std::vector<Val> copy_body(const loop::Body& from, const Map& map, BodyBuilder& to,
                             const Forward& forward) {
    return loop::inline_body(from, map, to, [&](BodyBuilder& builder, Instruction load) {
      if (const auto row = row_of_.find(load.buffer); row != row_of_.end()) {
        const Val value = builder.row(row->second, kernel_.rows[row->second]);
        // A predicated load has another value where it does not read.
        if (load.operand_count == 0) return value;
        return builder.select(load.operands[0], value, load.operands[1]);
      }
      if (forward) {
        if (const auto value = forward(builder, load)) return *value;
      }
      return builder.append(std::move(load));
    });
  }

  // Reduction results that others read: stored once in each outer iteration, at the end.
  void store_rows() {
    Draft draft;
    BodyBuilder builder(draft.stage.body, context_);
    for (const auto& [buffer, row] : row_of_) {
      if (!is_external_(buffer)) continue;
      const auto yield = static_cast<std::uint32_t>(draft.stage.body.yields.size());
      builder.yield(builder.row(row, kernel_.rows[row]));
      draft.stores.push_back({buffer, row_store_.at(buffer), loop::StoreMode::overwrite, yield});
    }
    if (!draft.stores.empty()) drafts_.push_back(std::move(draft));
  }

  // Updates of inputs come in the order in which the frontend lists the inputs, which may differ
  // between kernels that are otherwise equal. The order in which values are computed depends on the
  // kernel alone.
  void order_updates(Draft& draft) const {
    const auto is_update = [&](const Pending& p) {
      return !is_carried(p.buffer) && program_.buffers[p.buffer].role == loop::BufferRole::input;
    };
    if (draft.stage.kind != StageKind::pointwise || group_.unordered ||
        std::none_of(draft.stores.begin(), draft.stores.end(), is_update)) {
      return;
    }
    std::stable_sort(draft.stores.begin(), draft.stores.end(),
                     [&](const Pending& a, const Pending& b) {
                       const auto& yields = draft.stage.body.yields;
                       return std::pair(yields[a.yield], is_update(a)) <
                              std::pair(yields[b.yield], is_update(b));
                     });
  }

  // --- Buffers ------------------------------------------------------------------------------

  bool is_internal(BufferId buffer) const {
    return !is_carried(buffer) && written_in_.contains(buffer) && !is_external_(buffer);
  }

  void drop_unread_scratch() {
    std::set<BufferId> read;
    for (const Draft& draft : drafts_) {
      for (const Instruction& i : draft.stage.body.instructions) {
        if (i.opcode == Opcode::load) read.insert(i.buffer);
      }
    }
    for (Draft& draft : drafts_) {
      std::erase_if(draft.stores, [&](const Pending& p) {
        return is_internal(p.buffer) && !read.contains(p.buffer);
      });
    }
    std::erase_if(drafts_, [](const Draft& draft) {
      return draft.stage.kind == StageKind::pointwise && draft.stores.empty();
    });
  }

  const Group& group_;
  const Program& program_;
  sym::Context& context_;
  const std::function<bool(BufferId)>& is_external_;
  std::int32_t input_alignment_;
  const Associations& associations_;
  LoopKernel kernel_;
  std::vector<Draft> drafts_;
  std::vector<Draft> ends_;       // of other phases than Phase::each
  std::vector<Scratch> carried_;  // of buffers numbered after the program's
  std::map<BufferId, std::uint32_t> row_of_;
  std::map<BufferId, std::vector<Expr>> row_store_;
  std::map<BufferId, std::size_t> written_in_;
};

}  // namespace

KernelStep build_kernel(const Group& group, const Program& program,
                        const std::function<bool(BufferId)>& is_external,
                        std::int32_t input_alignment, const Associations& associations) {
  return KernelBuilder(group, program, is_external, input_alignment, associations).run();
}

}  // namespace inkle::schedule
