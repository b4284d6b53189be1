// The inputs of sample calls, and the samples that elementwise rows share.
#include "ops/samples.h"

#include <fmt/format.h>

#include "ops/elementwise.h"

namespace inkle::ops {

using graph::Argument;
using graph::Expr;

Expr SampleBuilder::size(std::int64_t value) {
  switch (shapes_) {
    case ShapeClass::fixed:
      return constant(value);
    case ShapeClass::ones:
      return constant(1);
    case ShapeClass::empty:
      if (emptied_ && value != emptied_value_) return constant(value);
      emptied_ = true;
      emptied_value_ = value;
      return constant(0);
    case ShapeClass::symbolic:
      break;
  }
  for (const auto& [known, symbol] : symbols_) {
    if (known == value) return symbol;
  }
  const Expr symbol =
      context().symbol(fmt::format("s{}", symbols_.size()), {.range = {2, 4096}, .hint = value});
  symbols_.emplace_back(value, symbol);
  return symbol;
}

Argument SampleBuilder::tensor(std::vector<Expr> sizes, double low, double high) {
  return tensor(dtype_, std::move(sizes), low, high);
}

Argument SampleBuilder::tensor(abi::DType dtype, std::vector<Expr> sizes, double low, double high) {
  graph::Type type{.dtype = dtype, .sizes = std::move(sizes)};
  type.strides = graph::contiguous_strides(context(), type.sizes);
  const graph::ValueId value = graph_.add_value(std::move(type));
  graph_.inputs.push_back({.name = fmt::format("x{}", ranges_.size()), .value = value});
  ranges_.push_back({low, high});
  return value;
}

Argument SampleBuilder::free_tensor(std::vector<std::int64_t> sizes, double low, double high) {
  std::vector<Expr> exprs;
  for (std::int64_t value : sizes) exprs.push_back(size(value));
  return tensor(std::move(exprs), low, high);
}

namespace samples {
namespace {

using Args = std::vector<Argument>;

std::vector<DType> floats() { return {DType::f32, DType::f64, DType::bf16, DType::f16}; }
std::vector<DType> numbers() {
  return {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i8, DType::i32, DType::i64};
}
std::vector<DType> integers_and_bool() {
  return {DType::boolean, DType::u8, DType::i8, DType::i32, DType::i64};
}
std::vector<DType> everything() {
  return {DType::f32, DType::f64, DType::bf16, DType::f16, DType::boolean,
          DType::u8,  DType::i8,  DType::i32,  DType::i64};
}

}  // namespace

std::vector<graph::Sample> unary() {
  return {{"matrix", [](SampleBuilder& s) { return Args{s.free_tensor({3, 5})}; }, everything()}};
}
std::vector<graph::Sample> unary_number() {
  return {{"matrix", [](SampleBuilder& s) { return Args{s.free_tensor({3, 5})}; }, numbers()}};
}
std::vector<graph::Sample> unary_float() {
  return {{"matrix",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5})};
           },
           floats()},
          {"integers", [](SampleBuilder& s) {
             return Args{s.tensor(DType::i32, {s.size(3), s.size(5)})};
           }}};
}
std::vector<graph::Sample> unary_positive() {
  return {{"positive",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}, 0.1, 3)};
           },
           floats()}};
}
std::vector<graph::Sample> unary_unit() {
  return {{"unit",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}, -0.9, 0.9)};
           },
           floats()}};
}
std::vector<graph::Sample> unary_integer() {
  return {{"matrix",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}, -9, 9)};
           },
           integers_and_bool()}};
}
std::vector<graph::Sample> binary() {
  return {{"equal",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}), s.free_tensor({3, 5})};
           },
           numbers()},
          {"broadcast",
           [](SampleBuilder& s) {
             return Args{s.tensor({s.size(3), s.constant(1)}), s.tensor({s.size(5)})};
           }},
          {"number",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}), 0.1};
           },
           floats()},
          {"integer number",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}), s.constant(2)};
           },
           numbers()},
          {"mixed",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}), s.tensor(DType::i64, {s.size(5)})};
           },
           floats()}};
}
std::vector<graph::Sample> binary_float() {
  return {{"equal",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}), s.free_tensor({3, 5})};
           },
           floats()}};
}
std::vector<graph::Sample> binary_nonzero() {
  return {{"equal",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}, -9, 9), s.free_tensor({3, 5}, 1, 4)};
           },
           numbers()},
          {"number",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}, 0, 9), s.constant(2)};
           },
           numbers()}};
}
std::vector<graph::Sample> binary_integer() {
  return {{"equal",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}, 0, 7), s.free_tensor({3, 5}, 0, 7)};
           },
           {DType::i8, DType::i32, DType::i64}}};
}
std::vector<graph::Sample> backward() {
  return {{"equal",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}), s.free_tensor({3, 5}, -4, 4)};
           },
           {DType::f32, DType::f64, DType::bf16}}};
}

}  // namespace samples
}  // namespace inkle::ops
