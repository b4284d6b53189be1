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

void GemmTask::declare_left() {
  left_ = declare("left", b_.kernel().memories[parameters_[0]].dtype, rows_.padded,
                  left_depth(problem_, config_));
}

void GemmTask::pack_left(Expr begin, Expr end) {
  const std::int64_t lanes = config_.lanes;
  const DType dtype = b_.kernel().memories[left_].dtype;
  const auto read = [&](Expr row, Expr k) {
    const Expr offset = at(problem_.a, first_row_ + row, zero_, k + lane_);
    return b_.load(parameters_[0], {offset},
                   sym::stride(offset, lane_)->is_constant(1) ? Form::wide : Form::each);
  };
  loop(zero_, sym::ceildiv(row_count_, rows_.group) * rows_.group, 1, [&](Expr r) {
    const Expr row = sym::min(r, row_count_ - 1);
    Expr whole = end;
    if (!sym::divides(lanes, problem_.terms)) {
      whole = begin + sym::floordiv(end - begin, lanes) * lanes;
      loop(whole, end, lanes, [&](Expr k) {
        const ValueId v = b_.branch(
            lanes_before(end - k), [&] { return Values{read(row, k)}; },
            [&] { return Values{b_.cast(b_.integer(DType::i32, 0), dtype)}; })[0];
        b_.store(left_, {r, k - begin + lane_}, v, Form::wide);
      });
    }
    loop(begin, whole, lanes, [&](Expr k) {
      b_.store(left_, {r, k - begin + lane_}, read(row, k), Form::wide);
    });
  });
}

void GemmTask::store(Expr row, Expr column, Expr sum_row, Expr sum_column) {
  const ValueId sum = b_.load(sums_, {sum_row, sum_column + lane_}, Form::wide);
  body().store(sum, {batch_, first_row_ + row, first_column_ + column + lane_, zero_});
}

}  // namespace inkle::templates
