#include "passes/conditions.h"

namespace inkle::passes {

using abi::DType;
using graph::Argument;
using graph::Expr;
using graph::Type;

bool same_type(Match& match) {
  Type x = match.type("x");
  x.strides.reset();
  return graph::type_difference(x, match.root_type()).empty();
}

bool holds_exactly(DType to, DType from) {
  if (to == from) return true;
  if (!abi::is_computable(to) || !abi::is_computable(from) || to == DType::boolean) return false;
  switch (from) {
    case DType::boolean:
      return true;
    // 8 bits fit the 8 of bf16 and the 11 of f16.
    case DType::u8:
      return to != DType::i8;
    case DType::i8:
      return to != DType::u8;
    case DType::i16:
      return to == DType::i32 || to == DType::i64 || to == DType::f32 || to == DType::f64;
    case DType::i32:
      return to == DType::i64 || to == DType::f64;
    case DType::f16:
    case DType::bf16:
      return to == DType::f32 || to == DType::f64;
    case DType::f32:
      return to == DType::f64;
    default:
      return false;
  }
}

std::optional<std::int64_t> constant_integer(const Argument* argument) {
  const auto* e = argument == nullptr ? nullptr : std::get_if<Expr>(argument);
  return e == nullptr ? std::nullopt : e->constant();
}

std::optional<std::size_t> dimension(const Argument* argument, std::size_t rank) {
  const auto d = constant_integer(argument);
  const auto count = static_cast<std::int64_t>(rank);
  if (!d || *d < -count || *d >= count) return std::nullopt;
  return static_cast<std::size_t>(*d < 0 ? *d + count : *d);
}

}  // namespace inkle::passes
