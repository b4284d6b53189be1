// Rows of a GPU's schedules as kernel IR: verified, and run by the interpreter with all blocks and
// threads under several interleavings, against the loop kernel itself.
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "base/error.h"
#include "kernel/interpret.h"
#include "kernel/mutate.h"
#include "kernel/parse.h"
#include "kernel/passes.h"
#include "kernel/verify.h"
#include "schedule/expand.h"
#include "schedule/kernel_builder.h"

namespace inkle::schedule::testing {
namespace {

BlockSchedule rows(std::int32_t threads, std::int32_t team, std::int32_t lanes, bool keep,
                   std::int32_t unroll = 1) {
  BlockSchedule b;
  b.mapping = BlockSchedule::Rows{.team = team, .keep = keep, .unroll = unroll};
  b.threads = threads;
  b.lanes = lanes;
  return b;
}

// `passes_memory`: what one thread stores another loads, behind barriers that a pass places.
void check(KernelBuilder& builder, const BlockSchedule& blocks, const std::vector<Array>& arrays,
           const std::vector<std::int64_t>& sizes, double tolerance, bool passes_memory = false) {
  SCOPED_TRACE(to_string(blocks));
  for (Param& p : builder.kernel.params) p.alignment = 16;
  builder.finish();
  std::vector<Array> expected = arrays;
  ASSERT_EQ(interpret(builder.kernel, expected, sizes), 0);
  Schedule schedule;
  schedule.blocks = blocks;
  kernel::Kernel made = expand(builder.kernel, schedule, builder.context);
  kernel::verify(made);
  const std::string text = kernel::to_string(made);
  EXPECT_EQ(kernel::to_string(kernel::parse_kernel(text, "text").kernel), text);
  if (!passes_memory && blocks.rows().cluster == 1) {
    expect_run(made, arrays, expected, sizes, kernel::Writes::by_role, tolerance, "expanded");
  }
  kernel::run_passes(made, builder.context, kernel::gpu_passes(), {.verify_each = true});
  expect_run(made, arrays, expected, sizes, kernel::Writes::by_role, tolerance, "lowered");
  if (::testing::Test::HasFailure()) ADD_FAILURE() << text << kernel::to_string(made);
}

// Without keep, with one access in flight and with several; then kept.
std::vector<BlockSchedule> schedules() {
  std::vector<BlockSchedule> all;
  for (const bool keep : {false, true}) {
    for (const std::int32_t unroll : {1, 3}) {
      if (keep && unroll > 1) continue;
      all.push_back(rows(64, 1, 1, keep, unroll));
      all.push_back(rows(64, 1, 4, keep, unroll));
      all.push_back(rows(64, 8, 4, keep, unroll));
      all.push_back(rows(64, 32, 1, keep, unroll));
      all.push_back(rows(64, 32, 2, keep, unroll));
      all.push_back(rows(128, 128, 4, keep, unroll));
    }
  }
  return all;
}

struct Extents {
  std::int64_t rows, elements;
  bool is_symbolic = false;  // elements
};
// Whole accesses; rows that start anywhere; shorter than a team; shorter than an access.
std::vector<Extents> extents() {
  return {{3, 512}, {5, 1001}, {7, 13}, {9, 3}, {5, 203, true}, {2, 96, true}};
}

Array interesting(DType dtype, std::int64_t n, unsigned seed, ReduceOp op) {
  if (op == ReduceOp::prod) return random_array(dtype, n, seed, 0.99, 1.01);
  Array a = random_array(dtype, n, seed, -8, 8);
  const bool searches = op == ReduceOp::argmin || op == ReduceOp::argmax;
  // Ties, and elements that are much larger than those before.
  for (std::int64_t i = 0; searches && i < n; ++i) a.set(i, static_cast<double>(i * 7 % 5));
  if (op == ReduceOp::any || op == ReduceOp::all) {
    for (std::int64_t i = 0; i < n; ++i) a.set(i, i % 17 == 0 ? 1 : 0);
  }
  if (op == ReduceOp::online_softmax) a.set(n / 2, 40);
  return a;
}

void check_reduction(ReduceOp op, DType dtype, const BlockSchedule& blocks, Extents e,
                     const std::optional<Array>& given = std::nullopt, double tolerance = 2e-5) {
  if (blocks.rows().keep && e.is_symbolic) return;
  SCOPED_TRACE(fmt::format("{} of {} x {}", loop::name_of(op), e.rows, e.elements));
  KernelBuilder b;
  const DType row = op == ReduceOp::argmin || op == ReduceOp::argmax ? DType::i64
                    : op == ReduceOp::any || op == ReduceOp::all     ? DType::boolean
                                                                     : dtype;
  const std::uint32_t x = b.param(dtype);
  std::vector<std::uint32_t> results;
  for (std::size_t r = 0; r < loop::result_count(op); ++r) {
    results.push_back(b.param(row, ParamRole::out));
  }
  const Expr n = e.is_symbolic ? b.size("s0", e.elements) : b.constant(e.elements);
  const Expr i = b.outer(b.constant(e.rows));
  const std::uint32_t first = b.reduce(op, dtype, {n}, [&](BodyBuilder& body, const auto& inner) {
    body.yield(body.load(x, dtype, {i * n + inner[0]}));
  });
  for (std::size_t r = 0; r < results.size(); ++r) {
    b.store_row(first + static_cast<std::uint32_t>(r), results[r], i);
  }
  std::vector<Array> arrays{given ? *given : interesting(dtype, e.rows * e.elements, 7, op)};
  for (std::size_t r = 0; r < results.size(); ++r) arrays.emplace_back(row, e.rows);
  const std::vector<std::int64_t> sizes =
      e.is_symbolic ? std::vector<std::int64_t>{e.elements} : std::vector<std::int64_t>{};
  check(b, blocks, arrays, sizes, abi::is_float(row) ? tolerance : 0);
}

class Reductions : public ::testing::TestWithParam<ReduceOp> {};

TEST_P(Reductions, AllSchedules) {
  for (const BlockSchedule& blocks : schedules()) {
    for (const Extents& e : extents()) {
      check_reduction(GetParam(), DType::f32, blocks, e);
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Reductions,
                         ::testing::Values(ReduceOp::sum, ReduceOp::prod, ReduceOp::min,
                                           ReduceOp::max, ReduceOp::any, ReduceOp::all,
                                           ReduceOp::argmin, ReduceOp::argmax, ReduceOp::welford,
                                           ReduceOp::online_softmax),
                         [](const auto& test) { return std::string(loop::name_of(test.param)); });

std::vector<BlockSchedule> with_clusters() {
  std::vector<BlockSchedule> all = schedules();
  for (const bool keep : {false, true}) {
    all.push_back(rows(64, 64, 4, keep, keep ? 1 : 2));
    std::get<BlockSchedule::Rows>(all.back().mapping).cluster = 2;
    all.push_back(rows(256, 256, 2, keep));
    std::get<BlockSchedule::Rows>(all.back().mapping).cluster = 4;
  }
  return all;
}

TEST(ExpandRows, Clusters) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::argmax, ReduceOp::welford}) {
    for (const BlockSchedule& blocks : with_clusters()) {
      if (blocks.rows().cluster == 1) continue;
      for (const Extents& e : extents()) check_reduction(op, DType::f32, blocks, e);
      if (HasFailure()) return;
    }
  }
}

// The squares of the numbers, and of the difference of a mean from that of no elements, which is 0,
// are beyond f32; those of the deviations are not.
TEST(ExpandRows, MomentsOfLargeNumbers) {
  for (const BlockSchedule& blocks : schedules()) {
    for (const Extents& e : {Extents{9, 3}, Extents{5, 203}, Extents{2, 96, true}}) {
      Array x = random_array(DType::f32, e.rows * e.elements, 7, -4e17, 4e17);
      for (std::int64_t i = 0; i < x.count; ++i) x.set(i, 1e20 + x.get(i));
      check_reduction(ReduceOp::welford, DType::f32, blocks, e, x, 2e-4);
      if (HasFailure()) return;
    }
  }
}

TEST(ExpandRows, OtherTypes) {
  for (const DType dtype : {DType::i32, DType::i64, DType::f64}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::argmin}) {
      for (const BlockSchedule& blocks : {rows(64, 8, 4, true), rows(64, 64, 2, false, 2)}) {
        check_reduction(op, dtype, blocks, {5, 203});
        if (HasFailure()) return;
      }
    }
  }
  check_reduction(ReduceOp::online_softmax, DType::f64, rows(64, 8, 4, false), {5, 203});
}

TEST(ExpandRows, Scans) {
  for (const BlockSchedule& blocks : schedules()) {
    if (blocks.rows().keep) continue;
    for (const Extents& e : extents()) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
        KernelBuilder b;
        const std::uint32_t x = b.param(DType::f32);
        const std::uint32_t y = b.param(DType::f32, ParamRole::out);
        const Expr n = e.is_symbolic ? b.size("s0", e.elements) : b.constant(e.elements);
        const Expr i = b.outer(b.constant(e.rows));
        Stage& stage = b.pointwise(
            {n},
            [&](BodyBuilder& body, const auto& inner) {
              body.yield(body.load(x, DType::f32, {i * n + inner[0]}));
            },
            [&](const auto& inner) {
              return std::vector<StageStore>{{y, i * n + inner[0]}};
            });
        stage.kind = StageKind::scan;
        stage.reduce = op;
        const std::int64_t count = e.rows * e.elements;
        const std::vector<Array> arrays{random_array(DType::f32, count, 3),
                                        Array(DType::f32, count)};
        const auto sizes =
            e.is_symbolic ? std::vector<std::int64_t>{e.elements} : std::vector<std::int64_t>{};
        check(b, blocks, arrays, sizes, 1e-5);
        if (HasFailure()) return;
      }
    }
  }
}

// Few long rows, in chunks of 256 elements and more; the last group of them is not whole.
void check_chunks(ReduceOp op) {
  for (const std::int64_t n : {256, 1000, 16768 + 4}) {
    for (const bool is_symbolic : {false, true}) {
      const std::int64_t rows_of = n > 10000 ? 1 : 3;
      KernelBuilder b;
      const std::uint32_t x = b.param(DType::i64);
      const std::uint32_t y = b.param(DType::i64, ParamRole::out);
      const Expr size = is_symbolic ? b.size("s0", n / 4) * std::int64_t{4} : b.constant(n);
      const Expr i = b.outer(b.constant(rows_of));
      Stage& stage = b.pointwise(
          {size},
          [&](BodyBuilder& body, const auto& inner) {
            body.yield(body.load(x, DType::i64, {i * size + inner[0]}));
          },
          [&](const auto& inner) {
            return std::vector<StageStore>{{y, i * size + inner[0]}};
          });
      stage.kind = StageKind::scan;
      stage.reduce = op;
      stage.accumulator = DType::i64;
      BlockSchedule blocks = rows(64, 64, 2, false);
      std::get<BlockSchedule::Rows>(blocks.mapping).chunk = 2;
      const std::vector<Array> arrays{random_array(DType::i64, rows_of * n, 3, -100, 100),
                                      Array(DType::i64, rows_of * n)};
      const auto sizes =
          is_symbolic ? std::vector<std::int64_t>{n / 4} : std::vector<std::int64_t>{};
      check(b, blocks, arrays, sizes, 0);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(ExpandRows, ScansInChunks) {
  check_chunks(ReduceOp::sum);
  check_chunks(ReduceOp::max);
}

// Blocks that hand on totals: what orders them is there for a reason, but for two barriers. One is
// between cells of which the pass does not see that they are never the same; the other stands
// before the last count, where the lowered reductions have one already. And the last block clears
// the workspace when no other is left to see it.
TEST(ExpandRows, MutatedScansInChunks) {
  constexpr std::int64_t kRows = 1;
  constexpr std::int64_t kElements = 66 * 256;
  KernelBuilder b;
  const std::uint32_t x = b.param(DType::i64);
  const std::uint32_t y = b.param(DType::i64, ParamRole::out);
  const Expr i = b.outer(b.constant(kRows));
  Stage& stage = b.pointwise(
      {b.constant(kElements)},
      [&](BodyBuilder& body, const auto& inner) {
        body.yield(body.load(x, DType::i64, {i * kElements + inner[0]}));
      },
      [&](const auto& inner) {
        return std::vector<StageStore>{{y, i * kElements + inner[0]}};
      });
  stage.kind = StageKind::scan;
  stage.accumulator = DType::i64;
  for (Param& p : b.kernel.params) p.alignment = 16;
  b.finish();
  Schedule schedule;
  schedule.blocks = rows(64, 64, 2, false);
  std::get<BlockSchedule::Rows>(schedule.blocks->mapping).chunk = 2;
  kernel::Kernel made = expand(b.kernel, schedule, b.context);
  kernel::run_passes(made, b.context, kernel::gpu_passes());
  std::vector<Array> arrays{random_array(DType::i64, kRows * kElements, 3, 1, 100),
                            Array(DType::i64, kRows * kElements)};
  kernel::Instance instance;
  for (Array& a : arrays) instance.arguments.push_back({a.bytes});
  kernel::CheckOptions options;
  options.seeds = 2;
  options.limit_residency = false;
  std::set<kernel::MutationKind> tried;
  int spare_barriers = 0;
  for (const kernel::Mutation& mutation : kernel::mutations(made)) {
    using Kind = kernel::MutationKind;
    const Kind kind = mutation.kind;
    if (kind != Kind::remove_barrier && kind != Kind::weaken_order && kind != Kind::narrow_scope) {
      continue;
    }
    const auto* access = std::get_if<kernel::Access>(&made[mutation.operation].detail);
    if (access != nullptr && access->order == kernel::Order::relaxed) continue;
    const std::string what = kernel::to_string(made, mutation);
    tried.insert(kind);
    const kernel::Kernel wrong = kernel::mutate(made, mutation);
    try {
      kernel::verify(wrong);
    } catch (const InternalError&) {
      continue;
    }
    const bool is_noticed = !kernel::check(wrong, {&instance, 1}, options).findings.empty();
    if (!is_noticed && kind == Kind::remove_barrier)
      ++spare_barriers;
    else
      EXPECT_TRUE(is_noticed) << what;
  }
  EXPECT_EQ(tried.size(), 3);
  EXPECT_EQ(spare_barriers, 2);
}

// What a stage leaves in scratch memory, a later one takes in reverse.
TEST(ExpandRows, Scratch) {
  for (const BlockSchedule& blocks :
       {rows(64, 1, 1, false), rows(64, 32, 1, false), rows(64, 32, 4, false),
        rows(128, 128, 4, false, 2), rows(64, 8, 4, false), rows(64, 2, 1, false)}) {
    for (const std::int64_t n : {64, 21}) {
      KernelBuilder b;
      constexpr std::int64_t kRows = 70;
      const std::uint32_t x = b.param(DType::f32);
      const std::uint32_t y = b.param(DType::f32, ParamRole::out);
      const std::uint32_t z = b.param(DType::f32, ParamRole::out);
      const Expr size = b.constant(n);
      const Expr i = b.outer(b.constant(kRows));
      const std::uint32_t running = b.scratch(DType::f32, size);
      Stage& scan = b.pointwise(
          {size},
          [&](BodyBuilder& body, const auto& inner) {
            body.yield(body.load(x, DType::f32, {i * n + inner[0]}));
          },
          [&](const auto& inner) {
            return std::vector<StageStore>{{running, inner[0]}};
          });
      scan.kind = StageKind::scan;
      scan.reduce = ReduceOp::sum;
      b.pointwise(
          {size},
          [&](BodyBuilder& body, const auto& inner) {
            body.yield(body.load(running, DType::f32, {n - 1 - inner[0]}));
          },
          [&](const auto& inner) {
            return std::vector<StageStore>{{y, i * n + inner[0]}};
          });
      b.pointwise(
          {},
          [&](BodyBuilder& body, const auto&) {
            body.yield(body.load(running, DType::f32, {size - 1}));
          },
          [&](const auto&) {
            return std::vector<StageStore>{{z, i}};
          });
      const std::vector<Array> arrays{random_array(DType::f32, kRows * n, 3),
                                      Array(DType::f32, kRows * n), Array(DType::f32, kRows)};
      check(b, blocks, arrays, {}, 1e-5, true);
      if (HasFailure()) return;
    }
  }
}

// Parts of rows that a block goes along one after the other: sums over each row, a result for each
// element, and sums over the columns of a part.
void check_sequential(const BlockSchedule& blocks, std::int64_t n, DType dtype, bool two_loops) {
  KernelBuilder b;
  constexpr std::int64_t kParts = 2;
  const std::int64_t rows_of_part = two_loops ? 6 : 5;
  const std::uint32_t x = b.param(dtype);
  const std::uint32_t d = b.param(dtype);
  const std::uint32_t scale = b.param(DType::f32);
  const std::uint32_t y = b.param(dtype, ParamRole::out);
  const std::uint32_t sums = b.param(DType::f32, ParamRole::out);
  const std::uint32_t others = b.param(DType::f32, ParamRole::out);
  const Expr part = b.outer(b.constant(kParts));
  Expr row = part * rows_of_part;
  if (two_loops) row = row + b.outer(b.constant(2)) * std::int64_t{3};
  row = row + b.outer(b.constant(two_loops ? 3 : rows_of_part));
  b.loops.sequential = two_loops ? 2 : 1;
  const std::uint32_t columns = b.scratch(DType::f32, b.constant(n));
  const std::uint32_t squares = b.scratch(DType::f32, b.constant(n));
  for (Scratch& s : b.loops.scratch) s.is_carried = true;
  const auto load = [&](BodyBuilder& body, std::uint32_t buffer, Expr k) {
    return body.cast(body.load(buffer, dtype, {row * n + k}), DType::f32);
  };
  const auto product = [&](BodyBuilder& body, Expr k) {
    return body.mul(load(body, x, k), load(body, d, k));
  };
  const Expr size = b.constant(n);
  b.pointwise(
       {size}, [&](BodyBuilder& body, const auto&) { body.yield(body.constant(DType::f32, 0)); },
       [&](const auto& inner) {
         return std::vector<StageStore>{{columns, inner[0]}, {squares, inner[0]}};
       })
      .phase = Phase::first;
  const std::uint32_t first =
      b.reduce(ReduceOp::sum, DType::f32, {size},
               [&](BodyBuilder& body, const auto& inner) { body.yield(product(body, inner[0])); });
  b.reduce(ReduceOp::sum, DType::f32, {size},
           [&](BodyBuilder& body, const auto& inner) { body.yield(load(body, x, inner[0])); });
  b.reduce(ReduceOp::max, DType::f32, {size},
           [&](BodyBuilder& body, const auto& inner) { body.yield(load(body, d, inner[0])); });
  b.pointwise(
      {size},
      [&](BodyBuilder& body, const auto& inner) {
        const Val own = load(body, x, inner[0]);
        const Val factor = body.load(scale, DType::f32, {row});
        const Val both = body.add(body.row(first, DType::f32), body.row(first + 1, DType::f32));
        const Val less = body.sub(both, body.row(first + 2, DType::f32));
        body.yield(body.cast(body.add(body.mul(own, factor), less), dtype));
        body.yield(body.add(body.load(columns, DType::f32, {inner[0]}), own));
        body.yield(body.add(body.load(squares, DType::f32, {inner[0]}), product(body, inner[0])));
      },
      [&](const auto& inner) {
        const Expr k = inner[0];
        return std::vector<StageStore>{{y, row * n + k, loop::StoreMode::overwrite, 0},
                                       {columns, k, loop::StoreMode::overwrite, 1},
                                       {squares, k, loop::StoreMode::overwrite, 2}};
      });
  b.pointwise(
       {size},
       [&](BodyBuilder& body, const auto& inner) {
         body.yield(body.load(columns, DType::f32, {inner[0]}));
         body.yield(body.load(squares, DType::f32, {inner[0]}));
       },
       [&](const auto& inner) {
         const Expr at = part * n + inner[0];
         return std::vector<StageStore>{{sums, at, loop::StoreMode::overwrite, 0},
                                        {others, at, loop::StoreMode::overwrite, 1}};
       })
      .phase = Phase::last;
  const std::int64_t count = kParts * rows_of_part;
  const std::vector<Array> arrays{
      random_array(dtype, count * n, 1),  random_array(dtype, count * n, 2),
      random_array(DType::f32, count, 3), Array(dtype, count * n),
      Array(DType::f32, kParts * n),      Array(DType::f32, kParts * n)};
  check(b, blocks, arrays, {}, dtype == DType::f32 ? 2e-5 : 0.01);
}

TEST(ExpandRows, SequentialRows) {
  for (const BlockSchedule& blocks :
       {rows(32, 32, 4, true), rows(128, 32, 4, true), rows(128, 32, 8, true),
        rows(64, 64, 4, true), rows(128, 128, 2, true), rows(64, 32, 1, true)}) {
    for (const std::int64_t n : {256, 520, 24}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const bool two_loops : {false, true}) {
          SCOPED_TRACE(fmt::format("{} {}", n, abi::name_of(dtype)));
          check_sequential(blocks, n, dtype, two_loops);
          if (HasFailure()) return;
        }
      }
    }
  }
}

// Two outer loops; a maximum, exponentials below it, and their quotients, rounded.
TEST(ExpandRows, Softmax) {
  for (const BlockSchedule& blocks : with_clusters()) {
    for (const Extents& e : extents()) {
      if (blocks.rows().keep && e.is_symbolic) continue;
      KernelBuilder b;
      const std::uint32_t x = b.param(DType::bf16);
      const std::uint32_t y = b.param(DType::bf16, ParamRole::out);
      const Expr n = e.is_symbolic ? b.size("s0", e.elements) : b.constant(e.elements);
      const Expr i = b.outer(b.constant(2));
      const Expr j = b.outer(b.constant(e.rows));
      const auto at = [&](Expr k) { return (i * e.rows + j) * n + k; };
      const auto load = [&](BodyBuilder& body, Expr k) {
        return body.cast(body.load(x, DType::bf16, {at(k)}), DType::f32);
      };
      const std::uint32_t top =
          b.reduce(ReduceOp::max, DType::f32, {n},
                   [&](BodyBuilder& body, const auto& inner) { body.yield(load(body, inner[0])); });
      const auto term = [&](BodyBuilder& body, Expr k) {
        return body.unary(Opcode::exp,
                          body.binary(Opcode::sub, load(body, k), body.row(top, DType::f32)));
      };
      const std::uint32_t sum =
          b.reduce(ReduceOp::sum, DType::f32, {n},
                   [&](BodyBuilder& body, const auto& inner) { body.yield(term(body, inner[0])); });
      b.pointwise(
          {n},
          [&](BodyBuilder& body, const auto& inner) {
            const Val quotient =
                body.binary(Opcode::div, term(body, inner[0]), body.row(sum, DType::f32));
            body.yield(body.cast(quotient, DType::bf16));
          },
          [&](const auto& inner) {
            return std::vector<StageStore>{{y, at(inner[0])}};
          });
      const std::int64_t count = 2 * e.rows * e.elements;
      const std::vector<Array> arrays{random_array(DType::bf16, count, 3, -6, 6),
                                      Array(DType::bf16, count)};
      const auto sizes =
          e.is_symbolic ? std::vector<std::int64_t>{e.elements} : std::vector<std::int64_t>{};
      check(b, blocks, arrays, sizes, 0.01);
      if (HasFailure()) return;
    }
  }
}

// Mean and deviations, then a weight for each group of seven elements, found by a division of the
// position, and another through an index from memory.
TEST(ExpandRows, NormsOfGroups) {
  for (const BlockSchedule& blocks : with_clusters()) {
    for (const std::int64_t n : {512, 1001, 21}) {
      KernelBuilder b;
      const std::int64_t m = 5;
      const std::uint32_t x = b.param(DType::f32);
      const std::uint32_t weight = b.param(DType::f32);
      const std::uint32_t where = b.param(DType::i64);
      const std::uint32_t y = b.param(DType::f32, ParamRole::out);
      const Expr i = b.outer(b.constant(m));
      const auto load = [&](BodyBuilder& body, Expr k) {
        return body.load(x, DType::f32, {i * n + k});
      };
      const std::uint32_t mean =
          b.reduce(ReduceOp::welford, DType::f32, {b.constant(n)},
                   [&](BodyBuilder& body, const auto& inner) { body.yield(load(body, inner[0])); });
      b.pointwise(
          {b.constant(n)},
          [&](BodyBuilder& body, const auto& inner) {
            const Expr k = inner[0];
            const Val d = body.binary(Opcode::sub, load(body, k), body.row(mean, DType::f32));
            const Val scaled = body.binary(
                Opcode::mul, d, body.load(weight, DType::f32, {sym::floordiv(k, std::int64_t{7})}));
            const Expr at = body.indirect(body.load(where, DType::i64, {k}), b.constant(n / 7 + 1));
            const Val other = body.load(weight, DType::f32, {at});
            const Val squares = body.row(mean + 1, DType::f32);
            body.yield(body.binary(Opcode::div, body.binary(Opcode::add, scaled, other), squares));
          },
          [&](const auto& inner) {
            return std::vector<StageStore>{{y, i * n + inner[0]}};
          });
      Array places(DType::i64, n);
      for (std::int64_t k = 0; k < n; ++k) places.set(k, static_cast<double>(k * 5 % (n / 7)));
      const std::vector<Array> arrays{random_array(DType::f32, m * n, 3),
                                      random_array(DType::f32, n / 7 + 1, 4), places,
                                      Array(DType::f32, m * n)};
      check(b, blocks, arrays, {}, 1e-4);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace inkle::schedule::testing
