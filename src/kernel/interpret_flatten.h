// The inside of flatten(): for interpret_flatten*.cpp only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernel/interpret_program.h"

namespace inkle::kernel {

class Flattener {
 public:
  explicit Flattener(const Kernel& kernel)
      : kernel_(kernel), out_(kernel, lanes_), indices_(kernel, lanes_, out_) {}
  Program run();

 private:
  void region(RegionId id);
  void operation(OperationId id);
  void value_operation(OperationId id);
  void memory_operation(OperationId id);
  void asynchronous_operation(OperationId id);
  void fragment_operation(OperationId id);
  void plain(Code code, OperationId id);
  void counted_loop(const Loop& info, OperationId id, const std::function<void()>& body);
  void loop(OperationId id);
  void repeat(OperationId id);
  void branch(OperationId id);
  void masked_branch(OperationId id, std::span<const Ref> results);
  void vector(OperationId id);
  void fold(OperationId id);
  void fold_level(OperationId id, std::size_t level, std::span<const Ref> totals,
                  std::span<const Ref> states);
  void fold_parts(OperationId id, std::size_t level, std::span<const Ref> totals);
  void roles(OperationId id);
  void collective(OperationId id);
  void transpose(OperationId id);
  void fragment_map(OperationId id);

  const Kernel& kernel_;
  LanesAround lanes_;
  ProgramWriter out_;
  IndexWriter indices_;
};

}  // namespace inkle::kernel
