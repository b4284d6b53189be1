// Pieces of shape inference that rows share. Whole rules have the signature of OpDef::infer; the
// helpers below build others.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "graph/inference.h"

namespace inkle::ops::infer {

using graph::Expr;
using graph::Inference;
using graph::Sizes;
using graph::Type;
using Types = std::vector<Type>;

// --- Helpers ------------------------------------------------------------------------------------
// The type of tensor argument i; Unsupported unless its dtype is computable.
[[nodiscard]] const Type& computable(Inference& args, std::size_t i);
// A new value on the device of `like`, strides free.
[[nodiscard]] Type make(const Type& like, abi::DType dtype, Sizes sizes);
// Right-aligned broadcast of one pair of sizes; records guards where only hints decide; UserError
// (through args.fail) where they do not agree.
[[nodiscard]] Sizes broadcast(Inference& args, const Sizes& a, const Sizes& b);
// Sizes and device of the broadcast of all tensor arguments among `operands` (numbers and none are
// left out), with the given dtype. All must be computable.
[[nodiscard]] Type broadcast_all(Inference& args, std::initializer_list<std::size_t> operands,
                                 abi::DType dtype);
// Sizes with one -1 replaced so that the product is `count`.
[[nodiscard]] Sizes resolve_minus_one(Inference& args, Sizes sizes, Expr count);
// Strides of a dense tensor in the order of dimensions of `type` (its strides if it is dense and
// does not overlap, else row-major), as ATen's preserve_format.
[[nodiscard]] Sizes preserved_strides(Inference& args, const Type& type);
// Whether strides give each element an address of its own, as far as is known.
[[nodiscard]] bool are_apart(const Sizes& sizes, const Sizes& strides);
// Unsupported where elements of argument 0 share memory without a stride of 0; records guards where
// only hints decide. ATen keeps such strides for the results of *_scatter, and what it writes then
// shows at each index that shares the memory.
void refuse_overlap(Inference& args);

// --- Whole rules --------------------------------------------------------------------------------
Types same(Inference& args);            // one tensor, same dtype and sizes
Types float_unary(Inference& args);     // integers and bool become f32
Types unary_bool(Inference& args);      // bool of the same sizes
Types binary(Inference& args);          // arguments 0 and 1 (operands): promoted, broadcast
Types binary_float(Inference& args);    // the same, integers become f32
Types binary_bool(Inference& args);     // comparisons
Types like_first_two(Inference& args);  // two tensors of one op's backward: promoted, broadcast

}  // namespace inkle::ops::infer
