// Matrix products in registers; the header of gemm.h has the picture. Rows of a group behind the
// last one repeat it, columns behind the last one are zeros of the panel: sums need no masks, and
// what is stored is masked in the last vector of a row alone.
#include "templates/gemm_kernel.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "templates/gemm_task.h"

namespace inkle::templates {

using kernel::Form;
using kernel::ValueId;
using kernel::Values;
using loop::Opcode;

namespace {

constexpr std::int32_t kCacheLine = 64;

class GemmWriter : GemmTask {
 public:
  GemmWriter(const GemmProblem& problem, const GemmConfig& config, kernel::Kernel& made,
             sym::Context& context)
      : GemmTask(problem, config, gemm_rows(problem, config), made, context) {
    sums_ = declare("sums", DType::f32, rows_.padded, config.column_block);
    if (!problem.left.instructions.empty()) declare_left();
  }

  void run() {
    in_lanes([&] { task(); });
  }

 private:
  void task() {
    const std::int64_t part = config_.term_block;
    const auto constant = problem_.terms.constant();
    if (constant && *constant <= part) {
      add_terms(zero_, problem_.terms, *constant > 0 ? Runs::surely : Runs::perhaps, true);
    } else {
      add_terms(zero_, sym::min(problem_.terms, number(part)), Runs::perhaps, true);
      loop(number(part), problem_.terms, part, [&](Expr first) {
        add_terms(first, sym::min(problem_.terms, first + part), Runs::surely, false);
      });
    }
    loop(zero_, row_count_, 1, [&](Expr r) { store_row(r); });
  }

  // Multiplies terms [begin, end) into the sums, or accumulates.
  void add_terms(Expr begin, Expr end, Runs runs, bool is_first) {
    if (left_ != kernel::kNone) pack_left(begin, end);
    loop(zero_, column_count_, problem_.panel, [&](Expr c) {
      loop(zero_, row_count_, rows_.group, [&](Expr r) {
        const Values products = block(r, c, begin, end, runs);
        std::size_t at = 0;
        for (std::int64_t i = 0; i < rows_.group; ++i) {
          for (std::int64_t v = 0; v < config_.vectors; ++v) {
            const std::vector<Expr> place = {r + i, c + v * config_.lanes + lane_};
            ValueId sum = products[at++];
            if (!is_first) {
              const ValueId before = b_.load(sums_, place, Form::wide);
              sum = b_.compute(Opcode::add, DType::f32, {before, sum});
            }
            b_.store(sums_, place, sum, Form::wide);
          }
        }
      });
    });
  }

  Values block(Expr r, Expr c, Expr begin, Expr end, Runs runs) {
    const Values zeros(static_cast<std::size_t>(rows_.group * config_.vectors),
                       b_.real(DType::f32, 0));
    return write_loop(b_, begin, end, 1, runs, zeros, [&](Expr k, const Values& before) {
      const Expr panel = at(problem_.b, zero_, first_column_ + c, zero_) + k * problem_.panel;
      fetch_ahead(panel);
      Values right;
      for (std::int64_t v = 0; v < config_.vectors; ++v) {
        right.push_back(right_vector(panel, c, v * config_.lanes, k));
      }
      Values next;
      for (std::int64_t i = 0; i < rows_.group; ++i) {
        const ValueId left = left_value(r + i, k, begin);
        for (const ValueId vector : right) {
          next.push_back(multiply_add(left, vector, before[next.size()]));
        }
      }
      return next;
    });
  }

  ValueId left_value(Expr r, Expr k, Expr begin) {
    if (left_ != kernel::kNone) return b_.load(left_, {r, k - begin}, Form::splat);
    const Expr row = first_row_ + sym::min(r, row_count_ - 1);
    return b_.load(parameters_[0], {at(problem_.a, row, zero_, k)}, Form::splat);
  }

  // Prefetches the panel row used so many terms later: with few rows, panels come from memory.
  void fetch_ahead(Expr row_of_panel) {
    if (config_.terms_ahead == 0) return;
    const std::int64_t lanes =
        kCacheLine / abi::size_of(b_.kernel().memories[parameters_[1]].dtype);
    for (std::int64_t first = 0; first < problem_.panel; first += lanes) {
      kernel::Access ahead;
      ahead.memory = parameters_[1];
      ahead.indices = {row_of_panel + (config_.terms_ahead * problem_.panel + first)};
      b_.operation(kernel::Op::prefetch, {}, {}, ahead);
    }
  }

  // Elements of a panel's row that begins there.
  ValueId right_vector(Expr row_of_panel, Expr c, std::int64_t first, Expr k) {
    const ValueId read = b_.load(parameters_[1], {row_of_panel + first + lane_}, Form::wide);
    if (problem_.right.instructions.empty()) return read;
    return body().run(problem_.right, read,
                      {batch_, zero_, first_column_ + c + first + lane_, k})[0];
  }

  ValueId multiply_add(ValueId left, ValueId right, ValueId sum) {
    if (b_.type_of(left).dtype == DType::i32) {
      return b_.function(kernel::NamedFunction::dot_bf16, {sum, left, right});
    }
    return b_.compute(Opcode::fma, DType::f32, {left, right, sum});
  }

  void store_row(Expr r) {
    in_vectors(zero_, column_count_, problem_.columns, [&](Expr c) { store(r, c, r, c); });
  }
};

}  // namespace

GemmRows gemm_rows(const GemmProblem& problem, const GemmConfig& config) {
  const std::int64_t most =
      std::min(config.row_block, problem.rows.constant().value_or(config.row_block));
  const std::int64_t rows = std::max<std::int64_t>(most, 1);
  const std::int64_t groups = (rows + config.rows - 1) / config.rows;
  const std::int64_t group = (rows + groups - 1) / groups;
  return {group, groups * group};
}

kernel::Kernel emit_gemm(const GemmProblem& problem, const GemmConfig& config,
                         sym::Context& context) {
  kernel::Kernel made;
  GemmWriter(problem, config, made, context).run();
  return made;
}

}  // namespace inkle::templates
