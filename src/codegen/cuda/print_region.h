// Regions of a kernel: loops, branches and the lanes of vector regions.
#pragma once

#include <span>
#include <unordered_map>

#include "codegen/cuda/print_asynchronous.h"
#include "codegen/cuda/print_operation.h"

namespace inkle::codegen::cuda {

class RegionPrinter {
 public:
  RegionPrinter(const kernel::Kernel& kernel, const LanePlan& plan, ValueText& text,
                const MemoryText& memory, Writer& out)
      : k_(kernel),
        plan_(plan),
        text_(text),
        memory_(memory),
        out_(out),
        operations_(kernel, plan, text, memory, out),
        asynchronous_(kernel, text, memory, out) {}

  void body() { region(k_.body, {}); }
  [[nodiscard]] bool can_fail() const { return operations_.can_fail(); }

 private:
  using Ids = std::span<const kernel::ValueId>;

  // The region's operations; then `targets` become what it yields, from yield `first` on.
  void region(kernel::RegionId id, Ids targets, std::size_t first = 0);
  void operation(kernel::OperationId o);
  void segment(const Segment& segment, Ids targets, Ids yields);
  void declare_lanes(const Segment& segment);
  void assign(Ids targets, Ids yields, bool in_lanes);
  void begin_carried(Ids arguments, Ids initial, std::size_t first);
  void loop(const kernel::Operation& op);
  void repeat(const kernel::Operation& op);
  void fold(const kernel::Operation& op);
  void open_loop(const kernel::Loop& loop);
  void branch(const kernel::Operation& op);
  [[nodiscard]] bool chosen_load(const kernel::Operation& op);
  void vector(const kernel::Operation& op);
  void roles(const kernel::Operation& op);
  void map(const kernel::Operation& op);

  const kernel::Kernel& k_;
  const LanePlan& plan_;
  ValueText& text_;
  const MemoryText& memory_;
  Writer& out_;
  OperationPrinter operations_;
  AsynchronousPrinter asynchronous_;
  std::unordered_map<const sym::Node*, std::size_t> loops_;  // numbers of loops' variables
};

}  // namespace inkle::codegen::cuda
