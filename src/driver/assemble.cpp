#include "driver/assemble.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "driver/slots.h"

namespace inkle::driver {
namespace {

using abi::BufferDecl;
using abi::PlanBuffer;
using abi::Slot;
using loop::BufferId;
using loop::BufferRole;
using schedule::View;
using sym::Expr;

class Assembler {
 public:
  Assembler(const schedule::ScheduledProgram& scheduled, std::span<const KernelChoice> choices,
            std::span<const UniqueKernel> kernels, const Backend& target)
      : scheduled_(scheduled),
        program_(scheduled.program),
        choices_(choices),
        kernels_(kernels),
        target_(target),
        slots_(plan_, scheduled.program) {}

  Assembled run() {
    add_memory();
    add_kernels();
    for (const schedule::Step& step : scheduled_.steps) add_step(step);
    add_outputs();
    add_guards();
    return {std::move(plan_), std::move(code_)};
  }

  abi::Plan run_convolutions() {
    add_memory();
    for (const schedule::Step& step : scheduled_.steps) {
      if (std::holds_alternative<schedule::ConvolutionStep>(step.action)) add_step(step);
    }
    return std::move(plan_);
  }

 private:
  void add_memory() {
    plan_.name = program_.name;
    find_written();
    find_alignments();
    add_arguments();
    find_uses();
    find_host_results();
    add_buffers();
  }

  void add_arguments() {
    for (const loop::Argument& argument : program_.arguments) {
      abi::PlanArgument a;
      a.name = argument.name;
      a.is_integer = !argument.buffer;
      if (argument.buffer) {
        const loop::Buffer& buffer = program_.buffers[*argument.buffer];
        a.dtype = buffer.dtype;
        a.device = buffer.device;
        a.sizes = slots_.slots(buffer.sizes);
        a.strides = slots_.slots(*buffer.strides);
        a.alignment = alignments_[*argument.buffer];
        a.is_parameter = buffer.is_parameter;
        a.is_written = is_written_[*argument.buffer];
      }
      plan_.arguments.push_back(std::move(a));
    }
  }

  // What kernels assume of an argument, by itself or as memory that is written into: at least its
  // elements' size.
  void find_alignments() {
    alignments_.resize(program_.buffers.size());
    for (BufferId b = 0; b < alignments_.size(); ++b) {
      alignments_[b] = static_cast<std::int32_t>(abi::size_of(program_.buffers[b].dtype));
    }
    for (const schedule::Step& step : scheduled_.steps) {
      const auto* kernel = std::get_if<schedule::KernelStep>(&step.action);
      if (kernel == nullptr) continue;
      for (std::size_t p = 0; p < kernel->buffers.size(); ++p) {
        std::int32_t& bytes = alignments_[memory_of(kernel->buffers[p])];
        bytes = std::max(bytes, kernel->param(p).alignment);
      }
    }
  }

  // The buffer in whose memory one lies: itself, or what it is written into.
  BufferId memory_of(BufferId b) const {
    while (program_.buffers[b].writes_into) b = *program_.buffers[b].writes_into;
    return b;
  }

  void find_written() {
    is_written_.assign(program_.buffers.size(), false);
    for (const schedule::Step& step : scheduled_.steps) {
      for (const BufferId b : schedule::writes(step)) is_written_[memory_of(b)] = true;
    }
  }

  void find_uses() {
    first_.assign(program_.buffers.size(), ~std::uint32_t{0});
    last_.assign(program_.buffers.size(), 0);
    for (std::uint32_t s = 0; s < scheduled_.steps.size(); ++s) {
      const auto use = [&](BufferId b) {
        first_[b] = std::min(first_[b], s);
        // Memory is used by what lies in it, too.
        for (const BufferId at : {b, memory_of(b)}) last_[at] = std::max(last_[at], s);
      };
      for (const BufferId b : schedule::reads(scheduled_.steps[s])) use(b);
      for (const BufferId b : schedule::writes(scheduled_.steps[s])) use(b);
    }
    is_prepared_.assign(program_.buffers.size(), false);
    for (const schedule::Step& step : scheduled_.steps) {
      if (!step.prepare) continue;
      for (const BufferId b : schedule::writes(step)) is_prepared_[b] = true;
    }
    const auto end = static_cast<std::uint32_t>(scheduled_.steps.size());
    for (const auto& output : program_.outputs) {
      if (output.kind != loop::ProgramOutput::Kind::buffer) continue;
      last_[output.buffer] = last_[memory_of(output.buffer)] = end;
    }
  }

  // Bytes from the first to the last element.
  Expr span_bytes(const loop::Buffer& buffer) {
    Expr elements = program_.context->constant(1);
    for (std::size_t d = 0; d < buffer.sizes.size(); ++d) {
      if (buffer.sizes[d].is_constant(0)) return program_.context->constant(0);
      elements = elements + (buffer.sizes[d] - 1) * (*buffer.strides)[d];
    }
    return sym::max(elements, program_.context->constant(0)) * abi::size_of(buffer.dtype);
  }

  // Buffers that are memory of the host's own: results of its ops, whole. What is prepared stays
  // from call to call, so it is copied to memory of the plan.
  void find_host_results() {
    is_hosts_.assign(program_.buffers.size(), false);
    for (const schedule::Step& step : scheduled_.steps) {
      if (const auto* eager = std::get_if<schedule::EagerStep>(&step.action)) {
        for (const BufferId b : eager->call.results) is_hosts_[b] = true;
      }
      if (step.prepare || !target_.host_makes_result(step, program_)) continue;
      const auto* convolution = std::get_if<schedule::ConvolutionStep>(&step.action);
      const View& view = convolution != nullptr
                             ? convolution->y
                             : std::get<schedule::AttentionStep>(step.action).out;
      const loop::Buffer& buffer = program_.buffers[view.buffer];
      sym::Context& context = *program_.context;
      if (view.offset.is_constant(0) &&
          sym::product(context, view.sizes) == sym::product(context, buffer.sizes)) {
        is_hosts_[view.buffer] = true;
      }
    }
  }

  void add_buffers() {
    map_.assign(program_.buffers.size(), kNone);
    std::vector<std::uint32_t> output_position(program_.buffers.size(), 0);
    for (std::uint32_t i = 0; i < program_.outputs.size(); ++i) {
      if (program_.outputs[i].kind == loop::ProgramOutput::Kind::buffer) {
        output_position[program_.outputs[i].buffer] = i;
      }
    }
    std::vector<bool> returned(program_.buffers.size(), false);
    for (const auto& output : program_.outputs) {
      if (output.kind == loop::ProgramOutput::Kind::buffer) returned[output.buffer] = true;
    }
    for (BufferId b = 0; b < program_.buffers.size(); ++b) {
      const loop::Buffer& buffer = program_.buffers[b];
      const bool used = first_[b] != ~std::uint32_t{0} || returned[b];
      if (!used && buffer.role != BufferRole::input) continue;
      BufferDecl decl;
      decl.name = buffer.name;
      decl.dtype = buffer.dtype;
      decl.device = buffer.device;
      decl.sizes = slots_.slots(buffer.sizes);
      decl.strides = slots_.slots(*buffer.strides);
      decl.bytes = slots_.slot(span_bytes(buffer));
      decl.first_use = first_[b] == ~std::uint32_t{0} ? 0 : first_[b];
      decl.last_use = last_[b];
      decl.index = buffer.index;
      if (buffer.role == BufferRole::input) {
        decl.kind = BufferDecl::Kind::argument;
      } else if (buffer.role == BufferRole::constant) {
        decl.kind = BufferDecl::Kind::constant;
      } else if (buffer.writes_into) {
        decl.kind = BufferDecl::Kind::alias;
        decl.index = map_[*buffer.writes_into];
        INKLE_CHECK(decl.index != kNone, "buffer {} writes into one that comes later", buffer.name);
      } else if (is_hosts_[b]) {
        decl.kind = BufferDecl::Kind::external;
      } else if (returned[b]) {
        decl.kind = BufferDecl::Kind::output;
        decl.index = output_position[b];
      } else if (is_prepared_[b]) {
        decl.kind = BufferDecl::Kind::prepared;
      } else {
        decl.kind = BufferDecl::Kind::arena;
      }
      map_[b] = static_cast<PlanBuffer>(plan_.buffers.size());
      plan_.buffers.push_back(std::move(decl));
    }
    for (const auto& constant : program_.constants) {
      plan_.constants.emplace_back();
      code_.constants.emplace_back(constant.bytes);
    }
    for (const loop::Buffer& buffer : program_.buffers) {
      if (buffer.role != BufferRole::constant) continue;
      abi::ConstantDecl& decl = plan_.constants[buffer.index];
      decl.dtype = buffer.dtype;
      for (const Expr size : buffer.sizes) {
        INKLE_CHECK(size.is_constant(), "a literal has symbolic sizes");
        decl.sizes.push_back(*size.constant());
      }
    }
  }

  void add_kernels() {
    for (const UniqueKernel& kernel : kernels_) {
      abi::KernelDecl decl;
      decl.name = kernel.name;
      decl.text = kernel.compiled.text;
      decl.code_key = fmt::format("{:016x}", hash_bytes(kernel.text));
      if (kernel.compiled.device) {
        decl.device = kernel.compiled.device;
        decl.device->image = image(kernel.compiled.image);
      }
      plan_.kernels.push_back(std::move(decl));
      code_.functions.push_back(kernel.compiled.function);
      if (kernel.compiled.code) code_.owners.push_back(kernel.compiled.code);
      code_.objects.push_back(kernel.compiled.object ? abi::SharedBytes(kernel.compiled.object)
                                                     : abi::SharedBytes());
      code_.sources.push_back(kernel.compiled.source);
    }
  }

  // The code's number of an image; equal ones are one.
  std::uint32_t image(const std::shared_ptr<const abi::DeviceImage>& wanted) {
    for (std::uint32_t i = 0; i < code_.images.size(); ++i) {
      if (code_.images[i].data == wanted->data) return i;
    }
    code_.images.push_back(*wanted);
    return static_cast<std::uint32_t>(code_.images.size() - 1);
  }

  PlanBuffer buffer(BufferId b) const {
    INKLE_CHECK(map_[b] != kNone, "buffer {} is used by no step", program_.buffers[b].name);
    return map_[b];
  }

  abi::Operand operand(const View& view) {
    abi::Operand result;
    result.buffer = buffer(view.buffer);
    result.dtype = program_.buffers[view.buffer].dtype;
    result.offset = slots_.slot(view.offset);
    result.sizes = slots_.slots(view.sizes);
    result.strides = slots_.slots(view.strides);
    return result;
  }

  std::vector<abi::PostOp> post_ops(const std::vector<schedule::Epilogue>& epilogue) {
    std::vector<abi::PostOp> result;
    for (const schedule::Epilogue& e : epilogue) {
      abi::PostOp op;
      op.kind = e.kind;
      op.alpha = e.alpha;
      op.beta = e.beta;
      if (e.operand) op.operand = operand(*e.operand);
      result.push_back(std::move(op));
    }
    return result;
  }

  abi::Launch launch(const schedule::KernelStep& step) {
    const KernelChoice& choice = choices_[next_kernel_++];
    abi::Launch launch;
    launch.kernel = choice.number;
    for (const BufferId b : step.buffers) launch.buffers.push_back(buffer(b));
    Expr extent = program_.context->constant(0);
    for (std::size_t i = 0; i < step.kernel.instances; ++i) {
      const Expr one = schedule::instance_extent(step, i, *program_.context);
      extent = extent + one;
      const std::vector<Slot> sizes =
          slots_.slots(step.table.empty() ? step.kernel.sizes : step.table[i]);
      launch.sizes.insert(launch.sizes.end(), sizes.begin(), sizes.end());
      if (step.kernel.instances > 1) launch.extents.push_back(slots_.slot(one));
    }
    if (const auto* gemm = std::get_if<schedule::GemmKernel>(&step.kernel.body)) {
      for (std::size_t o = 0; o < gemm->boxes.size(); ++o) {
        const schedule::GemmKernel::Boxes& boxes = gemm->boxes[o];
        abi::TensorMap& map = launch.maps.emplace_back();
        map.buffer = buffer(step.buffers[o]);
        map.dtype = step.kernel.params[o].dtype;
        map.sizes = slots_.slots(boxes.sizes);
        map.strides = slots_.slots(boxes.strides);
        map.box = boxes.box;
        map.swizzle = boxes.swizzle;
      }
    }
    launch.extent = slots_.slot(extent);
    launch.grain = slots_.constant(step.schedule.grain);
    launch.scratch_bytes = slots_.slot(choice.scratch_bytes);
    return launch;
  }

  abi::LibraryCall call(const schedule::MatmulStep& step) {
    abi::MatmulCall call;
    call.a = operand(step.a);
    call.b = operand(step.b);
    call.c = operand(step.c);
    call.has_bias = step.bias.has_value();
    if (step.bias) call.bias = operand(*step.bias);
    call.b_is_weight = step.b_is_weight || is_prepared_[step.b.buffer];
    call.post_ops = post_ops(step.epilogue);
    return call;
  }

  abi::LibraryCall call(const schedule::ConvolutionStep& step) {
    abi::ConvolutionCall call;
    call.x = operand(step.x);
    call.w = operand(step.w);
    call.y = operand(step.y);
    call.has_bias = step.bias.has_value();
    if (step.bias) call.bias = operand(*step.bias);
    call.stride = step.parameters.stride;
    call.padding = step.parameters.padding;
    call.dilation = step.parameters.dilation;
    call.output_padding = step.parameters.output_padding;
    call.groups = step.parameters.groups;
    call.transposed = step.parameters.transposed;
    call.weight_gradient = step.parameters.weight_gradient;
    call.w_is_weight = step.w_is_weight || is_prepared_[step.w.buffer];
    call.post_ops = post_ops(step.epilogue);
    return call;
  }

  abi::LibraryCall call(const schedule::AttentionStep& step) {
    abi::AttentionCall call;
    call.q = operand(step.q);
    call.k = operand(step.k);
    call.v = operand(step.v);
    call.out = operand(step.out);
    call.has_mask = step.mask.has_value();
    if (step.mask) call.mask = operand(*step.mask);
    call.scale = step.scale;
    call.is_causal = step.is_causal;
    return call;
  }

  abi::EagerCall call(const schedule::EagerStep& step) {
    abi::EagerCall call;
    call.target = step.call.target;
    call.name = step.call.name;
    for (const auto& argument : step.call.arguments) {
      abi::EagerArgument a;
      if (const auto* b = std::get_if<BufferId>(&argument)) {
        a.index = buffer(*b);
      } else {
        a.kind = abi::EagerArgument::Kind::slot;
        a.index = slots_.slot(std::get<Expr>(argument));
      }
      call.arguments.push_back(a);
    }
    for (const loop::EagerCall::Part& part : step.call.parts) {
      const BufferId b = std::get<BufferId>(step.call.arguments[part.argument]);
      call.arguments[part.argument].part = operand(View{b, part.offset, part.sizes, part.strides});
    }
    for (const BufferId b : step.call.results) call.results.push_back(buffer(b));
    return call;
  }

  void add_step(const schedule::Step& step) {
    abi::PlanStep result;
    result.source = fmt::format("{}", fmt::join(step.sources, ", "));
    result.checked = fmt::format("{}", fmt::join(step.checked, ", "));
    result.prepare = step.prepare;
    if (!step.bytes.is_null()) result.bytes = slots_.slot(step.bytes);
    if (!step.flops.is_null()) result.flops = slots_.slot(step.flops);
    if (const auto* kernel = std::get_if<schedule::KernelStep>(&step.action)) {
      result.action = launch(*kernel);
    } else if (const auto* matmul = std::get_if<schedule::MatmulStep>(&step.action)) {
      result.action = call(*matmul);
    } else if (const auto* conv = std::get_if<schedule::ConvolutionStep>(&step.action)) {
      result.action = call(*conv);
    } else if (const auto* attention = std::get_if<schedule::AttentionStep>(&step.action)) {
      result.action = call(*attention);
    } else {
      result.action = call(std::get<schedule::EagerStep>(step.action));
    }
    plan_.steps.push_back(std::move(result));
  }

  void add_outputs() {
    using Kind = loop::ProgramOutput::Kind;
    for (const auto& output : program_.outputs) {
      abi::PlanOutput result;
      switch (output.kind) {
        case Kind::none:
          result.kind = abi::PlanOutput::Kind::none;
          break;
        case Kind::integer:
          result.kind = abi::PlanOutput::Kind::integer;
          result.index = slots_.slot(output.integer);
          break;
        case Kind::buffer:
        case Kind::input: {
          const loop::Buffer& b = program_.buffers[output.buffer];
          // A view of an argument is one of its buffer; "argument" means all of it.
          const bool is_argument = output.kind == Kind::input && output.sizes == b.sizes &&
                                   output.strides == *b.strides &&
                                   (output.offset.is_null() || output.offset.is_constant(0));
          result.kind =
              is_argument ? abi::PlanOutput::Kind::argument : abi::PlanOutput::Kind::buffer;
          result.index = is_argument ? b.index : buffer(output.buffer);
          result.sizes = slots_.slots(output.sizes);
          result.strides = slots_.slots(output.strides);
          result.offset = output.offset.is_null() ? slots_.constant(0) : slots_.slot(output.offset);
          break;
        }
      }
      plan_.outputs.push_back(std::move(result));
    }
  }

  void add_guards() {
    using Relation = sym::Context::Relation;
    for (const sym::Context::Guard& guard : program_.context->guards()) {
      abi::Guard g;
      g.a = slots_.slot(guard.left);
      g.b = slots_.slot(guard.right);
      switch (guard.relation) {
        case Relation::equal:
          g.relation = abi::Guard::Relation::equal;
          break;
        case Relation::not_equal:
          g.relation = abi::Guard::Relation::not_equal;
          break;
        case Relation::less:
          g.relation = abi::Guard::Relation::less;
          break;
        case Relation::greater_equal:
          g.relation = abi::Guard::Relation::less_equal;
          std::swap(g.a, g.b);
          break;
      }
      g.message =
          fmt::format("the program was compiled for sizes where {} and {} compare otherwise",
                      sym::to_string(guard.left), sym::to_string(guard.right));
      plan_.guards.push_back(std::move(g));
    }
  }

  static constexpr PlanBuffer kNone = ~PlanBuffer{0};

  const schedule::ScheduledProgram& scheduled_;
  const loop::Program& program_;
  std::span<const KernelChoice> choices_;
  std::span<const UniqueKernel> kernels_;
  const Backend& target_;
  abi::Plan plan_;
  abi::Code code_;
  SlotTable slots_;
  std::vector<std::int32_t> alignments_;  // of arguments, in bytes
  std::vector<PlanBuffer> map_;
  std::vector<std::uint32_t> first_;
  std::vector<std::uint32_t> last_;
  std::vector<bool> is_hosts_;
  std::vector<bool> is_prepared_;  // made by a prepare step
  std::vector<bool> is_written_;   // itself or through another that lies in it
  std::size_t next_kernel_ = 0;
};

}  // namespace

Assembled assemble(const schedule::ScheduledProgram& scheduled,
                   std::span<const KernelChoice> choices, std::span<const UniqueKernel> kernels,
                   const Backend& target) {
  return Assembler(scheduled, choices, kernels, target).run();
}

abi::Plan plan_convolutions(const schedule::ScheduledProgram& scheduled, const Backend& target) {
  return Assembler(scheduled, {}, {}, target).run_convolutions();
}

}  // namespace inkle::driver
