// Data types, layouts of loops and reductions, each against the interpreter.
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

// Rows that end in the middle of a vector, at any place: nothing behind them is written.
TEST(Rows, EndsOfNarrowedRows) {
  for (const DType to :
       {DType::bf16, DType::f16, DType::u8, DType::i8, DType::i16, DType::boolean}) {
    for (std::int64_t columns = 1; columns <= 35; ++columns) {
      SCOPED_TRACE(fmt::format("{} of {}", columns, abi::name_of(to)));
      constexpr std::int64_t kRows = 9;
      KernelBuilder b;
      const auto x = b.param(DType::f32);
      const auto out = b.param(to, kOut);
      const Expr row = b.outer(b.constant(kRows));
      b.pointwise(
          {b.constant(columns)},
          [&](BodyBuilder& body, const Indices& j) {
            body.yield(body.cast(body.load(x, DType::f32, {row * columns + j[0]}), to));
          },
          [&](const Indices& j) {
            return Stores{{out, row * columns + j[0]}};
          });
      check(b, inner_lanes(16),
            {random_array(DType::f32, kRows * columns, 5, 1, 100), Array(to, kRows * columns)}, {});
    }
  }
}

// A norm's backward: rows are walked, their columns gathered.
TEST(SequentialRows, SumsOfColumnsBesideRows) {
  for (const std::int64_t columns : {1, 5, 16, 100, 300}) {
    for (const std::int64_t more : {1, 3}) {
      SCOPED_TRACE(fmt::format("{} columns, {} loops", columns, more));
      constexpr std::int64_t kParts = 5, kRows = 7;
      const std::int64_t rows = kParts * kRows * more;
      KernelBuilder b;
      const auto x = b.param(DType::f32);
      const auto out = b.param(DType::f32, kOut);
      const auto parts = b.param(DType::f32, kOut);
      const auto sums = b.scratch(DType::f32, b.constant(columns));
      b.loops.scratch.back().is_carried = true;
      const Expr p = b.outer(b.constant(kParts));
      Expr row = p * kRows + b.outer(b.constant(kRows));
      b.loops.sequential = 1;
      if (more > 1) {
        row = row * more + b.outer(b.constant(more));
        b.loops.sequential = 2;
      }
      const auto at_column = [&](std::uint32_t target) {
        return [target](const Indices& j) { return Stores{{target, j[0]}}; };
      };
      const Expr n = b.constant(columns);
      b.pointwise(
           {n},
           [](BodyBuilder& body, const Indices&) { body.yield(body.constant(DType::f32, 0.0)); },
           at_column(sums))
          .phase = schedule::Phase::first;
      const auto r =
          b.reduce(ReduceOp::sum, DType::f32, {n}, [&](BodyBuilder& body, const Indices& j) {
            body.yield(body.load(x, DType::f32, {row * columns + j[0]}));
          });
      b.pointwise(
          {n},
          [&](BodyBuilder& body, const Indices& j) {
            const Val v = body.load(x, DType::f32, {row * columns + j[0]});
            const Val y = body.mul(v, body.row(r, DType::f32));
            body.yield(y);
            body.yield(body.add(body.load(sums, DType::f32, {j[0]}), y));
          },
          [&](const Indices& j) {
            return Stores{{out, row * columns + j[0], loop::StoreMode::overwrite, 0},
                          {sums, j[0], loop::StoreMode::overwrite, 1}};
          });
      b.pointwise(
           {n},
           [&](BodyBuilder& body, const Indices& j) {
             body.yield(body.load(sums, DType::f32, {j[0]}));
           },
           [&](const Indices& j) {
             return Stores{{parts, p * columns + j[0]}};
           })
          .phase = schedule::Phase::last;
      check(b, inner_lanes(16),
            {random_array(DType::f32, rows * columns, 3), Array(DType::f32, rows * columns),
             Array(DType::f32, kParts * columns)},
            {}, {.tolerance = 1e-5});
    }
  }
}

// --- Running extremes along a row, a vector at a time --------------------------------------------

// Two of them and what is made of both: the extreme, and the last index at which it was met. With
// `reversed` the last stage reads the first from behind, so that it runs when that has ended.
void running_extremes(ReduceOp op, DType dtype, std::int64_t n, bool is_symbolic, bool reversed) {
  SCOPED_TRACE(fmt::format("{} of {} {}", loop::name_of(op), n, abi::name_of(dtype)));
  KernelBuilder b;
  const auto x = b.param(dtype);
  const auto y = b.param(dtype, kOut);
  const auto z = b.param(DType::i64, kOut);
  const Expr length = is_symbolic ? b.size("s0", n) : b.constant(n);
  const Expr i = b.outer(b.constant(3));
  const auto extremes = b.scratch(dtype, length);
  const auto indices = b.scratch(DType::i32, length);
  const auto scan = [&](ReduceOp reduce, DType accumulator, std::uint32_t to,
                        const std::function<Val(BodyBuilder&, Expr)>& f) {
    Stage& stage = b.pointwise(
        {length}, [&](BodyBuilder& body, const Indices& j) { body.yield(f(body, j[0])); },
        [&](const Indices& j) {
          return Stores{{to, j[0]}};
        });
    stage.kind = schedule::StageKind::scan;
    stage.reduce = reduce;
    stage.accumulator = accumulator;
  };
  const auto own = [&](BodyBuilder& body, Expr j) { return body.load(x, dtype, {i * length + j}); };
  scan(op, dtype, extremes, own);
  scan(ReduceOp::max, DType::i32, indices, [&](BodyBuilder& body, Expr j) {
    const Val met = body.binary(Opcode::equal, own(body, j), body.load(extremes, dtype, {Expr(j)}));
    return body.select(met, body.cast(body.index(j), DType::i32), body.constant(DType::i32, 0));
  });
  b.pointwise(
      {length},
      [&](BodyBuilder& body, const Indices& j) {
        const Expr at = reversed ? length - 1 - j[0] : j[0];
        body.yield(body.load(extremes, dtype, {at}));
        body.yield(body.cast(body.load(indices, DType::i32, {j[0]}), DType::i64));
      },
      [&](const Indices& j) {
        return Stores{{y, i * length + j[0], loop::StoreMode::overwrite, 0},
                      {z, i * length + j[0], loop::StoreMode::overwrite, 1}};
      });
  Array data = random_array(dtype, 3 * n, 11, -5, 5);
  if (abi::is_float(dtype) && n > 20) {
    data.set(n + 7, kInf);
    data.set(2 * n + 9, -kInf);
    data.set(2 * n + 17, kNan);
  }
  const auto sizes = is_symbolic ? std::vector<std::int64_t>{n} : std::vector<std::int64_t>{};
  check(b, inner_lanes(16), {data, Array(dtype, 3 * n), Array(DType::i64, 3 * n)}, sizes);
}

TEST(LoopKernel, RunningExtremes) {
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    for (const DType dtype : {DType::i32, DType::i64, DType::f32, DType::f64}) {
      for (const std::int64_t n : {7, 64, 203}) {
        for (const bool is_symbolic : {false, true}) {
          for (const bool reversed : {false, true}) {
            running_extremes(op, dtype, n, is_symbolic, reversed);
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace inkle::codegen::cpu
