// Takes a vector region apart where operations must stand outside of it.
// clang-format off
//
//   vector l in 4 { %0 = load x[l]; store s[l] = %0; barrier block; store y[l] = add(%0, load s[l]) }
//   ->
//   vector l in 4 { %0 = load x[l]; store s[l] = %0; store kept[l] wide = %0 }
//   barrier block
//   vector l in 4 { %1 = load kept[l] wide; store y[l] = add(%1, load s[l]) }
//
// clang-format on
#pragma once

#include <functional>

#include "kernel/builder.h"

namespace inkle::kernel {

// Emits the parts into the builder's region, which need not hold the vector operation itself; what
// stands for the vector region's results is returned. `is_outside` is asked for the operations
// directly inside; those must not use values of the region. Values that later parts use are kept in
// registers of each lane.
Values split_vector(Builder& builder, OperationId vector,
                    const std::function<bool(OperationId)>& is_outside);

}  // namespace inkle::kernel
