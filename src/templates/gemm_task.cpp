#include "templates/gemm_task.h"

#include <algorithm>

#include "base/error.h"

namespace inkle::templates {

using kernel::Form;
using kernel::MemoryId;
using kernel::ValueId;
using kernel::Values;
using loop::Opcode;

namespace {

constexpr std::int32_t kCacheLine = 64;

}  // namespace

GemmTask::GemmTask(const GemmProblem& problem, const GemmConfig& config, GemmRows rows,
                   kernel::Kernel& made, sym::Context& context)
    : problem_(problem),
      config_(config),
      rows_(rows),
      b_(made, context),
      zero_(context.constant(0)),
      parameters_(begin_kernel(problem, b_)) {
  batch_ = b_.axis(kernel::AxisKind::task, problem.batch);
  const Expr i = b_.axis(kernel::AxisKind::task, sym::ceildiv(problem.rows, config.row_block));
  const Expr j =
      b_.axis(kernel::AxisKind::task, sym::ceildiv(problem.columns, config.column_block));
  first_row_ = i * config.row_block;
  first_column_ = j * config.column_block;
  row_count_ = sym::min(problem.rows - first_row_, number(config.row_block));
  column_count_ = sym::min(problem.columns - first_column_, number(config.column_block));
}

MemoryId GemmTask::declare(std::string name, DType dtype, std::int64_t rows, std::int64_t columns) {
  kernel::Memory memory;
  memory.name = std::move(name);
  memory.dtype = dtype;
  memory.space = kernel::Space::stack;
  memory.shape = {number(rows), number(columns)};
  memory.alignment = kCacheLine;
  return b_.memory(std::move(memory));
}

void GemmTask::in_lanes(const std::function<void()>& body) {
  b_.vector(config_.lanes, config_.lanes, [&](Expr lane) {
    lane_ = lane;
    body();
    return Values();
  });
}

void GemmTask::loop(Expr begin, Expr end, std::int64_t step,
                    const std::function<void(Expr)>& body) {
  write_loop(b_, begin, end, step, Runs::perhaps, {}, [&](Expr i, const Values&) {
    body(i);
    return Values();
  });
}

ValueId GemmTask::lanes_before(Expr count) {
  const ValueId end = b_.cast(b_.index(count), DType::i32);
  return b_.compute(Opcode::less, DType::boolean, {b_.index(lane_, DType::i32), end});
}

void GemmTask::in_vectors(Expr begin, Expr end, Expr extent,
                          const std::function<void(Expr)>& body) {
  const std::int64_t lanes = config_.lanes;
  Expr whole = end;
  if (!sym::divides(lanes, extent)) {
    whole = sym::floordiv(end, lanes) * lanes;
    loop(whole, end, lanes, [&](Expr c) {
      b_.branch(lanes_before(end - c), [&] {
        body(c);
        return Values();
      });
    });
  }
  loop(begin, whole, lanes, body);
}

std::int64_t left_depth(const GemmProblem& problem, const GemmConfig& config) {
  const std::int64_t terms = problem.terms.constant().value_or(config.term_block);
  const std::int64_t whole = (terms + config.lanes - 1) / config.lanes * config.lanes;
  return std::min(whole, config.term_block);
}

bool GemmTask::has_pairs() const { return problem_.parameters[1].dtype == DType::i32; }

void GemmTask::declare_left() {
  const DType dtype =
      computes_left() ? (has_pairs() ? DType::i32 : DType::f32) : problem_.parameters[0].dtype;
  left_ = declare("left", dtype, rows_.padded, left_depth(problem_, config_));
}

ValueId GemmTask::before(Expr end, Expr first, bool masked, DType dtype,
                         const std::function<ValueId()>& value) {
  if (!masked) return value();
  const ValueId zero = abi::is_float(dtype) ? b_.real(dtype, 0) : b_.integer(dtype, 0);
  return b_.branch(
      lanes_before(end - first), [&] { return Values{value()}; }, [&] { return Values{zero}; })[0];
}

ValueId GemmTask::left_vector(Expr row, Expr k, Expr end, bool masked) {
  if (!computes_left()) {
    const Expr offset = at(problem_.a, first_row_ + row, zero_, k + lane_);
    const Form form = sym::stride(offset, lane_)->is_constant(1) ? Form::wide : Form::each;
    return before(end, k, masked, problem_.parameters[0].dtype,
                  [&] { return b_.load(parameters_[0], {offset}, form); });
  }
  const auto element = [&](Expr first, Expr limit) {
    return before(limit, first, masked, DType::f32, [&] {
      const Values made = body().run(problem_.left, kernel::kNone,
                                     {batch_, first_row_ + row, zero_, first + lane_});
      return b_.cast(made[0], DType::f32);
    });
  };
  if (!has_pairs()) return element(k, end);
  const ValueId low = element(k * 2, problem_.left_terms);
  const ValueId high = element(k * 2 + config_.lanes, problem_.left_terms);
  return b_.function(kernel::NamedFunction::pack_bf16, {low, high});
}

void GemmTask::pack_left(Expr begin, Expr end) {
  const std::int64_t lanes = config_.lanes;
  const bool halves = computes_left() && has_pairs();
  Expr whole = end;
  if (halves && !sym::divides(2 * lanes, problem_.left_terms)) {
    whole = sym::min(end, sym::floordiv(problem_.left_terms, 2 * lanes) * lanes);
  } else if (!halves && !sym::divides(lanes, problem_.terms)) {
    whole = begin + sym::floordiv(end - begin, lanes) * lanes;
  }
  loop(zero_, sym::ceildiv(row_count_, rows_.group) * rows_.group, 1, [&](Expr r) {
    const Expr row = sym::min(r, row_count_ - 1);
    const auto pack = [&](Expr from, Expr to, bool masked) {
      loop(from, to, lanes, [&](Expr k) {
        b_.store(left_, {r, k - begin + lane_}, left_vector(row, k, end, masked), Form::wide);
      });
    };
    if (whole != end) pack(whole, end, true);
    pack(begin, whole, false);
  });
}

void GemmTask::store(Expr row, Expr column, Expr sum_row, Expr sum_column) {
  const ValueId sum = b_.load(sums_, {sum_row, sum_column + lane_}, Form::wide);
  body().store(sum, {batch_, first_row_ + row, first_column_ + column + lane_, zero_});
}

}  // namespace inkle::templates
