// Text of a scheduled program: its buffers, then its steps in order, equal kernels once.
#include <fmt/format.h>

#include <map>

#include "schedule/linear.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {
namespace {

std::string list(const std::vector<Expr>& expressions) {
  std::string text;
  for (const Expr e : expressions) {
    if (!text.empty()) text += ",";
    text += sym::to_string(e);
  }
  return "[" + text + "]";
}

class Printer {
 public:
  Printer(const loop::Program& program, bool brief) : program_(program), brief_(brief) {}

  std::string run(const ScheduledProgram& scheduled) {
    find_used(scheduled);
    out_ = "buffers {\n";
    for (loop::BufferId b = 0; b < used_.size(); ++b) {
      if (used_[b]) print_buffer(b);
    }
    out_ += "}\n";
    for (const Step& step : scheduled.steps) print(step);
    out_ += fmt::format("bytes {} at least {}\n", sym::to_string(scheduled.bytes_moved),
                        sym::to_string(scheduled.bytes_lower_bound));
    return out_;
  }

  std::string run(const Step& step) {
    print(step);
    return out_;
  }

 private:
  const loop::Buffer& buffer(loop::BufferId b) const { return program_.buffers[b]; }

  void find_used(const ScheduledProgram& scheduled) {
    used_.assign(program_.buffers.size(), false);
    for (const Step& step : scheduled.steps) {
      for (const loop::BufferId b : reads(step)) used_[b] = true;
      for (const loop::BufferId b : writes(step)) used_[b] = true;
    }
  }

  void print_buffer(loop::BufferId b) {
    const loop::Buffer& x = buffer(b);
    const char* role = "";
    switch (x.role) {
      case loop::BufferRole::input:
        role = x.is_parameter ? " parameter" : " input";
        break;
      case loop::BufferRole::output:
        role = " output";
        break;
      case loop::BufferRole::constant:
        role = " constant";
        break;
      case loop::BufferRole::temporary:
        break;
    }
    out_ += fmt::format("  {}: {}{} strides {}{}", x.name, abi::name_of(x.dtype), list(x.sizes),
                        x.strides ? list(*x.strides) : "free", role);
    if (x.writes_into) out_ += " = " + buffer(*x.writes_into).name;
    out_ += "\n";
  }

  std::string text(const View& view) const {
    std::string offset;
    if (!view.offset.is_null() && !view.offset.is_constant(0)) {
      offset = "+" + sym::to_string(view.offset);
    }
    return fmt::format("{}{}{}{}", buffer(view.buffer).name, offset, list(view.sizes),
                       list(view.strides));
  }

  void print_epilogue(const std::vector<Epilogue>& epilogue) {
    for (const Epilogue& e : epilogue) {
      out_ += fmt::format("  then {}", abi::name_of(e.kind));
      if (e.alpha != 0 || e.beta != 0) out_ += fmt::format(" {} {}", e.alpha, e.beta);
      if (e.operand) out_ += " " + text(*e.operand);
      out_ += "\n";
    }
  }

  void print_action(const KernelStep& step) {
    std::string kernel = to_string(step.kernel) + to_string(step.schedule) + "\n";
    const auto [at, is_new] = kernels_.try_emplace(std::move(kernel), kernels_.size());
    out_ += fmt::format("kernel k{}(", at->second);
    for (std::size_t p = 0; p < step.buffers.size(); ++p) {
      const bool is_next = p % step.kernel.params.size() == 0;
      out_ += (p == 0 ? "" : is_next ? " | " : ", ") + buffer(step.buffers[p]).name;
    }
    for (std::size_t i = 0; i < step.table.size(); ++i) {
      for (const Expr size : step.table[i]) out_ += (i == 0 ? "; " : " | ") + sym::to_string(size);
    }
    if (step.table.empty()) {
      for (const Expr size : step.kernel.sizes) out_ += "; " + sym::to_string(size);
    }
    out_ += ")";
    print_end();
    if (is_new && !brief_) out_ += at->first;
  }
  void print_action(const MatmulStep& step) {
    out_ += "matmul";
    print_end();
    out_ += fmt::format("  a {}\n  b {}{}\n", text(step.a), text(step.b),
                        step.b_is_weight ? " weight" : "");
    if (step.bias) out_ += "  bias " + text(*step.bias) + "\n";
    print_epilogue(step.epilogue);
    out_ += "  into " + text(step.c) + "\n";
  }
  void print_action(const ConvolutionStep& step) {
    out_ += step.parameters.weight_gradient ? "weight gradient" : "convolution";
    print_end();
    out_ += fmt::format("  x {}\n  w {}{}\n", text(step.x), text(step.w),
                        step.w_is_weight ? " weight" : "");
    if (step.bias) out_ += "  bias " + text(*step.bias) + "\n";
    print_epilogue(step.epilogue);
    out_ += "  into " + text(step.y) + "\n";
  }
  void print_action(const AttentionStep& step) {
    out_ += fmt::format("attention scale {}{}", step.scale, step.is_causal ? " causal" : "");
    print_end();
    out_ += fmt::format("  q {}\n  k {}\n  v {}\n", text(step.q), text(step.k), text(step.v));
    if (step.mask) out_ += "  mask " + text(*step.mask) + "\n";
    out_ += "  into " + text(step.out) + "\n";
  }
  void print_action(const EagerStep& step) {
    out_ += "eager " + step.call.name;
    print_end();
  }

  void print(const Step& step) {
    label_ = step.label;
    bytes_ = step.bytes.is_null() ? "?" : sym::to_string(step.bytes);
    out_ += step.prepare ? "prepare " : "";
    std::visit([&](const auto& action) { print_action(action); }, step.action);
  }
  void print_end() { out_ += fmt::format("  # {}; {} bytes\n", label_, bytes_); }

  const loop::Program& program_;
  bool brief_;
  std::vector<bool> used_;
  std::map<std::string, std::size_t> kernels_;
  std::string label_;
  std::string bytes_;
  std::string out_;
};

}  // namespace

std::string to_string(const ScheduledProgram& scheduled, bool brief) {
  return Printer(scheduled.program, brief).run(scheduled);
}

std::string to_string(const Step& step, const loop::Program& program) {
  return Printer(program, false).run(step);
}

}  // namespace inkle::schedule
