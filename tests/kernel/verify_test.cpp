// What no text can say: kernels whose vectors do not fit together.
#include "kernel/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "kernel/builder.h"
#include "kernel/parse.h"
#include "kernel/variance.h"

namespace inkle::kernel {
namespace {

using testing::HasSubstr;

constexpr const char* kText =
    R"(kernel @k(in x: f32[64], out y: f32[64]) grid g in 2, thread t in 32 {
  registers r: f32[4]
  %0 = load x[t]
  %1 = for i in 4 unroll carry (%2: f32 = %0) {
    store r[i] = %2
    yield add(%2, 1.0)
  }
  %3 = if less(%1, 0.0) { yield %1 } else { yield neg(%1) }
  store y[t] = %3
})";

class Broken : public testing::Test {
 protected:
  Broken() : parsed_(parse_kernel(kText, "test")), k_(parsed_.kernel) { verify(k_); }

  OperationId find(Op op) const {
    for (OperationId id = 0; id < k_.operations.size(); ++id) {
      if (k_.operations[id].op == op) return id;
    }
    ADD_FAILURE();
    return 0;
  }
  Operation& get(Op op) { return k_.operations[find(op)]; }

  void expect(const std::string& message) {
    try {
      verify(k_, "some_pass");
      FAIL() << "nothing is found wrong";
    } catch (const InternalError& error) {
      EXPECT_THAT(error.what(), HasSubstr("after some_pass: kernel @k"));
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
    // Wrong kernels are printed too, to be looked at.
    EXPECT_FALSE(to_string(k_).empty());
  }

  ParsedKernel parsed_;
  Kernel& k_;
};

TEST_F(Broken, UseBeforeDefinition) {
  std::swap(k_.regions[k_.body].operations[0], k_.regions[k_.body].operations[1]);
  expect("operation");
}
TEST_F(Broken, UseOutsideOfTheRegion) {
  const Operation& loop = get(Op::loop);
  get(Op::store).operands[0] = loop.results[0];
  expect("is used where it is not defined");
}
TEST_F(Broken, UseOfAnInnerValue) {
  const ValueId inner = k_.regions[get(Op::branch).regions[1]].yields[0];
  k_.operations[k_.regions[k_.body].operations.back()].operands[0] = inner;
  expect("is used where it is not defined");
}
// The loop goes on beyond what is known of its variable.
TEST_F(Broken, LoopThatLeavesAMemory) {
  auto& loop = std::get<Loop>(get(Op::loop).detail);
  loop.end = loop.end + 1;
  expect("index 4 of r in dimension 0 of 4");
}
TEST_F(Broken, OperandThatDoesNotExist) {
  get(Op::store).operands[0] = 1000;
  expect("an operand that is no value");
}
TEST_F(Broken, ValueDefinedTwice) {
  const OperationId load = find(Op::load);
  k_.operations[load].results.push_back(k_.operations[load].results[0]);
  expect("defined twice");
}
TEST_F(Broken, OperationInTwoPlaces) {
  k_.regions[k_.body].operations.push_back(find(Op::load));
  expect("is in two places");
}
TEST_F(Broken, RegionInTwoPlaces) {
  Operation& branch = get(Op::branch);
  branch.regions[1] = branch.regions[0];
  expect("is in two places");
}
TEST_F(Broken, RegionThatDoesNotExist) {
  get(Op::loop).regions[0] = 77;
  expect("a region that does not exist");
}
TEST_F(Broken, MissingRegion) {
  get(Op::branch).regions.pop_back();
  expect("1 regions, not 2");
}
TEST_F(Broken, DetailOfAnotherOperation) {
  get(Op::load).detail = Vector{};
  expect("the detail of another operation");
}
TEST_F(Broken, MemoryThatDoesNotExist) {
  std::get<Access>(get(Op::load).detail).memory = 9;
  expect("a memory that does not exist");
}
TEST_F(Broken, ResultOfAnotherType) {
  k_.values[get(Op::load).results[0]].type = scalar_type(DType::f64);
  expect("operation");
}
TEST_F(Broken, YieldsOfAnotherType) {
  k_.regions[get(Op::loop).regions[0]].yields.clear();
  expect("the region yields values of (), not (f32)");
}
TEST_F(Broken, MissingExpression) {
  std::get<Access>(get(Op::load).detail).indices[0] = Expr();
  expect("a missing expression");
}
TEST_F(Broken, MissingBound) {
  std::get<Loop>(get(Op::loop).detail).end = Expr();
  expect("a missing expression");
}
TEST_F(Broken, TooFewIndices) {
  std::get<Access>(get(Op::load).detail).indices.clear();
  expect("0 indices into x of rank 1");
}
TEST_F(Broken, SymbolDeclaredTwice) {
  std::get<Loop>(get(Op::loop).detail).variable = k_.launch.axes[1].variable;
  expect("is declared twice");
}
TEST_F(Broken, OldValueThatIsNotReturned) {
  k_.memories[1].role = Role::inout;
  Operation& load = get(Op::load);
  Builder b(k_, *parsed_.context);
  const ValueId one = b.real(DType::f32, 1);
  Access access = std::get<Access>(load.detail);
  access.memory = 1;
  access.order = Order::relaxed;
  access.scope = Scope::gpu;
  const ValueId old = b.operation(Op::atomic, {one}, {scalar_type(DType::f32)},
                                  Atomic{access, AtomicOp::add, false})[0];
  b.store(1, {access.indices[0]}, old);
  expect("need not return it");
}
TEST_F(Broken, Limits) {
  EXPECT_NO_THROW(verify(k_, "", {.threads = 32}));
  EXPECT_THROW(verify(k_, "", {.threads = 16}), InternalError);
}

// Each value of the text, in order of definition.
TEST(VarianceOf, Values) {
  const ParsedKernel parsed = parse_kernel(R"(
kernel @k(in x: f32[64], inout y: f32[64], in i: i64[64]) grid g in 2, cluster c in 2, thread w in 4, thread t in 32 {
  shared s: f32[64]
  registers r: f32[4]
  %kernel = load x[0]
  %cluster = load x[g]
  %block = load x[c]
  %written = load y[0]
  %warp = load x[w]
  %thread = load x[t]
  %divided = index(floordiv(32*w+t,32))
  %shared = load s[0]
  %remote = load s[0] at 0
  %register = load r[0]
  %acquired = load y[0] acquire gpu
  %sum = reduce over w, t of (%thread) using s merge (%a: f32, %b: f32) { yield add(%a, %b) }
  %total = reduce over c, w, t of (%thread) using s merge (%a: f32, %b: f32) { yield add(%a, %b) }
  %warp_sum = reduce over t of (%thread) merge (%a: f32, %b: f32) { yield add(%a, %b) }
  %scanned = scan over t of (%kernel) merge (%a: f32, %b: f32) { yield add(%a, %b) }
  %sent = shuffle.from(%thread) by 3
  %chosen = if less(%warp, 0.0) { yield 1.0 } else { yield 2.0 }
  %steps = for n in g carry (%a: f32 = 0.0) { yield add(%a, 1.0) }
  %lanes = vector l in 4 {
    %lane = index(l)
    %same = index(w)
    yield %same
  }
  store y[t] = %thread
})",
                                           "test");
  const Kernel& k = parsed.kernel;
  const std::vector<Variance> all = variances(k);
  std::vector<Variance> found;
  for (const OperationId id : k.regions[k.body].operations) {
    const Operation& o = k[id];
    const bool is_help = o.op == Op::constant || o.op == Op::compute;
    if (!o.results.empty() && !is_help) found.push_back(all[o.results[0]]);
  }
  using enum Variance;
  EXPECT_EQ(found, (std::vector<Variance>{kernel, cluster, block, block, warp, thread, warp, block,
                                          cluster, thread, thread, block, cluster, warp, thread,
                                          warp, warp, cluster, warp}));
}

}  // namespace
}  // namespace inkle::kernel
