#include "codegen/cpu/print_kernel.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/error.h"
#include "codegen/cpu/ir_operations.h"
#include "codegen/cpu/math.h"
#include "codegen/cpu/operation.h"
#include "codegen/cpu/print_access.h"
#include "codegen/cpu/print_tile.h"
#include "codegen/cpu/size_values.h"
#include "kernel/function.h"

namespace inkle::codegen::cpu {

using kernel::Access;
using kernel::Form;
using kernel::Op;
using kernel::Operation;
using kernel::OperationId;
using kernel::RegionId;
using kernel::ValueId;
using sym::Expr;

namespace {

constexpr std::int64_t kScratchAlignment = 64;

// How often a loop is expected to run: its count, or the most that it can be; 0: unknown.
std::int64_t iterations(const kernel::Loop& loop) {
  constexpr std::int64_t kMost = 1 << 20;
  const Expr count = sym::ceildiv(loop.end - loop.begin, loop.step);
  const std::int64_t expected = sym::hint(count).value_or(sym::bounds(count).high);
  return expected > 0 && expected < kMost ? expected : 0;
}

bool is_extreme(const kernel::Kernel& kernel, const kernel::Region& merge) {
  if (merge.operations.size() != 1) return false;
  const Operation& only = kernel.operations[merge.operations.front()];
  if (only.op != Op::compute) return false;
  const loop::Opcode opcode = std::get<kernel::Compute>(only.detail).opcode;
  return opcode == loop::Opcode::min || opcode == loop::Opcode::max;
}

class KernelPrinter {
 public:
  KernelPrinter(Ir& ir, const kernel::Kernel& kernel, sym::Context& context,
                const PrintOptions& options)
      : ir_(ir),
        options_(options),
        kernel_(kernel),
        context_(context),
        sizes_(ir),
        values_(ir, kernel),
        access_(ir, kernel, values_),
        per_task_(kernel.values.size(), true) {}

  EmittedKernel run(const Values& arguments) {
    bind_parameters(arguments);
    const Expr bytes = place_scratch(arguments[2]);
    for (const kernel::Axis& axis : kernel_.launch.axes) extents_.push_back(sizes_(axis.extent));
    Value* begin = arguments[3];
    const bool counts = extents_.size() > 1;
    ir_.loop(begin, arguments[4], ir_.i64(1), counts ? decompose(begin) : Values(), {},
             [&](Value* n, const Values& variables) {
               const auto& axes = kernel_.launch.axes;
               for (std::size_t a = 0; a < axes.size(); ++a) {
                 symbols_[axes[a].variable.node()] = counts ? variables[a] : n;
               }
               body();
               return counts ? advance(variables) : Values();
             });
    return {bytes, faults_.can_fail};
  }

 private:
  // --- Parameters, scratch and tasks
  void bind_parameters(const Values& arguments) {
    for (kernel::MemoryId p = 0; p < kernel_.parameter_count; ++p) {
      Value* slot = address(ir_, ir_.pointer(), arguments[0], ir_.i64(p));
      access_.bind(p, load(ir_, ir_.pointer(), slot, 8));
    }
    Type* word = ir_.integer_type(64);
    for (std::size_t s = 0; s < kernel_.sizes.size(); ++s) {
      Value* slot = address(ir_, word, arguments[1], ir_.i64(static_cast<std::int64_t>(s)));
      Value* size = load(ir_, word, slot, 8);
      sizes_.bind(kernel_.sizes[s], size);
      symbols_[kernel_.sizes[s].node()] = size;
    }
    faults_.status = arguments[2];
    access_.set_spare(address(ir_, ir_.integer_type(8), arguments[2], ir_.i64(8)));
  }

  Expr place_scratch(Value* base) {
    Expr offset = context_.constant(schedule::kStatusBytes);
    for (auto m = static_cast<kernel::MemoryId>(kernel_.parameter_count);
         m < kernel_.memories.size(); ++m) {
      const kernel::Memory& memory = kernel_.memories[m];
      INKLE_CHECK(memory.space == kernel::Space::stack, "kernel {}: {} is no memory of a CPU",
                  kernel_.name, memory.name);
      access_.bind(m, address(ir_, ir_.integer_type(8), base, sizes_(offset)));
      const Expr bytes = kernel::element_count(memory) * kernel::element_bytes(memory);
      offset = offset + sym::ceildiv(bytes, kScratchAlignment) * kScratchAlignment;
    }
    return offset;
  }

  // The task variables of task n, the last one fastest.
  Values decompose(Value* n) {
    Values variables(extents_.size());
    for (std::size_t d = extents_.size(); d-- > 1;) {
      Value* extent = smax(ir_, extents_[d], ir_.i64(1));
      variables[d] = urem(ir_, n, extent);
      n = udiv(ir_, n, extent);
    }
    variables[0] = n;
    return variables;
  }

  Values advance(const Values& variables) {
    Values next = variables;
    Value* carry = ir_.i64(1);
    for (std::size_t d = extents_.size(); d-- > 0;) {
      Value* sum = add(ir_, variables[d], carry);
      if (d == 0) {
        next[d] = sum;
        break;
      }
      Value* wraps = icmp(ir_, Compare::eq, sum, extents_[d]);
      next[d] = select(ir_, wraps, ir_.i64(0), sum);
      carry = zext(ir_, wraps, ir_.integer_type(64));
    }
    return next;
  }

  // --- Values
  Value* symbol(Expr e) const {
    const auto found = symbols_.find(e.node());
    INKLE_CHECK(found != symbols_.end(), "kernel {}: '{}' has no value here", kernel_.name,
                e.name());
    return found->second;
  }

  // --- Regions
  // Operations of the kernel's body that depend on no task, and that may run without any, come
  // before the loop over them.
  void body() {
    for (const OperationId o : kernel_.regions[kernel_.body].operations) {
      const Operation& op = kernel_.operations[o];
      if (!depends_on_task(op)) {
        per_task_[op.results[0]] = false;
        ir_.at_depth(0, [&] {
          operation(op);
          return nullptr;
        });
        continue;
      }
      operation(op);
    }
  }

  bool depends_on_task(const Operation& op) const {
    switch (op.op) {
      case Op::constant:
      case Op::divide_index:
      case Op::function:
        break;
      case Op::index: {
        const Expr e = std::get<kernel::IndexOf>(op.detail).expression;
        return std::any_of(kernel_.launch.axes.begin(), kernel_.launch.axes.end(),
                           [&](const kernel::Axis& axis) { return axis.variable == e; });
      }
      case Op::compute: {
        const loop::Opcode opcode = std::get<kernel::Compute>(op.detail).opcode;
        if (opcode >= loop::Opcode::div && opcode <= loop::Opcode::fmod &&
            !abi::is_float(kernel_.type_of(op.operands[0]).dtype)) {
          return true;
        }
        break;
      }
      case Op::load: {
        const kernel::Memory& memory = kernel_.memories[std::get<Access>(op.detail).memory];
        if (memory.role != kernel::Role::in || memory.may_alias ||
            memory.space != kernel::Space::global) {
          return true;
        }
        break;
      }
      default:
        return true;
    }
    return std::any_of(op.operands.begin(), op.operands.end(),
                       [&](ValueId v) { return per_task_[v]; });
  }

  void region(RegionId id) {
    for (const OperationId o : kernel_.regions[id].operations) operation(kernel_.operations[o]);
  }

  void operation(const Operation& op) {
    switch (op.op) {
      case Op::constant: {
        const auto& value = std::get<kernel::Immediate>(op.detail);
        values_.define(op.results[0], constant_of(ir_, kernel_.type_of(op.results[0]).dtype, 1,
                                                  value.real, value.integer));
        return;
      }
      case Op::index:
        return index(op);
      case Op::divide_index: {
        const bool wide = values_.varies(op.results[0]);
        const auto& how = std::get<kernel::IndexDivision>(op.detail);
        values_.define(op.results[0], floor_divide(ir_, values_.get(op.operands[0], wide),
                                                   values_.get(op.operands[1], wide),
                                                   {how.modulo, how.non_negative, how.narrow}));
        return;
      }
      case Op::compute:
        return compute(op);
      case Op::function:
        return function(op);
      case Op::indirect:
        return indirect(op);
      case Op::loop:
        return loop(op);
      case Op::branch:
        return branch(op);
      case Op::vector:
        return vector(op);
      case Op::load:
        return access_.load(op);
      case Op::store:
        return access_.store(op);
      case Op::prefetch:
        return access_.prefetch(op);
      case Op::atomic:
        return access_.atomic(op);
      case Op::reduce:
        return reduce(op);
      case Op::scan:
        return scan(op);
      case Op::broadcast: {
        const int lane = std::get<kernel::Collective>(op.detail).from;
        values_.define(op.results[0], extract(ir_, values_.get(op.operands[0], true), lane));
        return;
      }
      case Op::transpose: {
        Values square;
        for (const ValueId v : op.operands) square.push_back(values_.get(v, true));
        transpose(ir_, square);
        for (std::size_t r = 0; r < square.size(); ++r) values_.define(op.results[r], square[r]);
        return;
      }
      case Op::fragment_fill:
      case Op::fragment_load:
      case Op::fragment_store:
      case Op::mma:
        return print_tile(ir_, kernel_, values_, access_, sizes_, op);
      default:
        break;
    }
    INKLE_CHECK(false, "kernel {}: no code of a CPU for {}", kernel_.name, name_of(op.op));
  }

  void index(const Operation& op) {
    const Expr e = std::get<kernel::IndexOf>(op.detail).expression;
    Type* type = register_type(ir_, kernel_.type_of(op.results[0]).dtype, 1);
    if (values_.varies(op.results[0])) {
      INKLE_CHECK(e == lane_, "kernel {}: an index that is not lowered", kernel_.name);
      values_.define(op.results[0], iota(with_lanes(type, values_.lanes())));
      return;
    }
    values_.define(op.results[0], resize_signed(ir_, symbol(e), type));
  }

  void compute(const Operation& op) {
    const auto& detail = std::get<kernel::Compute>(op.detail);
    const bool wide = values_.varies(op.results[0]);
    if (detail.form == Form::wide && wide) return neighbouring_random(op);
    loop::Instruction instruction;
    instruction.opcode = detail.opcode;
    instruction.dtype = kernel_.type_of(op.results[0]).dtype;
    Values operands;
    for (const ValueId v : op.operands) operands.push_back(values_.get(v, wide));
    const ValueId kind = op.operands[detail.opcode == loop::Opcode::select ? 1 : 0];
    values_.define(op.results[0],
                   emit_operation(ir_, instruction, kernel_.type_of(kind).dtype, operands,
                                  wide ? values_.mask() : nullptr, faults_));
  }

  void function(const Operation& op) {
    const auto which = std::get<kernel::Function>(op.detail).function;
    if (which == kernel::NamedFunction::pack_bf16 || which == kernel::NamedFunction::dot_bf16) {
      return pairs(op, which);
    }
    INKLE_CHECK(which == kernel::NamedFunction::exp_negative, "kernel {}: no code of a CPU for {}",
                kernel_.name, kernel::row_of(which).name);
    Value* x = values_.get(op.operands[0], values_.varies(op.results[0]));
    Value* const operands[] = {x};
    const bool is_f32 = kernel_.type_of(op.results[0]).dtype == DType::f32;
    values_.define(op.results[0],
                   is_f32 ? exp_of_small(ir_, x) : emit_math(ir_, loop::Opcode::exp, operands));
  }

  // Scalars are computed as vectors, of which one lane is used.
  void pairs(const Operation& op, kernel::NamedFunction which) {
    constexpr int kLanes = 16;
    const bool wide = values_.varies(op.results[0]);
    INKLE_CHECK(!wide || values_.lanes() == kLanes, "kernel {}: pairs of bf16 in {} lanes",
                kernel_.name, values_.lanes());
    Values x;
    for (const ValueId v : op.operands) {
      Value* operand = values_.get(v, wide);
      x.push_back(wide ? operand : broadcast(ir_, operand, kLanes));
    }
    Value* result = which == kernel::NamedFunction::pack_bf16 ? pack_bf16(ir_, x[0], x[1])
                                                              : dot_bf16(ir_, x[0], x[1], x[2]);
    values_.define(op.results[0], wide ? result : extract(ir_, result, 0));
  }

  // Random words of lanes with consecutive counters from a multiple of 4: a Philox call gives four.
  void neighbouring_random(const Operation& op) {
    const int counters = values_.lanes() / 4;
    Value* seed = values_.get(op.operands[0], false);
    Value* first = extract(ir_, values_.get(op.operands[1], true), 0);
    Type* type = ir_.integer_type(64, counters);
    Value* counter = broadcast(ir_, lshr(ir_, first, 2), counters);
    if (counters > 1) counter = add(ir_, counter, iota(type));
    const std::array<Value*, 4> words = philox(ir_, broadcast(ir_, seed, counters), counter);
    std::vector<int> order;
    for (int lane = 0; lane < values_.lanes(); ++lane)
      order.push_back(lane % 4 * counters + lane / 4);
    Value* all = concat(ir_, concat(ir_, words[0], words[1]), concat(ir_, words[2], words[3]));
    values_.define(op.results[0], shuffle(ir_, all, all, order));
  }

  void indirect(const Operation& op) {
    const bool wide = values_.varies(op.results[0]);
    Value* value = values_.get(op.operands[0], wide);
    Value* bad = icmp(ir_, Compare::uge, value, values_.get(op.operands[1], wide));
    faults_.check(ir_, bad, wide ? values_.mask() : nullptr,
                  schedule::KernelStatus::index_out_of_range);
    values_.define(op.results[0], select(ir_, bad, zero(type_of(value)), value));
  }

  // --- Control
  void loop(const Operation& op) {
    const auto& detail = std::get<kernel::Loop>(op.detail);
    INKLE_CHECK(detail.is_lowered, "kernel {}: a loop whose bounds are not lowered", kernel_.name);
    const kernel::Region& inside = kernel_.regions[op.regions[0]];
    Values initial;
    for (std::size_t i = 0; i < inside.arguments.size(); ++i) {
      initial.push_back(values_.get(op.operands[i + 2], values_.varies(inside.arguments[i])));
    }
    const bool runs = detail.at_least_once || sym::less(detail.begin, detail.end) == true;
    const std::int64_t expected = options_.counts_loops ? iterations(detail) : 0;
    const Values results = ir_.loop(
        values_.get(op.operands[0], false), values_.get(op.operands[1], false), sizes_(detail.step),
        initial, {runs, expected}, [&](Value* i, const Values& carried) {
          symbols_[detail.variable.node()] = i;
          for (std::size_t c = 0; c < carried.size(); ++c) {
            values_.define(inside.arguments[c], carried[c]);
          }
          // A loop that may not run is like a branch.
          return values_.inside_branch([&] {
            region(op.regions[0]);
            return values_.get_all(inside.yields, inside.arguments);
          });
        });
    for (std::size_t r = 0; r < results.size(); ++r) values_.define(op.results[r], results[r]);
  }

  void branch(const Operation& op) {
    const ValueId condition = op.operands[0];
    const auto& then = kernel_.regions[op.regions[0]];
    const auto& otherwise = kernel_.regions[op.regions[1]];
    if (values_.varies(condition)) return mask_branch(op);
    const Values results = ir_.branch(
        values_.get(condition, false), std::get<kernel::Branch>(op.detail).is_likely,
        [&] {
          return values_.inside_branch([&] {
            region(op.regions[0]);
            return values_.get_all(then.yields, op.results);
          });
        },
        [&] {
          return values_.inside_branch([&] {
            region(op.regions[1]);
            return values_.get_all(otherwise.yields, op.results);
          });
        });
    for (std::size_t r = 0; r < results.size(); ++r) values_.define(op.results[r], results[r]);
  }

  void mask_branch(const Operation& op) {
    Value* condition = values_.get(op.operands[0], true);
    Value* outside = values_.mask();
    const auto side = [&](RegionId id, Value* active) {
      values_.set_mask(outside == nullptr ? active : bit_and(ir_, active, outside));
      region(id);
      const Values yields = values_.get_all(kernel_.regions[id].yields, op.results);
      values_.set_mask(outside);
      return yields;
    };
    const Values a = side(op.regions[0], condition);
    Values b;
    if (kernel_.regions[op.regions[1]].operations.empty()) {
      b = values_.get_all(kernel_.regions[op.regions[1]].yields, op.results);
    } else {
      b = side(op.regions[1], bit_not(ir_, condition));
    }
    for (std::size_t r = 0; r < a.size(); ++r) {
      values_.define(op.results[r], select(ir_, condition, a[r], b[r]));
    }
  }

  void vector(const Operation& op) {
    const auto& detail = std::get<kernel::Vector>(op.detail);
    INKLE_CHECK(values_.lanes() == 1, "kernel {}: a vector region inside of another", kernel_.name);
    values_.set_lanes(detail.width);
    lane_ = detail.lane;
    region(op.regions[0]);
    const Values yields = values_.get_all(kernel_.regions[op.regions[0]].yields, op.results);
    values_.set_lanes(1);
    lane_ = {};
    for (std::size_t r = 0; r < yields.size(); ++r) values_.define(op.results[r], yields[r]);
  }

  // A tree reduction over the lanes: the halves are combined until one lane is left.
  void reduce(const Operation& op) {
    INKLE_CHECK(std::get<kernel::Collective>(op.detail).lanes,
                "kernel {}: a reduction over CPU threads is not supported", kernel_.name);
    const kernel::Region& merge = kernel_.regions[op.regions[0]];
    const int all = values_.lanes();
    const std::size_t count = op.operands.size();
    Values states;
    for (const ValueId v : op.operands) states.push_back(values_.get(v, true));
    while (values_.lanes() > 1) {
      values_.set_lanes(values_.lanes() / 2);
      for (std::size_t s = 0; s < count; ++s) {
        values_.define(merge.arguments[s], half(ir_, states[s], false));
        values_.define(merge.arguments[count + s], half(ir_, states[s], true));
      }
      region(op.regions[0]);
      for (std::size_t s = 0; s < count; ++s) states[s] = values_.get(merge.yields[s], true);
    }
    values_.set_lanes(all);
    for (std::size_t s = 0; s < count; ++s) values_.define(op.results[s], states[s]);
  }

  // An inclusive scan over the lanes (Hillis-Steele): combines lanes `by` apart, and doubles `by`.
  void scan(const Operation& op) {
    const auto& how = std::get<kernel::Collective>(op.detail);
    INKLE_CHECK(how.lanes && !how.exclusive, "kernel {}: no code of a CPU for such a scan",
                kernel_.name);
    const kernel::Region& merge = kernel_.regions[op.regions[0]];
    const std::size_t count = op.operands.size();
    Values states;
    for (const ValueId v : op.operands) states.push_back(values_.get(v, true));
    for (int by = 1; by < values_.lanes(); by *= 2) {
      std::vector<int> before;
      for (int lane = 0; lane < values_.lanes(); ++lane) before.push_back(std::max(lane - by, 0));
      for (std::size_t s = 0; s < count; ++s) {
        values_.define(merge.arguments[s], shuffle(ir_, states[s], states[s], before));
        values_.define(merge.arguments[count + s], states[s]);
      }
      region(op.regions[0]);
      if (is_extreme(kernel_,
                     merge)) {  // what comes before lane 0 is lane 0, a part of each already
        for (std::size_t s = 0; s < count; ++s) states[s] = values_.get(merge.yields[s], true);
        continue;
      }
      Value* first = first_lanes(ir_, values_.lanes(), by);
      for (std::size_t s = 0; s < count; ++s) {
        states[s] = select(ir_, first, states[s], values_.get(merge.yields[s], true));
      }
    }
    for (std::size_t s = 0; s < count; ++s) values_.define(op.results[s], states[s]);
  }

  Ir& ir_;
  const PrintOptions& options_;
  const kernel::Kernel& kernel_;
  sym::Context& context_;
  SizeValues sizes_;
  KernelValues values_;
  AccessPrinter access_;
  std::vector<bool> per_task_;  // by ValueId
  std::unordered_map<const sym::Node*, Value*> symbols_;
  Values extents_;  // of the tasks
  Faults faults_;
  Expr lane_;
};

}  // namespace

EmittedKernel print_kernel(Ir& ir, const kernel::Kernel& kernel, sym::Context& context,
                           const Values& arguments, const PrintOptions& options) {
  return KernelPrinter(ir, kernel, context, options).run(arguments);
}

}  // namespace inkle::codegen::cpu
