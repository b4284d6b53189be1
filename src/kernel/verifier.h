// The verifier's state: one walk over the kernel in program order. verify.cpp has the walk,
// structure and symbols, verify_memory.cpp memories and accesses, verify_threads.cpp who must come
// together, verify_types.cpp operands and results. For the files of this folder only.
#pragma once

#include <fmt/format.h>

#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kernel/collective.h"
#include "kernel/thread_dependence.h"
#include "kernel/variance.h"
#include "kernel/verify.h"

namespace inkle::kernel {

// The types of an operation's values, which are few as a rule.
class Types {
 public:
  Types(const Kernel& kernel, std::span<const ValueId> values) : size_(values.size()) {
    if (size_ > few_.size()) more_.resize(size_);
    Type* to = size_ > few_.size() ? more_.data() : few_.data();
    for (const ValueId v : values) *to++ = kernel.type_of(v);
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const Type* data() const { return more_.empty() ? few_.data() : more_.data(); }
  [[nodiscard]] const Type* begin() const { return data(); }
  [[nodiscard]] const Type* end() const { return data() + size_; }
  [[nodiscard]] const Type& operator[](std::size_t i) const { return data()[i]; }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  std::array<Type, 4> few_;
  std::vector<Type> more_;
  std::size_t size_;
};

class Verifier {
 public:
  Verifier(const Kernel& kernel, std::string_view after_pass, const Limits& limits)
      : k_(kernel), pass_(after_pass), limits_(limits) {}
  void run();

 private:
  // What is known of the place that the walk has reached.
  struct Place {
    Variance control = Variance::kernel;  // where threads may have gone different ways
    AxisSet control_axes = 0;             // and by which thread axes within a warp
    const Vector* vector = nullptr;       // the vector region around
    bool is_nested = false;               // in other control inside of it
    const FragmentMap* map = nullptr;     // the map of a fragment around
    bool in_role = false;
    bool in_merge = false;   // of a collective: values alone
    bool is_certain = true;  // some thread comes here in every run
    bool waited = false;     // dependency_wait came before
  };

  template <class... Args>
  void require(bool holds, fmt::format_string<Args...> format, Args&&... args) const {
    if (!holds) [[unlikely]]
      fail(fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void fail(const std::string& reason) const;

  // --- verify.cpp: structure. Ids, regions, dominance, types; nothing else may be asked before.
  void launch();
  void shape(RegionId id);
  void shape_of(OperationId id);
  void use(ValueId value);
  void shape_of_regions(const Operation& o);
  void region_takes(RegionId id, std::span<const Type> arguments,
                    std::span<const Type> yields) const;
  Types types_of(std::span<const ValueId> values) const { return {k_, values}; }
  void same(std::span<const Type> got, std::span<const Type> wanted, std::string_view what) const;
  void same(std::span<const Type> got, std::initializer_list<Type> wanted,
            std::string_view what) const {
    same(got, std::span<const Type>(wanted.begin(), wanted.size()), what);
  }

  // --- verify_types.cpp
  template <class D>
  const D& detail(const Operation& o) const;
  void detail_of(const Operation& o) const;
  void types(const Operation& o) const;
  void symbolic_types(const Operation& o) const;
  void access_types(const Operation& o) const;
  void copy_types(const Operation& o) const;
  void fragment_types(const Operation& o) const;
  void mma_types(const Operation& o) const;
  const FragmentType& fragment(ValueId value) const;
  const FragmentType& fragment_of(const Type& type) const;
  std::size_t index_operands(const Access& access) const;
  void operands_are(const Operation& o, std::size_t first, std::size_t count,
                    std::string_view what) const;  // indices: i32 or i64
  const Memory& memory(MemoryId id) const;

  // --- verify.cpp: symbols and control
  void walk(RegionId id, Place& place);
  void visit(OperationId id, Place& place);
  void inside(RegionId id, Place& place);
  void forget(std::size_t symbols);                 // all but so many, which were declared first
  bool loop(const Loop& loop, const Place& place);  // whether it surely runs
  void declare(Expr symbol, Expr low, Expr high, bool reaches_all);
  void in_scope(Expr e) const;
  void sizes_alone(Expr e, std::string_view what) const;
  void control(const Operation& o, Place& place);
  void branch(const Operation& o, Place& place);
  void vector(const Operation& o, const Place& place);
  void fold(const Operation& o, const Place& place);
  void roles(const Operation& o, const Place& place);

  // --- verify_memory.cpp
  void memories();
  void memory_is_well_formed(const Memory& m, bool is_parameter) const;
  void map_is_well_formed(const Memory& m) const;
  void part_is_well_formed(MemoryId id) const;
  void accesses(const Operation& o, const Place& place);
  void access(const Operation& o, const Access& a, const Place& place, bool reads, bool writes,
              std::int64_t elements = 1);
  void form(const Operation& o, const Access& a, const Place& place);
  void bounds(const Access& a, const Place& place, std::int64_t elements) const;
  void order(const Operation& o, const Access& a, const Memory& m) const;
  void registers(const Access& a) const;
  void copies(const Operation& o, const Place& place);
  void bulk(const Operation& o, const Place& place);
  void fragment_access(const Operation& o, const FragmentAccess& f, const Place& place, bool reads,
                       bool writes);

  // --- verify_threads.cpp
  void threads(const Operation& o, const Place& place);
  void collective(const Operation& o, const Place& place);
  void across_warps(const Operation& o, const CollectivePlan& plan, const Place& place) const;
  void barrier(const Operation& o, const Place& place);
  void uniform(const Place& place, Variance most, std::string_view scope) const;
  void holder(const Operation& o, const Place& place) const;

  const Kernel& k_;
  std::string pass_;
  const Limits& limits_;
  OperationId at_ = kNone;  // the operation that is being checked
  std::vector<bool> defined_;
  std::vector<bool> used_;
  std::vector<bool> seen_regions_;
  std::vector<bool> seen_operations_;
  std::optional<VarianceAnalysis> variance_;
  std::optional<ThreadDependence> dependence_;
  std::unordered_set<const sym::Node*> scope_;  // symbols
  std::vector<Expr> scope_order_;
  std::unordered_set<const sym::Node*> sizes_;
  std::unordered_set<const sym::Node*> unrolled_;  // constants once loops are unrolled
  std::vector<std::pair<Expr, Expr>> lows_;   // symbols that reach all their values: the first,
  std::vector<std::pair<Expr, Expr>> highs_;  // and the last of them
  bool has_wait_ = false;
};

}  // namespace inkle::kernel
