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
#include "loop/builder.h"
#include "schedule/kernel.h"

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
using sym::Expr;

struct Array {
  DType dtype = DType::f32;
  std::int64_t count = 0;
  std::vector<std::byte> bytes;

  Array(DType d, std::int64_t n);
  [[nodiscard]] double get(std::int64_t i) const;
  void set(std::int64_t i, double v);
  void fill_random(unsigned seed, double low, double high);
};

// Compilers for 32 and, if the host has them, 64 byte vectors.
std::vector<CpuCompiler*> compilers();

Schedule inner_lanes(int lanes, int unroll = 4);
Schedule outer_lanes(int lanes, std::int64_t block = 64, int unroll = 4);
Array random_array(DType dtype, std::int64_t n, unsigned seed, double low = -2, double high = 2);

// Builds a kernel step by step.
struct KernelBuilder {
  sym::Context context;
  Kernel kernel;
  LoopKernel loops;

  std::uint32_t param(DType dtype, schedule::ParamRole role = schedule::ParamRole::in);
  std::uint32_t scratch(DType dtype, Expr elements);  // after all params
  Expr size(std::string_view name, std::int64_t hint, std::int64_t low = 1);
  Expr outer(Expr extent);
  Expr constant(std::int64_t v) { return context.constant(v); }
  // Adds a stage whose body `record` writes; it gets the inner variables.
  using Record = std::function<void(BodyBuilder&, const std::vector<Expr>&)>;
  Stage& pointwise(
      std::vector<Expr> inner, const Record& record,
      const std::function<std::vector<schedule::StageStore>(const std::vector<Expr>&)>& stores);
  // Returns the number of the first row.
  std::uint32_t reduce(ReduceOp op, DType accumulator, std::vector<Expr> inner,
                       const Record& record);
  // A stage without inner loops that stores row `row` at target[offset].
  void store_row(std::uint32_t row, std::uint32_t target, Expr offset);
  void finish();
};

struct RunOptions {
  double tolerance = 0;     // relative to the largest magnitude of the array
  std::int64_t status = 0;  // expected
};

// Runs the kernel under the schedule with every compiler, the parallel range cut in uneven parts,
// and compares all arrays that it writes with the interpreter's.
void check(KernelBuilder& builder, const Schedule& schedule, const std::vector<Array>& arrays,
           const std::vector<std::int64_t>& sizes, const RunOptions& options = {});

// The interpreter: in place on `arrays`; returns the status.
std::int64_t interpret(const Kernel& kernel, std::vector<Array>& arrays,
                       const std::vector<std::int64_t>& sizes);

}  // namespace inkle::codegen::cpu
