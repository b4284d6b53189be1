// Where the verifier's walk is. For verify*.cpp only.
#pragma once

#include "kernel/thread_dependence.h"
#include "kernel/type.h"

namespace inkle::kernel {

// What is known of the place that the walk has reached.
struct WalkPlace {
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

}  // namespace inkle::kernel
