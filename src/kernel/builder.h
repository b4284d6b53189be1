// Writes a kernel operation after operation. Regions are lambdas; what they build goes to the
// region that is open. Nothing is hoisted, merged or folded here: passes do that.
//
//   Builder b(kernel);
//   b.loop(LoopKind::serial, n, {zero}, [&](Expr i, Values carried) {
//     return Values{b.add(carried[0], b.load(x, {i}))};
//   });
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "kernel/kernel.h"

namespace inkle::kernel {

using Body = std::function<Values(const Values& arguments)>;

class Builder {
 public:
  // Opens the kernel's body, which it makes if there is none; `context` owns its symbols.
  Builder(Kernel& kernel, sym::Context& context);

  // --- Declarations
  MemoryId parameter(Memory memory);  // before any other memory
  MemoryId memory(Memory memory);
  // A launch axis; its variable.
  Expr axis(AxisKind kind, Expr extent);

  // --- Values
  ValueId real(DType dtype, double value);
  ValueId integer(DType dtype, std::int64_t value);
  ValueId index(Expr expression, DType dtype = DType::i64);
  ValueId compute(loop::Opcode opcode, DType result, const Values& operands,
                  Form form = Form::each);
  ValueId function(NamedFunction function, const Values& operands);
  ValueId cast(ValueId value, DType to);  // itself where it has that dtype
  Expr indirect(ValueId value, Expr extent);

  // --- Control
  using LoopBody = std::function<Values(Expr variable, const Values& carried)>;
  // 0 <= variable < end.
  Values loop(LoopKind kind, Expr end, const Values& initial, const LoopBody& body);
  // `info.variable` may be null: a new symbol is made.
  Values loop(Loop info, const Values& initial, const LoopBody& body);
  Values repeat(const Values& initial, const Body& body);
  Values branch(ValueId condition, const std::function<Values()>& then,
                const std::function<Values()>& otherwise = {}, Branch info = {});
  Values vector(std::int32_t width, std::int32_t native,
                const std::function<Values(Expr lane)>& body);

  // --- Anything else: an operation with regions made by `bodies`, each with arguments of the types
  // given. Results have the types given.
  struct RegionSpec {
    TypeList arguments;
    Body body;
  };
  Values operation(Op op, const Values& operands, const TypeList& results, Detail detail,
                   const std::vector<RegionSpec>& regions = {});

  // --- Memory
  ValueId load(Access access);
  ValueId load(MemoryId memory, std::vector<Expr> indices, Form form = Form::each);
  void store(Access access, ValueId value);
  void store(MemoryId memory, std::vector<Expr> indices, ValueId value, Form form = Form::each);

  // --- Threads
  Values reduce(Collective info, const Values& states,
                const std::function<Values(const Values& a, const Values& b)>& merge);
  void barrier(Barrier info);

  [[nodiscard]] Kernel& kernel() { return kernel_; }
  [[nodiscard]] sym::Context& context() { return context_; }
  [[nodiscard]] const Type& type_of(ValueId value) const { return kernel_.values[value].type; }

  // Where operations go: a region of the kernel. Passes set it.
  [[nodiscard]] RegionId region() const { return region_; }
  void set_region(RegionId region) { region_ = region; }

 private:
  Kernel& kernel_;
  sym::Context& context_;
  RegionId region_ = kNone;
};

// A symbol for a value that is known to lie in the range.
Expr bind(Builder& builder, ValueId value, sym::Range range);

}  // namespace inkle::kernel
