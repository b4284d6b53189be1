#include "kernel/verify_memory.h"

#include <algorithm>
#include <bit>
#include <span>

#include "kernel/derive.h"
#include "kernel/names.h"
#include "sym/symbols.h"

namespace inkle::kernel {
namespace {

bool is_power_of_two(std::int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

bool is_identifier(std::string_view name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && is_letter(name[0]) && std::ranges::all_of(name, [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '.';
  });
}

bool is_device_memory(Space space) { return space == Space::global || space == Space::workspace; }

class MemoryDeclarations {
 public:
  MemoryDeclarations(const Diagnostics& diagnostics, const SymbolScope& scope, const Limits& limits)
      : d_(diagnostics), k_(d_.kernel()), scope_(scope), limits_(limits) {}
  void run() const;

 private:
  void memory(const Memory& m, bool is_parameter) const;
  void map(const Memory& m) const;
  void part(MemoryId id) const;

  const Diagnostics& d_;
  const Kernel& k_;
  const SymbolScope& scope_;
  const Limits& limits_;
};

}  // namespace

// --- Declarations
// ----------------------------------------------------------------------------------

void MemoryDeclarations::run() const {
  d_.require(k_.body < k_.regions.size(), "no body");
  d_.require(k_.parameter_count <= k_.memories.size(), "more parameters than memories");
  std::int64_t shared = 0;
  for (std::size_t i = 0; i < k_.memories.size(); ++i) {
    const Memory& m = k_.memories[i];
    d_.require(is_identifier(m.name), "a memory of the name '{}'", m.name);
    // They are few.
    const auto before = std::span(k_.memories).first(i);
    d_.require(std::ranges::find(before, m.name, &Memory::name) == before.end(), "two memories {}",
               m.name);
    memory(m, i < k_.parameter_count);
    if (m.space != Space::shared && m.space != Space::barrier) continue;
    if (m.of != kNone) {
      part(static_cast<MemoryId>(i));
      continue;
    }
    shared = (shared + m.alignment - 1) / m.alignment * m.alignment;
    shared += *element_count(m).constant() * element_bytes(m);
  }
  d_.require(limits_.shared_bytes == 0 || shared <= limits_.shared_bytes,
             "{} bytes of shared memory, of which there are {}", shared, limits_.shared_bytes);
}

void MemoryDeclarations::memory(const Memory& m, bool is_parameter) const {
  const bool may_be_parameter = is_device_memory(m.space) || m.space == Space::map;
  if (is_parameter ? !may_be_parameter : m.space == Space::global || m.space == Space::map) {
    d_.fail(fmt::format("memory {}: {} {}", m.name, name_of(m.space),
                        is_parameter ? "as a parameter" : "that is no parameter"));
  }
  d_.require(!m.shape.empty() || m.space == Space::global, "memory {} has no shape", m.name);
  // A task's stack is made for the sizes of a call.
  const bool may_be_symbolic = may_be_parameter || m.space == Space::stack;
  for (const Expr extent : m.shape) {
    d_.require(!extent.is_null(), "memory {}: a missing extent", m.name);
    const auto constant = extent.constant();
    if (!constant) scope_.sizes_alone(extent, fmt::format("the shape of memory {}", m.name));
    d_.require(may_be_symbolic || (constant && *constant >= 1 && *constant <= (1 << 30)),
               "memory {}: an extent that is no constant from 1 on", m.name);
    d_.require(sym::bounds(extent).high >= 0, "memory {}: a negative extent", m.name);
  }
  d_.require(!is_device_memory(m.space) || rank_of(m) == 1, "memory {}: {} memory of {} dimensions",
             m.name, name_of(m.space), m.shape.size());
  d_.require(is_power_of_two(m.alignment) && m.alignment <= 4096, "memory {}: alignment {}", m.name,
             m.alignment);
  d_.require(m.padding >= 0 && m.padding <= 4096 && (m.padding == 0 || m.space == Space::shared),
             "memory {}: padding {}", m.name, m.padding);
  const bool is_map = m.space == Space::map;
  const bool may_be_part = m.space == Space::shared;
  d_.require((is_map == (m.of != kNone) || may_be_part) && is_map != m.box.empty(),
             "memory {}: a map is of an array and has a box", m.name);
  if (is_map) map(m);
  if (m.swizzle == 0) return;
  d_.require(m.swizzle == 32 || m.swizzle == 64 || m.swizzle == 128, "memory {}: swizzle {}",
             m.name, m.swizzle);
  d_.require(is_map || m.space == Space::shared, "memory {}: a swizzle in {}", m.name,
             name_of(m.space));
  if (is_map) return;
  d_.require(m.padding == 0, "memory {}: swizzle and padding", m.name);
  d_.require(*m.shape.back().constant() * element_bytes(m) % m.swizzle == 0,
             "memory {}: rows that are not of whole swizzles", m.name);
  d_.require(m.alignment % (8 * m.swizzle) == 0, "memory {}: aligned to {} bytes, not {}", m.name,
             m.alignment, 8 * m.swizzle);
}

// Shared memory in the bytes of another.
void MemoryDeclarations::part(MemoryId id) const {
  const Memory& m = k_.memories[id];
  d_.require(m.of < id && k_.memories[m.of].space == Space::shared && k_.memories[m.of].of == kNone,
             "memory {} is a part of what is no shared memory before it", m.name);
  const Memory& of = k_.memories[m.of];
  const std::int64_t bytes = *element_count(m).constant() * element_bytes(m);
  d_.require(m.offset >= 0 && m.offset + bytes <= *element_count(of).constant() * element_bytes(of),
             "memory {}: bytes {} to {} of {}", m.name, m.offset, m.offset + bytes, of.name);
  d_.require(m.swizzle == 0 && of.swizzle == 0, "memory {}: a part with a swizzle", m.name);
  d_.require(m.alignment <= of.alignment && m.offset % m.alignment == 0,
             "memory {}: aligned to {} bytes at byte {} of {}", m.name, m.alignment, m.offset,
             of.name);
}

void MemoryDeclarations::map(const Memory& m) const {
  const Memory& of = d_.memory(m.of);
  d_.require(is_device_memory(of.space) && of.dtype == m.dtype,
             "memory {}: a map of {} over {} of {}", m.name, abi::name_of(m.dtype), of.name,
             abi::name_of(of.dtype));
  d_.require(m.box.size() == m.shape.size() && m.box.size() <= 5,
             "memory {}: a box of {} dimensions over {}", m.name, m.box.size(), m.shape.size());
  for (const std::int32_t extent : m.box) {
    d_.require(extent >= 1 && extent <= 256, "memory {}: a box with an extent of {}", m.name,
               extent);
  }
  const std::int64_t row = m.box.back() * element_bytes(m);
  d_.require(row % 16 == 0, "memory {}: rows of a box of {} bytes, not of a multiple of 16", m.name,
             row);
  d_.require(m.swizzle == 0 || row <= m.swizzle,
             "memory {}: rows of a box of {} bytes under swizzle {}", m.name, row, m.swizzle);
}

void check_memories(const Diagnostics& diagnostics, const SymbolScope& scope,
                    const Limits& limits) {
  MemoryDeclarations(diagnostics, scope, limits).run();
}

// --- Accesses
// --------------------------------------------------------------------------------------

void AccessChecker::check(const Operation& o, const WalkPlace& place) const {
  switch (o.op) {
    case Op::load:
      return access(o, std::get<Access>(o.detail), place, true, false);
    case Op::store:
      return access(o, std::get<Access>(o.detail), place, false, true);
    case Op::atomic:
      return access(o, std::get<Atomic>(o.detail).access, place, true, true);
    case Op::prefetch:
      d_.require(is_device_memory(d_.memory(std::get<Access>(o.detail).memory).space),
                 "a prefetch of {}", d_.memory(std::get<Access>(o.detail).memory).name);
      return access(o, std::get<Access>(o.detail), place, false, false);
    case Op::copy_async:
      return copies(o, place);
    case Op::barrier_init:
    case Op::barrier_arrive:
    case Op::barrier_wait: {
      const auto& c = std::get<Count>(o.detail);
      d_.require(d_.memory(c.access.memory).space == Space::barrier, "{} is no barrier",
                 d_.memory(c.access.memory).name);
      d_.require(o.op != Op::barrier_init || (c.count >= 1 && c.count < (1 << 20)),
                 "a barrier of {} arrivals", c.count);
      d_.require(c.count >= 0 && c.count < (1 << 20), "a barrier of {} bytes", c.count);
      d_.require(!c.access.remote || o.op == Op::barrier_arrive, "only arrivals may be remote");
      return access(o, c.access, place, false, false);
    }
    case Op::tma_load:
    case Op::tma_store:
      return bulk(o, place);
    case Op::fragment_load:
      return fragment_access(o, std::get<FragmentAccess>(o.detail), place, true, false);
    case Op::fragment_store:
      return fragment_access(o, std::get<FragmentAccess>(o.detail), place, false, true);
    case Op::mma:
      for (const FragmentAccess& f : std::get<MatrixMultiply>(o.detail).shared) {
        fragment_access(o, f, place, false, false);
      }
      return;
    default:
      return;
  }
}

void AccessChecker::access(const Operation& o, const Access& a, const WalkPlace& place, bool reads,
                           bool writes, std::int64_t elements) const {
  const Memory& m = d_.memory(a.memory);
  for (const Expr e : a.indices) scope_.contains_all(e);
  const bool touches = reads || writes;
  d_.require(!touches || (m.space != Space::barrier && m.space != Space::map),
             "{} is a {}, which is not loaded or stored", m.name, name_of(m.space));
  d_.require(!touches || abi::is_computable(m.dtype), "an access of {} of {}", m.name,
             abi::name_of(m.dtype));
  d_.require(!writes || m.space != Space::global || m.role != Role::in, "a store to the input {}",
             m.name);
  if (a.constant) {
    d_.require(reads && !writes && m.space == Space::global && m.role == Role::in && !m.may_alias,
               "a constant access of {}, which may be written", m.name);
    for (const Memory& other : k_.memories) {
      d_.require(other.space != Space::global || other.role == Role::in || !other.may_alias,
                 "a constant access of {}, which {} may alias", m.name, other.name);
    }
  }
  d_.require(a.hint == Hint::none || is_device_memory(m.space), "a hint for {} memory",
             name_of(m.space));
  if (a.remote) {
    d_.require(m.space == Space::shared || m.space == Space::barrier,
               "{} is not in the shared memory of another block", m.name);
    d_.require(k_.cluster() > 1, "a remote access without a cluster");
  }
  d_.require(!touches || !has_wait_ || place.waited || !is_device_memory(m.space),
             "an access of {} that no dependency_wait precedes", m.name);
  order(o, a, m);
  form(o, a, place);
  if (m.space == Space::registers) {
    for (const Expr e : a.indices) scope_.unrolled_alone(e, m.name);
  }
  bounds(a, place, elements);
}

void AccessChecker::order(const Operation& o, const Access& a, const Memory& m) const {
  const bool is_atomic = o.op == Op::atomic;
  if (a.order == Order::weak) {
    d_.require(!is_atomic, "a weak atomic operation");
    return d_.require(a.scope == Scope::thread, "a weak access with a scope");
  }
  d_.require(o.op == Op::load || o.op == Op::store || is_atomic, "an order of {}", name_of(o.op));
  d_.require(is_atomic || a.order != (o.op == Op::load ? Order::release : Order::acquire),
             "a {} with {}", name_of(o.op), name_of(a.order));
  d_.require(is_atomic || a.order != Order::acquire_release, "a {} with {}", name_of(o.op),
             name_of(a.order));
  d_.require(a.scope != Scope::thread && a.scope != Scope::warp, "an order at the scope of a {}",
             name_of(a.scope));
  d_.require(is_device_memory(m.space) || m.space == Space::shared, "an order in {} memory",
             name_of(m.space));
  d_.require(a.form != Form::wide, "an order of several elements");
  d_.require(!a.constant, "an order of a constant access");
  if (!is_atomic) return;
  const AtomicOp op = std::get<Atomic>(o.detail).op;
  const bool is_word = m.dtype == DType::i32 || m.dtype == DType::i64;
  const bool is_float = m.dtype == DType::f32 || m.dtype == DType::f64;
  const bool holds = op == AtomicOp::add ? is_word || abi::is_float(m.dtype)
                     : op == AtomicOp::exchange || op == AtomicOp::compare_exchange
                         ? is_word || is_float
                         : is_word;
  d_.require(holds, "atomic.{} of {}", kAtomicOps.name(op), abi::name_of(m.dtype));
  const auto& info = std::get<Atomic>(o.detail);
  d_.require(info.needs_old || !structure_.is_used(o.results[0]),
             "the old value is used of an atomic operation that need not return it");
}

void AccessChecker::form(const Operation& o, const Access& a, const WalkPlace& place) const {
  if (a.form == Form::each) return;
  d_.require(o.op == Op::load || o.op == Op::store, "a form of {}", name_of(o.op));
  d_.require(place.vector != nullptr, "a {} access outside of a vector region", name_of(a.form));
  const Memory& m = d_.memory(a.memory);
  const Expr lane = place.vector->lane;
  if (a.form == Form::splat) {
    Variance index = Variance::kernel;
    for (const Expr e : a.indices) index = std::max(index, variance_.of(e));
    for (std::size_t i = 0; i < types_.index_operands(a); ++i) {
      index = std::max(index, variance_.of(o.operands[i]));
    }
    d_.require(index < Variance::lane, "a splat access of {} at an index that varies by lane",
               m.name);
    d_.require(o.op != Op::store || variance_.of(o.operands.back()) < Variance::lane,
               "a splat store of a value that varies by lane");
    return;
  }
  if (a.is_lowered) {
    d_.require(!a.has_lane_offset && variance_.of(o.operands[0]) < Variance::lane,
               "a wide access of {} at an offset that varies by lane", m.name);
    return;
  }
  if (a.indices_are_operands) {
    d_.require(variance_.of(o.operands[types_.index_operands(a) - 1]) == Variance::lane,
               "a wide access of {} at an index that does not vary by lane", m.name);
    return;
  }
  for (std::size_t d = 0; d + 1 < a.indices.size(); ++d) {
    d_.require(variance_.of(a.indices[d]) < Variance::lane,
               "a wide access of {} that varies by lane in dimension {}", m.name, d);
  }
  const auto step = sym::stride(a.indices.back(), lane);
  d_.require(step && step->is_constant(1), "a wide access of {} that does not grow by 1 per lane",
             m.name);
  const auto is_one = [&](Expr s) { return s == lane || variance_.of(s) < Variance::lane; };
  const bool is_start_one = sym::all_symbols(a.indices.back(), is_one);
  if (is_start_one && m.swizzle == 0) return;
  const std::pair<Expr, Expr> first{lane, lane.context().constant(0)};
  const Expr start = sym::substitute(a.indices.back(), {&first, 1});
  d_.require(is_start_one || variance_.of(start) < Variance::lane,
             "a wide access of {} at an index that varies by lane otherwise", m.name);
  if (m.swizzle == 0) return;
  const std::int64_t chunk = 16 / element_bytes(m);
  d_.require(place.vector->width <= chunk && sym::divides(place.vector->width, start),
             "a wide access of {} that leaves a chunk of its swizzle", m.name);
}

// An index that lies outside in every run, or at the first or last point of all loops, lanes and
// threads that surely run.
void AccessChecker::bounds(const Access& a, const WalkPlace& place, std::int64_t elements) const {
  const Memory& m = d_.memory(a.memory);
  if (!place.is_certain || a.indices_are_operands || m.space == Space::map || m.shape.empty()) {
    return;
  }
  for (std::size_t d = 0; d < a.indices.size(); ++d) {
    const std::int64_t more = d + 1 == a.indices.size() ? elements - 1 : 0;
    const sym::Range range = sym::bounds(a.indices[d]);
    const auto extent = m.shape[d].constant();
    if (scope_.is_known() && extent && range.low >= 0 && range.high < *extent - more) continue;
    const Expr last = m.shape[d] - more;
    for (const Expr index : {scope_.at_first(a.indices[d]), scope_.at_last(a.indices[d])}) {
      const bool is_below = sym::bounds(index).high < 0;
      const bool is_beyond = sym::less_equal(last, index).value_or(false);
      if (!is_below && !is_beyond) continue;
      d_.fail(fmt::format("index {} of {} in dimension {} of {}", sym::to_string(index), m.name, d,
                          sym::to_string(m.shape[d])));
    }
  }
}

// --- Copies
// ----------------------------------------------------------------------------------------

void AccessChecker::copies(const Operation& o, const WalkPlace& place) const {
  const auto& c = std::get<Copy>(o.detail);
  const Memory& from = d_.memory(c.from.memory);
  const Memory& to = d_.memory(c.to.memory);
  d_.require(is_device_memory(from.space) && to.space == Space::shared,
             "an asynchronous copy from {} to {} memory", name_of(from.space), name_of(to.space));
  d_.require(from.dtype == to.dtype, "a copy of {} to {}", abi::name_of(from.dtype),
             abi::name_of(to.dtype));
  const std::int64_t bytes = c.elements * element_bytes(from);
  d_.require(c.elements >= 1 && (bytes == 4 || bytes == 8 || bytes == 16),
             "an asynchronous copy of {} bytes, not 4, 8 or 16", bytes);
  d_.require(!c.from.remote && !c.to.remote, "a remote asynchronous copy");
  d_.require(place.vector == nullptr, "an asynchronous copy in a vector region");
  access(o, c.from, place, true, false, c.elements);
  access(o, c.to, place, false, true, c.elements);
}

void AccessChecker::bulk(const Operation& o, const WalkPlace& place) const {
  const auto& b = std::get<Bulk>(o.detail);
  const Memory& map = d_.memory(b.map);
  const Memory& shared = d_.memory(b.shared.memory);
  d_.require(map.space == Space::map, "{} is no map", map.name);
  d_.require(shared.space == Space::shared, "{} is not in shared memory", shared.name);
  d_.require(shared.dtype == map.dtype && shared.swizzle == map.swizzle && shared.padding == 0,
             "a box of {} lies in {} in another type or swizzle", map.name, shared.name);
  d_.require(shared.alignment % 128 == 0, "{} is aligned to {} bytes, not 128", shared.name,
             shared.alignment);
  d_.require(shared.shape.size() >= map.box.size(), "a box of {} dimensions in {} of {}",
             map.box.size(), shared.name, shared.shape.size());
  for (std::size_t d = 0; d < map.box.size(); ++d) {
    const Expr extent = shared.shape[shared.shape.size() - map.box.size() + d];
    d_.require(extent.is_constant(map.box[d]), "the box of {} is not a block of {}", map.name,
               shared.name);
  }
  d_.require(place.vector == nullptr, "a bulk copy in a vector region");
  const bool loads = o.op == Op::tma_load;
  d_.require(
      loads || d_.memory(map.of).space != Space::global || d_.memory(map.of).role != Role::in,
      "a store to the input {}", d_.memory(map.of).name);
  d_.require(!loads || d_.memory(b.barrier.memory).space == Space::barrier, "{} is no barrier",
             loads ? d_.memory(b.barrier.memory).name : map.name);
  d_.require(!has_wait_ || place.waited, "an access of {} that no dependency_wait precedes",
             map.name);
  access(o, b.shared, place, !loads, loads);
  if (loads) access(o, b.barrier, place, false, false);
}

void AccessChecker::fragment_access(const Operation& o, const FragmentAccess& f,
                                    const WalkPlace& place, bool reads, bool writes) const {
  scope_.contains_all(f.row_stride);
  scope_.contains_all(f.column_stride);
  if (!f.row_limit.is_null()) scope_.contains_all(f.row_limit);
  if (!f.column_limit.is_null()) scope_.contains_all(f.column_limit);
  d_.require(!f.access.remote && f.access.order == Order::weak && f.access.form == Form::each,
             "a fragment's access is weak and of this block");
  d_.require(f.panel == 0 || o.op == Op::mma, "a fragment's access in panels");
  const ValueId fragment = o.results.empty() ? o.operands.back() : o.results[0];
  const FragmentType& type = k_.fragments[k_.type_of(fragment).fragment];
  if (type.holder == Holder::tile) {
    d_.require(f.column_stride.is_constant(1) && f.row_limit.is_null() && f.column_limit.is_null(),
               "a tile whose rows are not contiguous or whole");
  }
  access(o, f.access, place, reads, writes);
}

}  // namespace inkle::kernel
