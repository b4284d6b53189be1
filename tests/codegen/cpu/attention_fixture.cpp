#include "codegen/cpu/attention_fixture.h"

#include <cmath>

#include "codegen/cpu/attention_problem.h"
#include "kernel/interpret.h"
#include "kernel/passes.h"

namespace inkle::codegen::cpu {

namespace {

void expect_near(const std::vector<Array>& actual, const std::vector<Array>& expected,
                 const std::string& who) {
  for (std::size_t p = 0; p < actual.size(); ++p) {
    const DType dtype = actual[p].dtype;
    const double unit = dtype == DType::bf16 ? 0x1p-7 : dtype == DType::f16 ? 0x1p-10 : 0x1p-17;
    int wrong = 0;
    for (std::int64_t i = 0; i < actual[p].count && wrong < 3; ++i) {
      const double a = actual[p].get(i), e = expected[p].get(i);
      if (std::isnan(e) ? std::isnan(a) : a == e || std::abs(a - e) <= unit * (1 + std::abs(e))) {
        continue;
      }
      ADD_FAILURE() << who << ", parameter " << p << "[" << i << "]: " << a << ", expected " << e;
      ++wrong;
    }
  }
}

// What the estimate says of a task's stack is what the kernel declares.
void check_estimate(const kernel::Kernel& written, const templates::Estimate& estimate) {
  constexpr std::int64_t kCacheLine = 64;
  Expr bytes = estimate.stack_bytes.context().constant(0);
  for (std::size_t m = written.parameter_count; m < written.memories.size(); ++m) {
    const kernel::Memory& memory = written.memories[m];
    const Expr own = kernel::element_count(memory) * kernel::element_bytes(memory);
    bytes = bytes + sym::ceildiv(own, kCacheLine) * kCacheLine;
  }
  EXPECT_EQ(sym::to_string(estimate.stack_bytes), sym::to_string(bytes));
}

}  // namespace

void check_interpreted_attention(const Kernel& kernel, const Schedule& schedule,
                                 const abi::Target& target, const std::vector<Array>& arrays,
                                 const std::vector<std::int64_t>& sizes,
                                 const std::vector<Array>& expected) {
  const auto& attention = std::get<schedule::AttentionKernel>(kernel.body);
  const templates::AttentionProblem problem = attention_problem(kernel, attention);
  const templates::AttentionTemplate& row = templates::attention_template_of(problem);
  const templates::AttentionConfig config = attention_config(row, problem, schedule, target);
  ASSERT_EQ(row.needs(problem, config), "");
  sym::Context& context = problem.q_length.context();
  kernel::Kernel written = row.emit(problem, config, context);
  check_estimate(written, row.estimate(problem, config));
  for (const bool lowered : {false, true}) {
    if (lowered) kernel::run_passes(written, context, kernel::cpu_passes(), {.verify_each = true});
    std::vector<Array> actual = arrays;
    kernel::Instance instance;
    for (Array& a : actual) instance.arguments.push_back({a.bytes, kernel::Writes::any});
    instance.sizes = sizes;
    const kernel::RunResult run = kernel::interpret(written, {&instance, 1});
    for (const kernel::Finding& finding : run.findings) {
      ADD_FAILURE() << (lowered ? "lowered: " : "written: ") << kernel::to_string(written, finding);
    }
    expect_near(actual, expected, lowered ? "lowered" : "written");
  }
}

}  // namespace inkle::codegen::cpu
