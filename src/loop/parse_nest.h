// The part of the text reader that reads one nest. For the files of this folder only.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "loop/program.h"

namespace inkle::loop {

// Reads from the nest's kind to its end. `sizes` are the size symbols of the program's context.
[[nodiscard]] Nest parse_nest(Scanner& scanner, Program& program,
                              const std::map<std::string, BufferId>& buffers,
                              const std::vector<Expr>& sizes);

// Pieces that both parts need.
[[nodiscard]] DType dtype_named(Scanner& scanner, std::string_view name);
[[nodiscard]] std::vector<Expr> parse_expressions(Scanner& scanner, sym::Context& context,
                                                  std::string_view end);
[[nodiscard]] std::uint32_t parse_count(Scanner& scanner);

}  // namespace inkle::loop
