// The table of opcodes: name, number of operands, kind. In order of the enumeration.
#include "loop/body.h"

namespace inkle::loop {
namespace {

struct Row {
  Opcode opcode;
  std::string_view name;
  std::uint8_t operands;
  OpcodeKind kind;
};

using enum OpcodeKind;
constexpr std::array kRows = {
    Row{Opcode::constant, "constant", 0, leaf},
    Row{Opcode::index, "index", 0, leaf},
    Row{Opcode::load, "load", 0, leaf},
    Row{Opcode::row, "row", 0, leaf},
    Row{Opcode::random, "random", 2, leaf},
    Row{Opcode::cast, "cast", 1, structure},
    Row{Opcode::bitcast, "bitcast", 1, structure},
    Row{Opcode::select, "select", 3, structure},
    Row{Opcode::indirect, "indirect", 1, structure},
    Row{Opcode::add, "add", 2, binary},
    Row{Opcode::sub, "sub", 2, binary},
    Row{Opcode::mul, "mul", 2, binary},
    Row{Opcode::div, "div", 2, binary},
    Row{Opcode::floordiv, "floordiv", 2, binary},
    Row{Opcode::remainder, "remainder", 2, binary},
    Row{Opcode::fmod, "fmod", 2, binary},
    Row{Opcode::neg, "neg", 1, unary},
    Row{Opcode::abs, "abs", 1, unary},
    Row{Opcode::min, "min", 2, binary},
    Row{Opcode::max, "max", 2, binary},
    Row{Opcode::fma, "fma", 3, ternary},
    Row{Opcode::bit_and, "bit_and", 2, binary},
    Row{Opcode::bit_or, "bit_or", 2, binary},
    Row{Opcode::bit_xor, "bit_xor", 2, binary},
    Row{Opcode::bit_not, "bit_not", 1, unary},
    Row{Opcode::shift_left, "shift_left", 2, binary},
    Row{Opcode::shift_right, "shift_right", 2, binary},
    Row{Opcode::equal, "equal", 2, comparison},
    Row{Opcode::not_equal, "not_equal", 2, comparison},
    Row{Opcode::less, "less", 2, comparison},
    Row{Opcode::less_equal, "less_equal", 2, comparison},
    Row{Opcode::greater, "greater", 2, comparison},
    Row{Opcode::greater_equal, "greater_equal", 2, comparison},
    Row{Opcode::floor, "floor", 1, unary},
    Row{Opcode::ceil, "ceil", 1, unary},
    Row{Opcode::trunc, "trunc", 1, unary},
    Row{Opcode::round_even, "round_even", 1, unary},
    Row{Opcode::sqrt, "sqrt", 1, unary},
    Row{Opcode::rsqrt, "rsqrt", 1, unary},
    Row{Opcode::exp, "exp", 1, unary},
    Row{Opcode::exp2, "exp2", 1, unary},
    Row{Opcode::expm1, "expm1", 1, unary},
    Row{Opcode::log, "log", 1, unary},
    Row{Opcode::log2, "log2", 1, unary},
    Row{Opcode::log10, "log10", 1, unary},
    Row{Opcode::log1p, "log1p", 1, unary},
    Row{Opcode::sin, "sin", 1, unary},
    Row{Opcode::cos, "cos", 1, unary},
    Row{Opcode::tan, "tan", 1, unary},
    Row{Opcode::asin, "asin", 1, unary},
    Row{Opcode::acos, "acos", 1, unary},
    Row{Opcode::atan, "atan", 1, unary},
    Row{Opcode::sinh, "sinh", 1, unary},
    Row{Opcode::cosh, "cosh", 1, unary},
    Row{Opcode::tanh, "tanh", 1, unary},
    Row{Opcode::asinh, "asinh", 1, unary},
    Row{Opcode::acosh, "acosh", 1, unary},
    Row{Opcode::atanh, "atanh", 1, unary},
    Row{Opcode::erf, "erf", 1, unary},
    Row{Opcode::erfc, "erfc", 1, unary},
    Row{Opcode::erfinv, "erfinv", 1, unary},
    Row{Opcode::lgamma, "lgamma", 1, unary},
    Row{Opcode::digamma, "digamma", 1, unary},
    Row{Opcode::pow, "pow", 2, binary},
    Row{Opcode::atan2, "atan2", 2, binary},
    Row{Opcode::hypot, "hypot", 2, binary},
    Row{Opcode::copysign, "copysign", 2, binary},
    Row{Opcode::nextafter, "nextafter", 2, binary},
    Row{Opcode::is_nan, "is_nan", 1, test},
    Row{Opcode::is_inf, "is_inf", 1, test},
    Row{Opcode::sign_bit, "sign_bit", 1, test},
};

constexpr bool rows_in_order() {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<std::size_t>(kRows[i].opcode) != i) return false;
  }
  return static_cast<std::size_t>(Opcode::sign_bit) + 1 == kRows.size();
}
static_assert(rows_in_order());

const Row& row_of(Opcode opcode) { return kRows[static_cast<std::size_t>(opcode)]; }

}  // namespace

std::string_view name_of(Opcode opcode) { return row_of(opcode).name; }

std::optional<Opcode> opcode_from_name(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.opcode;
  }
  return std::nullopt;
}

std::size_t operand_count(Opcode opcode) { return row_of(opcode).operands; }

OpcodeKind kind_of(Opcode opcode) { return row_of(opcode).kind; }

}  // namespace inkle::loop
