// The text of a literal tensor's contents. Short ones are lists of numbers, the others one
// hexadecimal string of their bytes.
#pragma once

#include <string>

#include "graph/graph.h"

namespace inkle {
class Scanner;
}

namespace inkle::graph {

[[nodiscard]] std::string print_literal(const ConstantData& data);
// `type` has constant sizes, else UserError.
[[nodiscard]] ConstantData read_literal(Scanner& scanner, const Type& type);

}  // namespace inkle::graph
