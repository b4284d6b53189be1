// A small op table of the lowering tests: each row shows one way to use Lowering.
#pragma once

#include "graph/op_def.h"

namespace inkle::lower {

[[nodiscard]] const graph::OpTable& test_table();

}  // namespace inkle::lower
