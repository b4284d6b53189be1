// Data types, layouts of loops, accesses and reductions, each against the interpreter.
#include <cmath>
#include <limits>

#include "codegen/cpu/kernel_fixture.h"

namespace inkle::codegen::cpu {
namespace {

using Indices = std::vector<Expr>;
using Stores = std::vector<schedule::StageStore>;

constexpr auto kOut = schedule::ParamRole::out;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

const DType kTypes[] = {DType::boolean, DType::u8,  DType::i8,   DType::i16, DType::i32,
                        DType::i64,     DType::f16, DType::bf16, DType::f32, DType::f64};

TEST(Types, EveryCast) {
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      for (const bool outer : {false, true}) {
        SCOPED_TRACE(fmt::format("{} to {}", abi::name_of(from), abi::name_of(to)));
        KernelBuilder b;
        const auto x = b.param(from);
        const auto out = b.param(to, kOut);
        const std::int64_t n = 75;
        const Expr i = b.outer(b.constant(outer ? n : 1));
        Array data = random_array(from, n, 3, from == DType::u8 ? 0 : -100, 100);
        if (abi::is_float(from) && abi::is_float(to)) {
          const double special[] = {kNan,    kInf,  -kInf,  0.0,       1e-40,
                                    65519.9, 65520, 3.4e38, 1.00390625};
          for (int k = 0; k < 9; ++k) data.set(k, special[k]);
        } else if (abi::is_float(from) && to == DType::u8) {
          data.fill_random(3, 0, 100);
        }
        const auto record = [&](BodyBuilder& body, Expr at) {
          body.yield(body.cast(body.load(x, from, {at}), to));
        };
        if (outer) {
          b.pointwise(
              {}, [&](BodyBuilder& body, const Indices&) { record(body, i); },
              [&](const Indices&) {
                return Stores{{out, i}};
              });
        } else {
          b.pointwise(
              {b.constant(n)}, [&](BodyBuilder& body, const Indices& j) { record(body, j[0]); },
              [&](const Indices& j) {
                return Stores{{out, j[0]}};
              });
        }
        check(b, outer ? outer_lanes(16) : inner_lanes(16), {data, Array(to, n)}, {});
      }
    }
  }
}

void binary_case(Opcode op, DType dtype, const Array& left, const Array& right,
                 std::int64_t status = 0) {
  SCOPED_TRACE(fmt::format("{} of {}", loop::name_of(op), abi::name_of(dtype)));
  const bool compares = op >= Opcode::equal && op <= Opcode::greater_equal;
  const DType result = compares ? DType::boolean : dtype;
  KernelBuilder b;
  const auto x = b.param(dtype);
  const auto y = b.param(dtype);
  const auto out = b.param(result, kOut);
  b.pointwise(
      {b.constant(left.count)},
      [&](BodyBuilder& body, const Indices& j) {
        body.yield(body.binary(op, body.load(x, dtype, {j[0]}), body.load(y, dtype, {j[0]})));
      },
      [&](const Indices& j) {
        return Stores{{out, j[0]}};
      });
  check(b, inner_lanes(8), {left, right, Array(result, left.count)}, {}, {.status = status});
}

TEST(Types, Binary) {
  const Opcode common[] = {Opcode::add,        Opcode::sub,     Opcode::mul,          Opcode::min,
                           Opcode::max,        Opcode::equal,   Opcode::not_equal,    Opcode::less,
                           Opcode::less_equal, Opcode::greater, Opcode::greater_equal};
  const Opcode divisions[] = {Opcode::div, Opcode::floordiv, Opcode::remainder, Opcode::fmod};
  const Opcode bits[] = {Opcode::bit_and, Opcode::bit_or, Opcode::bit_xor};
  for (const DType d :
       {DType::u8, DType::i8, DType::i16, DType::i32, DType::i64, DType::f32, DType::f64}) {
    const double low = d == DType::u8 ? 0 : -50;
    Array a = random_array(d, 83, 1, low, 50);
    Array c = random_array(d, 83, 2, low, 50);
    if (abi::is_float(d)) {
      a.set(0, kNan), c.set(1, kNan), a.set(2, kInf), c.set(3, -kInf), c.set(4, 0), a.set(5, 0);
    } else {
      for (std::int64_t i = 0; i < c.count; ++i) {
        if (c.get(i) == 0) c.set(i, 7);
      }
      if (d == DType::i32) a.set(0, -2147483648.0), c.set(0, -1);
    }
    for (const Opcode op : common) binary_case(op, d, a, c);
    for (const Opcode op : divisions) binary_case(op, d, a, c);
    if (abi::is_float(d)) continue;
    for (const Opcode op : bits) binary_case(op, d, a, c);
    Array counts = random_array(d, 83, 4, 0, static_cast<double>(abi::size_of(d)) * 8 + 3);
    binary_case(Opcode::shift_left, d, a, counts);
    binary_case(Opcode::shift_right, d, a, counts);
  }
  const Array p = random_array(DType::boolean, 83, 1, 0, 2);
  const Array q = random_array(DType::boolean, 83, 2, 0, 2);
  for (const Opcode op : bits) binary_case(op, DType::boolean, p, q);
}

TEST(Faults, DivisionByZeroSetsTheStatus) {
  Array a = random_array(DType::i32, 20, 1, 1, 50);
  Array c = random_array(DType::i32, 20, 2, 1, 50);
  c.set(19, 0);
  KernelBuilder b;
  const auto x = b.param(DType::i32);
  const auto y = b.param(DType::i32);
  b.pointwise(
      {b.constant(20)},
      [&](BodyBuilder& body, const Indices& j) {
        body.yield(body.binary(Opcode::div, body.load(x, DType::i32, {j[0]}),
                               body.load(y, DType::i32, {j[0]})));
      },
      [&](const Indices&) { return Stores{}; });
  check(b, inner_lanes(8), {a, c}, {}, {.status = 2});
}

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

// Softmax over rows, or over columns.
void softmax(std::int64_t rows, std::int64_t columns, bool over_columns, const Schedule& schedule,
             bool online, bool dynamic) {
  SCOPED_TRACE(fmt::format("{} x {}, over columns {}, online {}, dynamic {}", rows, columns,
                           over_columns, online, dynamic));
  KernelBuilder b;
  const Expr m = dynamic ? b.size("m", rows) : b.constant(rows);
  const Expr n = dynamic ? b.size("n", columns) : b.constant(columns);
  const auto x = b.param(DType::f32);
  const auto out = b.param(DType::f32, kOut);
  const Expr i = b.outer(m);
  const auto at = [&](Expr j) { return over_columns ? j * m + i : i * n + j; };
  const auto load = [&](BodyBuilder& body, const Indices& j) {
    return body.load(x, DType::f32, {at(j[0])});
  };
  std::uint32_t maximum = 0;
  std::uint32_t sum = 1;
  if (online) {
    maximum = b.reduce(ReduceOp::online_softmax, DType::f32, {n},
                       [&](BodyBuilder& body, const Indices& j) { body.yield(load(body, j)); });
  } else {
    maximum = b.reduce(ReduceOp::max, DType::f32, {n},
                       [&](BodyBuilder& body, const Indices& j) { body.yield(load(body, j)); });
    sum = b.reduce(ReduceOp::sum, DType::f32, {n}, [&](BodyBuilder& body, const Indices& j) {
      body.yield(body.unary(Opcode::exp, body.sub(load(body, j), body.row(maximum, DType::f32))));
    });
  }
  b.pointwise(
      {n},
      [&](BodyBuilder& body, const Indices& j) {
        const Val e =
            body.unary(Opcode::exp, body.sub(load(body, j), body.row(maximum, DType::f32)));
        body.yield(body.div(e, body.row(sum, DType::f32)));
      },
      [&](const Indices& j) {
        return Stores{{out, at(j[0])}};
      });
  std::vector<std::int64_t> sizes;
  if (dynamic) sizes = {rows, columns};
  check(b, schedule,
        {random_array(DType::f32, rows * columns, 3, -9, 9), Array(DType::f32, rows * columns)},
        sizes, {.tolerance = 1e-6});
}

TEST(Kernels, Softmax) {
  for (const bool dynamic : {false, true}) {
    for (const bool online : {false, true}) {
      for (const std::int64_t columns : {5, 64, 131}) {
        softmax(7, columns, false, inner_lanes(16), online, dynamic);
        for (const std::int64_t rows : {3, 16, 200}) {
          softmax(rows, columns, true, outer_lanes(8), online, dynamic);
        }
      }
    }
  }
}

// Layer norm with the row x + r kept in scratch.
void layer_norm(std::int64_t rows, std::int64_t columns, DType dtype, const Schedule& schedule,
                bool over_columns) {
  SCOPED_TRACE(fmt::format("{} x {}, over columns {}", rows, columns, over_columns));
  KernelBuilder b;
  const Expr m = b.size("m", rows);
  const Expr n = b.constant(columns);
  const auto x = b.param(dtype);
  const auto r = b.param(dtype);
  const auto g = b.param(dtype);
  const auto out = b.param(dtype, kOut);
  const auto kept = b.scratch(DType::f32, n);
  const Expr i = b.outer(m);
  const auto at = [&](Expr j) { return over_columns ? j * m + i : i * n + j; };
  b.pointwise(
      {n},
      [&](BodyBuilder& body, const Indices& j) {
        const Val a = body.cast(body.load(x, dtype, {at(j[0])}), DType::f32);
        body.yield(body.add(a, body.cast(body.load(r, dtype, {at(j[0])}), DType::f32)));
      },
      [&](const Indices& j) {
        return Stores{{kept, j[0]}};
      });
  const auto mean =
      b.reduce(ReduceOp::welford, DType::f32, {n}, [&](BodyBuilder& body, const Indices& j) {
        body.yield(body.load(kept, DType::f32, {j[0]}));
      });
  b.pointwise(
      {n},
      [&](BodyBuilder& body, const Indices& j) {
        const Val variance = body.div(body.row(mean + 1, DType::f32),
                                      body.constant(DType::f32, static_cast<double>(columns)));
        const Val scale =
            body.unary(Opcode::rsqrt, body.add(variance, body.constant(DType::f32, 1e-5)));
        const Val centered =
            body.sub(body.load(kept, DType::f32, {j[0]}), body.row(mean, DType::f32));
        const Val gain = body.cast(body.load(g, dtype, {j[0]}), DType::f32);
        body.yield(body.cast(body.mul(body.mul(centered, scale), gain), dtype));
      },
      [&](const Indices& j) {
        return Stores{{out, at(j[0])}};
      });
  const double tolerance = dtype == DType::bf16 ? 5e-3 : dtype == DType::f16 ? 1e-3 : 2e-6;
  check(b, schedule,
        {random_array(dtype, rows * columns, 3, 90, 110), random_array(dtype, rows * columns, 4),
         random_array(dtype, columns, 5), Array(dtype, rows * columns)},
        {rows}, {.tolerance = tolerance});
}

TEST(Kernels, LayerNorm) {
  for (const DType d : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t columns : {1, 20, 384}) {
      layer_norm(5, columns, d, inner_lanes(16), false);
      layer_norm(37, columns, d, outer_lanes(8), true);
      layer_norm(130, columns, d, outer_lanes(16, 128), true);
    }
  }
}

// Reductions of every type and kind, over two inner loops, with special values.
void reduction(ReduceOp op, DType dtype, DType accumulator, Array data, bool over_columns,
               bool dynamic) {
  SCOPED_TRACE(fmt::format("op {} of {}, over columns {}, dynamic {}", static_cast<int>(op),
                           abi::name_of(dtype), over_columns, dynamic));
  const std::int64_t rows = 6;
  const std::int64_t middle = 3;
  const std::int64_t columns = data.count / rows / middle;
  KernelBuilder b;
  const Expr m = dynamic ? b.size("m", rows) : b.constant(rows);
  const Expr n = dynamic ? b.size("n", columns) : b.constant(columns);
  const auto x = b.param(dtype);
  const Expr i = b.outer(m);
  const bool position = op == ReduceOp::argmin || op == ReduceOp::argmax;
  const bool logical = op == ReduceOp::any || op == ReduceOp::all;
  const DType result = position ? DType::i64 : logical ? DType::boolean : accumulator;
  const auto out = b.param(result, kOut);
  const auto row =
      b.reduce(op, accumulator, {b.constant(middle), n}, [&](BodyBuilder& body, const Indices& j) {
        const Expr at = over_columns ? (j[0] * n + j[1]) * m + i : (i * middle + j[0]) * n + j[1];
        body.yield(body.cast(body.load(x, dtype, {at}), accumulator));
      });
  b.store_row(row, out, i);
  std::vector<std::int64_t> sizes;
  if (dynamic) sizes = {rows, columns};
  check(b, over_columns ? outer_lanes(4) : inner_lanes(8), {std::move(data), Array(result, rows)},
        sizes, {.tolerance = 2e-6});
}

TEST(Reductions, AllKinds) {
  for (const bool over_columns : {false, true}) {
    for (const bool dynamic : {false, true}) {
      for (const DType d :
           {DType::f32, DType::f64, DType::i64, DType::i32, DType::u8, DType::bf16}) {
        const DType accumulator = d == DType::bf16 ? DType::f32 : d;
        for (const ReduceOp op :
             {ReduceOp::min, ReduceOp::max, ReduceOp::argmin, ReduceOp::argmax}) {
          // Few values: many ties.
          Array data = random_array(d, 6 * 3 * 61, 5, d == DType::u8 ? 0 : -4, 4);
          for (std::int64_t i = 0; i < data.count; ++i) data.set(i, std::trunc(data.get(i)));
          reduction(op, d, accumulator, data, over_columns, dynamic);
          if (!abi::is_float(d)) continue;
          data.set(100, kNan), data.set(150, kNan), data.set(300, -kInf), data.set(500, kInf);
          for (std::int64_t i = 0; i < 183; ++i) data.set(i + 5 * 183, -kInf);
          reduction(op, d, accumulator, data, over_columns, dynamic);
        }
        const DType sum = abi::is_integer(d) ? DType::i64 : accumulator;
        reduction(ReduceOp::sum, d, sum, random_array(d, 6 * 3 * 61, 5, 0, 9), over_columns,
                  dynamic);
      }
      for (const double high : {1.0, 1.01, 2.0}) {
        for (const ReduceOp op : {ReduceOp::any, ReduceOp::all}) {
          Array data = random_array(DType::boolean, 6 * 3 * 61, 5, high == 2.0 ? 1 : 0, high);
          reduction(op, DType::boolean, DType::boolean, data, over_columns, dynamic);
        }
      }
    }
  }
}

// Three outer loops, the last one along the lanes or not, and an inner extent of 1 or 7.
TEST(Kernels, SeveralOuterLoops) {
  for (const bool dynamic : {false, true}) {
    for (const bool columns : {false, true}) {
      for (const std::int64_t inner : {1, 7}) {
        KernelBuilder b;
        const Expr p = dynamic ? b.size("p", 3) : b.constant(3);
        const Expr q = dynamic ? b.size("q", 5) : b.constant(5);
        const Expr r = dynamic ? b.size("r", 70) : b.constant(70);
        const auto x = b.param(DType::f32);
        const auto y = b.param(DType::f32);
        const auto out = b.param(DType::f32, kOut);
        const Expr i = b.outer(p);
        const Expr j = b.outer(q);
        const Expr k = b.outer(r);
        const Expr at = (i * q + j) * r + k;
        b.pointwise(
            {b.constant(inner)},
            [&](BodyBuilder& body, const Indices& l) {
              body.yield(body.mul(body.load(x, DType::f32, {at * inner + l[0]}),
                                  body.load(y, DType::f32, {j * inner + l[0]})));
            },
            [&](const Indices& l) {
              return Stores{{out, at * inner + l[0]}};
            });
        std::vector<std::int64_t> sizes;
        if (dynamic) sizes = {3, 5, 70};
        const std::int64_t n = 3 * 5 * 70 * inner;
        schedule::Schedule schedule = columns ? outer_lanes(16, 32) : inner_lanes(16);
        for (const bool strips : {false, true}) {
          schedule.strips = strips;
          check(b, schedule,
                {random_array(DType::f32, n, 1), random_array(DType::f32, 5 * inner, 2),
                 Array(DType::f32, n)},
                sizes);
        }
      }
    }
  }
}

TEST(Kernels, Random) {
  KernelBuilder b;
  const auto out = b.param(DType::i64, kOut);
  b.pointwise(
      {b.constant(40)},
      [&](BodyBuilder& body, const Indices& j) {
        body.yield(body.random(body.constant(DType::i64, std::int64_t{0x123456789abcdef}),
                               body.index(j[0] * 3 + 1)));
      },
      [&](const Indices& j) {
        return Stores{{out, j[0]}};
      });
  check(b, inner_lanes(8), {Array(DType::i64, 40)}, {});
}

}  // namespace
}  // namespace inkle::codegen::cpu
