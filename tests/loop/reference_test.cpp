// The reference interpreter on programs small enough to check by hand.
#include "loop/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"

namespace inkle::loop {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A dense tensor of a test.
struct Tensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::vector<std::byte> bytes;

  template <class T>
  static Tensor of(DType dtype, std::vector<std::int64_t> sizes, const std::vector<T>& data) {
    Tensor t{.dtype = dtype, .sizes = std::move(sizes)};
    t.strides.resize(t.sizes.size());
    std::int64_t running = 1;
    for (std::size_t d = t.sizes.size(); d-- > 0;) {
      t.strides[d] = running;
      running *= t.sizes[d];
    }
    const auto* begin = reinterpret_cast<const std::byte*>(data.data());
    t.bytes.assign(begin, begin + data.size() * sizeof(T));
    return t;
  }
  ReferenceArgument argument() {
    return abi::TensorView{.data = bytes.data(),
                           .dtype = dtype,
                           .rank = static_cast<std::int32_t>(sizes.size()),
                           .sizes = sizes.data(),
                           .strides = strides.data()};
  }
};

Tensor floats(std::vector<std::int64_t> sizes, const std::vector<float>& data) {
  return Tensor::of(DType::f32, std::move(sizes), data);
}
Tensor integers(std::vector<std::int64_t> sizes, const std::vector<std::int64_t>& data) {
  return Tensor::of(DType::i64, std::move(sizes), data);
}

// Elements of an output in logical order.
std::vector<double> values(const ReferenceOutput& o) {
  std::vector<double> out;
  std::vector<std::int64_t> index(o.sizes.size(), 0);
  const auto visit = [&](const auto& self, std::size_t d, std::int64_t offset) -> void {
    if (d == o.sizes.size()) {
      const std::byte* at = o.data + offset * abi::size_of(o.dtype);
      out.push_back(o.dtype == DType::f32 ? *reinterpret_cast<const float*>(at)
                    : o.dtype == DType::i64
                        ? static_cast<double>(*reinterpret_cast<const std::int64_t*>(at))
                        : std::nan(""));
      return;
    }
    for (std::int64_t i = 0; i < o.sizes[d]; ++i) self(self, d + 1, offset + i * o.strides[d]);
  };
  visit(visit, 0, 0);
  return out;
}

std::vector<ReferenceOutput> run(const std::string& text, std::vector<Tensor*> tensors) {
  const Program program = parse_program(text, "test.ir");
  std::vector<ReferenceArgument> arguments;
  for (Tensor* t : tensors) arguments.push_back(t->argument());
  return run_reference(program, arguments);
}

using testing::ElementsAre;
using testing::NanSensitiveDoubleEq;

TEST(Reference, SymbolsComeFromSizes) {
  Tensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto out = run(R"(loops @p {
    symbols a in 0.., b in 0..
    arguments x
    x: input 0 f32[a,b]{b,1}
    y: output 0 f32[b,a]{a,1}
    n0: pointwise [i0: b, i1: a] -> y[i0,i1] { yield mul(load x[i1,i0], 2.0) }
    return y [b,a]{a,1}, input x [b,a]{1,b}, int a*b
  })",
                       {&x});
  EXPECT_THAT(values(out[0]), ElementsAre(2, 8, 4, 10, 6, 12));
  EXPECT_THAT(values(out[1]), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_EQ(out[2].integer, 6);
}

std::vector<double> reduce(const std::string& op, const std::string& dtype, Tensor x) {
  const std::string result = op.substr(0, 3) == "arg" ? "i64" : "f32";
  return values(run("loops @p { arguments x x: input 0 f32[4]{1} y: output 0 " + result +
                        "[]{} n0: reduce." + op + " " + dtype +
                        " [| r0: 4] -> y[] { yield load x[r0] } return y []{} }",
                    {&x})[0]);
}

TEST(Reference, Reductions) {
  EXPECT_THAT(reduce("sum", "f32", floats({4}, {1, 2, 3, 4})), ElementsAre(10));
  EXPECT_THAT(reduce("prod", "f32", floats({4}, {1, 2, 3, 4})), ElementsAre(24));
  EXPECT_THAT(reduce("max", "f32", floats({4}, {1, 7, 3, 4})), ElementsAre(7));
  EXPECT_THAT(reduce("max", "f32", floats({4}, {1, kNan, 3, 4})),
              ElementsAre(NanSensitiveDoubleEq(std::nan(""))));
  EXPECT_THAT(reduce("argmax", "f32", floats({4}, {1, 7, 7, 4})), ElementsAre(1));
  EXPECT_THAT(reduce("argmin", "f32", floats({4}, {1, kNan, 0, kNan})), ElementsAre(1));
}

TEST(Reference, WelfordAndOnlineSoftmax) {
  Tensor x = floats({4}, {1, 2, 3, 6});
  const auto two = [&](const std::string& op) {
    const auto out =
        run("loops @p { arguments x x: input 0 f32[4]{1} a: output 0 f32[]{} b: "
            "output 1 f32[]{} n0: reduce." +
                op +
                " f32 [| r0: 4] -> a[], b[] { yield load x[r0] } "
                "return a []{}, b []{} }",
            {&x});
    return std::pair(values(out[0])[0], values(out[1])[0]);
  };
  EXPECT_EQ(two("welford"), std::pair(3.0, 14.0));
  const auto [maximum, sum] = two("online_softmax");
  EXPECT_EQ(maximum, 6);
  EXPECT_NEAR(sum, 1 + std::exp(-3.0) + std::exp(-4.0) + std::exp(-5.0), 1e-6);
}

TEST(Reference, ScanRunsAlongItsDimension) {
  Tensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto out = run(R"(loops @p { arguments x x: input 0 f32[2,3]{3,1} y: output 0 f32[2,3]{3,1}
    n0: scan.sum f32 [i0: 2 | r0: 3] -> y[i0,r0] { yield load x[i0,r0] }
    return y [2,3]{3,1} })",
                       {&x});
  EXPECT_THAT(values(out[0]), ElementsAre(1, 3, 6, 4, 9, 15));
}

constexpr const char* kScatter = R"(loops @p { arguments ids x
    ids: input 0 i64[4]{1}
    x: input 1 f32[4]{1}
    y: output 0 f32[3]{1}
    n0: pointwise [i0: 3] -> y[i0] { yield 0.0 }
    n1: scatter [i0: 4] -> add y[j0] { j0: 3 = indirect(load ids[i0]) yield load x[i0] }
    return y [3]{1} })";

TEST(Reference, ScatterAdds) {
  Tensor ids = integers({4}, {2, 0, 2, 2});
  Tensor x = floats({4}, {1, 10, 100, 1000});
  std::string text = kScatter;
  text.replace(text.find("ids x"), 5, "ids, x");
  EXPECT_THAT(values(run(text, {&ids, &x})[0]), ElementsAre(10, 0, 1101));
  ids = integers({4}, {2, 0, 3, 2});
  EXPECT_THROW(run(text, {&ids, &x}), UserError);
}

TEST(Reference, PredicatedLoadTouchesNothingOutside) {
  Tensor x = floats({3}, {1, 2, 3});
  const auto out = run(R"(loops @p { arguments x x: input 0 f32[3]{1} y: output 0 f32[5]{1}
    n0: pointwise [i0: 5] -> y[i0] {
      %0 = index(i0)
      yield load_if(bit_and(greater_equal(%0, 1), less(%0, 4)), 9.0, x[i0-1])
    }
    return y [5]{1} })",
                       {&x});
  EXPECT_THAT(values(out[0]), ElementsAre(9, 1, 2, 3, 9));
}

TEST(Reference, Matmul) {
  Tensor a = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  Tensor b = floats({2, 3}, {1, 0, 1, 0, 1, 0});  // read transposed
  const auto out = run(R"(loops @p { arguments a, b
    a: input 0 f32[2,3]{3,1} b: input 1 f32[2,3]{3,1} y: output 0 f32[2,2]{2,1}
    n0: matmul f32 [i0: 2, i1: 2 | r0: 3] -> y[i0,i1] { mul(load a[i0,r0], load b[i1,r0]) }
    return y [2,2]{2,1} })",
                       {&a, &b});
  EXPECT_THAT(values(out[0]), ElementsAre(4, 2, 10, 5));
}

std::string convolution(const std::string& w, const std::string& y, const std::string& rest) {
  return "loops @p { arguments x, w x: input 0 f32[1,2,4]{8,4,1} w: input 1 f32[" + w +
         "]{4,2,1} y: output 0 f32[1,2," + y + "]{" + std::to_string(2 * std::stoi(y)) + "," + y +
         ",1} n0: convolution f32 [i0: 1, i1: 2, i2: " + y + "] -> y[i0,i1,i2] x x w w " + rest +
         " return y [1,2," + y + "]{8," + y + ",1} }";
}

TEST(Reference, Convolution) {
  Tensor x = floats({1, 2, 4}, {1, 2, 3, 4, 10, 20, 30, 40});
  Tensor w = floats({2, 2, 2}, {1, 0, 0, 1, 1, 1, 0, 0});
  const std::string same = "padding [0] dilation [1] output_padding [0] groups 1";
  EXPECT_THAT(values(run(convolution("2,2,2", "3", "stride [1] " + same), {&x, &w})[0]),
              ElementsAre(21, 32, 43, 3, 5, 7));
  EXPECT_THAT(values(run(convolution("2,2,2", "3",
                                     "stride [2] padding [1] dilation [1] output_padding [0] "
                                     "groups 1"),
                         {&x, &w})[0]),
              ElementsAre(10, 32, 4, 1, 5, 4));
  // Its transpose: y[o, i*stride + k] += x[c, i] w[c, o, k].
  Tensor v = floats({2, 2, 2}, {1, 2, 0, 0, 0, 0, 3, 0});
  EXPECT_THAT(
      values(run(convolution("2,2,2", "8", "stride [2] " + same + " transposed"), {&x, &v})[0]),
      ElementsAre(1, 2, 2, 4, 3, 6, 4, 8, 30, 0, 60, 0, 90, 0, 120, 0));
}

std::vector<double> attend(const std::string& flags, Tensor mask) {
  Tensor q = floats({1, 2, 2, 1}, {1, 1, 2, 0});
  Tensor k = floats({1, 1, 2, 1}, {0, 1});
  Tensor v = floats({1, 1, 2, 1}, {10, 20});
  return values(run(R"(loops @p { arguments q, k, v, m
    q: input 0 f32[1,2,2,1]{4,2,1,1} k: input 1 f32[1,1,2,1]{2,2,1,1} v: input 2 f32[1,1,2,1]{2,2,1,1}
    m: input 3 f32[2,2]{2,1} y: output 0 f32[1,2,2,1]{4,2,1,1}
    n0: attention f32 [i0: 1, i1: 2, i2: 2, i3: 1] -> y[i0,i1,i2,i3] over [a0: 1, a1: 2, a2: 2, a3: 2]
      q q[a0,a1,a2,a3] k k[a0,a1,a2,a3] v v[a0,a1,a2,a3] mask m[a2,a3] sizes [1,2,1,2,2,1,1] scale 1.0 )" +
                        flags + " return y [1,2,2,1]{4,2,1,1} }",
                    {&q, &k, &v, &mask})[0]);
}

TEST(Reference, AttentionToNoColumns) {
  for (const std::string flags : {"", " unsafe"}) {
    Tensor q = floats({1, 1, 2, 1}, {1, 2}), k = floats({1, 1, 0, 1}, {});
    EXPECT_THAT(values(run(R"(loops @p { arguments q, k
    q: input 0 f32[1,1,2,1]{2,2,1,1} k: input 1 f32[1,1,0,1]{1,1,1,1} y: output 0 f32[1,1,2,1]{2,2,1,1}
    n0: attention f32 [i0: 1, i1: 1, i2: 2, i3: 1] -> y[i0,i1,i2,i3] over [a0: 1, a1: 1, a2: 2, a3: 1]
      q q[a0,a1,a2,a3] k k[a0,a1,a2,a3] v k[a0,a1,a2,a3] sizes [1,1,1,2,0,1,1] scale 1.0)" +
                               flags + " return y [1,1,2,1]{2,2,1,1} }",
                           {&q, &k})[0]),
                ElementsAre(0, 0));
  }
}

double blend(double difference) { return 10 + 10 / (1 + std::exp(-difference)); }

TEST(Reference, Attention) {
  using testing::DoubleNear;
  const auto near = [](double v) { return DoubleNear(v, 1e-5); };
  EXPECT_THAT(attend("", floats({2, 2}, {0, 0, 0, 0})),
              ElementsAre(near(blend(1)), near(blend(1)), near(blend(2)), near(blend(0))));
  EXPECT_THAT(attend("causal", floats({2, 2}, {0, 0, 0, 0})),
              ElementsAre(10, near(blend(1)), 10, near(blend(0))));
  EXPECT_THAT(attend("", floats({2, 2}, {-kInfinity, -kInfinity, 0, 3})),
              ElementsAre(0, near(blend(4)), 0, near(blend(3))));
  EXPECT_TRUE(std::isnan(attend("unsafe", floats({2, 2}, {-kInfinity, -kInfinity, 0, 3}))[0]));
}

TEST(Reference, MutatesInputs) {
  Tensor x = floats({2}, {1, 2});
  const auto out = run(R"(loops @p { arguments x x: input 0 f32[2]{1}
    n0: pointwise [i0: 2] -> x[i0] { yield add(load x[i0], 1.0) }
    return input x [2]{1} })",
                       {&x});
  EXPECT_THAT(values(out[0]), ElementsAre(2, 3));
  EXPECT_EQ(reinterpret_cast<const float*>(x.bytes.data())[1], 3.0f);
}

TEST(Reference, EagerCalls) {
  const Program program = parse_program(R"(loops @p { arguments x x: input 0 f32[2]{1}
    t: output 0 f32[2]{1}
    n0: eager "aten::foo" target 3 (x, int 7) -> (t)
    return t [2]{1} })",
                                        "test.ir");
  Tensor x = floats({2}, {1, 2});
  const std::vector<ReferenceArgument> arguments = {x.argument()};
  EXPECT_THROW(static_cast<void>(run_reference(program, arguments)), Unsupported);
  const auto out = run_reference(
      program, arguments,
      [](const EagerCall& call, std::span<const ReferenceArgument> given,
         std::span<const abi::TensorView> results) {
        EXPECT_EQ(call.target, 3u);
        const auto* in = static_cast<const float*>(std::get<abi::TensorView>(given[0]).data);
        auto* data = static_cast<float*>(results[0].data);
        for (int i = 0; i < 2; ++i) data[i] = in[i] + static_cast<float>(std::get<1>(given[1]));
      });
  EXPECT_THAT(values(out[0]), ElementsAre(8, 9));
}

TEST(Reference, WrongArguments) {
  const std::string text = R"(loops @p { arguments x x: input 0 f32[2]{1} return input x [2]{1} })";
  Tensor longer = floats({3}, {1, 2, 3});
  EXPECT_THROW(run(text, {&longer}), UserError);
  Tensor other = integers({2}, {1, 2});
  EXPECT_THROW(run(text, {&other}), UserError);
  Tensor deeper = floats({1, 2}, {1, 2});
  EXPECT_THROW(run(text, {&deeper}), UserError);
  EXPECT_THROW(run(text, {}), UserError);
}

}  // namespace
}  // namespace inkle::loop
