#include "lower/outputs.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "loop/builder.h"
#include "ops/sharing.h"

namespace inkle::lower {
namespace {

using graph::Output;
using graph::Sharing;
using graph::Sizes;
using graph::Type;
using graph::ValueId;
using loop::Buffer;
using loop::BufferRole;
using loop::ProgramOutput;
using ops::strided_view;
using ops::StridedView;
using ops::Tensor;
using sym::Expr;

bool same_strides(const Sizes& sizes, const Sizes& a, const Sizes& b) {
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (!sizes[d].is_constant(1) && !(a[d] == b[d])) return false;
  }
  return true;
}

// Where a tensor is repeated along a dimension (stride 0), its memory holds that dimension once, or
// not at all where it has no elements.
Sizes stored_sizes(sym::Context& context, const Sizes& sizes, const Sizes& strides) {
  Sizes stored = sizes;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (strides[d].is_constant(0)) stored[d] = sym::min(sizes[d], context.constant(1));
  }
  return stored;
}

class OutputRecorder {
 public:
  OutputRecorder(const graph::Graph& graph, ops::LoweringState& state, loop::Program& program)
      : graph_(graph), state_(state), program_(program), context_(graph.context()) {}

  void run() {
    // Whole buffers first: other free outputs in them become views.
    for (std::uint32_t i = 0; i < graph_.outputs.size(); ++i) {
      const Output& output = graph_.outputs[i];
      const auto* v = std::get_if<ValueId>(&output.value);
      if (v == nullptr || v->is_none()) continue;
      if (output.sharing == Sharing::own) own_[i] = claim(lowered(*v), wanted_strides(*v), i);
      if (output.sharing == Sharing::storage && !storages_.contains(output.storage)) {
        storages_[output.storage] = claim(lowered(*v), wanted_strides(*v), i);
      }
    }
    for (std::uint32_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId* v = free_value(graph_.outputs[i]);
      if (v == nullptr || seen_.contains(*v)) continue;
      if (auto claimed = claim(lowered(*v), wanted_strides(*v), i)) {
        seen_.emplace(*v, *std::move(claimed));
      }
    }
    claim_parts();
    for (std::uint32_t i = 0; i < graph_.outputs.size(); ++i) {
      const graph::Output& output = graph_.outputs[i];
      const auto* v = std::get_if<ValueId>(&output.value);
      const bool is_tensor = v != nullptr && !v->is_none();
      program_.outputs.push_back(
          is_tensor ? record_tensor(output, *v)
                    : std::visit([&](const auto& value) { return record(value); }, output.value));
    }
  }

 private:
  static ProgramOutput record(const graph::None&) { return {.kind = ProgramOutput::Kind::none}; }
  static ProgramOutput record(Expr e) {
    return {.kind = ProgramOutput::Kind::integer, .integer = e};
  }
  static ProgramOutput record(ValueId) { return {.kind = ProgramOutput::Kind::none}; }

  static const ValueId* free_value(const Output& output) {
    const auto* v = std::get_if<ValueId>(&output.value);
    const bool is_free = output.sharing == Sharing::free && v != nullptr && !v->is_none();
    return is_free ? v : nullptr;
  }

  ProgramOutput record_tensor(const Output& output, ValueId v) {
    switch (output.sharing) {
      case Sharing::own:
        break;
      case Sharing::argument:
        return view_of(output, ProgramOutput::Kind::input, argument_buffer(output.argument));
      case Sharing::storage: {
        auto& storage = storages_[output.storage];
        if (!storage) storage = copy(lowered(v), wanted_strides(v));
        return view_of(output, ProgramOutput::Kind::buffer, storage->buffer);
      }
      case Sharing::free: {
        const auto [known, is_new] = seen_.try_emplace(v);
        if (is_new) known->second = record_free(v);
        return known->second;
      }
    }
    auto& claimed = own_[static_cast<std::uint32_t>(program_.outputs.size())];
    return claimed ? *claimed : copy(lowered(v), wanted_strides(v));
  }

  // Not the buffer of the input's value: after a write, its old contents may be in a copy.
  loop::BufferId argument_buffer(ValueId argument) const {
    const auto input = std::ranges::find(graph_.inputs, argument, &graph::Input::value);
    const auto number = static_cast<std::size_t>(input - graph_.inputs.begin());
    return program_.arguments.at(number).buffer.value();
  }

  // The buffer holds all elements of the output's base, with the strides that the view relies on.
  static ProgramOutput view_of(const Output& output, ProgramOutput::Kind kind,
                               loop::BufferId buffer) {
    return {.kind = kind,
            .buffer = buffer,
            .sizes = output.view.sizes,
            .strides = output.view.strides.value(),
            .offset = output.offset};
  }

  const Tensor& lowered(ValueId v) const {
    const auto& value = state_.values[v.index];
    INKLE_CHECK(value.has_value(), "output value %{} is not lowered", v.index);
    return *value;
  }

  Sizes wanted_strides(ValueId v) const {
    const Type& type = graph_.type(v);
    return type.strides ? *type.strides : graph::contiguous_strides(context_, type.sizes);
  }

  ProgramOutput record_free(ValueId v) {
    const Tensor& value = lowered(v);
    const Type& type = graph_.type(v);
    const Buffer& buffer = program_.buffers[value.buffer];
    if (buffer.role == BufferRole::input || buffer.role == BufferRole::output) {
      const auto view = strided_view(value, buffer.strides.value(), context_);
      if (view && (!type.strides || same_strides(type.sizes, view->strides, *type.strides))) {
        const bool is_input = buffer.role == BufferRole::input;
        return returned(is_input ? ProgramOutput::Kind::input : ProgramOutput::Kind::buffer, value,
                        *view);
      }
    }
    return copy(value, wanted_strides(v));
  }

  static ProgramOutput returned(ProgramOutput::Kind kind, const Tensor& t, StridedView view) {
    return {.kind = kind,
            .buffer = t.buffer,
            .sizes = t.sizes,
            .strides = std::move(view.strides),
            .offset = view.offset};
  }

  // Makes the temporary behind `t` the memory of output `position`, with a layout that gives
  // `wanted`.
  std::optional<ProgramOutput> claim(const Tensor& t, const Sizes& wanted, std::uint32_t position) {
    Buffer& buffer = program_.buffers[t.buffer];
    if (buffer.role != BufferRole::temporary) return std::nullopt;
    const Expr returned_elements = sym::product(context_, stored_sizes(context_, t.sizes, wanted));
    if (!sym::equal(returned_elements, sym::product(context_, buffer.sizes)).value_or(false)) {
      return std::nullopt;
    }
    for (const Sizes& strides : layouts(t, buffer, wanted)) {
      auto view = strided_view(t, strides, context_);
      if (!view || !view->offset.is_constant(0)) continue;
      if (!same_strides(t.sizes, view->strides, wanted)) continue;
      buffer.strides = strides;
      view->strides = wanted;
      make_output(buffer, position);
      return returned(ProgramOutput::Kind::buffer, t, *std::move(view));
    }
    return std::nullopt;
  }

  // Temporaries whose parts are all returned by free outputs (q, k and v of one GEMM) become the
  // memory of the first output, and the others are views.
  void claim_parts() {
    std::map<loop::BufferId, std::vector<std::uint32_t>> parts;
    for (std::uint32_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId* v = free_value(graph_.outputs[i]);
      if (v == nullptr || seen_.contains(*v)) continue;
      const Tensor& t = lowered(*v);
      if (program_.buffers[t.buffer].role == BufferRole::temporary) parts[t.buffer].push_back(i);
    }
    for (const auto& [buffer, positions] : parts) claim_parts_of(buffer, positions);
  }

  void claim_parts_of(loop::BufferId id, const std::vector<std::uint32_t>& positions) {
    Buffer& buffer = program_.buffers[id];
    if (buffer.writes_into) return;
    const Sizes strides =
        buffer.strides.value_or(graph::contiguous_strides(context_, buffer.sizes));
    Expr returned_elements = context_.constant(0);
    std::map<ValueId, ProgramOutput> found;
    for (const std::uint32_t position : positions) {
      const ValueId v = std::get<ValueId>(graph_.outputs[position].value);
      const Tensor& t = lowered(v);
      const Sizes wanted = wanted_strides(v);
      auto view = strided_view(t, strides, context_);
      if (!view || !same_strides(t.sizes, view->strides, wanted)) return;
      if (found.contains(v)) continue;
      returned_elements =
          returned_elements + sym::product(context_, stored_sizes(context_, t.sizes, wanted));
      view->strides = wanted;
      found.emplace(v, returned(ProgramOutput::Kind::buffer, t, *std::move(view)));
    }
    // Not for a part: the rest of the buffer would stay live as long as the part.
    if (!sym::equal(returned_elements, sym::product(context_, buffer.sizes)).value_or(false)) {
      return;
    }
    buffer.strides = strides;
    make_output(buffer, positions.front());
    seen_.merge(found);
  }

  // Layouts of the buffer worth trying, when it is free to choose.
  std::vector<Sizes> layouts(const Tensor& t, const Buffer& buffer, const Sizes& wanted) const {
    if (buffer.strides) return {*buffer.strides};
    std::vector<Sizes> list;
    // The layout in which each buffer dimension has the stride of the one index that it is.
    std::vector<Expr> variables;
    for (const Expr size : t.sizes) variables.push_back(context_.index(size));
    const std::vector<Expr> mapped = t.buffer_indices(variables);
    Sizes permuted = graph::contiguous_strides(context_, buffer.sizes);
    bool is_permutation = true;
    for (std::size_t d = 0; d < mapped.size(); ++d) {
      const auto it = std::find(variables.begin(), variables.end(), mapped[d]);
      if (it != variables.end()) {
        permuted[d] = wanted[static_cast<std::size_t>(it - variables.begin())];
      } else if (!buffer.sizes[d].is_constant(1)) {
        is_permutation = false;
      }
    }
    if (is_permutation) list.push_back(std::move(permuted));
    list.push_back(graph::contiguous_strides(context_, buffer.sizes));
    return list;
  }

  static void make_output(Buffer& buffer, std::uint32_t position) {
    buffer.role = BufferRole::output;
    buffer.index = position;
  }

  ProgramOutput copy(const Tensor& t, const Sizes& wanted) {
    if (!abi::is_computable(t.dtype)) {
      unsupported("no code is generated for {}", abi::name_of(t.dtype));
    }
    loop::Nest nest{.kind = loop::NestKind::pointwise, .label = "output"};
    std::vector<Expr> indices;
    for (const Expr size : stored_sizes(context_, t.sizes, wanted)) {
      nest.dims.push_back({context_.index(size), size});
      indices.push_back(nest.dims.back().variable);
    }
    loop::BodyBuilder b(nest.body, context_);
    b.yield(b.load(t.buffer, t.dtype, t.buffer_indices(indices)));
    Buffer buffer{.dtype = t.dtype,
                  .device = t.device,
                  .sizes = stored_sizes(context_, t.sizes, wanted),
                  .strides = wanted};
    make_output(buffer, static_cast<std::uint32_t>(program_.outputs.size()));
    const loop::BufferId id = program_.add_buffer(std::move(buffer));
    nest.stores.push_back({.buffer = id, .indices = indices});
    program_.nests.push_back(std::move(nest));
    Tensor out = t;
    out.buffer = id;
    return returned(ProgramOutput::Kind::buffer, out, {wanted, context_.constant(0)});
  }

  const graph::Graph& graph_;
  ops::LoweringState& state_;
  loop::Program& program_;
  sym::Context& context_;
  // By output and by storage: the program output of those that take over the buffer of their value;
  // the others get a copy.
  std::map<std::uint32_t, std::optional<ProgramOutput>> own_, storages_;
  std::map<ValueId, ProgramOutput> seen_;  // free outputs
};

}  // namespace

void record_outputs(const graph::Graph& graph, ops::LoweringState& state, loop::Program& program) {
  OutputRecorder(graph, state, program).run();
}

}  // namespace inkle::lower
