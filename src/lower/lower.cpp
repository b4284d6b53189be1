#include "lower/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "lower/outputs.h"
#include "ops/lowering.h"

namespace inkle::lower {
namespace {

using loop::Buffer;
using loop::BufferId;
using loop::BufferRole;
using loop::Nest;
using loop::NestKind;
using loop::ProgramOutput;

class Walk {
 public:
  Walk(const graph::Graph& graph, UnsupportedNodes& found) : graph_(graph), found_(found) {
    program_.name = graph.name;
    program_.context = graph.shared_context();
    state_.graph = &graph_;
    state_.program = &program_;
    state_.values.resize(graph.value_count());
    state_.remaining = graph::use_counts(graph);
  }

  loop::Program run() {
    add_inputs();
    add_constants();
    for (const graph::Node& node : graph_.nodes) {
      const std::size_t before = program_.nests.size();
      if (found_.run([&] { lower_or_name(node); })) continue;
      program_.nests.resize(before);
      graph::Node call = node;
      call.eager_target = 0;
      lower_node(call);
    }
    record_outputs(graph_, state_, program_);
    remove_unused();
    name_buffers();
    loop::verify(program_);
    return std::move(program_);
  }

 private:
  void add_tensor(graph::ValueId value, Buffer buffer) {
    const graph::Type& type = graph_.type(value);
    buffer.dtype = type.dtype;
    buffer.device = type.device;
    buffer.sizes = type.sizes;
    buffer.strides =
        type.strides ? *type.strides : graph::contiguous_strides(graph_.context(), type.sizes);
    const BufferId id = program_.add_buffer(std::move(buffer));
    state_.values[value.index] =
        ops::Tensor{.dtype = type.dtype, .device = type.device, .sizes = type.sizes, .buffer = id};
  }

  void add_inputs() {
    for (std::uint32_t i = 0; i < graph_.inputs.size(); ++i) {
      const graph::Input& input = graph_.inputs[i];
      loop::Argument argument{.name = input.name, .symbol = input.symbol};
      if (!input.value.is_none()) {
        add_tensor(input.value, {.name = input.name,
                                 .role = BufferRole::input,
                                 .is_parameter = input.is_parameter,
                                 .index = i});
        argument.buffer = static_cast<BufferId>(program_.buffers.size() - 1);
      }
      program_.arguments.push_back(std::move(argument));
    }
  }

  void add_constants() {
    for (const auto& [value, data] : graph_.constants) {
      add_tensor(value, {.role = BufferRole::constant,
                         .index = static_cast<std::uint32_t>(program_.constants.size())});
      // Literals are dense whatever the type's strides say of the value that they stand for.
      program_.buffers.back().strides =
          graph::contiguous_strides(graph_.context(), program_.buffers.back().sizes);
      program_.constants.push_back({data.bytes});
    }
  }

  void lower_or_name(const graph::Node& node) {
    const std::string note =
        fmt::format("in op {}{}{}", node.op->name, node.source.empty() ? "" : " at ", node.source);
    at_node(node.source, note, [&] { lower_node(node); });
  }

  void lower_node(const graph::Node& node) {
    const std::size_t before = program_.nests.size();
    ops::Lowering lowering(state_, node);
    if (node.op->lower != nullptr && !node.eager_target) {
      node.op->lower(lowering);
    } else if (node.eager_target) {
      std::vector<ops::Tensor> results = lowering.eager();
      for (std::size_t i = 0; i < results.size(); ++i) lowering.result(i, std::move(results[i]));
    } else {
      unsupported("no lowering for op '{}'", node.op->name);
    }
    for (std::size_t i = 0; i < node.results.size(); ++i) {
      INKLE_CHECK(!lowering.is_used(i) || state_.values[node.results[i].index].has_value(),
                  "{} did not lower its result {}", node.op->name, i);
    }
    graph::for_each_operand(node, [&](graph::ValueId v) { --state_.remaining[v.index]; });
    for (std::size_t n = before; n < program_.nests.size(); ++n) {
      Nest& nest = program_.nests[n];
      if (!loop::may_fail(nest.body)) continue;
      nest.checked.push_back(node.source.empty() ? std::string(node.op->name) : node.source);
    }
  }

  // Removes dead code: stores into temporaries that no later nest reads, nests without stores, and
  // buffers without uses. Stores into inputs and calls to eager stay.
  void remove_unused() {
    std::vector<bool> live(program_.buffers.size(), false);
    for (BufferId b = 0; b < live.size(); ++b) {
      live[b] = program_.buffers[b].role != BufferRole::temporary;
    }
    for (const ProgramOutput& output : program_.outputs) {
      if (output.kind == ProgramOutput::Kind::buffer) live[output.buffer] = true;
    }
    std::vector<Nest> kept;
    while (!program_.nests.empty()) {
      Nest nest = std::move(program_.nests.back());
      program_.nests.pop_back();
      auto* attention = std::get_if<loop::Attention>(&nest.detail);
      const bool has_lse = attention != nullptr && attention->lse && live[*attention->lse];
      if (attention != nullptr && !has_lse) attention->lse.reset();
      const bool has_statistics =
          attention != nullptr && attention->statistics && live[*attention->statistics];
      if (attention != nullptr && !has_statistics) attention->statistics.reset();
      // Attention writes its result also where only the log-sum-exp of its rows is read, and all
      // of its gradients where one of them is.
      const bool is_whole =
          attention != nullptr && attention->gradient &&
          std::ranges::any_of(nest.stores, [&](const auto& s) { return live[s.buffer]; });
      if (!has_lse && !has_statistics && !is_whole) {
        std::erase_if(nest.stores, [&](const loop::Store& s) { return !live[s.buffer]; });
      }
      const bool keeps = !nest.stores.empty() || nest.kind == NestKind::eager;
      if (!keeps) continue;
      for (const BufferId b : loop::reads(nest)) live[b] = true;
      for (const BufferId b : loop::writes(nest)) live[b] = true;
      kept.push_back(std::move(nest));
    }
    program_.nests.assign(std::make_move_iterator(kept.rbegin()),
                          std::make_move_iterator(kept.rend()));
    renumber(live);
  }

  void renumber(const std::vector<bool>& live) {
    std::vector<BufferId> number(live.size());
    std::vector<Buffer> buffers;
    for (BufferId b = 0; b < live.size(); ++b) {
      number[b] = static_cast<BufferId>(buffers.size());
      if (live[b]) buffers.push_back(std::move(program_.buffers[b]));
    }
    program_.buffers = std::move(buffers);
    const auto renumbered = [&](BufferId& b) { b = number[b]; };
    for (Nest& nest : program_.nests) loop::for_each_buffer(nest, renumbered);
    for (ProgramOutput& output : program_.outputs) {
      const bool is_tensor =
          output.kind == ProgramOutput::Kind::buffer || output.kind == ProgramOutput::Kind::input;
      if (is_tensor) renumbered(output.buffer);
    }
    for (loop::Argument& argument : program_.arguments) {
      if (argument.buffer) renumbered(*argument.buffer);
    }
  }

  void name_buffers() {
    std::set<std::string> taken;
    for (const loop::Argument& argument : program_.arguments) taken.insert(argument.name);
    const auto unique = [&](std::string_view prefix, std::size_t& number) {
      std::string name;
      do {
        name = fmt::format("{}{}", prefix, number++);
      } while (!taken.insert(name).second);
      return name;
    };
    std::size_t temporaries = 0;
    std::size_t constants = 0;
    for (Buffer& buffer : program_.buffers) {
      std::size_t number = buffer.index;
      switch (buffer.role) {
        case BufferRole::input:
          break;
        case BufferRole::output:
          buffer.name = unique("out", number);
          break;
        case BufferRole::temporary:
          buffer.name = unique("t", temporaries);
          break;
        case BufferRole::constant:
          buffer.name = unique("c", constants);
          break;
      }
    }
  }

  const graph::Graph& graph_;
  UnsupportedNodes& found_;
  loop::Program program_;
  ops::LoweringState state_;
};

}  // namespace

loop::Program lower(const graph::Graph& graph, UnsupportedNodes* found) {
  UnsupportedNodes here;
  loop::Program program = Walk(graph, found != nullptr ? *found : here).run();
  here.check();
  return program;
}

}  // namespace inkle::lower
