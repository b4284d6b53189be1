// ATen's type promotion: which dtype an operation on several operands computes in.
#pragma once

#include <initializer_list>
#include <span>

#include "abi/dtype.h"
#include "graph/inference.h"

namespace inkle::ops {

// The smallest dtype that holds both, as torch.promote_types. Both computable, else Unsupported.
[[nodiscard]] abi::DType promote(abi::DType a, abi::DType b);

// Priority of an operand in promotion: tensors with dimensions over 0-dim tensors over numbers.
enum class OperandRank : std::uint8_t { number, scalar_tensor, tensor };

// torch.result_type over operands added one by one.
class Promotion {
 public:
  void add(abi::DType dtype, OperandRank rank);
  void add(const graph::Type& tensor);
  // A tensor or number argument; none is left out.
  void add(const graph::Inference& args, std::size_t i);
  [[nodiscard]] abi::DType result() const;

 private:
  struct Category {
    bool is_set = false;
    abi::DType dtype = abi::DType::boolean;
  };
  static Category combine(Category higher, Category lower);
  Category categories_[3];
};

// torch.result_type of these arguments.
[[nodiscard]] abi::DType common_dtype(const graph::Inference& args,
                                      std::initializer_list<std::size_t> operands);
// The dtype of a float function's result: floats stay, others become f32.
[[nodiscard]] constexpr abi::DType float_result(abi::DType dtype) {
  return abi::is_float(dtype) ? dtype : abi::DType::f32;
}
// The dtype of a number argument: f32 is the default of floats, i64 of integers.
[[nodiscard]] abi::DType number_dtype(const graph::Argument& number);
// Throws Unsupported for dtypes that generated code does not compute (complex, f8, ...).
void require_computable(abi::DType dtype);

}  // namespace inkle::ops
