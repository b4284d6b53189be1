// Arguments of nodes by the kind that a schema gives them: checking, defaults, text. Shared by
// builder, verifier, printer and parser.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace inkle {
class Scanner;
}

namespace inkle::graph {

// Brings `argument` to the form that the kind asks for: a constant integer becomes a real where a
// real is wanted, empty lists get the right type. Returns what is wrong, "" if nothing.
[[nodiscard]] std::string normalise(Argument& argument, ParamKind kind, sym::Context& context);

// The value of a default; has_default must hold.
[[nodiscard]] Argument default_argument(const Param& param, sym::Context& context);

// Fills defaults in, normalises; UserError "op: ..." on wrong kinds or counts.
void complete_arguments(std::vector<Argument>& args, const OpDef& op, const Schema& schema,
                        sym::Context& context);

using ValueName = std::function<std::string(ValueId)>;
[[nodiscard]] std::string print_argument(const Argument& argument, const ValueName& name);

// Reads what print_argument writes. `value` reads "%name"; without it tensors are errors.
using ValueReader = std::function<ValueId(Scanner&)>;
[[nodiscard]] Argument read_argument(Scanner& scanner, ParamKind kind, sym::Context& context,
                                     const ValueReader& value);
// The same where no schema says the kind: it follows from the text; "[]" is a list of integers.
[[nodiscard]] Argument read_any_argument(Scanner& scanner, sym::Context& context,
                                         const ValueReader& value);
[[nodiscard]] Device read_device(Scanner& scanner);
[[nodiscard]] DType read_dtype(Scanner& scanner);

}  // namespace inkle::graph
