#include "codegen/cpu/print_kernel.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/error.h"
#include "codegen/cpu/math.h"
#include "codegen/cpu/operation.h"
#include "codegen/cpu/size_values.h"
#include "kernel/function.h"
#include "kernel/lanes.h"

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

class KernelPrinter {
 public:
  KernelPrinter(Ir& ir, const kernel::Kernel& kernel, sym::Context& context,
                const PrintOptions& options)
      : ir_(ir),
        options_(options),
        kernel_(kernel),
        context_(context),
        sizes_(ir),
        varies_(kernel::varies_by_lane(kernel)),
        per_task_(kernel.values.size(), true),
        values_(kernel.values.size(), nullptr),
        depth_(kernel.values.size(), 0) {}

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
    bases_.resize(kernel_.memories.size(), nullptr);
    for (std::size_t p = 0; p < kernel_.parameter_count; ++p) {
      Value* slot = ir_.address(ir_.pointer(), arguments[0], ir_.i64(static_cast<std::int64_t>(p)));
      bases_[p] = ir_.load(ir_.pointer(), slot, 8);
    }
    Type* word = ir_.integer_type(64);
    for (std::size_t s = 0; s < kernel_.sizes.size(); ++s) {
      Value* slot = ir_.address(word, arguments[1], ir_.i64(static_cast<std::int64_t>(s)));
      Value* size = ir_.load(word, slot, 8);
      sizes_.bind(kernel_.sizes[s], size);
      symbols_[kernel_.sizes[s].node()] = size;
    }
    faults_.status = arguments[2];
    spare_ = ir_.address(ir_.integer_type(8), arguments[2], ir_.i64(8));
  }

  Expr place_scratch(Value* base) {
    Expr offset = context_.constant(schedule::kStatusBytes);
    for (std::size_t m = kernel_.parameter_count; m < kernel_.memories.size(); ++m) {
      const kernel::Memory& memory = kernel_.memories[m];
      INKLE_CHECK(memory.space == kernel::Space::stack, "kernel {}: {} is no memory of a CPU",
                  kernel_.name, memory.name);
      bases_[m] = ir_.address(ir_.integer_type(8), base, sizes_(offset));
      const Expr bytes = kernel::element_count(memory) * kernel::element_bytes(memory);
      offset = offset + sym::ceildiv(bytes, kScratchAlignment) * kScratchAlignment;
    }
    return offset;
  }

  // The task variables of task n, the last one fastest.
  Values decompose(Value* n) {
    Values variables(extents_.size());
    for (std::size_t d = extents_.size(); d-- > 1;) {
      Value* extent = ir_.smax(extents_[d], ir_.i64(1));
      variables[d] = ir_.urem(n, extent);
      n = ir_.udiv(n, extent);
    }
    variables[0] = n;
    return variables;
  }

  Values advance(const Values& variables) {
    Values next = variables;
    Value* carry = ir_.i64(1);
    for (std::size_t d = extents_.size(); d-- > 0;) {
      Value* sum = ir_.add(variables[d], carry);
      if (d == 0) {
        next[d] = sum;
        break;
      }
      Value* wraps = ir_.icmp(Compare::eq, sum, extents_[d]);
      next[d] = ir_.select(wraps, ir_.i64(0), sum);
      carry = ir_.zext(wraps, ir_.integer_type(64));
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

  void define(ValueId v, Value* value) {
    values_[v] = value;
    depth_[v] = ir_.depth();
  }

  // As it is, or in each lane where the one who uses it has lanes.
  Value* get(ValueId v, bool in_lanes) {
    Value* value = values_[v];
    INKLE_CHECK(value != nullptr, "kernel {}: value {} is used before it is there", kernel_.name,
                v);
    if (!in_lanes || varies_[v] || lanes_ == 1) return value;
    const std::uint64_t key = (std::uint64_t{v} << 16U) | static_cast<std::uint64_t>(lanes_);
    const auto [at, is_new] = broadcasts_.try_emplace(key, nullptr);
    if (is_new) {
      at->second = ir_.at_depth(depth_[v], [&] { return ir_.broadcast(value, lanes_); });
      made_.push_back(key);
    }
    return at->second;
  }

  Values get_all(const std::vector<ValueId>& list, const std::vector<ValueId>& as) {
    Values result;
    for (std::size_t i = 0; i < list.size(); ++i) {
      result.push_back(get(list[i], varies_[as[i]]));
    }
    return result;
  }

  // What a side of a branch makes in each lane is not there behind the branch.
  template <class F>
  auto inside_branch(const F& run) {
    const std::size_t before = made_.size();
    auto result = run();
    while (made_.size() > before) {
      broadcasts_.erase(made_.back());
      made_.pop_back();
    }
    return result;
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
        define(op.results[0], constant_of(ir_, kernel_.type_of(op.results[0]).dtype, 1, value.real,
                                          value.integer));
        return;
      }
      case Op::index:
        return index(op);
      case Op::divide_index: {
        const bool wide = varies_[op.results[0]];
        const auto& how = std::get<kernel::IndexDivision>(op.detail);
        define(op.results[0],
               floor_divide(ir_, get(op.operands[0], wide), get(op.operands[1], wide),
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
        return load(op);
      case Op::store:
        return store(op);
      case Op::prefetch:
        return ir_.prefetch(address(std::get<Access>(op.detail), op.operands[0]));
      case Op::atomic:
        return atomic(op);
      case Op::reduce:
        return reduce(op);
      case Op::scan:
        return scan(op);
      case Op::broadcast: {
        const int lane = std::get<kernel::Collective>(op.detail).from;
        define(op.results[0], ir_.extract(get(op.operands[0], true), lane));
        return;
      }
      case Op::transpose: {
        Values square;
        for (const ValueId v : op.operands) square.push_back(get(v, true));
        transpose(ir_, square);
        for (std::size_t r = 0; r < square.size(); ++r) define(op.results[r], square[r]);
        return;
      }
      default:
        break;
    }
    INKLE_CHECK(false, "kernel {}: no code of a CPU for {}", kernel_.name, name_of(op.op));
  }

  void index(const Operation& op) {
    const Expr e = std::get<kernel::IndexOf>(op.detail).expression;
    Type* type = register_type(ir_, kernel_.type_of(op.results[0]).dtype, 1);
    if (varies_[op.results[0]]) {
      INKLE_CHECK(e == lane_, "kernel {}: an index that is not lowered", kernel_.name);
      define(op.results[0], ir_.iota(Ir::with_lanes(type, lanes_)));
      return;
    }
    define(op.results[0], ir_.resize_signed(symbol(e), type));
  }

  void compute(const Operation& op) {
    const auto& detail = std::get<kernel::Compute>(op.detail);
    const bool wide = varies_[op.results[0]];
    if (detail.form == Form::wide && wide) return neighbouring_random(op);
    loop::Instruction instruction;
    instruction.opcode = detail.opcode;
    instruction.dtype = kernel_.type_of(op.results[0]).dtype;
    Values operands;
    for (const ValueId v : op.operands) operands.push_back(get(v, wide));
    const ValueId kind = op.operands[detail.opcode == loop::Opcode::select ? 1 : 0];
    define(op.results[0], emit_operation(ir_, instruction, kernel_.type_of(kind).dtype, operands,
                                         wide ? mask_ : nullptr, faults_));
  }

  void function(const Operation& op) {
    const auto which = std::get<kernel::Function>(op.detail).function;
    if (which == kernel::NamedFunction::pack_bf16 || which == kernel::NamedFunction::dot_bf16) {
      return pairs(op, which);
    }
    INKLE_CHECK(which == kernel::NamedFunction::exp_negative, "kernel {}: no code of a CPU for {}",
                kernel_.name, kernel::row_of(which).name);
    Value* x = get(op.operands[0], varies_[op.results[0]]);
    Value* const operands[] = {x};
    const bool is_f32 = kernel_.type_of(op.results[0]).dtype == DType::f32;
    define(op.results[0],
           is_f32 ? exp_of_small(ir_, x) : emit_math(ir_, loop::Opcode::exp, operands));
  }

  // Of single values as of vectors, of which one lane counts.
  void pairs(const Operation& op, kernel::NamedFunction which) {
    constexpr int kLanes = 16;
    const bool wide = varies_[op.results[0]];
    INKLE_CHECK(!wide || lanes_ == kLanes, "kernel {}: pairs of bf16 in {} lanes", kernel_.name,
                lanes_);
    Values x;
    for (const ValueId v : op.operands) {
      Value* operand = get(v, wide);
      x.push_back(wide ? operand : ir_.broadcast(operand, kLanes));
    }
    Value* result = which == kernel::NamedFunction::pack_bf16 ? ir_.pack_bf16(x[0], x[1])
                                                              : ir_.dot_bf16(x[0], x[1], x[2]);
    define(op.results[0], wide ? result : ir_.extract(result, 0));
  }

  // Random words of lanes that count on from a multiple of 4: four of them share what is computed.
  void neighbouring_random(const Operation& op) {
    const int counters = lanes_ / 4;
    Value* seed = get(op.operands[0], false);
    Value* first = ir_.extract(get(op.operands[1], true), 0);
    Type* type = ir_.integer_type(64, counters);
    Value* counter = ir_.broadcast(ir_.lshr(first, 2), counters);
    if (counters > 1) counter = ir_.add(counter, ir_.iota(type));
    const std::array<Value*, 4> words = philox(ir_, ir_.broadcast(seed, counters), counter);
    std::vector<int> order;
    for (int lane = 0; lane < lanes_; ++lane) order.push_back(lane % 4 * counters + lane / 4);
    Value* all = ir_.concat(ir_.concat(words[0], words[1]), ir_.concat(words[2], words[3]));
    define(op.results[0], ir_.shuffle(all, all, order));
  }

  void indirect(const Operation& op) {
    const bool wide = varies_[op.results[0]];
    Value* value = get(op.operands[0], wide);
    Value* bad = ir_.icmp(Compare::uge, value, get(op.operands[1], wide));
    faults_.check(ir_, bad, wide ? mask_ : nullptr, schedule::KernelStatus::index_out_of_range);
    define(op.results[0], ir_.select(bad, Ir::zero(Ir::type_of(value)), value));
  }

  // --- Control
  // How often a loop is expected to run: its count, or the most that it can be; 0: unknown.
  static std::int64_t iterations(const kernel::Loop& loop) {
    constexpr std::int64_t kMost = 1 << 20;
    const Expr count = sym::ceildiv(loop.end - loop.begin, loop.step);
    const std::int64_t expected = sym::hint(count).value_or(sym::bounds(count).high);
    return expected > 0 && expected < kMost ? expected : 0;
  }

  void loop(const Operation& op) {
    const auto& detail = std::get<kernel::Loop>(op.detail);
    INKLE_CHECK(detail.is_lowered, "kernel {}: a loop whose bounds are not lowered", kernel_.name);
    const kernel::Region& inside = kernel_.regions[op.regions[0]];
    Values initial;
    for (std::size_t i = 0; i < inside.arguments.size(); ++i) {
      initial.push_back(get(op.operands[i + 2], varies_[inside.arguments[i]]));
    }
    const bool runs = detail.at_least_once || sym::less(detail.begin, detail.end) == true;
    const std::int64_t expected = options_.counts_loops ? iterations(detail) : 0;
    const Values results =
        ir_.loop(get(op.operands[0], false), get(op.operands[1], false), sizes_(detail.step),
                 initial, {runs, expected}, [&](Value* i, const Values& carried) {
                   symbols_[detail.variable.node()] = i;
                   for (std::size_t c = 0; c < carried.size(); ++c) {
                     define(inside.arguments[c], carried[c]);
                   }
                   // A loop that may not run is like a branch.
                   return inside_branch([&] {
                     region(op.regions[0]);
                     return get_all(inside.yields, inside.arguments);
                   });
                 });
    for (std::size_t r = 0; r < results.size(); ++r) define(op.results[r], results[r]);
  }

  void branch(const Operation& op) {
    const ValueId condition = op.operands[0];
    const auto& then = kernel_.regions[op.regions[0]];
    const auto& otherwise = kernel_.regions[op.regions[1]];
    if (varies_[condition]) return mask_branch(op);
    const Values results = ir_.branch(
        get(condition, false), std::get<kernel::Branch>(op.detail).is_likely,
        [&] {
          return inside_branch([&] {
            region(op.regions[0]);
            return get_all(then.yields, op.results);
          });
        },
        [&] {
          return inside_branch([&] {
            region(op.regions[1]);
            return get_all(otherwise.yields, op.results);
          });
        });
    for (std::size_t r = 0; r < results.size(); ++r) define(op.results[r], results[r]);
  }

  void mask_branch(const Operation& op) {
    Value* condition = get(op.operands[0], true);
    Value* outside = mask_;
    const auto side = [&](RegionId id, Value* active) {
      mask_ = outside == nullptr ? active : ir_.bit_and(active, outside);
      region(id);
      const Values yields = get_all(kernel_.regions[id].yields, op.results);
      mask_ = outside;
      return yields;
    };
    const Values a = side(op.regions[0], condition);
    Values b;
    if (kernel_.regions[op.regions[1]].operations.empty()) {
      b = get_all(kernel_.regions[op.regions[1]].yields, op.results);
    } else {
      b = side(op.regions[1], ir_.bit_not(condition));
    }
    for (std::size_t r = 0; r < a.size(); ++r) {
      define(op.results[r], ir_.select(condition, a[r], b[r]));
    }
  }

  void vector(const Operation& op) {
    const auto& detail = std::get<kernel::Vector>(op.detail);
    INKLE_CHECK(lanes_ == 1, "kernel {}: a vector region inside of another", kernel_.name);
    lanes_ = detail.width;
    lane_ = detail.lane;
    region(op.regions[0]);
    const Values yields = get_all(kernel_.regions[op.regions[0]].yields, op.results);
    lanes_ = 1;
    lane_ = {};
    for (std::size_t r = 0; r < yields.size(); ++r) define(op.results[r], yields[r]);
  }

  // Over the lanes, by halves.
  void reduce(const Operation& op) {
    INKLE_CHECK(std::get<kernel::Collective>(op.detail).lanes,
                "kernel {}: a reduction over threads of a CPU", kernel_.name);
    const kernel::Region& merge = kernel_.regions[op.regions[0]];
    const int all = lanes_;
    const std::size_t count = op.operands.size();
    Values states;
    for (const ValueId v : op.operands) states.push_back(get(v, true));
    while (lanes_ > 1) {
      lanes_ /= 2;
      for (std::size_t s = 0; s < count; ++s) {
        define(merge.arguments[s], ir_.half(states[s], false));
        define(merge.arguments[count + s], ir_.half(states[s], true));
      }
      region(op.regions[0]);
      for (std::size_t s = 0; s < count; ++s) states[s] = get(merge.yields[s], true);
    }
    lanes_ = all;
    for (std::size_t s = 0; s < count; ++s) define(op.results[s], states[s]);
  }

  bool is_extreme(const kernel::Region& merge) const {
    if (merge.operations.size() != 1) return false;
    const Operation& only = kernel_.operations[merge.operations.front()];
    if (only.op != Op::compute) return false;
    const loop::Opcode opcode = std::get<kernel::Compute>(only.detail).opcode;
    return opcode == loop::Opcode::min || opcode == loop::Opcode::max;
  }

  // Of the lanes up to each: those a step away join, and steps double.
  void scan(const Operation& op) {
    const auto& how = std::get<kernel::Collective>(op.detail);
    INKLE_CHECK(how.lanes && !how.exclusive, "kernel {}: no code of a CPU for such a scan",
                kernel_.name);
    const kernel::Region& merge = kernel_.regions[op.regions[0]];
    const std::size_t count = op.operands.size();
    Values states;
    for (const ValueId v : op.operands) states.push_back(get(v, true));
    for (int by = 1; by < lanes_; by *= 2) {
      std::vector<int> before;
      for (int lane = 0; lane < lanes_; ++lane) before.push_back(std::max(lane - by, 0));
      for (std::size_t s = 0; s < count; ++s) {
        define(merge.arguments[s], ir_.shuffle(states[s], states[s], before));
        define(merge.arguments[count + s], states[s]);
      }
      region(op.regions[0]);
      if (is_extreme(merge)) {  // what comes before lane 0 is lane 0, a part of each already
        for (std::size_t s = 0; s < count; ++s) states[s] = get(merge.yields[s], true);
        continue;
      }
      Value* first = ir_.first_lanes(lanes_, by);
      for (std::size_t s = 0; s < count; ++s) {
        states[s] = ir_.select(first, states[s], get(merge.yields[s], true));
      }
    }
    for (std::size_t s = 0; s < count; ++s) define(op.results[s], states[s]);
  }

  // --- Memory
  // Pairs in a parameter of bf16 lie as that does.
  int alignment_of(const Access& access) const {
    const kernel::Memory& memory = kernel_.memories[access.memory];
    const auto size = static_cast<int>(abi::size_of(memory.dtype));
    return memory.space == kernel::Space::global ? std::min(size, memory.alignment) : size;
  }
  DType dtype_of(const Access& access) const { return kernel_.memories[access.memory].dtype; }

  Value* address(const Access& access, ValueId offset) {
    INKLE_CHECK(access.is_lowered, "kernel {}: an access that is not lowered", kernel_.name);
    return ir_.address(memory_type(ir_, dtype_of(access), 1), bases_[access.memory],
                       get(offset, false));
  }

  // Where no lane is active, bytes that may be read or written.
  Value* harmless(Value* address) {
    return mask_ == nullptr ? address : ir_.select(ir_.any(mask_), address, spare_);
  }

  void load(const Operation& op) {
    const auto& access = std::get<Access>(op.detail);
    const DType dtype = dtype_of(access);
    const int alignment = alignment_of(access);
    Value* from = address(access, op.operands[0]);
    if (!varies_[op.results[0]]) {
      Value* loaded = ir_.load(memory_type(ir_, dtype, 1), harmless(from), alignment);
      define(op.results[0], to_register(ir_, loaded, dtype));
      return;
    }
    Type* type = memory_type(ir_, dtype, lanes_);
    Value* loaded = nullptr;
    if (access.form == Form::wide) {
      loaded = mask_ == nullptr ? ir_.load(type, from, alignment)
                                : ir_.masked_load(type, from, alignment, mask_, Ir::zero(type));
    } else if (!access.has_lane_offset) {  // one element, loaded in each lane
      loaded =
          ir_.broadcast(ir_.load(memory_type(ir_, dtype, 1), harmless(from), alignment), lanes_);
    } else {
      Value* active = mask_ == nullptr ? ir_.first_lanes(lanes_, lanes_) : mask_;
      loaded = ir_.gather(type, from, get(op.operands[1], true), alignment, active, Ir::zero(type));
    }
    define(op.results[0], to_register(ir_, loaded, dtype));
  }

  void store(const Operation& op) {
    const auto& access = std::get<Access>(op.detail);
    const DType dtype = dtype_of(access);
    const int alignment = static_cast<int>(abi::size_of(dtype));
    Value* to = address(access, op.operands[0]);
    const ValueId stored = op.operands.back();
    const bool scattered = access.has_lane_offset || (access.form == Form::each && varies_[stored]);
    if (lanes_ == 1 || (access.form != Form::wide && !scattered)) {
      ir_.store(to_memory(ir_, get(stored, false), dtype), harmless(to), alignment);
      return;
    }
    Value* value = to_memory(ir_, get(stored, true), dtype);
    if (scattered) {
      Value* active = mask_ == nullptr ? ir_.first_lanes(lanes_, lanes_) : mask_;
      Value* offsets = access.has_lane_offset ? get(op.operands[1], true)
                                              : Ir::zero(ir_.integer_type(32, lanes_));
      ir_.scatter(value, to, offsets, alignment, active);
    } else if (mask_ == nullptr) {
      ir_.store(value, to, alignment);
    } else {
      ir_.masked_store(value, to, alignment, mask_);
    }
  }

  void atomic(const Operation& op) {
    const auto& detail = std::get<kernel::Atomic>(op.detail);
    const DType dtype = dtype_of(detail.access);
    if (detail.op != kernel::AtomicOp::add || detail.needs_old ||
        (dtype != DType::f32 && dtype != DType::f64 && dtype != DType::i32 &&
         dtype != DType::i64)) {
      unsupported("kernel {}: no atomic addition of {}", kernel_.name, abi::name_of(dtype));
    }
    Value* base = address(detail.access, op.operands[0]);
    Value* offsets = detail.access.has_lane_offset ? get(op.operands[1], true) : nullptr;
    Value* value = get(op.operands.back(), true);
    Type* type = memory_type(ir_, dtype, 1);
    for (int lane = 0; lane < lanes_; ++lane) {
      const auto add = [&] {
        Value* to = base;
        if (offsets != nullptr) {
          Value* offset = ir_.resize_signed(ir_.extract(offsets, lane), ir_.integer_type(64));
          to = ir_.address(type, to, offset);
        }
        ir_.atomic_add(to, ir_.extract(value, lane), static_cast<int>(abi::size_of(dtype)));
        return Values();
      };
      if (mask_ == nullptr)
        add();
      else
        ir_.branch(ir_.extract(mask_, lane), true, add, [] { return Values(); });
    }
  }

  Ir& ir_;
  const PrintOptions& options_;
  const kernel::Kernel& kernel_;
  sym::Context& context_;
  SizeValues sizes_;
  std::vector<bool> varies_;
  std::vector<bool> per_task_;
  Values values_;  // by ValueId
  std::vector<int> depth_;
  std::unordered_map<std::uint64_t, Value*> broadcasts_;  // (value, lanes)
  std::vector<std::uint64_t> made_;                       // keys of broadcasts, in order
  std::unordered_map<const sym::Node*, Value*> symbols_;
  Values extents_;  // of the tasks
  Values bases_;    // by MemoryId
  Faults faults_;
  Value* spare_ = nullptr;
  int lanes_ = 1;
  Expr lane_;
  Value* mask_ = nullptr;
};

}  // namespace

EmittedKernel print_kernel(Ir& ir, const kernel::Kernel& kernel, sym::Context& context,
                           const Values& arguments, const PrintOptions& options) {
  return KernelPrinter(ir, kernel, context, options).run(arguments);
}

}  // namespace inkle::codegen::cpu
