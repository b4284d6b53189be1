#include "kernel/verify_types.h"

#include <algorithm>
#include <cmath>

#include "kernel/derive.h"
#include "kernel/function.h"
#include "kernel/names.h"

namespace inkle::kernel {
namespace {

constexpr std::uint64_t kNoScalar = 0xff;

}  // namespace

void TypeChecker::same(std::span<const Type> got, std::span<const Type> wanted,
                       std::string_view what) const {
  if (std::ranges::equal(got, wanted)) return;
  const auto list = [&](std::span<const Type> types) {
    std::string out;
    for (const Type& t : types) out += (out.empty() ? "" : ", ") + to_string(k_, t);
    return "(" + out + ")";
  };
  d_.fail(fmt::format("{} of {}, not {}", what, list(got), list(wanted)));
}

void TypeChecker::are(std::span<const ValueId> values, std::span<const Type> wanted,
                      std::string_view what) const {
  const auto type = [&](ValueId v) -> const Type& { return k_.type_of(v); };
  if (!std::ranges::equal(values, wanted, {}, type)) same(of(values), wanted, what);
}

void TypeChecker::check_detail(const Operation& o) const {
  d_.require(has_own_detail(o), "the detail of another operation");
  const auto complete = [&](const Loop& l) {
    d_.require(!l.begin.is_null() && !l.end.is_null() && !l.step.is_null(), "a missing expression");
  };
  if (const auto* l = std::get_if<Loop>(&o.detail)) complete(*l);
  if (o.op != Op::fold) return;
  const auto& f = std::get<Fold>(o.detail);
  d_.require(!f.loops.empty(), "a fold without loops");
  std::ranges::for_each(f.loops, complete);
  d_.require(f.chunked_loop >= -1 && f.chunked_loop < static_cast<std::int32_t>(f.loops.size()),
             "a chunked loop that is none of the fold's");
  d_.require(f.chunked_loop < 0 || f.chunk >= 1, "a chunk of {}", f.chunk);
}

std::size_t TypeChecker::index_operands(const Access& a) const {
  const std::size_t rank = rank_of(d_.memory(a.memory));
  if (a.is_lowered) {
    d_.require(a.indices.empty(), "a lowered access with indices");
    return a.has_lane_offset ? 2 : 1;
  }
  d_.require(a.indices_are_operands ? a.indices.empty() : a.indices.size() == rank,
             "{} indices into {} of rank {}", a.indices.size(), d_.memory(a.memory).name, rank);
  return (a.indices_are_operands ? rank : 0);
}

void TypeChecker::operands_are(const Operation& o, std::size_t first, std::size_t count,
                               std::string_view what) const {
  for (std::size_t i = first; i < first + count && i < o.operands.size(); ++i) {
    const Type& type = k_.type_of(o.operands[i]);
    if (type != scalar_type(DType::i32) && type != scalar_type(DType::i64)) {
      d_.fail(fmt::format("{} of type {}", what, to_string(k_, type)));
    }
  }
}

// What stands before the values of an access is checked; `values` come then, and a rank.
void TypeChecker::access_types(const Operation& o) const {
  const Access& a = *access_of(o);
  std::size_t indices = index_operands(a);
  const auto* count = std::get_if<Count>(&o.detail);
  if (count != nullptr && count->has_phase) ++indices;  // which is an integer, too
  const Type element = scalar_type(d_.memory(a.memory).dtype);
  Type value = element;
  std::size_t values = 0;
  if (o.op == Op::store) values = 1;
  if (o.op == Op::atomic) {
    values = std::get<Atomic>(o.detail).op == AtomicOp::compare_exchange ? 2 : 1;
  }
  if (o.op == Op::barrier_wait) {
    d_.require(o.operands.size() > indices, "barrier_wait without a parity");
    value = k_.type_of(o.operands[indices]);
    if (value != scalar_type(DType::boolean) && value != scalar_type(DType::i32)) {
      d_.fail(fmt::format("a parity of {}", to_string(k_, value)));
    }
    values = 1;
  }
  const std::size_t wanted = indices + values + (a.remote ? 1 : 0);
  d_.require(o.operands.size() == wanted, "{} operands, not {}", o.operands.size(), wanted);
  operands_are(o, 0, indices, "an index");
  if (a.remote) operands_are(o, wanted - 1, 1, "a rank");
  const Type both[] = {value, value};
  are(std::span(o.operands).subspan(indices, values), std::span(both).first(values), "operands");
  if (o.op == Op::load || o.op == Op::atomic) return are(o.results, {element}, "results");
  are(o.results, {}, "results");
}

void TypeChecker::copy_types(const Operation& o) const {
  std::size_t indices = 0;
  if (o.op == Op::copy_async) {
    const auto& c = std::get<Copy>(o.detail);
    indices = index_operands(c.from) + index_operands(c.to);
  } else {
    const auto& b = std::get<Bulk>(o.detail);
    indices = d_.memory(b.map).shape.size() + index_operands(b.shared);
    if (o.op == Op::tma_load) indices += index_operands(b.barrier);
  }
  d_.require(o.operands.size() == indices, "{} operands, not {}", o.operands.size(), indices);
  operands_are(o, 0, indices, "an index");
  are(o.results, {}, "results");
}

void TypeChecker::compute_types(const Operation& o, const Type& result) const {
  const loop::Opcode opcode = std::get<Compute>(o.detail).opcode;
  const auto of_type = [](const Type& type) {
    return type.kind == TypeKind::scalar ? std::uint64_t{1} + static_cast<std::uint8_t>(type.dtype)
                                         : kNoScalar;
  };
  // How many operands, opcode and types, a byte each.
  std::uint64_t signature = o.operands.size() << 8 | static_cast<std::uint8_t>(opcode);
  signature = signature << 8 | of_type(result);
  bool is_short = o.operands.size() <= 4 && of_type(result) != kNoScalar;
  for (const ValueId v : o.operands) {
    const std::uint64_t type = of_type(k_.type_of(v));
    is_short = is_short && type != kNoScalar;
    signature = signature << 8 | type;
  }
  std::uint64_t& right = right_[signature * 0x9e3779b97f4a7c15ULL >> 59];
  if (is_short && right == signature) return;
  const std::string wrong = check_compute(opcode, of(o.operands), result);
  d_.require(wrong.empty(), "{}", wrong);
  if (is_short) right = signature;
}

void TypeChecker::symbolic_types(const Operation& o) const {
  const std::size_t count = o.op == Op::indirect && o.operands.size() == 2 ? 2 : 1;
  const Type wanted[] = {scalar_type(DType::i64), scalar_type(DType::i64)};
  are(o.operands, std::span(wanted).first(count), "operands");
  are(o.results, {scalar_type(DType::i64)}, "results");
  const auto& s = std::get<Symbolic>(o.detail);
  d_.require(!s.symbol.is_null() && s.symbol.kind() == sym::Kind::symbol, "a missing symbol");
  d_.require(o.op == Op::bind || !s.extent.is_null(), "a missing extent");
}

// --- Fragments
// -------------------------------------------------------------------------------------

const FragmentType& TypeChecker::fragment(ValueId value) const {
  const Type& type = k_.type_of(value);
  if (type.kind != TypeKind::fragment) {
    d_.fail(fmt::format("{} where a fragment is expected", to_string(k_, type)));
  }
  return k_.fragments[type.fragment];
}

namespace {

constexpr std::int32_t kTileRows = 16, kTileColumns = 16;  // of 4 bytes

// What is wrong with a fragment's shape under its layout; empty: nothing.
std::string check_fragment(const FragmentType& f) {
  const auto wrong = [&] {
    return fmt::format("{} x {} of {} in layout {} held by a {}", f.rows, f.columns,
                       abi::name_of(f.dtype), name_of(f.layout), name_of(f.holder));
  };
  if (f.rows < 1 || f.columns < 1 || !abi::is_computable(f.dtype)) return wrong();
  const auto of = [&](Holder holder, std::int32_t rows, std::int32_t columns) {
    return f.holder == holder && f.rows % rows == 0 && f.columns % columns == 0;
  };
  bool holds = false;
  switch (f.layout) {
    case FragmentLayout::rows:
    case FragmentLayout::splat:
      holds = f.holder == Holder::core;
      break;
    case FragmentLayout::tile:
      holds = f.holder == Holder::tile && f.rows <= kTileRows && f.columns <= kTileColumns &&
              (f.dtype == DType::f32 || f.dtype == DType::i32);
      break;
    case FragmentLayout::mma_a:
      holds = of(Holder::warp, 16, 16) && abi::is_reduced_float(f.dtype);
      break;
    case FragmentLayout::mma_b:
      holds = of(Holder::warp, 16, 8) && abi::is_reduced_float(f.dtype);
      break;
    case FragmentLayout::mma_c:
      holds = of(Holder::warp, 16, 8);
      break;
    case FragmentLayout::wgmma_c:
      holds = of(Holder::warpgroup, 64, 8);
      break;
  }
  return holds ? std::string() : wrong();
}

}  // namespace

bool TypeChecker::is_zero(ValueId value) const {
  const OperationId made = k_.values[value].definition;
  if (made == kNone || k_.operations[made].op != Op::constant) return false;
  const auto& immediate = std::get<Immediate>(k_.operations[made].detail);
  return immediate.real == 0 && immediate.integer == 0 && !std::signbit(immediate.real);
}

void TypeChecker::fragment_types(const Operation& o) const {
  const auto counts = [&](std::size_t operands, std::size_t results) {
    d_.require(o.operands.size() == operands && o.results.size() == results,
               "{} operands and {} results, not {} and {}", o.operands.size(), o.results.size(),
               operands, results);
  };
  switch (o.op) {
    case Op::fragment_fill:
      counts(1, 1);
      are(o.operands, {scalar_type(fragment(o.results[0]).dtype)}, "operands");
      d_.require(fragment(o.results[0]).holder != Holder::tile || is_zero(o.operands[0]),
                 "a tile that is not filled with 0");
      break;
    case Op::fragment_load:
    case Op::fragment_store: {
      const auto& f = std::get<FragmentAccess>(o.detail);
      const std::size_t indices = index_operands(f.access);
      const bool loads = o.op == Op::fragment_load;
      counts(indices + (loads ? 0 : 1), loads ? 1 : 0);
      operands_are(o, 0, indices, "an index");
      const FragmentType& type = fragment(loads ? o.results[0] : o.operands.back());
      d_.require(type.dtype == d_.memory(f.access.memory).dtype, "a fragment of {} in {} of {}",
                 abi::name_of(type.dtype), d_.memory(f.access.memory).name,
                 abi::name_of(d_.memory(f.access.memory).dtype));
      d_.require(f.rows == type.rows && f.columns == type.columns,
                 "{} x {} elements of a fragment of {} x {}", f.rows, f.columns, type.rows,
                 type.columns);
      break;
    }
    case Op::fragment_map: {
      d_.require(!o.operands.empty(), "a map of no fragment");
      const FragmentType& first = fragment(o.operands[0]);
      const auto alike = [&](ValueId v) {
        FragmentType other = fragment(v);
        other.dtype = first.dtype;
        d_.require(other == first, "fragments of two shapes or layouts in one map");
      };
      std::ranges::for_each(o.operands, alike);
      std::ranges::for_each(o.results, alike);
      break;
    }
    case Op::convert_layout: {
      counts(1, 1);
      const FragmentType& from = fragment(o.operands[0]);
      const FragmentType& to = fragment(o.results[0]);
      d_.require(from.dtype == to.dtype && from.rows == to.rows && from.columns == to.columns,
                 "convert_layout between {} and {}", to_string(k_, k_.type_of(o.operands[0])),
                 to_string(k_, k_.type_of(o.results[0])));
      break;
    }
    default:
      mma_types(o);
  }
  for (const ValueId v : o.results) {
    const std::string wrong = check_fragment(fragment(v));
    d_.require(wrong.empty(), "a fragment of {}", wrong);
  }
}

void TypeChecker::mma_types(const Operation& o) const {
  const auto& m = std::get<MatrixMultiply>(o.detail);
  const bool is_wgmma = m.unit == MatrixUnit::wgmma;
  d_.require(m.shared.size() <= 2 && (is_wgmma ? !m.shared.empty() : m.shared.empty()),
             "{} matrices in shared memory", m.shared.size());
  const std::size_t fragments = 3 - m.shared.size();
  std::size_t indices = 0;
  for (const FragmentAccess& f : m.shared) indices += index_operands(f.access);
  d_.require(o.operands.size() == fragments + indices && o.results.size() == 1,
             "{} operands and {} results, not {} and 1", o.operands.size(), o.results.size(),
             fragments + indices);
  operands_are(o, fragments, indices, "an index");
  are(o.results, {k_.type_of(o.operands[0])}, "results");
  for (std::size_t i = 0; i < m.shared.size(); ++i) {
    const FragmentAccess& f = m.shared[i];
    d_.require(f.panel == 0 || (i + 1 == m.shared.size() && f.panel > 0 &&
                                f.columns % f.panel == 0 && f.panel_stride > 0),
               "a matrix of {} x {} in panels of {} columns", f.rows, f.columns, f.panel);
  }
  struct Matrix {
    DType dtype;
    std::int32_t rows, columns;
    std::optional<FragmentLayout> layout;
  };
  std::vector<Matrix> parts;
  for (std::size_t i = 0; i < fragments; ++i) {
    const FragmentType& f = fragment(o.operands[i]);
    parts.push_back({f.dtype, f.rows, f.columns, f.layout});
  }
  for (const FragmentAccess& f : m.shared) {
    parts.push_back({d_.memory(f.access.memory).dtype, f.rows, f.columns, std::nullopt});
    d_.require(d_.memory(f.access.memory).space == Space::shared, "a matrix of wgmma in {}",
               name_of(d_.memory(f.access.memory).space));
  }
  const Matrix &c = parts[0], &a = parts[1], &b = parts[2];
  d_.require(a.rows == c.rows && b.columns == c.columns && a.columns == b.rows,
             "{} x {} and {} x {} multiplied to {} x {}", a.rows, a.columns, b.rows, b.columns,
             c.rows, c.columns);
  d_.require(a.dtype == b.dtype, "{} multiplied with {}", abi::name_of(a.dtype),
             abi::name_of(b.dtype));
  const bool is_wide = c.dtype == DType::f32 && abi::is_reduced_float(a.dtype);
  const auto layouts = [&](FragmentLayout lc, FragmentLayout la, FragmentLayout lb) {
    return c.layout == lc && a.layout == la && b.layout == lb;
  };
  using enum FragmentLayout;
  bool holds = false;
  switch (m.unit) {
    case MatrixUnit::fma:
      holds = c.dtype == a.dtype && (a.dtype == DType::f32 || a.dtype == DType::f64) &&
              layouts(rows, splat, rows);
      break;
    case MatrixUnit::bf16:
      holds = is_wide && a.dtype == DType::bf16 && a.columns % 2 == 0 && layouts(rows, splat, rows);
      break;
    case MatrixUnit::amx:
      holds = c.dtype == DType::f32 && a.dtype == DType::i32 && layouts(tile, tile, tile);
      break;
    case MatrixUnit::sync:
      holds = is_wide && layouts(mma_c, mma_a, mma_b);
      break;
    case MatrixUnit::wgmma:
      // A fragment as A lies as an accumulator does: 16 columns of one are those of the other.
      holds = is_wide && c.layout == wgmma_c && (!a.layout || a.layout == wgmma_c) &&
              a.columns % 16 == 0 && c.columns <= 256;
      break;
  }
  d_.require(holds, "mma.{} of {} and {} to {} with these layouts", kMatrixUnits.name(m.unit),
             abi::name_of(a.dtype), abi::name_of(b.dtype), abi::name_of(c.dtype));
}

// --- All operations
// --------------------------------------------------------------------------------

void TypeChecker::check(const Operation& o) const {
  const auto one_result = [&] {
    d_.require(o.results.size() == 1, "{} results, not 1", o.results.size());
    return k_.type_of(o.results[0]);
  };
  const auto is_index = [&](std::string_view what) {
    const Type type = one_result();
    if (type != scalar_type(DType::i32) && type != scalar_type(DType::i64)) {
      d_.fail(fmt::format("{} of type {}", what, to_string(k_, type)));
    }
  };
  switch (o.op) {
    case Op::constant:
      are(o.operands, {}, "operands");
      d_.require(one_result().kind == TypeKind::scalar, "a constant that is no scalar");
      return;
    case Op::index:
      is_index("an index");
      return are(o.operands, {}, "operands");
    case Op::divide_index:
      is_index("a quotient");
      return are(o.operands, {one_result(), one_result()}, "operands");
    case Op::compute:
      return compute_types(o, one_result());
    case Op::function: {
      const Types operands = of(o.operands);
      const std::string wrong = check_function(std::get<Function>(o.detail).function, operands);
      d_.require(wrong.empty(), "{}", wrong);
      return are(o.results, {function_type(std::get<Function>(o.detail).function, operands)},
                 "results");
    }
    case Op::indirect:
    case Op::bind:
      return symbolic_types(o);
    case Op::branch:
      return are(o.operands, {scalar_type(DType::boolean)}, "operands");
    case Op::vector:
    case Op::roles:
      are(o.operands, {}, "operands");
      return d_.require(o.op != Op::roles || o.results.empty(), "roles give no values");
    case Op::load:
    case Op::store:
    case Op::prefetch:
    case Op::atomic:
    case Op::barrier_init:
    case Op::barrier_arrive:
    case Op::barrier_wait:
      return access_types(o);
    case Op::broadcast:
      d_.require(o.operands.size() == 1, "a broadcast of {} values", o.operands.size());
      return are(o.results, of(o.operands), "results");
    case Op::transpose: {
      const Types operands = of(o.operands);
      d_.require(!operands.empty() && operands[0].kind == TypeKind::scalar,
                 "a transposition of what are no scalars");
      same(operands, std::vector<Type>(operands.size(), operands[0]), "operands");
      return are(o.results, operands, "results");
    }
    case Op::shuffle: {
      const Types operands = of(o.operands);
      d_.require(
          operands.size() == 1 || (operands.size() == 2 && operands[1] == scalar_type(DType::i32)),
          "shuffle takes a value and an i32");
      d_.require(operands[0].kind == TypeKind::scalar, "a shuffle of what is no scalar");
      return are(o.results, {operands[0]}, "results");
    }
    case Op::copy_async:
    case Op::tma_load:
    case Op::tma_store:
      return copy_types(o);
    case Op::fragment_fill:
    case Op::fragment_load:
    case Op::fragment_store:
    case Op::fragment_map:
    case Op::convert_layout:
    case Op::mma:
      return fragment_types(o);
    case Op::loop:
    case Op::repeat:
    case Op::fold:
    case Op::reduce:
    case Op::scan:
      return;  // with their regions
    case Op::barrier:
    case Op::fence:
    case Op::copy_commit:
    case Op::copy_wait:
    case Op::bulk_commit:
    case Op::bulk_wait:
    case Op::mma_fence:
    case Op::mma_commit:
    case Op::mma_wait:
    case Op::dependency_wait:
    case Op::launch_dependents:
    case Op::report:
      are(o.operands, {}, "operands");
      return are(o.results, {}, "results");
  }
}

}  // namespace inkle::kernel
