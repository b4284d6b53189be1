// Memories and accesses of a kernel: spaces, forms, bounds, orders, and what must have been waited
// for. For verify*.cpp only.
#pragma once

#include "kernel/variance.h"
#include "kernel/verify.h"
#include "kernel/verify_place.h"
#include "kernel/verify_scope.h"
#include "kernel/verify_structure.h"

namespace inkle::kernel {

void check_memories(const Diagnostics& diagnostics, const SymbolScope& scope, const Limits& limits);

class AccessChecker {
 public:
  AccessChecker(const Diagnostics& diagnostics, const SymbolScope& scope, const TypeChecker& types,
                const StructureChecker& structure, VarianceAnalysis& variance)
      : d_(diagnostics),
        k_(d_.kernel()),
        scope_(scope),
        types_(types),
        structure_(structure),
        variance_(variance),
        has_wait_(structure.has_operation(Op::dependency_wait)) {}
  // All accesses of the operation.
  void check(const Operation& o, const WalkPlace& place) const;

 private:
  void access(const Operation& o, const Access& a, const WalkPlace& place, bool reads, bool writes,
              std::int64_t elements = 1) const;
  void form(const Operation& o, const Access& a, const WalkPlace& place) const;
  void bounds(const Access& a, const WalkPlace& place, std::int64_t elements) const;
  void order(const Operation& o, const Access& a, const Memory& m) const;
  void copies(const Operation& o, const WalkPlace& place) const;
  void bulk(const Operation& o, const WalkPlace& place) const;
  void fragment_access(const Operation& o, const FragmentAccess& f, const WalkPlace& place,
                       bool reads, bool writes) const;

  const Diagnostics& d_;
  const Kernel& k_;
  const SymbolScope& scope_;
  const TypeChecker& types_;
  const StructureChecker& structure_;
  VarianceAnalysis& variance_;
  bool has_wait_;
};

}  // namespace inkle::kernel
