// What the commands work on: a graph read from a .pt2 file or from text, with what is known of its
// inputs and outputs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frontend/pt2/tensor_data.h"
#include "graph/graph.h"
#include "package/package.h"

namespace inkle::cli {

using frontend::pt2::TensorData;

struct Model {
  graph::Graph graph;
  // By the graph's inputs: data of weights that came with the file.
  std::vector<std::optional<TensorData>> weights;
  std::vector<std::string> outputs;  // names, by the graph's outputs
  // What it was compiled to, if the file was a package.
  std::shared_ptr<const package::Package> package = nullptr;
};

struct LoadOptions {
  bool freeze = false;
  std::string weights;  // path of a safetensors file for the parameters of a text graph; or empty
  std::string architecture = {};  // of the GPU that a package is to run on; empty: the processor
  // The public key that must have signed a package (package::Trust); then nothing else is loaded.
  std::optional<std::string> key = std::nullopt;
};

// By content: a zip archive is a torch.export program, a .inkle file a package, all else is graph
// text. UserError and Unsupported name the file.
[[nodiscard]] Model load_model(const std::string& path, const LoadOptions& options);
// A graph from its text.
[[nodiscard]] graph::Graph load_graph(const std::string& path);

}  // namespace inkle::cli
