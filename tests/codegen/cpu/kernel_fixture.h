// Kernels written by hand, run by generated code and by a plain interpreter.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "codegen/cpu/compiler.h"
#include "schedule/kernel_builder.h"

namespace inkle::codegen::cpu {

using abi::DType;
using loop::BodyBuilder;
using loop::Opcode;
using loop::ReduceOp;
using loop::Val;
using schedule::Kernel;
using schedule::LoopKernel;
using schedule::Schedule;
using schedule::Stage;
using schedule::testing::Array;
using schedule::testing::expect_near;
using schedule::testing::interpret;
using schedule::testing::KernelBuilder;
using schedule::testing::random_array;
using sym::Expr;

// Compilers for 32 and, if the host has them, 64 byte vectors.
std::vector<CpuCompiler*> compilers();

Schedule inner_lanes(int lanes, int unroll = 4);
Schedule outer_lanes(int lanes, std::int64_t block = 64, int unroll = 4);

struct RunOptions {
  double tolerance = 0;     // relative to the largest magnitude of the array
  std::int64_t status = 0;  // expected
};

// Runs the kernel under the schedule with every compiler, the parallel range cut in uneven parts,
// and compares all arrays that it writes with the interpreter's.
void check(KernelBuilder& builder, const Schedule& schedule, const std::vector<Array>& arrays,
           const std::vector<std::int64_t>& sizes, const RunOptions& options = {});

}  // namespace inkle::codegen::cpu
