#include <inkle_plan_generated.h>

#include <type_traits>
#include <utility>

#include "package/contents.h"

namespace inkle::package {
namespace {

using flatbuffers::Offset;

class Packer {
 public:
  // A field that compares equal to its default would be left out, and with it the sign of a zero.
  Packer() { out_.ForceDefaults(true); }

  std::vector<std::byte> pack(const Contents& contents) {
    std::vector<binary::Span> constants;
    for (const Range& r : contents.constants) constants.emplace_back(r.offset, r.bytes);
    std::vector<Offset<binary::Weight>> weights;
    for (const Weight& w : contents.weights) {
      const binary::Span span(w.data.offset, w.data.bytes);
      weights.push_back(binary::CreateWeight(out_, w.argument, &span));
    }
    std::vector<Offset<binary::DeviceImage>> images;
    for (const DeviceImageRange& i : contents.images) {
      const binary::Span span(i.data.offset, i.data.bytes);
      images.push_back(binary::CreateDeviceImage(out_, string(i.architecture), &span));
    }
    std::vector<Offset<binary::Choice>> choices;
    for (const LibraryChoice& c : contents.choices) {
      choices.push_back(binary::CreateChoice(out_, string(c.library), string(c.device),
                                             string(c.problem), string(c.algorithm)));
    }
    const auto root = binary::CreateContents(
        out_, plan(contents.plan), strings(contents.output_names),
        out_.CreateVectorOfStructs(constants), out_.CreateVector(weights), image(contents),
        numbers(contents.parameters), hash(contents.weights_hash), out_.CreateVector(images),
        out_.CreateVector(choices));
    binary::FinishContentsBuffer(out_, root);
    const auto* first = reinterpret_cast<const std::byte*>(out_.GetBufferPointer());
    return {first, first + out_.GetSize()};
  }

 private:
  template <class E>
  static std::uint8_t number_of(E value) {
    static_assert(std::is_enum_v<E>);
    return static_cast<std::uint8_t>(value);
  }
  static binary::Device device(const abi::Device& d) { return {d.index, number_of(d.kind)}; }

  Offset<flatbuffers::String> string(const std::string& text) { return out_.CreateString(text); }
  Offset<flatbuffers::Vector<Offset<flatbuffers::String>>> strings(
      const std::vector<std::string>& all) {
    return out_.CreateVectorOfStrings(all);
  }
  Offset<flatbuffers::Vector<std::uint32_t>> numbers(const std::vector<std::uint32_t>& all) {
    return out_.CreateVector(all);
  }
  Offset<flatbuffers::Vector<std::uint8_t>> hash(const std::optional<Hash>& hash) {
    if (!hash) return 0;
    return out_.CreateVector(reinterpret_cast<const std::uint8_t*>(hash->data()), hash->size());
  }
  Offset<flatbuffers::Vector<std::int64_t>> integers(const std::vector<std::int64_t>& all) {
    return out_.CreateVector(all);
  }
  // One table an element, in order.
  template <class T, class Make>
  auto tables(const std::vector<T>& all, Make&& make) {
    std::vector<decltype(make(all.front()))> made;
    made.reserve(all.size());
    for (const T& one : all) made.push_back(make(one));
    return out_.CreateVector(made);
  }

  Offset<binary::Image> image(const Contents& contents) {
    std::vector<binary::CpuidBits> bits;
    for (const image::CpuidBits& b : contents.processor) {
      bits.emplace_back(b.leaf, b.subleaf, b.register_number, b.bits);
    }
    return binary::CreateImage(out_, contents.layout.code_bytes, strings(contents.layout.imports),
                               out_.CreateVector(contents.layout.entries),
                               out_.CreateVectorOfStructs(bits));
  }

  Offset<binary::Plan> plan(const abi::Plan& p) {
    std::vector<binary::Instruction> sizes;
    for (const abi::SizeInstruction& i : p.size_program) {
      sizes.emplace_back(i.immediate, i.result, i.a, i.b, number_of(i.op));
    }
    return binary::CreatePlan(
        out_, string(p.name),
        tables(p.arguments, [&](const abi::PlanArgument& a) { return argument(a); }), p.slot_count,
        out_.CreateVectorOfStructs(sizes),
        tables(p.guards,
               [&](const abi::Guard& g) {
                 return binary::CreateGuard(out_, number_of(g.relation), g.a, g.b,
                                            string(g.message));
               }),
        tables(p.buffers, [&](const abi::BufferDecl& b) { return buffer(b); }),
        tables(p.constants,
               [&](const abi::ConstantDecl& c) {
                 return binary::CreateConstant(out_, number_of(c.dtype), integers(c.sizes));
               }),
        tables(p.kernels, [&](const abi::KernelDecl& k) { return kernel(k); }),
        tables(p.steps, [&](const abi::PlanStep& s) { return step(s); }),
        tables(p.regions,
               [&](const abi::Region& r) {
                 return binary::CreateRegion(
                     out_, tables(r.steps, [&](const abi::PlanStep& s) { return step(s); }));
               }),
        tables(p.outputs, [&](const abi::PlanOutput& o) {
          return binary::CreateOutput(out_, number_of(o.kind), o.index, numbers(o.sizes),
                                      numbers(o.strides), o.offset);
        }));
  }

  Offset<binary::Argument> argument(const abi::PlanArgument& a) {
    const binary::Device where = device(a.device);
    return binary::CreateArgument(out_, string(a.name), a.is_integer, number_of(a.dtype), &where,
                                  numbers(a.sizes), numbers(a.strides), a.alignment, a.is_parameter,
                                  a.is_written);
  }
  Offset<binary::Buffer> buffer(const abi::BufferDecl& b) {
    const binary::Device where = device(b.device);
    return binary::CreateBuffer(out_, number_of(b.kind), number_of(b.dtype), b.index,
                                numbers(b.sizes), numbers(b.strides), b.bytes, b.first_use,
                                b.last_use, string(b.name), &where);
  }
  Offset<binary::Kernel> kernel(const abi::KernelDecl& k) {
    Offset<binary::DeviceKernel> on_device;
    if (k.device) {
      const abi::DeviceKernel& d = *k.device;
      on_device = binary::CreateDeviceKernel(out_, d.image, string(d.entry), d.block_threads,
                                             d.shared_bytes, d.cluster_blocks, d.has_workspace,
                                             d.can_fail, d.waits, d.co_resident);
    }
    return binary::CreateKernel(out_, string(k.name), string(k.code_key), on_device,
                                string(k.text));
  }

  Offset<binary::Operand> operand(const abi::Operand& o) {
    return binary::CreateOperand(out_, o.buffer, number_of(o.dtype), o.offset, numbers(o.sizes),
                                 numbers(o.strides));
  }
  Offset<binary::Operand> operand_if(bool is_there, const abi::Operand& o) {
    return is_there ? operand(o) : Offset<binary::Operand>();
  }
  auto post_ops(const std::vector<abi::PostOp>& all) {
    return tables(all, [&](const abi::PostOp& p) {
      const bool has_operand = p.kind == abi::PostOpKind::add || p.kind == abi::PostOpKind::mul;
      return binary::CreatePostOp(out_, number_of(p.kind), p.alpha, p.beta,
                                  operand_if(has_operand, p.operand));
    });
  }

  auto maps(const std::vector<abi::TensorMap>& all) {
    return tables(all, [&](const abi::TensorMap& m) {
      return binary::CreateTensorMap(out_, m.buffer, number_of(m.dtype), numbers(m.sizes),
                                     numbers(m.strides), integers(m.box), m.swizzle);
    });
  }

  using Action = std::pair<binary::Action, Offset<void>>;
  template <class T>
  Action action(binary::Action kind, Offset<T> table) {
    return {kind, table.Union()};
  }

  Action pack_action(const abi::Launch& l) {
    return action(
        binary::Action::Launch,
        binary::CreateLaunch(out_, l.kernel, numbers(l.buffers), numbers(l.sizes), l.extent,
                             l.grain, l.scratch_bytes, numbers(l.extents), maps(l.maps)));
  }
  Action pack_action(const abi::LibraryCall& call) {
    return std::visit([this](const auto& c) { return pack_action(c); }, call);
  }
  Action pack_action(const abi::MatmulCall& m) {
    return action(
        binary::Action::Matmul,
        binary::CreateMatmul(out_, operand(m.a), operand(m.b), operand(m.c),
                             operand_if(m.has_bias, m.bias), m.b_is_weight, post_ops(m.post_ops)));
  }
  Action pack_action(const abi::ConvolutionCall& c) {
    return action(binary::Action::Convolution,
                  binary::CreateConvolution(
                      out_, operand(c.x), operand(c.w), operand(c.y),
                      operand_if(c.has_bias, c.bias), integers(c.stride), integers(c.padding),
                      integers(c.dilation), integers(c.output_padding), c.groups, c.transposed,
                      c.weight_gradient, c.w_is_weight, post_ops(c.post_ops)));
  }
  Action pack_action(const abi::AttentionCall& a) {
    return action(
        binary::Action::Attention,
        binary::CreateAttention(out_, operand(a.q), operand(a.k), operand(a.v), operand(a.out),
                                operand_if(a.has_mask, a.mask), a.scale, a.is_causal));
  }
  Action pack_action(const abi::EagerCall& e) {
    const auto arguments = tables(e.arguments, [&](const abi::EagerArgument& a) {
      Offset<binary::Operand> part;
      if (a.part) part = operand(*a.part);
      return binary::CreateEagerArgument(out_, number_of(a.kind), a.index, part);
    });
    return action(binary::Action::Eager, binary::CreateEager(out_, e.target, string(e.name),
                                                             arguments, numbers(e.results)));
  }
  Action pack_action(const abi::CopyStep& c) {
    return action(binary::Action::Copy, binary::CreateCopy(out_, c.from, c.to));
  }

  Action pack_action(const abi::Branch& b) {
    return action(binary::Action::Branch,
                  binary::CreateBranch(out_, b.condition, b.then_region, b.else_region));
  }
  Action pack_action(const abi::Loop& l) {
    return action(binary::Action::Loop, binary::CreateLoop(out_, l.trips, l.body));
  }
  Action pack_action(const abi::RegionCall& c) {
    return action(binary::Action::RegionCall,
                  binary::CreateRegionCall(out_, c.region, numbers(c.formals), numbers(c.actuals)));
  }

  Offset<binary::Step> step(const abi::PlanStep& s) {
    const auto [kind, table] =
        std::visit([this](const auto& a) { return pack_action(a); }, s.action);
    const auto slot = [](const std::optional<abi::Slot>& value) {
      return value ? flatbuffers::Optional<std::uint32_t>(*value)
                   : flatbuffers::Optional<std::uint32_t>();
    };
    return binary::CreateStep(out_, kind, table, string(s.source), string(s.checked), s.prepare,
                              slot(s.bytes), slot(s.flops));
  }

  flatbuffers::FlatBufferBuilder out_;
};

}  // namespace

std::vector<std::byte> pack(const Contents& contents) { return Packer().pack(contents); }

}  // namespace inkle::package
