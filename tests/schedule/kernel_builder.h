// Loop kernels written by hand, and a plain interpreter of them: the reference of what becomes of
// them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernel/interpret.h"
#include "loop/builder.h"
#include "schedule/kernel.h"

namespace inkle::schedule::testing {

using abi::DType;
using loop::BodyBuilder;
using loop::Opcode;
using loop::ReduceOp;
using loop::Val;
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

Array random_array(DType dtype, std::int64_t n, unsigned seed, double low = -2, double high = 2);

// Builds a kernel step by step.
struct KernelBuilder {
  sym::Context context;
  Kernel kernel;
  LoopKernel loops;

  std::uint32_t param(DType dtype, ParamRole role = ParamRole::in);
  std::uint32_t scratch(DType dtype, Expr elements);  // after all params
  Expr size(std::string_view name, std::int64_t hint, std::int64_t low = 1);
  Expr outer(Expr extent);
  Expr constant(std::int64_t v) { return context.constant(v); }
  // Adds a stage whose body `record` writes; it gets the inner variables.
  using Record = std::function<void(BodyBuilder&, const std::vector<Expr>&)>;
  Stage& pointwise(std::vector<Expr> inner, const Record& record,
                   const std::function<std::vector<StageStore>(const std::vector<Expr>&)>& stores);
  // Returns the number of the first row.
  std::uint32_t reduce(ReduceOp op, DType accumulator, std::vector<Expr> inner,
                       const Record& record);
  // A stage without inner loops that stores row `row` at target[offset].
  void store_row(std::uint32_t row, std::uint32_t target, Expr offset);
  void finish();
};

// The reference: runs the kernel in place on `arrays`; returns the status.
std::int64_t interpret(const Kernel& kernel, std::vector<Array>& arrays,
                       const std::vector<std::int64_t>& sizes);

// Runs kernel IR under several interleavings: nothing is wrong, and the results are these.
void expect_run(const inkle::kernel::Kernel& made, const std::vector<Array>& arrays,
                const std::vector<Array>& expected, const std::vector<std::int64_t>& sizes,
                inkle::kernel::Writes writes, double tolerance, const std::string& name);

// Differences between what a run left and what was expected, five for each parameter at most;
// `tolerance` is relative to the largest magnitude of the array.
void expect_near(const std::vector<Array>& actual, const std::vector<Array>& expected,
                 double tolerance, const std::string& who);

}  // namespace inkle::schedule::testing
