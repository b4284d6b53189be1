// A small program as a package, and what a call of it gives: the bits of every output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "driver/pipeline.h"
#include "package/package.h"
#include "package/writer.h"

namespace inkle::package {

// A hidden layer with weights, a constant, a size that changes, a reduction, and a function of the
// C library.
struct Built {
  driver::Compiled compiled;
  PackageInput input;
  std::vector<float> weights;
  std::vector<std::byte> bytes;  // of the file
};

[[nodiscard]] Built build(const std::string& instruction_set = "x86-64-v3");
// The same program for GPUs: machine code of "sm_90a", and PTX of "compute_80". Needs NVRTC.
[[nodiscard]] std::vector<std::byte> build_for_gpus();
[[nodiscard]] std::vector<std::byte> bytes_of(const PackageInput& input);

// As one who damages a file on purpose leaves it: its size and all hashes are right again.
void make_hashes_right(std::vector<std::byte>& bytes);

// INKLE_ISA is `value` for as long as it lives.
class Narrowed {
 public:
  explicit Narrowed(const char* value);
  ~Narrowed();
  Narrowed(const Narrowed&) = delete;
  Narrowed& operator=(const Narrowed&) = delete;

 private:
  std::string before_;
};

// Runs the program for `rows` rows; `weights` are the package's, or those it was built from.
[[nodiscard]] std::vector<std::uint32_t> run(const abi::PlanAndCode& made, const float* weights,
                                             std::int64_t rows);
[[nodiscard]] std::vector<std::uint32_t> run(const Package& package, std::int64_t rows);

}  // namespace inkle::package
