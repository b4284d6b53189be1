#include "kernel/interpret_fragment.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernel/function.h"
#include "loop/scalar.h"

namespace inkle::kernel {

struct Fragments::Matrix {
  std::int32_t rows = 0, columns = 0;
  std::vector<double> values;
  [[nodiscard]] double& at(std::int64_t r, std::int64_t c) {
    return values[static_cast<std::size_t>(r * columns + c)];
  }
};

const FragmentType& Fragments::type_of(ValueId value) const {
  return code_.kernel().fragments[code_.kernel().type_of(value).fragment];
}

namespace {

Ref element_ref(Ref fragment, std::int32_t element) {
  return {fragment.bits + 1 + static_cast<std::uint32_t>(element)};
}

}  // namespace

void Fragments::check_ready(Thread& thread, Ref fragment) {
  std::int64_t& state = thread.slots[fragment.offset()];
  if (state >= 0) return;
  const auto group = static_cast<std::uint32_t>(-state);
  if (thread.seen.get(thread.multiplies.channel) < group) {
    findings_.add(ReportKind::early_use, thread, kNone, 0, 0,
                  "the fragment is used before the wgmma that makes it was waited for");
  }
  state = 0;  // once is enough; registers that hardware wrote need no mma_fence
}

void Fragments::fill(Thread& thread, const Instruction& i) const {
  const std::int32_t count = elements_of(type_of(code_.kernel()[i.operation].results[0]));
  const std::int64_t value = code_.get(thread, code_.operand(i, 0), 0);
  thread.slots[i.result.offset()] = ++thread.stamp;
  for (std::int32_t e = 0; e < count; ++e) set_slot(thread, element_ref(i.result, e), 0, value);
}

void Fragments::load_or_store(Thread& thread, const Instruction& i) {
  const FragmentAccessCode& access = code_.program().fragments[i.detail];
  const AccessCode& code = code_.program().accesses[access.access];
  const bool loads = i.code == Code::fragment_load;
  const ValueId value =
      loads ? code_.kernel()[i.operation].results[0] : code_.kernel()[i.operation].operands.back();
  const FragmentType& type = type_of(value);
  const Ref fragment = loads ? i.result : code_.operand(i, i.operand_count - 1);
  if (!loads) check_ready(thread, fragment);
  const auto member = static_cast<std::int32_t>(thread.number) % threads_of(type.holder);
  const std::int64_t rows =
      access.row_limit == kNone ? type.rows : code_.index(thread, access.row_limit, 0);
  const std::int64_t columns =
      access.column_limit == kNone ? type.columns : code_.index(thread, access.column_limit, 0);
  for (std::int32_t e = 0; e < elements_of(type); ++e) {
    const Element at = fragment_element(type, member, e);
    Scalar element;
    const bool is_there = at.row < rows && at.column < columns;
    const std::int64_t position =
        is_there ? addresses_.element(thread, access, at.row, at.column) : -1;
    if (position >= 0 && loads) {
      element = accesses_.read(thread, code, position);
    } else if (position >= 0) {
      element = to_scalar(code_.get(thread, element_ref(fragment, e), 0), type.dtype);
      accesses_.write(thread, code, position, element);
    }
    if (loads) set_slot(thread, element_ref(fragment, e), 0, to_bits(element, type.dtype));
  }
  if (loads) thread.slots[fragment.offset()] = ++thread.stamp;
}

// --- Maps: the region runs once for each element of the thread

void Fragments::map_head(Thread& thread, const Instruction& i) {
  const Values& fragments = code_.kernel()[i.operation].operands;
  const auto count = static_cast<std::uint32_t>(fragments.size());
  const FragmentType& type = type_of(fragments[0]);
  const auto e = static_cast<std::int32_t>(code_.get(thread, code_.operand(i, 0), 0));
  if (e == elements_of(type)) {
    thread.pc = i.target;
    return;
  }
  const Element at =
      fragment_element(type, static_cast<std::int32_t>(thread.number) % threads_of(type.holder), e);
  set_slot(thread, code_.operand(i, 1), 0, at.row);
  set_slot(thread, code_.operand(i, 2), 0, at.column);
  for (std::uint32_t f = 0; f < count; ++f) {
    const Ref fragment = code_.operand(i, 3 + count + f);
    if (e == 0) check_ready(thread, fragment);
    set_slot(thread, code_.operand(i, 3 + f), 0, code_.get(thread, element_ref(fragment, e), 0));
  }
  ++thread.pc;
}

void Fragments::map_next(Thread& thread, const Instruction& i) const {
  const std::uint32_t count = (i.operand_count - 1) / 2;
  const std::int64_t e = code_.get(thread, code_.operand(i, 0), 0);
  for (std::uint32_t f = 0; f < count; ++f) {
    const Ref fragment = code_.operand(i, 1 + count + f);
    if (e == 0) thread.slots[fragment.offset()] = ++thread.stamp;
    set_slot(thread, element_ref(fragment, static_cast<std::int32_t>(e)), 0,
             code_.get(thread, code_.operand(i, 1 + f), 0));
  }
  set_slot(thread, code_.operand(i, 0), 0, e + 1);
  thread.pc = i.target;
}

// --- Together

bool Fragments::together(Thread& thread, const Instruction& i) {
  const FragmentType& type = type_of(code_.kernel()[i.operation].results[0]);
  const std::int64_t size = threads_of(type.holder);
  const std::int64_t first = thread.number / size * size;
  if (first + size > static_cast<std::int64_t>(thread.block->threads.size())) {
    findings_.add(ReportKind::divergence, thread, kNone, 0, 0,
                  "the holder of the fragment is not whole");
    ++thread.pc;
    return true;
  }
  Rendezvous* meeting = meetings_.meet_neighbours(thread, size, size);
  if (meeting == nullptr) return false;
  if (i.code == Code::mma) {
    multiply(meeting->participants, i);
  } else {
    convert_layout(meeting->participants, i);
  }
  meetings_.release(*meeting);
  return true;
}

Fragments::Matrix Fragments::gather(std::span<Thread* const> threads, Ref ref,
                                    const FragmentType& type) const {
  Matrix matrix{type.rows, type.columns, {}};
  matrix.values.resize(static_cast<std::size_t>(type.rows) *
                       static_cast<std::size_t>(type.columns));
  for (std::size_t t = 0; t < threads.size(); ++t) {
    for (std::int32_t e = 0; e < elements_of(type); ++e) {
      const Element at = fragment_element(type, static_cast<std::int32_t>(t), e);
      const Scalar value = to_scalar(code_.get(*threads[t], element_ref(ref, e), 0), type.dtype);
      matrix.at(at.row, at.column) =
          abi::is_float(type.dtype) ? value.real : static_cast<double>(value.integer);
    }
  }
  return matrix;
}

void Fragments::scatter(std::span<Thread* const> threads, Ref ref, const FragmentType& type,
                        const Matrix& matrix) {
  Matrix copy = matrix;
  for (std::size_t t = 0; t < threads.size(); ++t) {
    for (std::int32_t e = 0; e < elements_of(type); ++e) {
      const Element at = fragment_element(type, static_cast<std::int32_t>(t), e);
      const Scalar value = loop::make_scalar(type.dtype, copy.at(at.row, at.column));
      set_slot(*threads[t], element_ref(ref, e), 0, to_bits(value, type.dtype));
    }
  }
}

void Fragments::convert_layout(std::span<Thread* const> threads, const Instruction& i) {
  const Operation& op = code_.kernel()[i.operation];
  for (Thread* thread : threads) check_ready(*thread, code_.operand(i, 0));
  const Matrix matrix = gather(threads, code_.operand(i, 0), type_of(op.operands[0]));
  scatter(threads, i.result, type_of(op.results[0]), matrix);
  for (Thread* thread : threads) thread->slots[i.result.offset()] = ++thread->stamp;
}

Fragments::Matrix Fragments::read_tile(const Thread& thread, std::uint32_t number,
                                       const Actor& actor) {
  const FragmentAccessCode& tile = code_.program().fragments[number];
  const AccessCode& code = code_.program().accesses[tile.access];
  const Memory& memory = code_.kernel().memories[code.memory];
  Matrix matrix{tile.rows, tile.columns, {}};
  matrix.values.resize(static_cast<std::size_t>(tile.rows) *
                       static_cast<std::size_t>(tile.columns));
  const Record record{actor.channel, actor.clock, code_.at(thread).operation,
                      Scope::thread, false,       true};
  const std::int64_t rows =
      tile.row_limit == kNone ? tile.rows : code_.index(thread, tile.row_limit, 0);
  const std::int64_t columns =
      tile.column_limit == kNone ? tile.columns : code_.index(thread, tile.column_limit, 0);
  for (std::int32_t r = 0; r < std::min<std::int64_t>(tile.rows, rows); ++r) {
    for (std::int32_t c = 0; c < std::min<std::int64_t>(tile.columns, columns); ++c) {
      const std::int64_t element = addresses_.element(thread, tile, r, c);
      if (element < 0) continue;
      const MemoryLocation from = addresses_.location_of(*thread.block, code.memory, element);
      order_.record_read(thread, code.memory, from, element_bytes(memory), actor, record, false);
      matrix.at(r, c) = loop::read_element(memory.dtype, from.storage->data() + from.byte).real;
    }
  }
  return matrix;
}

namespace {

std::vector<std::uint32_t> pairs_of(std::span<const double> integers) {
  std::vector<std::uint32_t> pairs;
  for (const double v : integers) {
    pairs.push_back(static_cast<std::uint32_t>(static_cast<std::int64_t>(v)));
  }
  return pairs;
}

// One rounding for each product on a core, one for each sum of 16 products elsewhere.
double multiply_add(MatrixUnit unit, DType dtype, double total, std::span<const double> a,
                    std::span<const double> b) {
  if (unit == MatrixUnit::fma || unit == MatrixUnit::bf16) {
    for (std::size_t k = 0; k < a.size(); ++k) {
      total = dtype == DType::f32
                  ? static_cast<double>(std::fma(static_cast<float>(a[k]), static_cast<float>(b[k]),
                                                 static_cast<float>(total)))
                  : std::fma(a[k], b[k], total);
    }
    return total;
  }
  if (unit == MatrixUnit::amx) {
    return add_products_of_tiles(static_cast<float>(total), pairs_of(a), pairs_of(b));
  }
  for (std::size_t k = 0; k < a.size(); k += 16) {
    double sum = total;
    for (std::size_t j = k; j < std::min(k + 16, a.size()); ++j) sum += a[j] * b[j];
    total = loop::make_scalar(dtype, sum).real;
  }
  return total;
}

}  // namespace

void Fragments::check_operands(std::span<Thread* const> threads, const Instruction& i,
                               bool is_asynchronous) {
  for (Thread* thread : threads) {
    for (std::uint32_t o = 0; o < i.operand_count; ++o) {
      const std::int64_t state = thread->slots[code_.operand(i, o).offset()];
      const bool accumulates = o == 0 && is_asynchronous && state < 0;
      if (accumulates) continue;  // wgmma into the same registers are in order
      check_ready(*thread, code_.operand(i, o));
      if (is_asynchronous && state > thread->fenced_stamp) {
        findings_.add(ReportKind::mma_fence, *thread, kNone, 0, 0,
                      "registers given to wgmma were written after the last mma_fence");
      }
    }
  }
}

void Fragments::multiply(std::span<Thread* const> threads, const Instruction& i) {
  const auto& info = code_.kernel().detail<MatrixMultiply>(i.operation);
  const Operation& op = code_.kernel()[i.operation];
  const FragmentType& type = type_of(op.results[0]);
  const bool is_asynchronous = info.unit == MatrixUnit::wgmma;
  Thread& leader = *threads[0];
  if (is_asynchronous && leader.multiplies.channel.page == kNone) {
    const Channel channel = agents_.add(*leader.block, AgentKind::mma, leader.number);
    for (Thread* thread : threads) thread->multiplies.channel = channel;
  }
  const std::uint32_t number = leader.multiplies.committed + 1;
  check_operands(threads, i, is_asynchronous);
  // A part of it may start as soon as its own warp comes: what it reads must be ordered before each
  // thread's issue. After a barrier all have seen the same.
  std::vector<Actor> actors;
  for (const Thread* thread : threads) {
    const bool is_known = std::any_of(actors.begin(), actors.end(), [&](const Actor& actor) {
      return actor.seen->is_same(thread->seen) && actor.fenced->is_same(thread->fenced);
    });
    if (is_known) continue;
    actors.push_back(
        {leader.multiplies.channel, number, &thread->seen, &thread->fenced, false, true});
  }
  const auto tile = [&](std::uint32_t which) {
    Matrix matrix = read_tile(leader, i.detail + which, actors[0]);
    for (std::size_t n = 1; n < actors.size(); ++n) {
      static_cast<void>(read_tile(leader, i.detail + which, actors[n]));
    }
    return matrix;
  };
  const std::size_t tiles = info.shared.size();
  Matrix c = gather(threads, code_.operand(i, 0), type);
  Matrix a = tiles == 2 ? tile(0) : gather(threads, code_.operand(i, 1), type_of(op.operands[1]));
  Matrix b = tiles > 0 ? tile(static_cast<std::uint32_t>(tiles) - 1)
                       : gather(threads, code_.operand(i, 2), type_of(op.operands[2]));
  INKLE_CHECK(a.rows == c.rows && b.columns == c.columns && a.columns == b.rows,
              "mma of {} x {} and {} x {} to {} x {}", a.rows, a.columns, b.rows, b.columns, c.rows,
              c.columns);
  std::vector<double> row(static_cast<std::size_t>(a.columns)), column(row.size());
  for (std::int32_t n = 0; n < c.columns; ++n) {
    for (std::int32_t k = 0; k < a.columns; ++k) column[static_cast<std::size_t>(k)] = b.at(k, n);
    for (std::int32_t m = 0; m < c.rows; ++m) {
      for (std::int32_t k = 0; k < a.columns; ++k) row[static_cast<std::size_t>(k)] = a.at(m, k);
      c.at(m, n) = multiply_add(info.unit, type.dtype, c.at(m, n), row, column);
    }
  }
  scatter(threads, i.result, type, c);
  for (Thread* thread : threads) {
    thread->slots[i.result.offset()] = is_asynchronous ? -static_cast<std::int64_t>(number) : 0;
    ++thread->changes;
  }
}

}  // namespace inkle::kernel
