// A kernel as a structured program: parameters, a launch, memories and a body of typed SSA in
// nested regions. Schedules are expanded into it and templates write it; passes make what is
// implicit explicit; an interpreter runs it with all its threads; code generators print it.
//
//   kernel @softmax(in p0: bf16[s0*8192] align 16, out p1: bf16[s0*8192] align 16, s0 in 1..65536)
//       grid i0 in s0, thread t in 256 {
//     registers x: f32[4,8]
//     shared s: f32[8]
//     ...
//   }
//
// A kernel is flat: operations, values, regions and memories are positions in its vectors; an
// operation removed from its region leaves an unreferenced hole there.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernel/operation.h"
#include "kernel/type.h"
#include "sym/expr.h"

namespace inkle::kernel {

enum class AxisKind : std::uint8_t {
  task,     // CPU: independent parts of the work, which threads divide among them
  grid,     // blocks (with clusters: clusters)
  cluster,  // blocks of a cluster
  thread,   // threads of a block; the last axis fastest, 32 consecutive ones are a warp
};

struct Axis {
  AxisKind kind = AxisKind::task;
  Expr variable;  // a symbol of index expressions, 0 <= variable < extent
  Expr extent;    // thread, cluster: a constant
};

struct Launch {
  std::vector<Axis> axes;  // outermost first, by kind in the order above
  // A launch runs this many instances side by side, each with parameters, sizes and blocks of its
  // own: a table.
  std::int32_t instances = 1;
  std::int32_t resident_blocks = 0;  // the fewest a multiprocessor is to hold; 0: any number
  bool co_resident = false;          // all blocks are resident at once (needed by grid barriers)
  std::int32_t registers = 0;        // of a thread, at launch; 0: the assembler's choice
};

struct Value {
  Type type;
  OperationId definition = kNone;  // kNone: an argument of `region`
  RegionId region = kNone;
};

struct Operation {
  Op op = Op::constant;
  Values operands;
  Values results;
  Regions regions;
  Detail detail;
};

struct Region {
  Values arguments;
  std::vector<OperationId> operations;
  Values yields;
};

struct Kernel {
  std::string name;
  std::vector<Expr> sizes;       // size symbols passed at run time, in this order
  std::vector<Memory> memories;  // parameters first, in their order; then the kernel's own
  std::uint32_t parameter_count = 0;
  Launch launch;
  std::vector<FragmentType> fragments;  // of Type::fragment, each once
  std::vector<Value> values;
  std::vector<Operation> operations;
  std::vector<Region> regions;
  RegionId body = kNone;
  std::vector<std::string> sources;  // the user's lines, for reports only

  [[nodiscard]] const Operation& operator[](OperationId id) const { return operations[id]; }
  [[nodiscard]] const Type& type_of(ValueId id) const { return values[id].type; }
  // The detail of an operation, which must be a D.
  template <class D>
  [[nodiscard]] const D& detail(OperationId id) const {
    return std::get<D>(operations[id].detail);
  }
  [[nodiscard]] Type fragment_type(const FragmentType& type);  // adds it where it is new

  // Of the launch, per instance: 1 where there is no such axis.
  [[nodiscard]] std::int64_t threads() const;
  [[nodiscard]] std::int64_t cluster() const;
  [[nodiscard]] Expr tasks() const;   // product of task axes; null without
  [[nodiscard]] Expr blocks() const;  // product of grid axes times cluster; null without
};

// Elements of a memory with padding; its bytes.
[[nodiscard]] Expr element_count(const Memory& memory);
[[nodiscard]] std::int64_t element_bytes(const Memory& memory);
// Indices of an access: 1 where the shape is not stated.
[[nodiscard]] std::size_t rank_of(const Memory& memory);

// What is known of a loop's variable inside of the loop: for the context that owns the symbol.
[[nodiscard]] sym::SymbolInfo facts_of(const Loop& loop);

// The access of an operation of memory, barriers or copies' target; null where there is none.
[[nodiscard]] const Access* access_of(const Operation& operation);

// Text; equal kernels print alike and what is printed parses back to the same text (parse.h). The
// grammar stands in docs/kernel.md.
[[nodiscard]] std::string to_string(const Kernel& kernel);

}  // namespace inkle::kernel
