#include "runtime/cuda/framework_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "abi/plan.h"

namespace inkle::runtime::cuda {
namespace {

using abi::DType;

abi::Operand images(DType dtype) {
  return {.dtype = dtype, .sizes = {0, 0, 0, 0}, .strides = {0, 0, 0, 0}};
}

abi::ConvolutionCall transposed(DType dtype, bool has_bias) {
  abi::ConvolutionCall call{.x = images(dtype), .w = images(dtype), .y = images(dtype)};
  call.transposed = true;
  call.has_bias = has_bias;
  call.bias = {.dtype = dtype, .sizes = {0}, .strides = {0}};
  return call;
}

TEST(FrameworkSteps, AllAreNamedOnceWithTheirSource) {
  abi::Plan plan;
  const auto add = [&](auto action, const char* source) {
    abi::PlanStep step;
    step.action = std::move(action);
    step.source = source;
    plan.steps.push_back(std::move(step));
  };
  add(abi::LibraryCall(transposed(DType::f32, true)), "model.py:1");
  add(abi::LibraryCall(transposed(DType::f32, false)), "model.py:2");
  add(abi::LibraryCall(transposed(DType::f32, true)), "model.py:1");
  add(abi::LibraryCall(transposed(DType::f64, false)), "model.py:3");
  add(abi::LibraryCall(transposed(DType::bf16, true)), "");
  EXPECT_THAT(framework_steps(plan),
              testing::ElementsAre("a convolution of f32, for its bias (model.py:1)",
                                   "a convolution of f64, for its types (model.py:3)",
                                   "a convolution of bf16, for its bias"));
}

}  // namespace
}  // namespace inkle::runtime::cuda
