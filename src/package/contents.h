// What a plan section holds, and its binary form (package/plan.fbs).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "abi/plan.h"
#include "image/image.h"
#include "image/processor.h"
#include "package/hash.h"

namespace inkle::package {

// Bytes of a section.
struct Range {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Elements of an argument that comes with the program, from the first to the last, strided as the
// plan says.
struct Weight {
  std::uint32_t argument = 0;
  Range data;
};

// A module of a GPU, by the plan's DeviceKernel::image.
struct DeviceImageRange {
  std::string architecture;
  Range data;
};

// What a library of a GPU was measured to do best for a problem when the package was built
// (runtime/cuda/library_choices.h). On another card, driver or version it is of no use.
struct LibraryChoice {
  std::string library, device, problem;
  std::string algorithm;
  friend bool operator==(const LibraryChoice&, const LibraryChoice&) = default;
};

// A plan for one target and what the file holds beside it.
struct Contents {
  abi::Plan plan;
  std::vector<std::string> output_names;
  std::vector<Range> constants;  // by the plan's constants
  std::vector<Weight> weights;
  std::vector<std::uint32_t> parameters;  // arguments that are weights, in the file or not
  std::optional<Hash> weights_hash;       // of the section of weights, if another file holds it
  image::Layout layout;                   // of the code section
  std::vector<DeviceImageRange> images;   // in the section of images
  std::vector<LibraryChoice> choices;
  std::vector<image::CpuidBits> processor;
};

// A function of its input alone.
[[nodiscard]] std::vector<std::byte> pack(const Contents& contents);

// Trusts nothing: bounds, and values of enumerations, are checked here; what the plan's numbers
// refer to by abi::check_references, which runtimes call. Throws UserError.
[[nodiscard]] Contents unpack(std::span<const std::byte> bytes);

}  // namespace inkle::package
