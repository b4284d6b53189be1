// Which threads must converge: control at collectives, barriers, fragments. For verify*.cpp only.
#pragma once

#include <string_view>

#include "kernel/collective.h"
#include "kernel/verify_diagnostics.h"
#include "kernel/verify_place.h"

namespace inkle::kernel {

class ThreadChecker {
 public:
  ThreadChecker(const Diagnostics& diagnostics, ThreadDependence& dependence)
      : d_(diagnostics), k_(d_.kernel()), dependence_(dependence) {}
  void check(const Operation& o, const WalkPlace& place) const;
  // All threads of the scope come here.
  void uniform(const WalkPlace& place, Variance most, std::string_view scope) const;

 private:
  void collective(const Operation& o, const WalkPlace& place) const;
  void across_warps(const Operation& o, const CollectivePlan& plan, const WalkPlace& place) const;
  void barrier(const Operation& o, const WalkPlace& place) const;
  void holder(const Operation& o, const WalkPlace& place) const;

  const Diagnostics& d_;
  const Kernel& k_;
  ThreadDependence& dependence_;
};

}  // namespace inkle::kernel
