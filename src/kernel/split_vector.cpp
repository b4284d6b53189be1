#include "kernel/split_vector.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>

#include "base/error.h"

namespace inkle::kernel {
namespace {

template <class F>
void for_each_expression(Access& access, const F& f) {
  for (Expr& e : access.indices) f(e);
}
template <class F>
void for_each_expression(Loop& loop, const F& f) {
  for (Expr* e : {&loop.begin, &loop.end, &loop.step}) f(*e);
}

// The expressions of an operation that may stand in a vector region.
template <class F>
void for_each_expression(Detail& detail, const F& f) {
  if (auto* index = std::get_if<IndexOf>(&detail)) f(index->expression);
  if (auto* access = std::get_if<Access>(&detail)) for_each_expression(*access, f);
  if (auto* atomic = std::get_if<Atomic>(&detail)) for_each_expression(atomic->access, f);
  if (auto* count = std::get_if<Count>(&detail)) for_each_expression(count->access, f);
  if (auto* loop = std::get_if<Loop>(&detail)) for_each_expression(*loop, f);
  if (auto* fold = std::get_if<Fold>(&detail)) {
    for (Loop& loop : fold->loops) for_each_expression(loop, f);
  }
  auto* symbolic = std::get_if<Symbolic>(&detail);
  if (symbolic != nullptr && !symbolic->extent.is_null()) f(symbolic->extent);
}

class Splitter {
 public:
  Splitter(Builder& builder, OperationId vector, const std::function<bool(OperationId)>& is_outside)
      : builder_(builder), kernel_(builder.kernel()), info_(kernel_.detail<Vector>(vector)) {
    const RegionId region = kernel_[vector].regions[0];
    yields_ = kernel_.regions[region].yields;
    defined_.assign(kernel_.values.size(), kNowhere);
    for (const OperationId id : kernel_.regions[region].operations) {
      const bool out = is_outside(id);
      if (parts_.empty() || parts_.back().is_outside != out) parts_.push_back({out, {}, {}, {}});
      parts_.back().operations.push_back(id);
      for (const ValueId v : kernel_[id].results)
        defined_[v] = static_cast<std::uint32_t>(parts_.size() - 1);
    }
  }

  Values run() {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      for (const OperationId id : parts_[p].operations) find_uses(id, p);
    }
    for (const ValueId v : yields_) {
      if (defined_[v] != kNowhere) parts_[defined_[v]].yields.push_back(v);
    }
    std::unordered_map<ValueId, ValueId> results;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      if (parts_[p].is_outside) {
        auto& list = kernel_.regions[builder_.region()].operations;
        list.insert(list.end(), parts_[p].operations.begin(), parts_[p].operations.end());
      } else {
        emit(p, results);
      }
    }
    Values out;
    for (const ValueId v : yields_) {
      const auto found = results.find(v);
      out.push_back(found == results.end() ? v : found->second);
    }
    return out;
  }

 private:
  static constexpr std::uint32_t kNowhere = 0xffffffff;  // outside of the region
  struct Part {
    bool is_outside = false;
    std::vector<OperationId> operations;
    Values taken;  // values of earlier parts that it uses
    Values yields;
  };

  void find_uses(OperationId id, std::size_t part) {
    const Operation& o = kernel_[id];
    for (const ValueId v : o.operands) use(v, part);
    for (const RegionId r : o.regions) {
      for (const OperationId inside : kernel_.regions[r].operations) find_uses(inside, part);
      for (const ValueId v : kernel_.regions[r].yields) use(v, part);
    }
  }

  void use(ValueId value, std::size_t part) {
    if (defined_[value] == kNowhere || defined_[value] == part) return;
    INKLE_CHECK(!parts_[part].is_outside, "kernel {}: what stands outside uses a lane's value",
                kernel_.name);
    Values& taken = parts_[part].taken;
    if (std::ranges::find(taken, value) != taken.end()) return;
    taken.push_back(value);
    if (is_constant(value) || kept_.contains(value)) return;
    Memory memory;
    memory.space = Space::registers;
    memory.dtype = kernel_.type_of(value).dtype;
    memory.shape = {builder_.context().constant(info_.width)};
    do {
      memory.name = fmt::format("kept{}", names_++);
    } while (std::ranges::find(kernel_.memories, memory.name, &Memory::name) !=
             kernel_.memories.end());
    kept_[value] = builder_.memory(std::move(memory));
  }

  [[nodiscard]] bool is_constant(ValueId value) const {
    return kernel_[kernel_.values[value].definition].op == Op::constant;
  }

  void emit(std::size_t part, std::unordered_map<ValueId, ValueId>& results) {
    // The first part keeps the lane; symbols are declared once.
    const bool is_first = &parts_[part] == &*std::ranges::find(parts_, false, &Part::is_outside);
    Vector info = info_;
    if (!is_first) info.lane = builder_.context().index(builder_.context().constant(info.width));
    TypeList types;
    for (const ValueId v : parts_[part].yields) types.push_back(kernel_.type_of(v));
    const Values made = builder_.operation(
        Op::vector, {}, types, info, {{{}, [&](const Values&) {
                                         std::unordered_map<ValueId, ValueId> to;
                                         for (const ValueId v : parts_[part].taken)
                                           to[v] = take(v, info.lane);
                                         auto& list = kernel_.regions[builder_.region()].operations;
                                         for (const OperationId id : parts_[part].operations) {
                                           if (!is_first) rename(id, to, {info_.lane, info.lane});
                                           list.push_back(id);
                                         }
                                         for (const auto& [value, memory] : kept_) {
                                           if (defined_[value] == part) {
                                             builder_.store(memory, {info.lane}, value, Form::wide);
                                           }
                                         }
                                         return parts_[part].yields;
                                       }}});
    for (std::size_t i = 0; i < made.size(); ++i) results[parts_[part].yields[i]] = made[i];
  }

  ValueId take(ValueId value, Expr lane) {
    if (!is_constant(value)) return builder_.load(kept_.at(value), {lane}, Form::wide);
    const Operation constant = kernel_[kernel_.values[value].definition];
    return builder_.operation(Op::constant, {}, {kernel_.type_of(value)}, constant.detail)[0];
  }

  void rename(OperationId id, const std::unordered_map<ValueId, ValueId>& to,
              const std::pair<Expr, Expr>& lane) {
    Operation& o = kernel_.operations[id];
    const auto rename_values = [&](Values& values) {
      for (ValueId& v : values) {
        const auto found = to.find(v);
        if (found != to.end()) v = found->second;
      }
    };
    rename_values(o.operands);
    for_each_expression(o.detail, [&](Expr& e) { e = sym::substitute(e, {&lane, 1}); });
    for (const RegionId r : o.regions) {
      for (const OperationId inside : kernel_.regions[r].operations) rename(inside, to, lane);
      rename_values(kernel_.regions[r].yields);
    }
  }

  Builder& builder_;
  Kernel& kernel_;
  const Vector info_;
  Values yields_;
  std::vector<Part> parts_;
  std::vector<std::uint32_t> defined_;  // by value: the part
  std::map<ValueId, MemoryId> kept_;
  std::size_t names_ = 0;
};

}  // namespace

Values split_vector(Builder& builder, OperationId vector,
                    const std::function<bool(OperationId)>& is_outside) {
  return Splitter(builder, vector, is_outside).run();
}

}  // namespace inkle::kernel
