// Compiled programs to the bytes of a .inkle file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "abi/code.h"
#include "abi/tensor_view.h"
#include "image/processor.h"

namespace inkle::package {

// A program compiled for one instruction set.
struct TargetProgram {
  const image::InstructionSet* instruction_set = nullptr;
  abi::PlanAndCode made;  // with Code::objects
};

// An argument that comes with the program.
struct GivenWeight {
  std::uint32_t argument = 0;  // of the plan
  abi::TensorView tensor;
};

struct PackageInput {
  std::vector<TargetProgram> targets;  // the best first
  std::vector<GivenWeight> weights;
  std::vector<std::uint32_t> parameters;  // arguments that are weights, given or not
  std::vector<std::string> output_names;
  std::string graph;              // text; may be empty
  bool separate_weights = false;  // the weights in a file of their own: weights_path()
};

// Writes the file under another name and renames it, so that no one sees half of it. A function of
// the input alone: nothing of this machine or moment is in the file. Throws UserError if the file
// cannot be written; Unsupported, naming them all, for ops that only a framework can run.
void write_package(const std::filesystem::path& path, const PackageInput& input);

}  // namespace inkle::package
