#include "driver/kernels_on_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "abi/targets.h"
#include "base/error.h"
#include "driver/strided_memory.h"
#include "kernel/interpret.h"
#include "kernel/passes.h"
#include "lower/lower.h"
#include "passes/pipeline.h"
#include "schedule/expand.h"
#include "schedule/schedule.h"

namespace inkle::driver {
namespace {

using loop::BufferId;
using ops::RefTensor;
using schedule::KernelStep;
using sym::Expr;

// Operations of single threads of a kernel: a second.
constexpr std::int64_t kMostSteps = 2'000'000;
constexpr std::size_t kMostFindings = 10'000;
constexpr std::byte kGarbage{0xA5};

class HostRun {
 public:
  HostRun(schedule::ScheduledProgram scheduled, const ops::SymbolValues& symbols,
          const abi::Target& target, const std::vector<std::string>& skip)
      : scheduled_(std::move(scheduled)), symbols_(symbols), target_(target), skip_(skip) {}

  HostedCall run(const std::vector<RefTensor>& inputs) {
    check_guards();
    make_buffers(inputs);
    HostedCall call;
    for (schedule::Step& step : scheduled_.steps) {
      auto* kernel = std::get_if<KernelStep>(&step.action);
      if (kernel == nullptr || !std::holds_alternative<schedule::LoopKernel>(kernel->kernel.body)) {
        unsupported("{} is no kernel of loops", step.label);
      }
      launch(*kernel, step.label);
      ++call.kernels;
    }
    for (const loop::Argument& argument : program().arguments) {
      if (!argument.buffer) continue;
      const loop::Buffer& b = program().buffers[*argument.buffer];
      call.inputs.push_back(read(*argument.buffer, values(b.sizes), values(*b.strides), 0));
    }
    for (const loop::ProgramOutput& output : program().outputs) {
      call.outputs.push_back(result(output));
    }
    return call;
  }

 private:
  [[nodiscard]] const loop::Program& program() const { return scheduled_.program; }

  std::int64_t value(Expr e) const {
    if (e.is_null()) return 0;
    return sym::evaluate(e, [&](Expr symbol) {
      for (const auto& [known, number] : symbols_) {
        if (known == symbol) return number;
      }
      return sym::hint(symbol).value();
    });
  }
  std::vector<std::int64_t> values(const std::vector<Expr>& all) const {
    std::vector<std::int64_t> numbers;
    for (const Expr e : all) numbers.push_back(value(e));
    return numbers;
  }

  void check_guards() const {
    using Relation = sym::Context::Relation;
    for (const sym::Context::Guard& guard : program().context->guards()) {
      const std::int64_t a = value(guard.left), b = value(guard.right);
      const bool holds = guard.relation == Relation::equal       ? a == b
                         : guard.relation == Relation::not_equal ? a != b
                         : guard.relation == Relation::less      ? a < b
                                                                 : a >= b;
      if (!holds) unsupported("a guard does not hold");
    }
  }

  void make_buffers(const std::vector<RefTensor>& inputs) {
    const auto& buffers = program().buffers;
    std::map<BufferId, std::size_t> numbers;
    for (const loop::Argument& argument : program().arguments) {
      if (argument.buffer) numbers.emplace(*argument.buffer, numbers.size());
    }
    memory_.resize(buffers.size());
    for (BufferId b = 0; b < buffers.size(); ++b) {
      const loop::Buffer& buffer = buffers[b];
      if (buffer.writes_into || !buffer.strides) continue;
      const std::vector<std::int64_t> sizes = values(buffer.sizes);
      const std::vector<std::int64_t> strides = values(*buffer.strides);
      memory_[b] = allocate(buffer.dtype, sizes, strides);
      const std::span<std::byte> data(memory_[b].data, memory_[b].bytes);
      std::ranges::fill(data, kGarbage);
      if (const auto number = numbers.find(b); number != numbers.end()) {
        write(inputs.at(number->second), memory_[b]);
      }
      if (buffer.role == loop::BufferRole::constant) {
        const auto& bytes = *program().constants.at(buffer.index).bytes;
        INKLE_CHECK(bytes.size() <= data.size(), "constant {} has {} bytes", buffer.index,
                    bytes.size());
        std::ranges::copy(bytes, data.begin());
      }
    }
  }

  const Memory& memory_of(BufferId b) const {
    while (program().buffers[b].writes_into) b = *program().buffers[b].writes_into;
    return memory_[b];
  }

  // To equal indices of a parameter, as of index_fill.
  static bool is_one_store(const kernel::Kernel& made, const kernel::Finding& finding) {
    return finding.kind == kernel::ReportKind::race && finding.operation == finding.other &&
           finding.memory < made.parameter_count;
  }

  void launch(KernelStep& step, const std::string& label) {
    sym::Context& context = *program().context;
    kernel::Kernel made = schedule::expand(step.kernel, step.schedule, context, target_);
    kernel::run_passes(made, context, kernel::gpu_passes(), {.skip = skip_});
    std::vector<kernel::Instance> instances;
    const std::size_t parameters = step.kernel.params.size();
    const std::size_t count = parameters == 0 ? 1 : step.buffers.size() / parameters;
    for (std::size_t n = 0; n < count; ++n) {
      kernel::Instance& instance = instances.emplace_back();
      instance.sizes = values(step.table.empty() ? step.kernel.sizes : step.table[n]);
      for (std::size_t p = 0; p < parameters; ++p) {
        const bool reads = step.kernel.params[p].role == schedule::ParamRole::in;
        const Memory& m = memory_of(step.buffers[n * parameters + p]);
        instance.arguments.push_back(
            {{m.data, m.bytes}, reads ? kernel::Writes::by_role : kernel::Writes::any, true});
      }
    }
    const kernel::RunResult run = kernel::interpret(made, instances,
                                                    {.interleaving = kernel::Interleaving::random,
                                                     .seed = 1,
                                                     .max_steps = kMostSteps,
                                                     .max_findings = kMostFindings});
    for (const kernel::Finding& finding : run.findings) {
      if (finding.message.starts_with("no end within")) unsupported("{} takes too long", label);
      if (is_one_store(made, finding)) continue;  // what stays is compared
      throw InternalError(fmt::format("{}: {}", label, kernel::to_string(made, finding)));
    }
    if (run.status != 0) throw InternalError(fmt::format("{} fails: {}", label, run.status));
  }

  RefTensor read(BufferId b, const std::vector<std::int64_t>& sizes,
                 const std::vector<std::int64_t>& strides, std::int64_t offset) const {
    abi::TensorView view = memory_of(b).view;
    view.dtype = program().buffers[b].dtype;
    view.data = memory_of(b).data + offset * abi::size_of(view.dtype);
    view.rank = static_cast<std::int32_t>(sizes.size());
    view.sizes = sizes.data();
    view.strides = strides.data();
    return from_view(view);
  }

  ops::InterpretedOutput result(const loop::ProgramOutput& output) const {
    using Kind = loop::ProgramOutput::Kind;
    ops::InterpretedOutput made;
    if (output.kind == Kind::integer) made.integer = value(output.integer);
    if (output.kind == Kind::buffer || output.kind == Kind::input) {
      made.tensor =
          read(output.buffer, values(output.sizes), values(output.strides), value(output.offset));
    }
    return made;
  }

  schedule::ScheduledProgram scheduled_;
  const ops::SymbolValues& symbols_;
  const abi::Target& target_;
  const std::vector<std::string>& skip_;
  std::vector<Memory> memory_;
};

}  // namespace

HostedCall run_on_host(graph::Graph graph, const std::vector<RefTensor>& inputs,
                       const ops::SymbolValues& symbols, const HostOptions& options) {
  const abi::Target* target = abi::gpu_target(options.architecture);
  INKLE_CHECK(target != nullptr, "{} is no GPU", options.architecture);
  passes::PassContext context;
  context.options.safe_attention = true;
  schedule::Options scheduling;
  scheduling.target = *target;
  schedule::ScheduledProgram scheduled = schedule::schedule(
      lower::lower(passes::run_passes(std::move(graph), passes::standard_pipeline(), context)),
      scheduling);
  return HostRun(std::move(scheduled), symbols, *target, options.skip).run(inputs);
}

}  // namespace inkle::driver
