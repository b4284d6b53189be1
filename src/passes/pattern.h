// The patterns of rules.h, read from their text.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace inkle::passes {

struct Pattern {
  enum class Kind : std::uint8_t {
    anything,
    variable,
    op,
    alternatives,
    reference,
    list,
    number,
    boolean,
    none,
    string
  };
  Kind kind = Kind::anything;
  std::string name;                      // variable, reference, string
  std::vector<const graph::OpDef*> ops;  // op: any of them; empty: never matches
  std::vector<Pattern> parts;            // arguments, alternatives, items
  bool rest = false;                     // op: "..." at the end
  bool only_numbers = false;             // variable: "#c"
  double number = 0;
  bool is_integer = false;
  bool boolean = false;
};

// Throws InternalError: rules are part of the program. Ops that `table` lacks go to `unknown`.
[[nodiscard]] Pattern parse_pattern(std::string_view text, const graph::OpTable& table,
                                    std::vector<std::string>& unknown);

}  // namespace inkle::passes
