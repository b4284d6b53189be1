#include "cli/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "frontend/pt2/importer.h"
#include "frontend/pt2/safetensors.h"
#include "graph/text.h"
#include "ops/table.h"

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

}  // namespace

graph::Graph load_graph(const std::string& path) {
  const auto file = frontend::pt2::MappedFile::open(path);
  if (is_zip(file->bytes())) return frontend::pt2::import_pt2(file).graph;
  return parse_file(*file);
}

Model load_model(const std::string& path, const LoadOptions& options) {
  const auto file = frontend::pt2::MappedFile::open(path);
  if (is_zip(file->bytes())) {
    if (!options.weights.empty()) user_error("--weights is for text graphs; {} has its own", path);
    frontend::pt2::Program program = frontend::pt2::import_pt2(file, {.freeze = options.freeze});
    Model model{std::move(program.graph), {}, std::move(program.outputs)};
    for (frontend::pt2::ProgramInput& input : program.inputs) {
      const bool is_weight = input.kind == frontend::pt2::ProgramInput::Kind::weight;
      model.weights.emplace_back(is_weight ? std::optional(std::move(input.tensor)) : std::nullopt);
    }
    return model;
  }
  if (options.freeze) user_error("--freeze is for .pt2 files, whose weights are known");
  Model model{parse_file(*file), {}, {}};
  model.weights.resize(model.graph.inputs.size());
  for (std::size_t i = 0; i < model.graph.outputs.size(); ++i) {
    model.outputs.push_back(fmt::format("output{}", i));
  }
  if (!options.weights.empty()) attach_weights(model, options.weights);
  return model;
}

}  // namespace inkle::cli
