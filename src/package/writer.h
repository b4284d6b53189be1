// Compiled programs to the bytes of a .inkle file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "abi/code.h"
#include "abi/tensor_view.h"
#include "image/processor.h"
#include "package/contents.h"
#include "package/signature.h"

namespace inkle::package {

// A program compiled for one instruction set, or for GPUs of one architecture ("sm_90a").
struct TargetProgram {
  const image::InstructionSet* instruction_set = nullptr;  // null: of a GPU
  abi::PlanAndCode made;                                   // with Code::objects, or Code::images
  std::string architecture = {};
  std::string facts = {};  // what the compiler told: driver/stored.h
  std::vector<LibraryChoice> choices = {};
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

// Writes the file under another name and renames it, so that a partial file is never visible. It
// depends on the input alone, not on the machine or the time. Throws UserError if the file
// cannot be written; Unsupported, naming them all, for ops that only a framework can run. Returns
// the header, for a signature.
HeaderBytes write_package(const std::filesystem::path& path, const PackageInput& input);

// The same as bytes, for caches: weights cannot be separate, and ops of a framework may be called,
// by their numbers in the host's table.
[[nodiscard]] std::vector<std::byte> package_bytes(const PackageInput& input);

}  // namespace inkle::package
