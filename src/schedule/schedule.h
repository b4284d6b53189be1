// Loop nests -> fused kernels, library calls and their order. Pure data in, pure data out.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "abi/device.h"
#include "loop/program.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

struct Options {
  abi::DeviceDescription device;
  // Which library calls the runtime can run (dtype and post-op support differ between machines).
  std::function<bool(abi::DType a, abi::DType b, abi::DType c)> can_matmul;
  std::function<bool(abi::DType dtype)> can_convolve;
  std::function<bool(abi::PostOpKind kind)> can_post_op;
  // Whether a call is fine with the whole of its epilogue; null: always.
  std::function<bool(const MatmulStep& step, const loop::Program& program)> can_run_matmul;
  std::function<bool(const ConvolutionStep& step, const loop::Program& program)>
      can_run_convolution;
  // Matrix products of f32 by a template where it can; what follows them joins their kernel.
  bool gemm_template = false;
  // Attention by a library; null: as a kernel.
  std::function<bool(abi::DType dtype)> can_attend;
  // What turns a contraction's sums into a result of f16 or bf16 is kept apart from later work, for
  // the library to do: half the bytes are written and read.
  bool keep_roundings = false;
  // Images with fewer channels than these are padded for the library; 0: as they are.
  std::int64_t least_channels = 0;
  // The most products that the library may add in a convolution of an f32 sequence; 0: any number.
  std::int64_t longest_sum = 0;
  // Rows of odd lengths that products read are made longer (pad_products).
  bool pads_rows = false;
  // Products read matrices alone (is_matrix): rows or columns that repeat or overlap are copied.
  bool needs_matrices = false;
  // The library makes gradients of weights of f16 and bf16 with channels last.
  bool weights_channels_last = false;
  // A tensor that is added to a contraction's rounded result may be added before the rounding, by
  // the library: one rounding less than eager's.
  bool adds_before_rounding = false;
  // numerics=fast: drops roundings to f16 and bf16 between ops inside a kernel.
  bool fast_numerics = false;
  bool training = false;  // no derived copies of parameters
  // Results are the same in each run: what is written at indices is written in order, where a
  // device would else run it at once (torch.use_deterministic_algorithms).
  bool deterministic = false;
};

struct NestPassTiming {
  std::string_view name;
  double seconds = 0;
};

// How the table of nest_passes.h is run.
struct NestPassOptions {
  std::vector<std::string> skip;             // names of passes that are not run
  std::size_t stop_after = ~std::size_t{0};  // number of passes that may be left out, for bisection
  bool verify_each = false;                  // after each; after the last always
  std::string fail;  // for tests: the pass of this name throws InternalError
  // After each: nests, from build_steps on steps.
  std::function<void(std::string_view pass, const std::string& text)> dump;
  std::vector<NestPassTiming>* timings = nullptr;
};

[[nodiscard]] ScheduledProgram schedule(loop::Program program, const Options& options,
                                        const NestPassOptions& run = {});

}  // namespace inkle::schedule
