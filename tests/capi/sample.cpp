#include "capi/sample.h"

#include <deque>

#include "capi/weights.h"
#include "driver/pipeline.h"
#include "driver/range_guards.h"
#include "graph/text.h"
#include "ops/table.h"
#include "package/built.h"
#include "package/target.h"

namespace inkle::capi {

namespace {

void move_to_gpu(graph::Graph& graph) {
  const abi::Device gpu{abi::DeviceKind::cuda, 0};
  for (std::uint32_t v = 0; v < graph.value_count(); ++v) {
    graph.type(graph::ValueId{v}).device = gpu;
  }
  for (graph::Output& output : graph.outputs) output.view.device = gpu;
}

}  // namespace

std::vector<std::byte> package_of(const std::string& text,
                                  const std::map<std::string, std::vector<float>>& weights,
                                  const std::string& target,
                                  const std::vector<package::LibraryChoice>& choices,
                                  const std::function<void(abi::Plan&)>& forge) {
  const bool on_gpu = package::is_of_gpu(target);
  driver::Compiler compiler(on_gpu ? driver::make_null_target(target)
                                   : driver::make_cpu_target(target));
  graph::Graph graph = graph::parse(text, "sample.ir", ops::op_table());
  if (on_gpu) move_to_gpu(graph);
  package::PackageInput input;
  input.graph = graph::to_string(graph);
  std::deque<std::vector<std::int64_t>> kept;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const graph::Input& argument = graph.inputs[i];
    const auto number = static_cast<std::uint32_t>(i);
    const auto found = weights.find(argument.name);
    if (found != weights.end() || argument.is_parameter) input.parameters.push_back(number);
    if (found == weights.end()) continue;
    auto& sizes = kept.emplace_back();
    for (const sym::Expr e : graph.type(argument.value).sizes) {
      sizes.push_back(sym::evaluate(e, [](sym::Expr) { return std::int64_t{0}; }));
    }
    const auto& strides = kept.emplace_back(row_major(sizes));
    input.weights.push_back({number,
                             {const_cast<float*>(found->second.data()),
                              abi::DType::f32,
                              {},
                              static_cast<std::int32_t>(sizes.size()),
                              sizes.data(),
                              strides.data()}});
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    input.output_names.push_back("out" + std::to_string(i));
  }
  const auto ranges = driver::ranges_of(graph);
  const driver::Compiled compiled = compiler.compile(std::move(graph), {.keep_objects = !on_gpu});
  auto plan = std::make_shared<abi::Plan>(driver::with_guards(*compiled.plan, ranges));
  if (forge) forge(*plan);
  input.targets.push_back({on_gpu ? nullptr : image::instruction_set_named(target),
                           {std::move(plan), compiled.code},
                           compiler.device().architecture,
                           {},
                           choices});
  return package::bytes_of(input);
}

}  // namespace inkle::capi
