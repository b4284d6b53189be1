#include "codegen/cpu/kernel_fixture.h"

#include <cmath>
#include <cstring>

#include "kernel/interpret.h"
#include "kernel/passes.h"
#include "schedule/expand.h"

namespace inkle::codegen::cpu {

Schedule inner_lanes(int lanes, int unroll) {
  Schedule s;
  s.lanes = lanes;
  s.unroll = unroll;
  return s;
}
Schedule outer_lanes(int lanes, std::int64_t block, int unroll) {
  Schedule s = inner_lanes(lanes, unroll);
  s.vector_outer = true;
  s.block = block;
  return s;
}
std::vector<CpuCompiler*> compilers() {
  static CpuCompiler widest{TargetOptions{}};
  std::vector<CpuCompiler*> all{&widest};
  if (widest.device().vector_bytes == 64) {
    static CpuCompiler narrow{TargetOptions{.vector_bytes = 32}};
    all.push_back(&narrow);
  }
  return all;
}

namespace {

// The kernel IR of this schedule, before and after its passes, in the interpreter: no access
// outside, no read of what nobody has written, no race between tasks, and the same results.
void check_expansion(const Kernel& kernel, sym::Context& context, const Schedule& schedule,
                     const std::vector<Array>& arrays, const std::vector<std::int64_t>& sizes,
                     const std::vector<Array>& expected, const RunOptions& options) {
  kernel::Kernel expanded = schedule::expand(kernel, schedule, context);
  for (const bool lowered : {false, true}) {
    if (lowered) kernel::run_passes(expanded, context, kernel::cpu_passes(), {.verify_each = true});
    std::vector<Array> actual = arrays;
    kernel::Instance instance;
    for (Array& a : actual) instance.arguments.push_back({a.bytes, kernel::Writes::any});
    instance.sizes = sizes;
    const kernel::RunResult run = kernel::interpret(expanded, {&instance, 1});
    for (const kernel::Finding& finding : run.findings) {
      ADD_FAILURE() << (lowered ? "lowered: " : "expanded: ")
                    << kernel::to_string(expanded, finding);
    }
    EXPECT_EQ(run.status, options.status);
    expect_near(actual, expected, options.tolerance, lowered ? "lowered" : "expanded");
  }
}

}  // namespace

void check(KernelBuilder& builder, const Schedule& schedule, const std::vector<Array>& arrays,
           const std::vector<std::int64_t>& sizes, const RunOptions& options) {
  builder.finish();
  const Kernel& kernel = builder.kernel;
  std::vector<Array> expected = arrays;
  const std::int64_t expected_status = interpret(kernel, expected, sizes);
  EXPECT_EQ(expected_status, options.status);
  check_expansion(kernel, builder.context, schedule, arrays, sizes, expected, options);
  const auto value = [&](Expr e) {
    return sym::evaluate(e, [&](Expr s) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (kernel.sizes[i] == s) return sizes[i];
      }
      throw std::runtime_error("unknown size");
    });
  };
  std::int64_t extent = 1;
  const auto& outer = builder.loops.outer;
  for (std::size_t d = 0; d + builder.loops.sequential < outer.size(); ++d) {
    const std::int64_t e = value(outer[d].extent);
    const bool blocked = schedule.vector_outer && d + 1 == outer.size();
    extent *= blocked ? (e + schedule.block - 1) / schedule.block : e;
  }
  for (CpuCompiler* compiler : compilers()) {
    const CompileUnit unit{&kernel, schedule};
    const auto compiled = compiler->compile({&unit, 1});
    std::vector<Array> actual = arrays;
    std::vector<void*> pointers;
    for (Array& a : actual) pointers.push_back(a.bytes.data());
    const std::int64_t bytes = value(compiled[0].scratch_bytes);
    std::vector<std::byte> memory(static_cast<std::size_t>(bytes) + 64);
    void* scratch = memory.data();
    std::size_t space = memory.size();
    std::align(64, static_cast<std::size_t>(bytes), scratch, space);
    const std::int64_t cut = extent / 3;
    // The later part first: what an iteration writes beyond its own elements then shows.
    compiled[0].function(pointers.data(), sizes.data(), scratch, cut, extent);
    compiled[0].function(pointers.data(), sizes.data(), scratch, 0, cut);
    std::int64_t status = 0;
    std::memcpy(&status, scratch, 8);
    EXPECT_EQ(status, options.status);
    expect_near(actual, expected, options.tolerance,
                fmt::format("{} byte vectors", compiler->device().vector_bytes));
    if (::testing::Test::HasFailure() && ::getenv("INKLE_TEST_IR") != nullptr) {
      const auto text = compiler->compile({&unit, 1}, {.keep_ir = true, .keep_assembly = true});
      ADD_FAILURE() << text[0].ir << text[0].assembly;
    }
  }
}

}  // namespace inkle::codegen::cpu
