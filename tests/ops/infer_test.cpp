// Shape inference where samples do not reach: errors, strides, symbolic sizes.
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/builder.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using abi::DType;
using graph::Argument;
using graph::Graph;
using graph::Sizes;
using graph::Type;
using graph::ValueId;
using sym::Expr;

class InferTest : public testing::Test {
 protected:
  Expr number(std::int64_t value) { return context->constant(value); }
  ValueId input(Sizes sizes, DType dtype = DType::f32) {
    Type type{.dtype = dtype, .sizes = std::move(sizes)};
    type.strides = graph::contiguous_strides(*context, type.sizes);
    const ValueId value = graph.add_value(std::move(type));
    graph.inputs.push_back({.name = "x" + std::to_string(graph.inputs.size()), .value = value});
    return value;
  }
  std::string type_of(std::string_view op, std::vector<Argument> args) {
    return to_string(graph.type(builder.node(op, std::move(args))));
  }
  std::string error_of(std::string_view op, std::vector<Argument> args) {
    try {
      (void)builder.nodes(op, std::move(args));
    } catch (const Error& error) {
      return error.message();
    }
    return "none";
  }

  std::shared_ptr<sym::Context> context = std::make_shared<sym::Context>();
  Graph graph{context, op_table()};
  graph::Builder builder{graph};
  Expr s0 = context->symbol("s0", {.range = {2, 4096}, .hint = 8});
};

TEST_F(InferTest, BroadcastKeepsSymbols) {
  const ValueId x = input({s0, number(1), number(4)}), y = input({number(3), number(4)});
  EXPECT_EQ(type_of("add", {x, y}), "f32[s0,3,4]");
  EXPECT_EQ(error_of("add", {x, input({number(5)})}), "add: sizes 4 and 5 do not broadcast");
}

TEST_F(InferTest, ViewSplitsAndMergesSymbols) {
  const ValueId x = input({s0, number(12)});
  EXPECT_EQ(type_of("view", {x, Sizes{s0 * 4, number(-1)}}), "f32[s0*4,3]");
  EXPECT_EQ(error_of("view", {x, Sizes{number(-1), number(-1)}}), "view: only one size can be -1");
  EXPECT_EQ(error_of("view", {input({number(6)}), Sizes{number(4), number(-1)}}),
            "view: 6 elements do not fill a multiple of 4");
}

TEST_F(InferTest, ViewsCarryStrides) {
  const ValueId x = input({s0, number(12)});
  EXPECT_EQ(type_of("transpose", {x, number(0), number(1)}), "f32[12,s0]{1,12}");
  EXPECT_EQ(type_of("slice", {x, number(1), number(0), number(6), number(2)}), "f32[s0,3]{12,2}");
  EXPECT_EQ(type_of("expand", {input({number(1), number(3)}), Sizes{s0, number(-1)}}),
            "f32[s0,3]{0,1}");
}

TEST_F(InferTest, ASizeOfOneExpandsToAnySizeWithoutAGuard) {
  const Expr batch = context->symbol("batch", {.range = {1, 256}, .hint = 3});
  EXPECT_EQ(type_of("expand", {input({number(1), number(3)}), Sizes{batch, number(-1)}}),
            "f32[batch,3]{0,1}");
  EXPECT_TRUE(context->guards().empty());
}

TEST_F(InferTest, SlicesClampAndNameTheirErrors) {
  const ValueId x = input({number(10)});
  EXPECT_EQ(type_of("slice", {x, number(0), number(-3), number(100)}), "f32[3]");
  EXPECT_EQ(type_of("slice", {x, number(0), number(8), number(2)}), "f32[0]");
  EXPECT_EQ(error_of("slice", {x, number(1), number(0), number(2)}),
            "slice: dimension 1 is out of range for rank 1");
  EXPECT_EQ(error_of("select", {x, number(0), number(10)}),
            "select: index 10 is out of range for size 10");
  EXPECT_EQ(error_of("slice", {x, number(0), number(0), number(2), number(-1)}),
            "the step of a slice must be positive");
}

TEST_F(InferTest, AsStridedStaysInsideItsOperand) {
  const ValueId x = input({number(4), number(4)});
  EXPECT_EQ(type_of("as_strided", {x, Sizes{number(2), number(2)}, Sizes{number(4), number(1)}}),
            "f32[2,2]{4,1}");
  EXPECT_EQ(error_of("as_strided", {x, Sizes{number(2), number(2)}, Sizes{number(14), number(2)}}),
            "as_strided reaches beyond its operand");
}

TEST_F(InferTest, DtypesThatAreNotComputedAreUnsupported) {
  EXPECT_EQ(error_of("exp", {input({number(3)}, DType::c64)}), "dtype c64 is not computed");
  EXPECT_EQ(error_of("view", {input({number(3)}, DType::f8e5m2), Sizes{number(3)}}),
            "dtype f8e5m2 is not computed");
}

TEST_F(InferTest, WrongArgumentsAreNamed) {
  const ValueId x = input({number(2), number(3)});
  EXPECT_EQ(error_of("gelu", {x, std::string("fast")}),
            "gelu: approximate \"fast\" is none of none, tanh");
  EXPECT_EQ(error_of("cat", {std::vector{x, input({number(2)})}, number(0)}),
            "cat: tensors must have the same rank");
  EXPECT_EQ(error_of("permute", {x, Sizes{number(0), number(0)}}),
            "permute: dims must name each dimension once");
  EXPECT_EQ(error_of("split_with_sizes", {x, Sizes{number(1), number(3)}, number(1)}),
            "split_with_sizes: the sizes add up to 4, not 3");
}

}  // namespace
}  // namespace inkle::ops
