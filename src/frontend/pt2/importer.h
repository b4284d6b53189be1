// Reads a program of torch.export (.pt2): a zip archive of JSON and raw weights; pickles are never
// read. The graph comes out functional: in-place ops are rewritten, inputs that the program writes
// get a copy_ at the end.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "frontend/pt2/mapped_file.h"
#include "frontend/pt2/tensor_data.h"
#include "graph/graph.h"

namespace inkle::frontend::pt2 {

// One input of the graph, in the graph's order.
struct ProgramInput {
  enum class Kind { user, weight };
  Kind kind = Kind::user;
  std::string name;   // user: the argument's name; weight: its name in the module ("l1.weight")
  TensorData tensor;  // weights only
};

struct Program {
  graph::Graph graph;
  std::vector<ProgramInput> inputs;
  // One name for each output of the graph that the caller gets; copies into inputs are no outputs.
  std::vector<std::string> outputs;
  // How arguments and outputs nest, as torch's pytree writes it; may be empty.
  std::string input_tree, output_tree;
  std::string torch_version;
};

struct ImportOptions {
  // Weights become literals of the graph instead of inputs, so that passes may compute with them.
  bool freeze = false;
};

// UserError "file: place: reason" for a file that is damaged or makes no sense; Unsupported for a
// right one that Inkle cannot run: ops without code (all of them are named), sizes that depend on
// data, control flow, pickled weights of old versions.
[[nodiscard]] Program import_pt2(const std::string& path, const ImportOptions& options = {});
[[nodiscard]] Program import_pt2(std::shared_ptr<MappedFile> file,
                                 const ImportOptions& options = {});

}  // namespace inkle::frontend::pt2
