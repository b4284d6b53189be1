// ATen's type promotion (c10/core/ScalarType promote_types, TensorIterator's result_type).
#include "ops/promotion.h"

#include <algorithm>

#include "base/error.h"

namespace inkle::ops {

using abi::DType;

void require_computable(DType dtype) {
  if (!abi::is_computable(dtype)) unsupported("dtype {} is not computed", abi::name_of(dtype));
}

DType promote(DType a, DType b) {
  require_computable(a);
  require_computable(b);
  if (a == b) return a;
  if (abi::is_float(a) != abi::is_float(b)) return abi::is_float(a) ? a : b;
  if (abi::is_float(a)) {
    if (abi::is_reduced_float(a) && abi::is_reduced_float(b)) return DType::f32;
    return std::max(a, b);
  }
  if (a == DType::boolean) return b;
  if (b == DType::boolean) return a;
  // The only unsigned type: with i8 it needs i16, else the wider one holds it.
  if (std::min(a, b) == DType::u8 && std::max(a, b) == DType::i8) return DType::i16;
  return std::max(a, b);
}

void Promotion::add(DType dtype, OperandRank rank) {
  require_computable(dtype);
  Category& category = categories_[static_cast<std::size_t>(rank)];
  category.dtype = category.is_set ? promote(category.dtype, dtype) : dtype;
  category.is_set = true;
}

void Promotion::add(const graph::Type& tensor) {
  add(tensor.dtype, tensor.rank() == 0 ? OperandRank::scalar_tensor : OperandRank::tensor);
}

void Promotion::add(const graph::Inference& args, std::size_t i) {
  if (args.is_none(i)) return;
  if (args.is_tensor(i)) {
    add(args.tensor(i));
  } else {
    add(number_dtype(args.arg(i)), OperandRank::number);
  }
}

Promotion::Category Promotion::combine(Category higher, Category lower) {
  if (!higher.is_set) return lower;
  if (!lower.is_set || abi::is_float(higher.dtype)) return higher;
  if (higher.dtype == DType::boolean || abi::is_float(lower.dtype)) {
    return {true, promote(higher.dtype, lower.dtype)};
  }
  return higher;
}

DType Promotion::result() const {
  const Category all = combine(categories_[2], combine(categories_[1], categories_[0]));
  INKLE_CHECK(all.is_set, "promotion of no operands");
  return all.dtype;
}

DType common_dtype(const graph::Inference& args, std::initializer_list<std::size_t> operands) {
  Promotion promotion;
  for (std::size_t i : operands) promotion.add(args, i);
  return promotion.result();
}

DType number_dtype(const graph::Argument& number) {
  if (std::holds_alternative<double>(number)) return DType::f32;
  if (std::holds_alternative<bool>(number)) return DType::boolean;
  if (std::holds_alternative<graph::Expr>(number)) return DType::i64;
  user_error("a number is expected");
}

}  // namespace inkle::ops
