// Loop kernels with vectors along the last inner loop.
#include "codegen/cpu/kernel_fixture.h"

namespace inkle::codegen::cpu {
namespace {

constexpr auto kOut = schedule::ParamRole::out;

// out[i, j] = a[i, j] * b[j] + c[i]
void broadcast_multiply(std::int64_t rows, std::int64_t columns, int lanes, bool dynamic) {
  KernelBuilder b;
  const Expr m = dynamic ? b.size("m", rows) : b.constant(rows);
  const Expr n = dynamic ? b.size("n", columns, 0) : b.constant(columns);
  const auto a = b.param(DType::f32);
  const auto v = b.param(DType::f32);
  const auto c = b.param(DType::f32);
  const auto out = b.param(DType::f32, kOut);
  const Expr i = b.outer(m);
  b.pointwise(
      {n},
      [&](BodyBuilder& body, const std::vector<Expr>& j) {
        const Val x = body.load(a, DType::f32, {i * n + j[0]});
        const Val y = body.load(v, DType::f32, {j[0]});
        body.yield(body.add(body.mul(x, y), body.load(c, DType::f32, {i})));
      },
      [&](const std::vector<Expr>& j) {
        return std::vector<schedule::StageStore>{{out, i * n + j[0]}};
      });
  std::vector<std::int64_t> sizes;
  if (dynamic) sizes = {rows, columns};
  check(b, inner_lanes(lanes),
        {random_array(DType::f32, rows * columns, 1), random_array(DType::f32, columns, 2),
         random_array(DType::f32, rows, 3), Array(DType::f32, rows * columns)},
        sizes);
}

TEST(LoopKernel, BroadcastMultiply) {
  for (const bool dynamic : {false, true}) {
    for (const int lanes : {1, 8, 16}) {
      for (const std::int64_t columns : {0, 1, 7, 8, 16, 31, 64, 100, 1000}) {
        if (columns == 0 && !dynamic) continue;
        SCOPED_TRACE(fmt::format("dynamic {} lanes {} columns {}", dynamic, lanes, columns));
        broadcast_multiply(5, columns, lanes, dynamic);
      }
    }
  }
}

// out[i] = reduce of x[i, j]
void row_reduction(ReduceOp op, std::int64_t rows, std::int64_t columns, int lanes, bool dynamic,
                   double tolerance) {
  KernelBuilder b;
  const Expr m = dynamic ? b.size("m", rows) : b.constant(rows);
  const Expr n = dynamic ? b.size("n", columns, 0) : b.constant(columns);
  const auto x = b.param(DType::f32);
  const auto out = b.param(DType::f32, kOut);
  const Expr i = b.outer(m);
  const auto row =
      b.reduce(op, DType::f32, {n}, [&](BodyBuilder& body, const std::vector<Expr>& j) {
        body.yield(body.load(x, DType::f32, {i * n + j[0]}));
      });
  b.pointwise(
      {},
      [&](BodyBuilder& body, const std::vector<Expr>&) { body.yield(body.row(row, DType::f32)); },
      [&](const std::vector<Expr>&) {
        return std::vector<schedule::StageStore>{{out, i}};
      });
  Array data = random_array(DType::f32, rows * columns, 7, op == ReduceOp::prod ? 0.9 : -1, 1.1);
  std::vector<std::int64_t> sizes;
  if (dynamic) sizes = {rows, columns};
  check(b, inner_lanes(lanes), {data, Array(DType::f32, rows)}, sizes, {.tolerance = tolerance});
}

TEST(LoopKernel, RowReductions) {
  for (const bool dynamic : {false, true}) {
    for (const int lanes : {1, 8, 16}) {
      for (const std::int64_t columns : {1, 7, 16, 31, 64, 100, 768, 1000}) {
        SCOPED_TRACE(fmt::format("dynamic {} lanes {} columns {}", dynamic, lanes, columns));
        row_reduction(ReduceOp::sum, 4, columns, lanes, dynamic, 1e-6);
        row_reduction(ReduceOp::max, 4, columns, lanes, dynamic, 0);
        row_reduction(ReduceOp::min, 4, columns, lanes, dynamic, 0);
        row_reduction(ReduceOp::prod, 4, columns, lanes, dynamic, 1e-5);
      }
    }
  }
}

TEST(LoopKernel, EmptyRowsHaveTheSumZero) { row_reduction(ReduceOp::sum, 3, 0, 16, true, 0); }

TEST(LoopKernel, LongSumsKeepTheirDigits) {
  row_reduction(ReduceOp::sum, 1, 1 << 20, 16, false, 2e-7);
  row_reduction(ReduceOp::sum, 1, 1000003, 8, true, 2e-7);
}

}  // namespace
}  // namespace inkle::codegen::cpu
