#include <inkle_plan_generated.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "package/contents.h"
#include "package/reason.h"

namespace inkle::package {
namespace {

// Tables nest six deep; a plan has some tables a step, of 4 bytes at least.
constexpr flatbuffers::uoffset_t kMostDepth = 32;
constexpr std::size_t kMostAlgorithm = 1024;  // characters of a name

template <class... Args>
[[noreturn]] void bad_plan(fmt::format_string<Args...> format, Args&&... args) {
  bad_package(Reason::bad_plan, format, std::forward<Args>(args)...);
}

// Fields that are not there are empty; a union's table and a vector's elements always are.
class Unpacker {
 public:
  explicit Unpacker(std::uint64_t bytes) : left_(bytes) {}

  Contents unpack(const binary::Contents& from) {
    Contents made;
    const binary::Plan* const p = from.plan();
    if (p == nullptr) bad_plan("the plan section has no plan");
    made.plan = plan(*p);
    made.output_names = strings(from.output_names());
    each(from.constants(), [&](const binary::Span* s) {
      made.constants.push_back({s->offset(), s->bytes()});
    });
    each(from.weights(), [&](const binary::Weight* w) {
      if (w->data() == nullptr) bad_plan("a weight of the plan section has no place");
      made.weights.push_back({w->argument(), {w->data()->offset(), w->data()->bytes()}});
    });
    made.parameters = numbers(from.parameters());
    if (const auto* hash = from.weights_hash()) {
      if (hash->size() != sizeof(Hash)) bad_plan("a hash of {} bytes", hash->size());
      made.weights_hash.emplace();
      std::memcpy(made.weights_hash->data(), hash->data(), hash->size());
    }
    each(from.images(), [&](const binary::DeviceImage* i) {
      if (i->data() == nullptr) bad_plan("an image of the plan section has no place");
      made.images.push_back({string(i->architecture()), {i->data()->offset(), i->data()->bytes()}});
    });
    each(from.choices(), [&](const binary::Choice* c) {
      made.choices.push_back({string(c->library()), string(c->device()), string(c->problem()),
                              algorithm(string(c->algorithm()))});
    });
    if (const binary::Image* const image = from.image()) {
      made.layout.code_bytes = image->code_bytes();
      made.layout.imports = strings(image->imports());
      made.layout.entries = numbers(image->entries());
      each(image->processor(), [&](const binary::CpuidBits* b) {
        made.processor.push_back({b->leaf(), b->subleaf(), b->register_number(), b->bits()});
      });
    }
    return made;
  }

 private:
  // Vectors of a file that was packed here do not overlap, so that together they are no larger than
  // the file: a small one cannot ask for much memory.
  void spend(std::uint64_t bytes) {
    if (bytes > left_) bad_plan("the plan section holds one part more than once");
    left_ -= bytes;
  }
  // The verifier of FlatBuffers checks where tables and their fields lie, not elements of vectors.
  template <class Element, class Vector>
  static void check_alignment(const Vector& all) {
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(all.Data()) % alignof(Element) == 0;
    if (all.size() != 0 && !is_aligned) {
      bad_plan("a vector of the plan section is not aligned to {} bytes", alignof(Element));
    }
  }
  template <class Vector, class Visit>
  void each(const Vector* all, Visit&& visit) {
    if (all == nullptr) return;
    spend(all->size() * sizeof(flatbuffers::uoffset_t));
    check_alignment<std::remove_pointer_t<typename Vector::return_type>>(*all);
    for (const auto& one : *all) visit(one);
  }
  template <class T>
  std::vector<T> numbers(const flatbuffers::Vector<T>* all) {
    if (all == nullptr) return {};
    spend(all->size() * sizeof(T));
    check_alignment<T>(*all);
    return {all->begin(), all->end()};
  }
  std::string string(const flatbuffers::String* text) {
    if (text == nullptr) return {};
    spend(text->size());
    return text->str();
  }
  // Names of algorithms go to logs.
  static std::string algorithm(std::string name) {
    const bool is_name = !name.empty() && name.size() <= kMostAlgorithm &&
                         std::ranges::all_of(name, [](char c) { return c >= ' ' && c <= '~'; });
    if (!is_name) bad_plan("a choice of a library is no name of an algorithm");
    return name;
  }
  std::vector<std::string> strings(
      const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>* all) {
    std::vector<std::string> made;
    each(all, [&](const flatbuffers::String* s) { made.push_back(string(s)); });
    return made;
  }

  template <class E>
  static E named(std::uint8_t value, E last, std::string_view what) {
    if (value > static_cast<std::uint8_t>(last)) bad_plan("the plan has {} {}", what, value);
    return static_cast<E>(value);
  }
  static abi::DType dtype(std::uint8_t value) {
    return named(value, abi::DType::opaque, "a tensor of type");
  }
  static abi::Device device(const binary::Device* d) {
    if (d == nullptr) return {};
    return {named(d->kind(), abi::DeviceKind::cuda, "a device of kind"), d->index()};
  }

  abi::Plan plan(const binary::Plan& p) {
    abi::Plan made;
    made.name = string(p.name());
    made.slot_count = p.slot_count();
    each(p.arguments(), [&](const binary::Argument* a) {
      made.arguments.push_back({.name = string(a->name()),
                                .is_integer = a->is_integer(),
                                .dtype = dtype(a->dtype()),
                                .device = device(a->device()),
                                .sizes = numbers(a->sizes()),
                                .strides = numbers(a->strides()),
                                .alignment = a->alignment(),
                                .is_parameter = a->is_parameter(),
                                .is_written = a->is_written()});
    });
    each(p.size_program(), [&](const binary::Instruction* i) {
      using Op = abi::SizeInstruction::Op;
      made.size_program.push_back({.op = named(i->op(), Op::max, "a size instruction"),
                                   .result = i->result(),
                                   .a = i->a(),
                                   .b = i->b(),
                                   .immediate = i->immediate()});
    });
    each(p.guards(), [&](const binary::Guard* g) {
      using Relation = abi::Guard::Relation;
      made.guards.push_back({named(g->relation(), Relation::less_equal, "a guard of relation"),
                             g->a(), g->b(), string(g->message())});
    });
    each(p.buffers(), [&](const binary::Buffer* b) { made.buffers.push_back(buffer(*b)); });
    each(p.constants(), [&](const binary::Constant* c) {
      made.constants.push_back({dtype(c->dtype()), numbers(c->sizes())});
    });
    each(p.kernels(), [&](const binary::Kernel* k) { made.kernels.push_back(kernel(*k)); });
    each(p.steps(), [&](const binary::Step* s) { made.steps.push_back(step(*s)); });
    each(p.regions(), [&](const binary::Region* r) {
      abi::Region region;
      each(r->steps(), [&](const binary::Step* s) { region.steps.push_back(step(*s)); });
      made.regions.push_back(std::move(region));
    });
    each(p.outputs(), [&](const binary::Output* o) {
      using Kind = abi::PlanOutput::Kind;
      made.outputs.push_back({.kind = named(o->kind(), Kind::none, "an output of kind"),
                              .index = o->index(),
                              .sizes = numbers(o->sizes()),
                              .strides = numbers(o->strides()),
                              .offset = o->offset()});
    });
    return made;
  }

  abi::BufferDecl buffer(const binary::Buffer& b) {
    using Kind = abi::BufferDecl::Kind;
    return {.kind = named(b.kind(), Kind::formal, "a buffer of kind"),
            .dtype = dtype(b.dtype()),
            .index = b.index(),
            .sizes = numbers(b.sizes()),
            .strides = numbers(b.strides()),
            .bytes = b.bytes(),
            .first_use = b.first_use(),
            .last_use = b.last_use(),
            .name = string(b.name()),
            .device = device(b.device())};
  }

  abi::KernelDecl kernel(const binary::Kernel& k) {
    abi::KernelDecl made{.name = string(k.name()),
                         .text = string(k.text()),
                         .code_key = string(k.code_key()),
                         .device = {}};
    if (const binary::DeviceKernel* const d = k.device()) {
      made.device = abi::DeviceKernel{.image = d->image(),
                                      .entry = string(d->entry()),
                                      .block_threads = d->block_threads(),
                                      .shared_bytes = d->shared_bytes(),
                                      .cluster_blocks = d->cluster_blocks(),
                                      .has_workspace = d->has_workspace(),
                                      .can_fail = d->can_fail(),
                                      .waits = d->waits(),
                                      .co_resident = d->co_resident()};
    }
    return made;
  }

  abi::Operand operand(const binary::Operand* o) {
    if (o == nullptr) bad_plan("the plan has a library call without an operand");
    return {.buffer = o->buffer(),
            .dtype = dtype(o->dtype()),
            .offset = o->offset(),
            .sizes = numbers(o->sizes()),
            .strides = numbers(o->strides())};
  }
  std::vector<abi::PostOp> post_ops(
      const flatbuffers::Vector<flatbuffers::Offset<binary::PostOp>>* all) {
    std::vector<abi::PostOp> made;
    each(all, [&](const binary::PostOp* p) {
      abi::PostOp op;
      op.kind = named(p->kind(), abi::PostOpKind::mul, "a post-op of kind");
      op.alpha = p->alpha();
      op.beta = p->beta();
      if (op.kind == abi::PostOpKind::add || op.kind == abi::PostOpKind::mul) {
        op.operand = operand(p->operand());
      }
      made.push_back(std::move(op));
    });
    return made;
  }

  abi::Launch launch(const binary::Launch& l) {
    return {.kernel = l.kernel(),
            .buffers = numbers(l.buffers()),
            .sizes = numbers(l.sizes()),
            .extent = l.extent(),
            .grain = l.grain(),
            .scratch_bytes = l.scratch_bytes(),
            .extents = numbers(l.extents()),
            .maps = maps(l.maps())};
  }
  std::vector<abi::TensorMap> maps(
      const flatbuffers::Vector<flatbuffers::Offset<binary::TensorMap>>* all) {
    std::vector<abi::TensorMap> made;
    each(all, [&](const binary::TensorMap* m) {
      made.push_back({.buffer = m->buffer(),
                      .dtype = dtype(m->dtype()),
                      .sizes = numbers(m->sizes()),
                      .strides = numbers(m->strides()),
                      .box = numbers(m->box()),
                      .swizzle = m->swizzle()});
    });
    return made;
  }
  abi::LibraryCall matmul(const binary::Matmul& m) {
    abi::MatmulCall made;
    made.a = operand(m.a());
    made.b = operand(m.b());
    made.c = operand(m.c());
    made.has_bias = m.bias() != nullptr;
    if (made.has_bias) made.bias = operand(m.bias());
    made.b_is_weight = m.b_is_weight();
    made.post_ops = post_ops(m.post_ops());
    return made;
  }
  abi::LibraryCall convolution(const binary::Convolution& c) {
    abi::ConvolutionCall made;
    made.x = operand(c.x());
    made.w = operand(c.w());
    made.y = operand(c.y());
    made.has_bias = c.bias() != nullptr;
    if (made.has_bias) made.bias = operand(c.bias());
    made.stride = numbers(c.stride());
    made.padding = numbers(c.padding());
    made.dilation = numbers(c.dilation());
    made.output_padding = numbers(c.output_padding());
    made.groups = c.groups();
    made.transposed = c.transposed();
    made.weight_gradient = c.weight_gradient();
    made.w_is_weight = c.w_is_weight();
    made.post_ops = post_ops(c.post_ops());
    return made;
  }
  abi::LibraryCall attention(const binary::Attention& a) {
    abi::AttentionCall made;
    made.q = operand(a.q());
    made.k = operand(a.k());
    made.v = operand(a.v());
    made.out = operand(a.out());
    made.has_mask = a.mask() != nullptr;
    if (made.has_mask) made.mask = operand(a.mask());
    made.scale = a.scale();
    made.is_causal = a.is_causal();
    return made;
  }
  abi::EagerCall eager(const binary::Eager& e) {
    abi::EagerCall made;
    made.target = e.target();
    made.name = string(e.name());
    made.results = numbers(e.results());
    each(e.arguments(), [&](const binary::EagerArgument* a) {
      using Kind = abi::EagerArgument::Kind;
      abi::EagerArgument argument;
      argument.kind = named(a->kind(), Kind::slot, "an operand of kind");
      argument.index = a->index();
      if (a->part() != nullptr) argument.part = operand(a->part());
      made.arguments.push_back(std::move(argument));
    });
    return made;
  }

  abi::PlanStep step(const binary::Step& s) {
    abi::PlanStep made;
    made.source = string(s.source());
    made.checked = string(s.checked());
    made.prepare = s.prepare();
    if (const auto slot = s.bytes()) made.bytes = *slot;
    if (const auto slot = s.flops()) made.flops = *slot;
    if (const auto* l = s.action_as_Launch()) {
      made.action = launch(*l);
    } else if (const auto* m = s.action_as_Matmul()) {
      made.action = matmul(*m);
    } else if (const auto* c = s.action_as_Convolution()) {
      made.action = convolution(*c);
    } else if (const auto* a = s.action_as_Attention()) {
      made.action = attention(*a);
    } else if (const auto* e = s.action_as_Eager()) {
      made.action = eager(*e);
    } else if (const auto* copy = s.action_as_Copy()) {
      made.action = abi::CopyStep{copy->from(), copy->to()};
    } else if (const auto* branch = s.action_as_Branch()) {
      made.action = abi::Branch{branch->condition(), branch->then_region(), branch->else_region()};
    } else if (const auto* loop = s.action_as_Loop()) {
      made.action = abi::Loop{loop->trips(), loop->body()};
    } else if (const auto* call = s.action_as_RegionCall()) {
      made.action =
          abi::RegionCall{call->region(), numbers(call->formals()), numbers(call->actuals())};
    } else {
      bad_plan("the plan has a step of unknown kind {}", static_cast<int>(s.action_type()));
    }
    return made;
  }

  std::uint64_t left_;
};

}  // namespace

Contents unpack(std::span<const std::byte> bytes) {
  const auto* const data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  if (bytes.size() >= FLATBUFFERS_MAX_BUFFER_SIZE) {
    bad_plan("a plan section of {} bytes is too large", bytes.size());
  }
  flatbuffers::Verifier verifier(data, bytes.size(), kMostDepth,
                                 static_cast<flatbuffers::uoffset_t>(bytes.size()));
  if (!binary::VerifyContentsBuffer(verifier)) {
    bad_plan("the plan section is damaged: the verifier of FlatBuffers refuses it");
  }
  return Unpacker(bytes.size()).unpack(*binary::GetContents(data));
}

}  // namespace inkle::package
