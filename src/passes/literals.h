// Tensors of the interpreter to and from literals of the graph.
#pragma once

#include "graph/graph.h"
#include "ops/interpreter.h"

namespace inkle::passes {

// Computable dtypes only.
[[nodiscard]] ops::RefTensor decode(const graph::ConstantData& data);
[[nodiscard]] graph::ConstantData encode(const ops::RefTensor& tensor);
// Whether all elements are equal to the bit (0 and -0.0 differ); an empty tensor is not uniform.
[[nodiscard]] bool is_uniform(const ops::RefTensor& tensor);

}  // namespace inkle::passes
