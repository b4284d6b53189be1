// The table of devices says of libraries what the runtime's own checks say.
#include "abi/targets.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "runtime/cpu/library_step.h"
#include "runtime/cuda/gemms.h"
#include "runtime/cuda/matmul.h"
#include "schedule/library.h"

namespace inkle::abi {
namespace {

std::vector<DType> dtypes() {
  std::vector<DType> all;
  for (int d = 0; d <= static_cast<int>(DType::opaque); ++d) all.push_back(static_cast<DType>(d));
  return all;
}

MatmulCall product(DType a, DType b, DType c) {
  MatmulCall call;
  call.a.dtype = a;
  call.b.dtype = b;
  call.c.dtype = c;
  return call;
}

TEST(Targets, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const Target& row : targets()) {
    EXPECT_TRUE(names.insert(row.row).second) << row.row;
    EXPECT_EQ(target_named(row.row), &row);
    EXPECT_EQ(row.has_blocks, !row.blocks.measured_on.empty()) << row.row;
  }
}

TEST(Targets, TypesOfProductsAreThoseThatTheRuntimeRuns) {
  for (const Target& row : targets()) {
    const bool with_bf16 = row.libraries.gemm.types.has(DType::bf16);
    for (const DType a : dtypes()) {
      for (const DType b : dtypes()) {
        for (const DType c : dtypes()) {
          const bool runs = row.has_blocks ? runtime::cuda::can_multiply(a, b, c)
                                           : runtime::cpu::can_run(product(a, b, c), with_bf16);
          EXPECT_EQ(schedule::multiplies(row.libraries.gemm, a, b, c), runs)
              << row.row << " " << name_of(a) << " " << name_of(b) << " " << name_of(c);
        }
      }
    }
  }
}

TEST(Targets, TypesOfConvolutionsAreThoseThatTheRuntimeRuns) {
  for (const Target& row : targets()) {
    if (row.has_blocks) continue;
    const bool with_bf16 = row.libraries.convolution.types.has(DType::bf16);
    for (const DType d : dtypes()) {
      ConvolutionCall call;
      call.x.dtype = call.w.dtype = call.y.dtype = d;
      EXPECT_EQ(row.libraries.convolution.types.has(d), runtime::cpu::can_run(call, with_bf16))
          << row.row << " " << name_of(d);
    }
  }
}

TEST(Targets, PostOpsAreThoseThatTheRuntimeRuns) {
  for (const Target& row : targets()) {
    for (int k = 0; k <= static_cast<int>(PostOpKind::mul); ++k) {
      const auto kind = static_cast<PostOpKind>(k);
      MatmulCall call = product(DType::f32, DType::f32, DType::f32);
      call.post_ops.emplace_back().kind = kind;
      const bool runs = row.has_blocks ? runtime::cuda::why_not(call).empty()
                                       : runtime::cpu::can_run(call, false);
      EXPECT_EQ(row.libraries.gemm.post_ops.has(kind), runs) << row.row << " " << name_of(kind);
    }
  }
}

TEST(Targets, GpusWithoutARowTakeTheOneBefore) {
  EXPECT_EQ(gpu_target("sm_86")->row, "sm_80");
  EXPECT_EQ(gpu_target("sm_90")->row, "sm_90a");
  EXPECT_EQ(gpu_target("sm_120")->row, "sm_100");
  EXPECT_EQ(gpu_target("sm_75"), nullptr);
  EXPECT_THROW((void)typical_device("sm_86"), UserError);
}

}  // namespace
}  // namespace inkle::abi
