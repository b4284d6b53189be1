// The graph IR on a small table of its own: schemas, text, inference, verifier, rewriter.
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/inference.h"
#include "graph/text.h"

namespace inkle::graph {
namespace {

std::vector<Type> infer_same(Inference& in) {
  Type type = in.tensor(0);
  type.strides.reset();
  return {type};
}

std::vector<Type> infer_add(Inference& in) {
  const Type& a = in.tensor(0);
  if (in.is_tensor(1) && in.tensor(1).sizes != a.sizes) in.fail("sizes differ");
  return infer_same(in);
}

std::vector<Type> infer_view(Inference& in) {
  return {Type{in.tensor(0).dtype, in.tensor(0).device, in.integers(1), {}}};
}

std::vector<Type> infer_split(Inference& in) {
  Type type = in.tensor(0);
  type.strides.reset();
  return std::vector<Type>(static_cast<std::size_t>(in.constant_integer(1)), type);
}

constexpr OpDef kRows[] = {
    {.name = "add",
     .schema = "(self: tensor, other: operand, alpha: scalar = 1) -> tensor",
     .infer = infer_add,
     .aten = "aten::add.Tensor aten::add.Scalar"},
    {.name = "clone", .schema = "(self: tensor) -> tensor", .infer = infer_same},
    {.name = "mix",
     .schema = "(a: tensor?[], b: real = 0.5, c: boolean[] = [true, false], d: string = \"x\", "
               "e: dtype? = none, f: integer[]? = none, g: device = cpu) -> tensor",
     .infer = [](Inference& in) { return std::vector<Type>{*in.tensors(0).front()}; }},
    {.name = "relu", .schema = "(self: tensor) -> tensor", .infer = infer_same},
    {.name = "split",
     .schema = "(self: tensor, parts: integer) -> tensor...",
     .infer = infer_split},
    {.name = "view", .schema = "(self: tensor, sizes: integer[]) -> tensor", .infer = infer_view},
};

const OpTable& table() {
  static const std::span<const OpDef> families[] = {kRows};
  static const OpTable made{families};
  return made;
}

std::string round_trip(std::string_view text) {
  const Graph graph = parse(text, "t.ir", table());
  verify(graph);
  return to_string(graph);
}

std::string error_of(std::string_view text) {
  try {
    (void)parse(text, "t.ir", table());
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Schema, ReadsKindsDefaultsAndResults) {
  const Schema schema = parse_schema(
      "op", "(a: tensor?[], b: integer[] = [1, 2], c: optional_tensor = none) -> tensor, tensor");
  ASSERT_EQ(schema.params.size(), 3U);
  EXPECT_EQ(schema.params[0].kind, ParamKind::optional_tensor_list);
  EXPECT_EQ(schema.params[1].default_text, "[1, 2]");
  EXPECT_EQ(schema.params[2].kind, ParamKind::optional_tensor);
  EXPECT_EQ(schema.result_count, 2U);
  EXPECT_EQ(parse_schema("op", "() -> tensor...").result_count, Schema::kVariadic);
  EXPECT_THROW((void)parse_schema("op", "(a: tenser) -> tensor"), UserError);
  EXPECT_THROW((void)parse_schema("op", "(a: tensor"), UserError);
}

TEST(OpTable, FindsByNameAndOverload) {
  ASSERT_NE(table().find("add"), nullptr);
  EXPECT_EQ(table().find_aten("aten::add.Scalar"), table().find("add"));
  EXPECT_EQ(table().find("ad"), nullptr);
  EXPECT_EQ(table().find_aten("aten::add"), nullptr);
  EXPECT_EQ(table().find("eager"), &kEagerOp);
}

TEST(Text, CanonicalTextRoundTrips) {
  const std::string texts[] = {
      R"(graph @main(%s0: int, %x: f32[s0,64], %w: f32[64] param) -> f32[s0,64] where s0 in 2..4096 hint 8 {
  %0: f32[s0,64] = relu(%x)
  %1: f32[s0,64] = add(%0, %x, 2)                           # model.py:12
  return %1
}
)",
      R"(graph @types(
    %x: f32[s0,s1]{1,s0}@cuda:1,
    %n: int = s0*2,
    %y: bf16[],
    %z: bool[1,0,3],
    %very_long_name_of_an_input: i64[12345,12345])
    -> f32[s0*s1]@cuda:1, int, none where s0 by 8, s1 in ..9 hint 3 {
  %0: f32[s0,s1]{s1,1}@cuda:1 = relu(%x)
  %1: f32[s0*s1]@cuda:1 = view(%0, [s0*s1])
  return %1, s0+s1, none
}
)",
      R"(graph @eager(%x: f32[s0]) -> f32[s0]{2} where s0 {
  %0: f32[s0]{1}, %1: i64[] = eager "aten::\"foo\"" 5 (%x, [1, s0], none, [%x, none], [], 1.5, -3, true, "s", f32, cuda:1, [0.5, 1.0], [true], cpu)
  %2: f32[s0]{2} = eager "bar" 0 ()
  eager "effect" 7 (%0)
  return %2
}
)",
      R"(graph @mix(%x: f32[2]) -> f32[2] {
  %0: f32[2]{1} = mix([%x, none], 1e-12, [true, true], "y", bf16, [1, 2], cuda:0)
  %1: f32[2]{1} = mix([%0], 0.5, [true, false], "x", none, [])
  %2: f32[2], %3: f32[2] = split(%1, 2)
  %4: f32[2] = add(%2, 0.1)
  %5: f32[2] = add(%4, true)
  %6: f32[2] = add(%5, -inf)
  return %6
}
)",
      "graph @nothing() {\n  return\n}\n",
  };
  for (const std::string& text : texts) {
    EXPECT_EQ(round_trip(text), text);
  }
}

TEST(Text, LiteralsKeepTheirBits) {
  const std::string text =
      R"(graph @l() -> f32[5], f16[3], bf16[2], bool[2], i8[2], f64[3], c64[1], i64[0,2], u8[65] {
  %c0: f32[5] = literal [0.1, -0.0, inf, 1e-45, 16777216.0]
  %c1: f16[3] = literal [65504.0, 5.9604645e-08, nan]
  %c2: bf16[2] = literal [1.0, -0.15625]
  %c3: bool[2] = literal [true, false]
  %c4: i8[2] = literal [-128, 127]
  %c5: f64[3] = literal [0.1, 5e-324, -inf]
  %c6: c64[1] = literal "0000803f00000040"
  %c7: i64[0,2] = literal []
  %c8: u8[65] = literal ")" +
      std::string(130, '7') + R"("
  return %c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7, %c8
}
)";
  EXPECT_EQ(round_trip(text), text);
}

TEST(Text, RenumbersAndFillsDefaults) {
  EXPECT_EQ(round_trip(R"(graph @g ( %x:f32[2] ) -> f32[2] { # comment
      %foo: f32[2] = add( %x , %x , 1 )
      %7: f32[2] = relu(%foo)   # a.py:3
      return %7 })"),
            R"(graph @g(%x: f32[2]) -> f32[2] {
  %0: f32[2] = add(%x, %x)
  %1: f32[2] = relu(%0)                                     # a.py:3
  return %1
}
)");
}

TEST(Text, ErrorsNameTheirPlace) {
  EXPECT_EQ(error_of("graph @g(%x: f32[2]) -> f32[3] {\n  %0: f32[3] = relu(%x)\n  return %0\n}"),
            "%0: f32[3] is given, f32[2] is inferred\n  at t.ir:2:16");
  EXPECT_EQ(error_of("graph @g(%x: f32[2]) -> f32[2] {\n  %0: f32[2] = rellu(%x)\n  return %0\n}"),
            "t.ir:2:16: unknown op, found \"rellu(%x)\"");
  EXPECT_EQ(error_of("graph @g(%x: f32[2]) -> f32[2] {\n  %0: f32[2] = relu(%y)\n  return %0\n}"),
            "t.ir:2:21: no such value is known here, found \"%y)\"");
  EXPECT_EQ(error_of("graph @g(%x: f32[q]) {\n  return\n}").substr(0, 9), "t.ir:1:18");
  EXPECT_EQ(error_of("graph @g(%x: f32[-2]) {\n  return\n}").substr(0, 9), "t.ir:1:21");
  EXPECT_EQ(error_of("graph @g(%x: f32[99999999999999999999]) {\n  return\n}").substr(0, 9),
            "t.ir:1:18");
  EXPECT_EQ(error_of("graph @g() -> f32[2] {\n  %c: f32[2] = literal [1.0]\n  return %c\n}"),
            "t.ir:2:28: expected ',', found \"]\"");
  EXPECT_EQ(
      error_of("graph @g() {\n  %c: f32[9999999999,99] = literal \"\"\n  return\n}").substr(0, 8),
      "t.ir:2:3");
  EXPECT_EQ(error_of("graph @g(%x: f32[2], %x: f32[2]) {\n  return\n}"),
            "t.ir:1:23: this name is taken, found \"x: f32[2]) {\"");
}

TEST(Text, MalformedTextNeverCrashes) {
  const std::string good = R"(graph @g(%s0: int, %x: f32[s0,4]{4,1}) -> f32[s0,4] where s0 in 2..9 {
  %0: f32[s0,4] = add(%x, 1.5, 2)
  %1: f32[4] = eager "a" 1 (%x, [1, s0], none)
  return %0
})";
  for (std::size_t i = 0; i < good.size(); ++i) {
    EXPECT_NE(error_of(good.substr(0, i)), "no error") << i;
    for (const char c : {'%', '[', '9', '{', ' ', '"', '-'}) {
      std::string bad = good;
      bad[i] = c;
      (void)error_of(bad);
    }
  }
  std::string deep = "graph @g(%x: f32[";
  deep += std::string(200000, '(') + "2" + std::string(200000, ')') + "]) {\n  return\n}";
  EXPECT_NE(error_of(deep), "");
  EXPECT_NE(error_of("graph @g(%x: f32[" + std::string(200000, '[') + "]) {"), "no error");
}

TEST(Builder, FillsDefaultsAndChecks) {
  auto context = std::make_shared<sym::Context>();
  Graph graph(context, table());
  const Sizes sizes = {context->constant(3)};
  const ValueId x = graph.add_value({DType::f32, {}, sizes, contiguous_strides(*context, sizes)});
  graph.inputs.push_back({"x", x, {}});
  Builder b(graph);
  b.set_source("m.py:1");
  const ValueId y = b.node("add", {x, 2.0});
  EXPECT_EQ(graph.nodes[0].args.size(), 3U);
  EXPECT_EQ(graph.nodes[0].source, "m.py:1");
  EXPECT_THROW(b.node("nope", {x}), UserError);
  EXPECT_THROW(b.node("add", {x}), UserError);
  EXPECT_THROW(b.node("add", {x, std::string("a")}), UserError);
  EXPECT_THROW(b.node("relu", {x, x}), UserError);
  graph.outputs.push_back({y});
  verify(graph);
  graph.type(y).dtype = DType::f64;
  EXPECT_THROW(verify(graph), UserError);
}

TEST(Verify, UsesComeAfterDefinitions) {
  Graph graph = parse(
      "graph @g(%x: f32[2]) -> f32[2] {\n  %0: f32[2] = relu(%x)\n  %1: f32[2] = relu(%0)\n  "
      "return %1\n}",
      "t", table());
  verify(graph);
  std::swap(graph.nodes[0], graph.nodes[1]);
  EXPECT_THROW(verify(graph), UserError);
}

TEST(Rewriter, OutputsStayTensorsOfTheirOwn) {
  const Graph graph = parse(R"(graph @g(%x: f32[2,2]) -> f32[2,2], f32[2,2]{1,2}, f32[2,2] {
  %0: f32[2,2] = relu(%x)
  %1: f32[2,2]{1,2} = clone(%0)
  %2: f32[2,2] = clone(%x)
  %3: f32[2,2] = clone(%0)
  return %0, %1, %2
})",
                            "t", table());
  Rewriter rewriter(graph, graph.name);
  const Graph after = std::move(rewriter).run(
      [](Rewriter&, const Node& mapped, const Node&) -> std::optional<std::vector<ValueId>> {
        if (mapped.op->name != "clone") return std::nullopt;
        return std::vector<ValueId>{std::get<ValueId>(mapped.args[0])};
      });
  verify(after);
  EXPECT_EQ(to_string(after), R"(graph @g(%x: f32[2,2]) -> f32[2,2], f32[2,2]{1,2}, f32[2,2] {
  %0: f32[2,2] = relu(%x)
  %1: f32[2,2]{1,2} = clone(%0)
  %2: f32[2,2] = clone(%x)
  return %0, %1, %2
}
)");
}

}  // namespace
}  // namespace inkle::graph
