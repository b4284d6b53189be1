#include "kernel/lower_indices.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "kernel/lanes.h"

namespace inkle::kernel {

using loop::Opcode;
using sym::Kind;

bool fits32(Expr e) {
  const sym::Range range = sym::bounds(e);
  if (range.low < std::numeric_limits<std::int32_t>::min() ||
      range.high > std::numeric_limits<std::int32_t>::max()) {
    return false;
  }
  if (e.kind() == Kind::constant || e.kind() == Kind::symbol) return true;
  return std::all_of(e.operands().begin(), e.operands().end(), fits32);
}

namespace {

// What is known of the symbols of index expressions where they stand.
class IndexSymbols {
 public:
  struct Symbol {
    std::size_t depth = 0;
    bool varies = false;  // from lane to lane, in no regular way
    bool is_lane = false;
    ValueId value = kNone;  // of indirect and bound symbols
  };

  IndexSymbols(const Kernel& kernel, sym::Context& context) : kernel_(kernel), context_(context) {
    for (const Axis& axis : kernel.launch.axes) define(axis.variable, {});
    for (const Expr size : kernel.sizes) define(size, {});
  }
  void define(Expr symbol, const Symbol& known) { symbols_[symbol.node()] = known; }

  const Symbol& symbol(Expr s) const {
    const auto found = symbols_.find(s.node());
    INKLE_CHECK(found != symbols_.end(), "kernel {}: '{}' has no value here", kernel_.name,
                s.name());
    return found->second;
  }
  std::size_t depth_of(Expr e, bool without_lane) const {
    std::size_t depth = 0;
    for (const Expr s : sym::symbols(e)) {
      const Symbol& known = symbol(s);
      if (without_lane && known.is_lane) continue;
      depth = std::max(depth, known.depth);
    }
    return depth;
  }
  bool varies(Expr e) const {
    const auto all = sym::symbols(e);
    return std::any_of(all.begin(), all.end(),
                       [&](Expr s) { return symbol(s).varies || symbol(s).is_lane; });
  }
  Expr lane_of(Expr e) const {
    for (const Expr s : sym::symbols(e)) {
      if (symbol(s).is_lane) return s;
    }
    return {};
  }
  // How much e grows from lane to lane, where that is one number.
  std::optional<Expr> lane_stride(Expr e) const {
    for (const Expr s : sym::symbols(e)) {
      if (symbol(s).varies) return std::nullopt;
    }
    const Expr lane = lane_of(e);
    if (lane.is_null()) return context_.constant(0);
    const auto stride = sym::stride(e, lane);
    if (!stride || varies(*stride)) return std::nullopt;
    return stride;
  }

  // lane, or a multiple of it: nothing in lane 0.
  bool is_lane_term(Expr e) const {
    if (e.kind() == Kind::symbol) return symbol(e).is_lane;
    return e.kind() == Kind::mul &&
           std::any_of(e.operands().begin(), e.operands().end(), [&](Expr factor) {
             return factor.kind() == Kind::symbol && symbol(factor).is_lane;
           });
  }

  // Terms that are the same in all lanes, and the rest; null where there are none.
  std::pair<Expr, Expr> split(Expr e) const {
    Expr uniform, varying;
    const Expr alone[] = {e};
    const std::span<const Expr> terms = e.kind() == Kind::add ? e.operands() : alone;
    for (const Expr term : terms) {
      Expr& part = varies(term) ? varying : uniform;
      part = part.is_null() ? term : part + term;
    }
    return {uniform, varying};
  }

 private:
  const Kernel& kernel_;
  sym::Context& context_;
  std::unordered_map<const sym::Node*, Symbol> symbols_;
};

class IndexLowering {
 public:
  IndexLowering(Kernel& kernel, sym::Context& context)
      : kernel_(kernel), symbols_(kernel, context), varies_(varies_by_lane(kernel)) {}

  void run() { region(kernel_.body, kNone); }

 private:
  struct Frame {
    RegionId region = kNone;
    std::vector<OperationId> out;
    // Values of expressions: as they are, of lane 0, of each lane in 64 or 32 bits.
    std::map<std::pair<const sym::Node*, int>, ValueId> known;
  };
  enum Kept : int { kScalar, kLane64, kLane32 };

  // --- Making operations at a depth
  ValueId make(std::size_t depth, Op op, Values operands, DType dtype, Detail detail) {
    const auto id = static_cast<OperationId>(kernel_.operations.size());
    kernel_.values.push_back({scalar_type(dtype), id, kNone});
    const auto value = static_cast<ValueId>(kernel_.values.size() - 1);
    kernel_.operations.push_back({op, std::move(operands), {value}, {}, std::move(detail)});
    frames_[depth].out.push_back(id);
    return value;
  }
  ValueId compute(std::size_t depth, Opcode opcode, DType dtype, Values operands) {
    return make(depth, Op::compute, std::move(operands), dtype, Compute{opcode, Form::each});
  }
  ValueId constant(std::int64_t value, DType dtype) {
    const auto [at, is_new] = constants_.try_emplace({value, dtype}, kNone);
    if (is_new) at->second = make(0, Op::constant, {}, dtype, Immediate{0, value});
    return at->second;
  }

  // --- Values of expressions
  // i64 of an expression that does not vary; a lane counts as 0.
  ValueId scalar(Expr e) {
    if (const auto value = e.constant()) return constant(*value, DType::i64);
    if (e.kind() == Kind::symbol) return symbol_value(e);
    const std::size_t depth = symbols_.depth_of(e, true);
    const std::pair key{e.node(), static_cast<int>(kScalar)};
    auto& known = frames_[depth].known;
    if (const auto found = known.find(key); found != known.end()) return found->second;
    const ValueId value = make_scalar(e);
    frames_[depth].known[key] = value;
    return value;
  }

  ValueId symbol_value(Expr e) {
    const IndexSymbols::Symbol& s = symbols_.symbol(e);
    if (s.is_lane) return constant(0, DType::i64);
    if (s.value != kNone) return s.value;
    const std::pair key{e.node(), static_cast<int>(kScalar)};
    auto& known = frames_[s.depth].known;
    const auto [at, is_new] = known.try_emplace(key, kNone);
    if (is_new) at->second = make(s.depth, Op::index, {}, DType::i64, IndexOf{e});
    return at->second;
  }

  ValueId make_scalar(Expr e) {
    switch (e.kind()) {
      case Kind::add:
        return fold(e, Opcode::add);
      case Kind::mul:
        return fold(e, Opcode::mul);
      case Kind::min:
        return fold(e, Opcode::min);
      case Kind::max:
        return fold(e, Opcode::max);
      case Kind::floordiv:
      case Kind::mod:
        return divide(symbols_.depth_of(e, true), e, scalar(e.operands()[0]),
                      scalar(e.operands()[1]), DType::i64);
      default:
        break;
    }
    INKLE_CHECK(false, "no such expression");
    return kNone;
  }

  // Operands of outer loops first, each partial result at its depth.
  ValueId fold(Expr e, Opcode opcode) {
    std::vector<std::pair<std::size_t, Expr>> operands;
    for (const Expr operand : e.operands())
      operands.emplace_back(symbols_.depth_of(operand, true), operand);
    std::stable_sort(operands.begin(), operands.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    ValueId result = kNone;
    // A constant comes last: it folds into an address, and copies of an access differ by it.
    if (opcode == Opcode::add && e.operands().back().is_constant()) {
      const Expr last = e.operands().back();
      const ValueId rest = scalar(e - last);
      return compute(symbols_.depth_of(e, true), opcode, DType::i64, {rest, scalar(last)});
    }
    for (const auto& [depth, operand] : operands) {
      if (opcode == Opcode::add && symbols_.is_lane_term(operand)) continue;
      const ValueId value = scalar(operand);
      result = result == kNone ? value : compute(depth, opcode, DType::i64, {result, value});
    }
    return result == kNone ? constant(0, DType::i64) : result;
  }

  ValueId divide(std::size_t depth, Expr e, ValueId a, ValueId b, DType dtype) {
    const bool modulo = e.kind() == Kind::mod;
    const auto by = e.operands()[1].constant();
    if (by && *by > 0 && std::has_single_bit(static_cast<std::uint64_t>(*by))) {
      const int bits = std::countr_zero(static_cast<std::uint64_t>(*by));
      return modulo ? compute(depth, Opcode::bit_and, dtype, {a, constant(*by - 1, dtype)})
                    : compute(depth, Opcode::shift_right, dtype, {a, constant(bits, dtype)});
    }
    const sym::Range range = sym::bounds(e.operands()[0]);
    const sym::Range divisors = sym::bounds(e.operands()[1]);
    IndexDivision division;
    division.modulo = modulo;
    division.non_negative = range.low >= 0 && divisors.low > 0;
    constexpr std::int64_t k32 = std::numeric_limits<std::uint32_t>::max();
    division.narrow = division.non_negative && range.high <= k32 && divisors.high <= k32;
    return make(depth, Op::divide_index, {a, b}, dtype, division);
  }

  ValueId resize(std::size_t depth, ValueId v, DType to) {
    if (kernel_.type_of(v).dtype == to) return v;
    return compute(depth, Opcode::cast, to, {v});
  }

  // The value in each lane, in 32 bits (the caller knows that it fits) or 64.
  ValueId lanes(Expr e, DType dtype) {
    const std::size_t depth = symbols_.depth_of(e, false);
    const std::pair key{e.node(), static_cast<int>(dtype == DType::i32 ? kLane32 : kLane64)};
    auto& known = frames_[depth].known;
    if (const auto found = known.find(key); found != known.end()) return found->second;
    const ValueId value = make_lanes(e, dtype, depth);
    frames_[depth].known[key] = value;
    return value;
  }

  ValueId make_lanes(Expr e, DType dtype, std::size_t depth) {
    if (!symbols_.varies(e)) {
      const ValueId value = scalar(e);
      return resize(symbols_.depth_of(e, true), value, dtype);
    }
    const auto stride = symbols_.lane_stride(e);
    if (stride && stride->is_constant()) {
      const Expr lane = symbols_.lane_of(e);
      const std::size_t home = symbols_.symbol(lane).depth;
      ValueId steps = make(home, Op::index, {}, dtype, IndexOf{lane});
      if (!stride->is_constant(1)) {
        steps = compute(home, Opcode::mul, dtype, {steps, constant(*stride->constant(), dtype)});
      }
      if (e.kind() == Kind::symbol) return steps;
      const ValueId first = resize(symbols_.depth_of(e, true), scalar(e), dtype);
      return compute(depth, Opcode::add, dtype, {first, steps});
    }
    if (e.kind() == Kind::symbol) return resize(depth, symbols_.symbol(e).value, dtype);
    if (e.kind() == Kind::add) {
      const auto [uniform, varying] = symbols_.split(e);
      if (!uniform.is_null()) {
        const ValueId a = lanes(uniform, dtype), b = lanes(varying, dtype);
        return compute(depth, Opcode::add, dtype, {a, b});
      }
    }
    Values operands;
    for (const Expr operand : e.operands()) operands.push_back(lanes(operand, dtype));
    if (e.kind() == Kind::floordiv || e.kind() == Kind::mod) {
      return divide(depth, e, operands[0], operands[1], dtype);
    }
    const Opcode opcode = e.kind() == Kind::add   ? Opcode::add
                          : e.kind() == Kind::mul ? Opcode::mul
                          : e.kind() == Kind::min ? Opcode::min
                                                  : Opcode::max;
    ValueId result = operands[0];
    for (std::size_t i = 1; i < operands.size(); ++i) {
      result = compute(depth, opcode, dtype, {result, operands[i]});
    }
    return result;
  }

  // --- Accesses
  Expr linear(const Access& access) {
    const Memory& memory = kernel_.memories[access.memory];
    Expr offset = access.indices[0];
    for (std::size_t d = 1; d < access.indices.size(); ++d) {
      const Expr row =
          memory.shape[d] + (d + 1 == access.indices.size() ? std::int64_t{memory.padding} : 0);
      offset = offset * row + access.indices[d];
    }
    return offset;
  }

  void lower(Access& access, Values& operands) {
    if (access.is_lowered || access.indices.empty()) return;
    const Expr offset = linear(access);
    access.indices.clear();
    access.is_lowered = true;
    Values places;
    if (access.form != Form::each || !symbols_.varies(offset)) {
      places = {scalar(offset)};
    } else {
      const auto [uniform, varying] = symbols_.split(offset);
      places = {uniform.is_null() ? constant(0, DType::i64) : scalar(uniform),
                lanes(varying, fits32(varying) ? DType::i32 : DType::i64)};
    }
    access.has_lane_offset = places.size() > 1;
    operands.insert(operands.begin(), places.begin(), places.end());
  }

  // `index` operations of more than a symbol are replaced by what computes them.
  std::optional<ValueId> lower_index(const Operation& op) {
    const Expr e = std::get<IndexOf>(op.detail).expression;
    const DType dtype = kernel_.type_of(op.results[0]).dtype;
    if (!symbols_.varies(e)) return resize(symbols_.depth_of(e, true), scalar(e), dtype);
    if (e.kind() == Kind::symbol && symbols_.symbol(e).is_lane) return std::nullopt;
    if (dtype == DType::i32 || !fits32(e)) return lanes(e, dtype);
    return resize(symbols_.depth_of(e, false), lanes(e, DType::i32), dtype);
  }

  ValueId same(ValueId v) const {
    const auto found = same_.find(v);
    return found == same_.end() ? v : found->second;
  }

  void define_symbols(OperationId owner) {
    if (owner == kNone) return;
    const std::size_t here = frames_.size() - 1;
    const Detail& detail = kernel_.operations[owner].detail;
    if (const auto* loop = std::get_if<Loop>(&detail)) {
      symbols_.define(loop->variable, {here, false, false, kNone});
    }
    if (const auto* vector = std::get_if<Vector>(&detail)) {
      symbols_.define(vector->lane, {here, false, true, kNone});
    }
  }

  void operation(OperationId id) {
    for (std::size_t i = 0; i < kernel_.operations[id].operands.size(); ++i) {
      ValueId& v = kernel_.operations[id].operands[i];
      v = same(v);
    }
    const Op kind = kernel_.operations[id].op;
    if (kind == Op::index) {
      if (const auto value = lower_index(kernel_.operations[id])) {
        same_[kernel_.operations[id].results[0]] = *value;
        return;
      }
    }
    const bool is_tile = kind == Op::fragment_load || kind == Op::fragment_store;
    if (is_tile || kind == Op::load || kind == Op::store || kind == Op::prefetch ||
        kind == Op::atomic) {
      // Moved out and in: making operations moves the kernel's vector.
      Detail detail = std::move(kernel_.operations[id].detail);
      Values operands = std::move(kernel_.operations[id].operands);
      lower(is_tile              ? std::get<FragmentAccess>(detail).access
            : kind == Op::atomic ? std::get<Atomic>(detail).access
                                 : std::get<Access>(detail),
            operands);
      kernel_.operations[id].detail = std::move(detail);
      kernel_.operations[id].operands = std::move(operands);
    }
    if (kind == Op::indirect) lower_indirect(id);
    if (kind == Op::bind) {
      define_symbol(std::get<Symbolic>(kernel_.operations[id].detail).symbol,
                    kernel_.operations[id].results[0]);
    }
    if (kind == Op::loop) lower_bounds(id);
    const Regions regions = kernel_.operations[id].regions;
    for (const RegionId r : regions) region(r, id);
    frames_.back().out.push_back(id);
  }

  void lower_bounds(OperationId id) {
    const Loop detail = std::get<Loop>(kernel_.operations[id].detail);
    if (detail.is_lowered) return;
    const ValueId begin = scalar(detail.begin), end = scalar(detail.end);
    Operation& op = kernel_.operations[id];
    op.operands.insert(op.operands.begin(), {begin, end});
    std::get<Loop>(op.detail).is_lowered = true;
  }

  // The extent becomes an operand; the symbol is the result from here on.
  void lower_indirect(OperationId id) {
    const Symbolic detail = std::get<Symbolic>(kernel_.operations[id].detail);
    const ValueId extent = scalar(detail.extent);
    kernel_.operations[id].operands.push_back(extent);
    define_symbol(detail.symbol, kernel_.operations[id].results[0]);
  }

  void define_symbol(Expr symbol, ValueId value) {
    symbols_.define(symbol, {frames_.size() - 1, varies_[value], false, value});
  }

  void region(RegionId id, OperationId owner) {
    frames_.push_back({id, {}, {}});
    define_symbols(owner);
    const std::vector<OperationId> operations = kernel_.regions[id].operations;
    for (const OperationId o : operations) operation(o);
    for (ValueId& v : kernel_.regions[id].yields) v = same(v);
    kernel_.regions[id].operations = std::move(frames_.back().out);
    frames_.pop_back();
  }

  Kernel& kernel_;
  IndexSymbols symbols_;
  std::vector<bool> varies_;
  std::unordered_map<ValueId, ValueId> same_;
  std::map<std::pair<std::int64_t, DType>, ValueId> constants_;
  std::vector<Frame> frames_;
};

}  // namespace

void lower_indices(Kernel& kernel, sym::Context& context) { IndexLowering(kernel, context).run(); }

}  // namespace inkle::kernel
