#include "cli/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "frontend/pt2/importer.h"
#include "frontend/pt2/safetensors.h"
#include "graph/text.h"
#include "ops/table.h"
#include "runtime/common/plan_check.h"
#include "runtime/common/size_program.h"

namespace inkle::cli {
namespace {

constexpr std::size_t kTextLimit = std::size_t{256} << 20;

bool is_zip(std::span<const std::byte> bytes) {
  return bytes.size() >= 4 && bytes[0] == std::byte{'P'} && bytes[1] == std::byte{'K'};
}

// Of a text; comments may hold any letters, in UTF-8.
bool is_of_text(char c) {
  return static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t' || c == '\r';
}

graph::Graph parse_file(const frontend::pt2::MappedFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() > kTextLimit) user_error("{}: too large for graph text", file.name());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!std::all_of(text.begin(), text.end(), is_of_text) || file.name().ends_with(".pt2")) {
    user_error("{}: neither an archive of torch.export (a .pt2 file is a zip) nor a graph's text",
               file.name());
  }
  return graph::parse(text, file.name(), ops::op_table());
}

void attach_weights(Model& model, const std::string& path) {
  const auto weights = frontend::pt2::read_safetensors(path);
  for (std::size_t i = 0; i < model.graph.inputs.size(); ++i) {
    const graph::Input& input = model.graph.inputs[i];
    if (!input.is_parameter) continue;
    const auto found =
        std::find_if(weights.tensors.begin(), weights.tensors.end(), [&](const auto& entry) {
          std::string name = entry.first;
          std::replace(name.begin(), name.end(), '.', '_');
          return name == input.name;
        });
    if (found == weights.tensors.end()) {
      user_error("{}: no tensor for parameter {}", path, input.name);
    }
    model.weights[i] = found->second;
  }
}

// A weight of the package as the plan declares the argument, whose sizes are constant.
TensorData weight_of(const package::Package& package, const package::PackageWeight& weight,
                     std::shared_ptr<void> owner) {
  const abi::Plan& plan = *package.made().plan;
  const abi::PlanArgument& argument = plan.arguments[weight.argument];
  const runtime::common::SizeProgram sizes(plan);
  TensorData tensor;
  tensor.dtype = argument.dtype;
  for (const abi::Slot s : argument.sizes) {
    if (!sizes.is_constant(s)) user_error("weight {} has sizes that change", argument.name);
    tensor.sizes.push_back(sizes.constant_slots()[s]);
  }
  for (const abi::Slot s : argument.strides) {
    if (!sizes.is_constant(s)) user_error("weight {} has strides that change", argument.name);
    tensor.strides.push_back(sizes.constant_slots()[s]);
  }
  const auto bytes = frontend::pt2::span_bytes(tensor.dtype, tensor.sizes, tensor.strides);
  if (!bytes || static_cast<std::uint64_t>(*bytes) != weight.data.size()) {
    user_error("weight {} has {} bytes, {} are needed", argument.name, weight.data.size(),
               bytes.value_or(0));
  }
  tensor.data = const_cast<std::byte*>(weight.data.data());
  tensor.owner = std::move(owner);
  // The file is mapped read-only; what the program writes (a running mean) is copied.
  return argument.is_written ? frontend::pt2::rearranged(tensor.view(), tensor.strides) : tensor;
}

Model load_package(const std::string& path, const LoadOptions& options) {
  if (options.freeze || !options.weights.empty()) {
    user_error("{}: a package is compiled already: --freeze and --weights are for models", path);
  }
  const auto package = package::Package::open(
      path, package::Package::Use::run, options.architecture, package::Trust::of(options.key));
  const abi::Plan& plan = *package->made().plan;
  runtime::common::check_references(plan);
  Model model{graph::parse(package->graph_text(), path, ops::op_table()),
              {},
              package->output_names(),
              package};
  if (model.graph.inputs.size() != plan.arguments.size() ||
      model.outputs.size() != plan.outputs.size()) {
    user_error("{}: its graph has not the plan's arguments and outputs", path);
  }
  model.weights.resize(model.graph.inputs.size());
  const std::shared_ptr<void> owner(std::const_pointer_cast<package::Package>(package));
  const bool is_copied = std::any_of(plan.arguments.begin(), plan.arguments.end(),
                                     [](const abi::PlanArgument& a) { return a.is_written; });
  // The others are checked before the first call (Session).
  for (const auto& weight : is_copied ? package->weights() : package->unchecked_weights()) {
    model.weights[weight.argument] = weight_of(*package, weight, owner);
  }
  return model;
}

}  // namespace

graph::Graph load_graph(const std::string& path) {
  const auto file = frontend::pt2::MappedFile::open(path);
  if (is_zip(file->bytes())) return frontend::pt2::import_pt2(file).graph;
  return parse_file(*file);
}

Model load_model(const std::string& path, const LoadOptions& options) {
  const auto file = frontend::pt2::MappedFile::open(path);
  if (package::Package::is_package(file->bytes())) return load_package(path, options);
  if (options.key) user_error("{}: is not a package; --key accepts signed packages alone", path);
  if (is_zip(file->bytes())) {
    if (!options.weights.empty()) user_error("--weights is for text graphs; {} has its own", path);
    frontend::pt2::Program program = frontend::pt2::import_pt2(file, {.freeze = options.freeze});
    Model model{std::move(program.graph), {}, std::move(program.outputs), nullptr};
    for (frontend::pt2::ProgramInput& input : program.inputs) {
      const bool is_weight = input.kind == frontend::pt2::ProgramInput::Kind::weight;
      model.weights.emplace_back(is_weight ? std::optional(std::move(input.tensor)) : std::nullopt);
    }
    return model;
  }
  if (options.freeze) user_error("--freeze is for .pt2 files, whose weights are known");
  Model model{parse_file(*file), {}, {}, nullptr};
  model.weights.resize(model.graph.inputs.size());
  for (std::size_t i = 0; i < model.graph.outputs.size(); ++i) {
    model.outputs.push_back(fmt::format("output{}", i));
  }
  if (!options.weights.empty()) attach_weights(model, options.weights);
  return model;
}

}  // namespace inkle::cli
