// Accesses of kernels to memory, each against the interpreter.
#include "codegen/cpu/kernel_fixture.h"

namespace inkle::codegen::cpu {
namespace {

using Indices = std::vector<Expr>;
using Stores = std::vector<schedule::StageStore>;

constexpr auto kOut = schedule::ParamRole::out;

// table[index[i], j]; a bad index sets the status.
void embedding(std::int64_t bad, bool outer_vector) {
  KernelBuilder b;
  const Expr n = b.size("n", 9);
  const Expr vocabulary = b.constant(11);
  const auto index = b.param(DType::i64);
  const auto table = b.param(DType::f32);
  const auto out = b.param(DType::f32, kOut);
  const Expr i = b.outer(n);
  const Expr j = outer_vector ? b.outer(b.constant(21)) : Expr();
  const auto record = [&](BodyBuilder& body, Expr column) {
    const Expr row = body.indirect(body.load(index, DType::i64, {i}), vocabulary);
    body.yield(body.load(table, DType::f32, {row * 21 + column}));
  };
  if (outer_vector) {
    b.pointwise(
        {}, [&](BodyBuilder& body, const Indices&) { record(body, j); },
        [&](const Indices&) {
          return Stores{{out, i * 21 + j}};
        });
  } else {
    b.pointwise(
        {b.constant(21)}, [&](BodyBuilder& body, const Indices& k) { record(body, k[0]); },
        [&](const Indices& k) {
          return Stores{{out, i * 21 + k[0]}};
        });
  }
  Array indices = random_array(DType::i64, 9, 5, 0, 11);
  std::int64_t status = 0;
  if (bad != 0) indices.set(4, static_cast<double>(bad)), status = 1;
  check(b, outer_vector ? outer_lanes(8) : inner_lanes(8),
        {indices, random_array(DType::f32, 11 * 21, 6), Array(DType::f32, 9 * 21)}, {9},
        {.status = status});
}

TEST(Access, Embedding) {
  for (const bool outer : {false, true}) {
    embedding(0, outer);
    embedding(11, outer);
    embedding(-3, outer);
  }
}

// A table without rows: every index is bad, and nothing is read or written.
TEST(Access, EmptyTable) {
  for (const bool along_lanes : {false, true}) {
    for (const bool constant : {false, true}) {
      KernelBuilder b;
      const Expr n = constant ? b.constant(0) : b.size("n", 4, 0);
      const auto index = b.param(DType::i64);
      const auto table = b.param(DType::f32);
      const auto out = b.param(DType::f32, kOut);
      b.pointwise(
          {b.constant(21)},
          [&](BodyBuilder& body, const Indices& j) {
            const Expr at = along_lanes ? j[0] : b.constant(3);
            const Expr row = body.indirect(body.load(index, DType::i64, {at}), n);
            body.yield(body.load(table, DType::f32, {row * 21 + j[0]}));
          },
          [&](const Indices& j) {
            return Stores{{out, j[0]}};
          });
      b.finish();
      for (CpuCompiler* compiler : compilers()) {
        const CompileUnit unit{&b.kernel, inner_lanes(8)};
        const auto compiled = compiler->compile({&unit, 1});
        EXPECT_TRUE(compiled[0].can_fail);
        Array indices = random_array(DType::i64, 21, 5, 0, 11);
        std::vector<float> result(21, 1);
        void* buffers[] = {indices.bytes.data(), nullptr, result.data()};
        alignas(64) std::int64_t scratch[8] = {};
        const std::int64_t sizes[] = {0};
        compiled[0].function(buffers, sizes, scratch, 0, 1);
        EXPECT_EQ(scratch[0], 1);
        EXPECT_EQ(result[20], 0);
      }
    }
  }
}

// out[j] = x[index[j]], with indices along the lanes.
TEST(Access, GatherAlongLanes) {
  for (const DType d : {DType::u8, DType::bf16, DType::f32, DType::f64, DType::boolean}) {
    for (const DType at : {DType::i32, DType::i64}) {
      KernelBuilder b;
      const auto index = b.param(at);
      const auto x = b.param(d);
      const auto out = b.param(d, kOut);
      b.pointwise(
          {b.constant(53)},
          [&](BodyBuilder& body, const Indices& j) {
            const Val p = body.cast(body.load(index, at, {j[0]}), DType::i64);
            const Expr s = body.indirect_wrapped(p, b.constant(40));
            body.yield(body.load(x, d, {s * 3 + 1}));
          },
          [&](const Indices& j) {
            return Stores{{out, j[0]}};
          });
      check(b, inner_lanes(8),
            {random_array(at, 53, 8, -39, 39), random_array(d, 120, 9, 0, 90), Array(d, 53)}, {});
    }
  }
}

// Transposition, reversal, and index arithmetic that is not linear.
TEST(Access, StridesAndDivisions) {
  for (const bool dynamic : {false, true}) {
    KernelBuilder b;
    const Expr m = dynamic ? b.size("m", 6) : b.constant(6);
    const Expr n = dynamic ? b.size("n", 45) : b.constant(45);
    const auto x = b.param(DType::f32);
    const auto out = b.param(DType::f32, kOut);
    const auto second = b.param(DType::i64, kOut);
    const Expr i = b.outer(m);
    b.pointwise(
        {n},
        [&](BodyBuilder& body, const Indices& j) {
          const Val t = body.load(x, DType::f32, {j[0] * m + i});
          const Val r = body.load(x, DType::f32, {i * n + (n - 1 - j[0])});
          const Val q =
              body.load(x, DType::f32, {sym::floordiv(j[0], 3) * m + sym::mod(j[0] + i, 4)});
          body.yield(body.add(body.add(t, r), q));
          body.yield(body.index(sym::floordiv(j[0] - 20, 7) * 5 + sym::mod(j[0], n) + i));
        },
        [&](const Indices& j) {
          return Stores{{out, i * n + j[0], loop::StoreMode::overwrite, 0},
                        {second, j[0] * m + i, loop::StoreMode::overwrite, 1}};
        });
    std::vector<std::int64_t> sizes;
    if (dynamic) sizes = {6, 45};
    check(b, inner_lanes(16),
          {random_array(DType::f32, 270, 4), Array(DType::f32, 270), Array(DType::i64, 270)},
          sizes);
  }
}

// Heads split from and merged into rows: quotients and remainders that stay inside of the lanes, or
// cross them.
TEST(Access, QuotientsOfWholeVectors) {
  for (const std::int64_t head : {64, 48, 20}) {
    for (const bool columns : {false, true}) {
      KernelBuilder b;
      const Expr m = b.size("m", 5);
      const Expr width = b.constant(head * 3);
      const auto x = b.param(DType::f32);
      const auto bias = b.param(DType::bf16);
      const auto out = b.param(DType::f32, kOut);
      const auto position = b.param(DType::i64, kOut);
      const Expr i = b.outer(m);
      const Expr column = columns ? b.outer(width) : Expr();
      const auto at = [&](Expr j) {
        return (sym::floordiv(j, head) * m + i) * head + sym::mod(j, head);
      };
      const auto record = [&](BodyBuilder& body, Expr j) {
        const Val a = body.load(x, DType::f32, {at(j)});
        const Val c =
            body.cast(body.load(bias, DType::bf16, {sym::mod(j + head, head * 2)}), DType::f32);
        const Val d = body.cast(body.load(bias, DType::bf16, {sym::floordiv(j, 32)}), DType::f32);
        body.yield(body.add(body.add(a, c), d));
        body.yield(body.index(sym::floordiv(j, head) * 100 + sym::mod(j, head) * 2 + i));
      };
      const auto stores = [&](Expr j) {
        return Stores{{out, at(j), loop::StoreMode::overwrite, 0},
                      {position, i * width + j, loop::StoreMode::overwrite, 1}};
      };
      if (columns) {
        b.pointwise(
            {}, [&](BodyBuilder& body, const Indices&) { record(body, column); },
            [&](const Indices&) { return stores(column); });
      } else {
        b.pointwise(
            {width}, [&](BodyBuilder& body, const Indices& j) { record(body, j[0]); },
            [&](const Indices& j) { return stores(j[0]); });
      }
      const std::int64_t n = 5 * head * 3;
      check(b, columns ? outer_lanes(16) : inner_lanes(16),
            {random_array(DType::f32, n, 1), random_array(DType::bf16, head * 2, 2),
             Array(DType::f32, n), Array(DType::i64, n)},
            {5});
    }
  }
}

// Padding: out[j] = 0 <= j - 2 < 30 ? x[j - 2] : 7
TEST(Access, MaskedLoads) {
  for (const bool row_predicate : {false, true}) {
    KernelBuilder b;
    const auto x = b.param(DType::f32);
    const auto out = b.param(DType::f32, kOut);
    const Expr i = b.outer(b.constant(3));
    b.pointwise(
        {b.constant(34)},
        [&](BodyBuilder& body, const Indices& j) {
          const Expr at = row_predicate ? i - 1 : j[0] - 2;
          const Val p = body.index(at);
          const Val inside = body.logical_and(
              body.binary(Opcode::greater_equal, p, body.constant(DType::i64, std::int64_t{0})),
              body.less(p, body.constant(DType::i64, std::int64_t{row_predicate ? 1 : 30})));
          const Expr offset = row_predicate ? (i - 1) * 34 + j[0] : j[0] - 2;
          body.yield(body.load_if(inside, body.constant(DType::f32, 7.0), x, DType::f32, {offset}));
        },
        [&](const Indices& j) {
          return Stores{{out, i * 34 + j[0]}};
        });
    check(b, inner_lanes(8), {random_array(DType::f32, 34, 4), Array(DType::f32, 102)}, {});
  }
}

TEST(Access, AtomicAdd) {
  for (const DType d : {DType::f32, DType::f64, DType::i32, DType::i64}) {
    KernelBuilder b;
    const auto index = b.param(DType::i64);
    const auto x = b.param(d);
    const auto out = b.param(d, schedule::ParamRole::inout);
    b.pointwise(
        {b.constant(53)},
        [&](BodyBuilder& body, const Indices& j) {
          const Expr s = body.indirect(body.load(index, DType::i64, {j[0]}), b.constant(10));
          (void)s;
          body.yield(body.load(x, d, {j[0]}));
        },
        [&](const Indices&) {
          const auto& body = b.loops.stages;
          (void)body;
          return Stores{};
        });
    auto& stage = b.loops.stages.back();
    for (const auto& i : stage.body.instructions) {
      if (i.opcode == Opcode::indirect) {
        stage.stores.push_back({out, i.indices[0], loop::StoreMode::atomic_add, 0});
      }
    }
    ASSERT_EQ(stage.stores.size(), 1U);
    check(b, inner_lanes(8),
          {random_array(DType::i64, 53, 8, 0, 9.99), random_array(d, 53, 9, -20, 20), Array(d, 10)},
          {}, {.tolerance = 1e-6});
  }
}

}  // namespace
}  // namespace inkle::codegen::cpu
