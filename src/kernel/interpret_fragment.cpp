// Fragments: each thread has its own elements; multiplications and changes of layout are done when
// all threads of the holder have come.
//
// The first slot of a fragment is its state: the number of the write that made it, for mma_fence;
// or, negative, of the group of wgmma that is making it.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernel/fragment.h"
#include "kernel/interpret_machine.h"
#include "loop/scalar.h"

namespace inkle::kernel {

struct Machine::Matrix {
  std::int32_t rows = 0, columns = 0;
  std::vector<double> values;
  [[nodiscard]] double& at(std::int64_t r, std::int64_t c) {
    return values[static_cast<std::size_t>(r * columns + c)];
  }
};

const FragmentType& Machine::fragment_of(ValueId value) const {
  return kernel_.fragments[kernel_.type_of(value).fragment];
}

namespace {

Ref element_ref(Ref fragment, std::int32_t element) {
  return {fragment.bits + 1 + static_cast<std::uint32_t>(element)};
}

}  // namespace

void Machine::check_ready(Thread& thread, Ref fragment) {
  std::int64_t& state = thread.slots[fragment.offset()];
  if (state >= 0) return;
  const auto group = static_cast<std::uint32_t>(-state);
  if (thread.seen.get(thread.multiplies.channel) < group) {
    add(ReportKind::early_use, thread, kNone, 0, 0,
        "the fragment is used before the wgmma that makes it was waited for");
  }
  state = 0;  // once is enough; registers that hardware wrote need no mma_fence
}

void Machine::fill(Thread& thread, const Instruction& i) {
  const std::int32_t count = elements_of(fragment_of(kernel_[i.operation].results[0]));
  const std::int64_t value = get(thread, operand(i, 0), 0);
  thread.slots[i.result.offset()] = ++thread.stamp;
  for (std::int32_t e = 0; e < count; ++e) set(thread, element_ref(i.result, e), 0, value);
}

// Element (row, column) in the memory, in elements with padding; -1 with a finding if outside.
std::int64_t Machine::fragment_element_place(Thread& thread, const FragmentAccessCode& access,
                                             std::int64_t row, std::int64_t column) {
  const AccessCode& code = program_.accesses[access.access];
  const Layout& layout =
      tables_[static_cast<std::size_t>(thread.block->instance)].layouts[code.memory];
  std::int64_t first = 0;
  for (std::size_t d = 0; d < layout.shape.size(); ++d) {
    const std::int64_t value = code.operands.empty() ? index(thread, code.indices[d], 0)
                                                     : get(thread, code.operands[d], 0);
    first += value * layout.strides[d];
  }
  const std::int64_t at = first + row * index(thread, access.row_stride, 0) +
                          column * index(thread, access.column_stride, 0);
  if (at >= 0 && at < layout.elements) return at;
  add(ReportKind::outside, thread, code.memory, 0, 0,
      fmt::format("element ({}, {}) of the fragment is element {} of {}", row, column, at,
                  layout.elements));
  return -1;
}

void Machine::load_or_store_fragment(Thread& thread, const Instruction& i) {
  const FragmentAccessCode& access = program_.fragments[i.detail];
  const AccessCode& code = program_.accesses[access.access];
  const bool loads = i.code == Code::fragment_load;
  const ValueId value =
      loads ? kernel_[i.operation].results[0] : kernel_[i.operation].operands.back();
  const FragmentType& type = fragment_of(value);
  const Ref fragment = loads ? i.result : operand(i, i.operand_count - 1);
  if (!loads) check_ready(thread, fragment);
  const auto member = static_cast<std::int32_t>(thread.number) % threads_of(type.holder);
  const std::int64_t rows =
      access.row_limit == kNone ? type.rows : index(thread, access.row_limit, 0);
  const std::int64_t columns =
      access.column_limit == kNone ? type.columns : index(thread, access.column_limit, 0);
  for (std::int32_t e = 0; e < elements_of(type); ++e) {
    const Element at = fragment_element(type, member, e);
    Scalar element;
    const bool is_there = at.row < rows && at.column < columns;
    const std::int64_t place =
        is_there ? fragment_element_place(thread, access, at.row, at.column) : -1;
    if (place >= 0 && loads) {
      element = is_private(code.memory)
                    ? private_read(thread, code.memory, place)
                    : read(thread, code, this->place(*thread.block, code.memory, place));
    } else if (place >= 0) {
      element = to_scalar(get(thread, element_ref(fragment, e), 0), type.dtype);
      if (is_private(code.memory)) {
        private_write(thread, code.memory, place, element);
      } else {
        write(thread, code, this->place(*thread.block, code.memory, place), element);
      }
    }
    if (loads) set(thread, element_ref(fragment, e), 0, to_bits(element, type.dtype));
  }
  if (loads) thread.slots[fragment.offset()] = ++thread.stamp;
}

// --- Maps: the region runs once for each element of the thread

bool Machine::map_head(Thread& thread, const Instruction& i) {
  const std::vector<ValueId>& fragments = kernel_[i.operation].operands;
  const auto count = static_cast<std::uint32_t>(fragments.size());
  const FragmentType& type = fragment_of(fragments[0]);
  const auto e = static_cast<std::int32_t>(get(thread, operand(i, 0), 0));
  if (e == elements_of(type)) {
    thread.pc = i.target;
    return true;
  }
  const Element at =
      fragment_element(type, static_cast<std::int32_t>(thread.number) % threads_of(type.holder), e);
  set(thread, operand(i, 1), 0, at.row);
  set(thread, operand(i, 2), 0, at.column);
  for (std::uint32_t f = 0; f < count; ++f) {
    const Ref fragment = operand(i, 3 + count + f);
    if (e == 0) check_ready(thread, fragment);
    set(thread, operand(i, 3 + f), 0, get(thread, element_ref(fragment, e), 0));
  }
  ++thread.pc;
  return true;
}

void Machine::map_next(Thread& thread, const Instruction& i) {
  const std::uint32_t count = (i.operand_count - 1) / 2;
  const std::int64_t e = get(thread, operand(i, 0), 0);
  for (std::uint32_t f = 0; f < count; ++f) {
    const Ref fragment = operand(i, 1 + count + f);
    if (e == 0) thread.slots[fragment.offset()] = ++thread.stamp;
    set(thread, element_ref(fragment, static_cast<std::int32_t>(e)), 0,
        get(thread, operand(i, 1 + f), 0));
  }
  set(thread, operand(i, 0), 0, e + 1);
  thread.pc = i.target;
}

// --- Together

bool Machine::fragment_meeting(Thread& thread, const Instruction& i) {
  const FragmentType& type = fragment_of(kernel_[i.operation].results[0]);
  const std::int64_t size = threads_of(type.holder);
  const std::int64_t first = thread.number / size * size;
  if (first + size > threads_per_block_) {
    add(ReportKind::divergence, thread, kNone, 0, 0, "the holder of the fragment is not whole");
    ++thread.pc;
    return true;
  }
  const std::uint64_t group =
      (static_cast<std::uint64_t>(thread.block->page) << 12) + static_cast<std::uint64_t>(first);
  Rendezvous* meeting = meet(thread, group, thread.number - first, size);
  if (meeting == nullptr) return false;
  if (i.code == Code::mma) {
    multiply(meeting->participants, i);
  } else {
    convert_layout(meeting->participants, i);
  }
  release(*meeting);
  return true;
}

Machine::Matrix Machine::gather(std::span<Thread* const> threads, Ref ref,
                                const FragmentType& type) {
  Matrix matrix{type.rows, type.columns, {}};
  matrix.values.resize(static_cast<std::size_t>(type.rows) *
                       static_cast<std::size_t>(type.columns));
  for (std::size_t t = 0; t < threads.size(); ++t) {
    for (std::int32_t e = 0; e < elements_of(type); ++e) {
      const Element at = fragment_element(type, static_cast<std::int32_t>(t), e);
      const Scalar value = to_scalar(get(*threads[t], element_ref(ref, e), 0), type.dtype);
      matrix.at(at.row, at.column) =
          abi::is_float(type.dtype) ? value.real : static_cast<double>(value.integer);
    }
  }
  return matrix;
}

void Machine::scatter(std::span<Thread* const> threads, Ref ref, const FragmentType& type,
                      const Matrix& matrix) {
  Matrix copy = matrix;
  for (std::size_t t = 0; t < threads.size(); ++t) {
    for (std::int32_t e = 0; e < elements_of(type); ++e) {
      const Element at = fragment_element(type, static_cast<std::int32_t>(t), e);
      const Scalar value = loop::make_scalar(type.dtype, copy.at(at.row, at.column));
      set(*threads[t], element_ref(ref, e), 0, to_bits(value, type.dtype));
    }
  }
}

void Machine::convert_layout(std::span<Thread* const> threads, const Instruction& i) {
  const Operation& op = kernel_[i.operation];
  for (Thread* thread : threads) check_ready(*thread, operand(i, 0));
  const Matrix matrix = gather(threads, operand(i, 0), fragment_of(op.operands[0]));
  scatter(threads, i.result, fragment_of(op.results[0]), matrix);
  for (Thread* thread : threads) thread->slots[i.result.offset()] = ++thread->stamp;
}

Machine::Matrix Machine::read_tile(Thread& thread, std::uint32_t number, const Actor& actor) {
  const FragmentAccessCode& tile = program_.fragments[number];
  const AccessCode& code = program_.accesses[tile.access];
  const Memory& memory = kernel_.memories[code.memory];
  Matrix matrix{tile.rows, tile.columns, {}};
  matrix.values.resize(static_cast<std::size_t>(tile.rows) *
                       static_cast<std::size_t>(tile.columns));
  const Record record{actor.channel, actor.clock, at(thread).operation, Scope::thread, false, true};
  const std::int64_t rows = tile.row_limit == kNone ? tile.rows : index(thread, tile.row_limit, 0);
  const std::int64_t columns =
      tile.column_limit == kNone ? tile.columns : index(thread, tile.column_limit, 0);
  for (std::int32_t r = 0; r < std::min<std::int64_t>(tile.rows, rows); ++r) {
    for (std::int32_t c = 0; c < std::min<std::int64_t>(tile.columns, columns); ++c) {
      const std::int64_t element = fragment_element_place(thread, tile, r, c);
      if (element < 0) continue;
      const Place from = place(*thread.block, code.memory, element);
      record_read(thread, code.memory, from, element_bytes(memory), actor, record, false);
      matrix.at(r, c) = loop::read_element(memory.dtype, from.storage->data() + from.byte).real;
    }
  }
  return matrix;
}

namespace {

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
  for (std::size_t k = 0; k < a.size(); k += 16) {
    double sum = total;
    for (std::size_t j = k; j < std::min(k + 16, a.size()); ++j) sum += a[j] * b[j];
    total = loop::make_scalar(dtype, sum).real;
  }
  return total;
}

}  // namespace

void Machine::multiply(std::span<Thread* const> threads, const Instruction& i) {
  const auto& info = kernel_.detail<MatrixMultiply>(i.operation);
  const Operation& op = kernel_[i.operation];
  const FragmentType& type = fragment_of(op.results[0]);
  const bool is_asynchronous = info.unit == MatrixUnit::wgmma;
  Thread& leader = *threads[0];
  if (is_asynchronous && leader.multiplies.channel.page == kNone) {
    const Channel channel = new_channel(*leader.block, AgentKind::mma, leader.number);
    for (Thread* thread : threads) thread->multiplies.channel = channel;
  }
  const std::uint32_t number = leader.multiplies.committed + 1;
  for (Thread* thread : threads) {
    for (std::uint32_t o = 0; o < i.operand_count; ++o) {
      const std::int64_t state = thread->slots[operand(i, o).offset()];
      const bool accumulates = o == 0 && is_asynchronous && state < 0;
      if (accumulates) continue;  // wgmma into the same registers are in order
      check_ready(*thread, operand(i, o));
      if (is_asynchronous && state > thread->fenced_stamp) {
        add(ReportKind::mma_fence, *thread, kNone, 0, 0,
            "registers given to wgmma were written after the last mma_fence");
      }
    }
  }
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
  Matrix c = gather(threads, operand(i, 0), type);
  Matrix a = tiles == 2 ? tile(0) : gather(threads, operand(i, 1), fragment_of(op.operands[1]));
  Matrix b = tiles > 0 ? tile(static_cast<std::uint32_t>(tiles) - 1)
                       : gather(threads, operand(i, 2), fragment_of(op.operands[2]));
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
