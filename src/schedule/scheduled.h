// The result of scheduling: the steps of a program in order, each a generated kernel with its
// schedule, a library call or a call to eager, over buffers whose layouts are all decided.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "abi/library_call.h"
#include "loop/program.h"
#include "schedule/kernel.h"

namespace inkle::schedule {

// Adds those lines that are not yet among them.
inline void add_missing(std::vector<std::string>& lines, std::span<const std::string> more) {
  for (const std::string& line : more) {
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
}

// By the buffer that a reduction stores first: in which order it combines its terms.
using Associations = std::map<loop::BufferId, Association>;

struct KernelStep {
  Kernel kernel;
  Schedule schedule;
  // By parameter; of a table the parameters of one instance after those of the other.
  std::vector<loop::BufferId> buffers;
  // What kernel.sizes are in each instance of the kernel; empty: themselves.
  std::vector<std::vector<Expr>> table;

  [[nodiscard]] const Param& param(std::size_t position) const {
    return kernel.params[position % kernel.params.size()];
  }
};

// A strided view of a buffer; the symbolic form of abi::Operand.
struct View {
  loop::BufferId buffer = 0;
  Expr offset;
  std::vector<Expr> sizes;
  std::vector<Expr> strides;
};

struct Epilogue {
  abi::PostOpKind kind = abi::PostOpKind::relu;
  double alpha = 0;
  double beta = 0;
  std::optional<View> operand;
};

struct MatmulStep {
  View a, b, c;
  std::optional<View> bias;
  bool b_is_weight = false;
  std::vector<Epilogue> epilogue;
};

struct ConvolutionStep {
  View x, w, y;
  std::optional<View> bias;
  loop::Convolution parameters;
  bool w_is_weight = false;
  std::vector<Epilogue> epilogue;
};

// Views over [batch, head, row, feature]; mask over [batch, head, row, column].
struct AttentionStep {
  View q, k, v, out;
  std::optional<View> mask;
  double scale = 1;
  bool is_causal = false;
};

struct EagerStep {
  loop::EagerCall call;
};

struct Step {
  std::variant<KernelStep, MatmulStep, ConvolutionStep, AttentionStep, EagerStep> action;
  std::vector<std::string> sources;  // the user's lines
  std::vector<std::string> checked;  // of them, those of ops that may fail at run time
  std::string label;                 // ops it came from
  Expr bytes;                        // read and written: bytes.h
  Expr flops;
  bool prepare = false;  // depends on parameters only: kept from call to call
};

struct ScheduledProgram {
  loop::Program program;  // buffers and outputs are valid; nests are consumed
  std::vector<Step> steps;
  // Of one call; and the least that it could be: inputs, outputs and operands of contractions once.
  Expr bytes_moved;
  Expr bytes_lower_bound;
};

// Parallel iterations of an instance of a step (schedule/kernel.h), in terms of the program's
// sizes.
[[nodiscard]] Expr instance_extent(const KernelStep& step, std::size_t instance,
                                   sym::Context& context);

// Buffers a step reads and writes, each once.
[[nodiscard]] std::vector<loop::BufferId> reads(const Step& step);
[[nodiscard]] std::vector<loop::BufferId> writes(const Step& step);
// Calls `f` for every mention of a buffer; it may put another in its place.
void for_each_buffer(Step& step, const std::function<void(loop::BufferId&)>& f);

// Text of buffers and steps, for people and golden tests; equal programs print alike. `brief`
// leaves out what is inside of kernels.
[[nodiscard]] std::string to_string(const ScheduledProgram& scheduled, bool brief = false);
// Of one step of a program, as it stands there.
[[nodiscard]] std::string to_string(const Step& step, const loop::Program& program);

}  // namespace inkle::schedule
