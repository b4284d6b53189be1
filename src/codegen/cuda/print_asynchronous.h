// Operations of sm_90a as lines of CUDA C++: mbarriers, TMA copies of boxes, wgmma and its
// fragments. A fragment is an array of each thread's elements; a value that updates one in place,
// an accumulation or a loop-carried state, shares that array.
#pragma once

#include "codegen/cuda/memory_text.h"

namespace inkle::codegen::cuda {

class AsynchronousPrinter {
 public:
  AsynchronousPrinter(const kernel::Kernel& kernel, ValueText& text, const MemoryText& memory,
                      Writer& out);

  // False, and nothing is printed: another operation.
  bool print(kernel::OperationId o);
  [[nodiscard]] bool is_fragment(kernel::ValueId v) const {
    return kernel_.type_of(v).kind == kernel::TypeKind::fragment;
  }
  [[nodiscard]] const kernel::FragmentType& fragment_type(kernel::ValueId v) const {
    return kernel_.fragments[kernel_.type_of(v).fragment];
  }
  // Opens the loop over the elements of a map and defines row, column and the region's arguments.
  void open_map(const kernel::Operation& op);
  // Behind the region: what it yields becomes elements of the results.
  void close_map(const kernel::Operation& op);

 private:
  void fill(const kernel::Operation& op);
  void load(const kernel::Operation& op);
  void multiply(const kernel::Operation& op);
  void bulk(const kernel::Operation& op);
  void wait_for_multiplications(std::int64_t count);
  [[nodiscard]] std::string matrix(const kernel::FragmentAccess& tile, bool is_right);
  [[nodiscard]] std::string barrier_of(const kernel::Access& access);
  void declare(kernel::ValueId fragment);

  const kernel::Kernel& kernel_;
  ValueText& text_;
  const MemoryText& memory_;
  Writer& out_;
  std::vector<int> uses_;             // by value, of fragments
  std::vector<ShortText> under_way_;  // arrays that wgmma may still write
  int maps_ = 0;
  std::vector<int> open_maps_;
};

// The helpers that the kernel needs beside the prelude, each of one thread; each once in a program.
[[nodiscard]] std::vector<std::string> asynchronous_helpers(const kernel::Kernel& kernel);

}  // namespace inkle::codegen::cuda
