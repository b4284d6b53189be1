#include "templates/attention_slopes.h"

#include <algorithm>
#include <limits>

namespace inkle::templates {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

GradientBlocks gradient_blocks_of(const AttentionProblem& problem, const AttentionConfig& config) {
  GradientBlocks blocks{};
  blocks.rows = std::max<std::int64_t>(config.q_block, 1);
  if (config.rounds_weights) blocks.rows = round_up(blocks.rows, 2);
  if (const auto length = problem.q_length.constant()) {
    blocks.rows = std::clamp<std::int64_t>(*length, 1, blocks.rows);
  }
  blocks.padded = round_up(blocks.rows, config.rows);
  if (config.rounds_weights) blocks.padded = round_up(blocks.padded, 2);
  blocks.line = dimensions_of(problem, config).columns + round_up(kMostRows, config.lanes);
  return blocks;
}

SlopeWriter::SlopeWriter(const AttentionProblem& problem, const AttentionConfig& config,
                         kernel::Kernel& made, sym::Context& context)
    : AttentionWriter(problem, config, made, context),
      blocks_(gradient_blocks_of(problem, config)) {}

void SlopeWriter::find_arrays() {
  gradients_ = array("gs");
  weights_ = array("p");
  slopes_ = array("ds");
  weight_rows_ = array("p_rows");
  slope_rows_ = array("ds_rows");
  slope_columns_ = array("ds_columns");
  factors_ = array("factors");
}

Expr SlopeWriter::pair_blocks(Expr columns) const {
  return sym::ceildiv(columns, std::int64_t{2} * lanes_);
}

Expr SlopeWriter::written() const {
  return config_.rounds_weights ? pair_blocks(count_) * (std::int64_t{2} * lanes_) : count_;
}

void SlopeWriter::weigh(Expr first_row, Expr seen) {
  w_.loop(zero_, w_.number(config_.rows), 1, [&](Expr r) {
    const Expr row = first_row + r;
    const Expr absolute = first_row_ + sym::min(row, rows_ - 1);
    Expr limit = seen;
    if (problem_.is_causal) limit = sym::min(limit, absolute + 1 - first_);
    if (problem_.dropout) draw_factors(factors_, absolute, first_, count_);
    const RowValues of = row_values(row, absolute);
    const ValueId sum = weigh_scores(row, absolute, limit, of);
    // Where the block has all columns their sum is the better one: it cancels to the last bits.
    const ValueId is_whole =
        w_.compare(Opcode::less_equal, b_.index(problem_.kv_length), w_.i64(size_.columns));
    const ValueId level = w_.select(is_whole, sum, of.level);
    const auto slope_at = [&](Expr c) {
      const ValueId valid = w_.lanes_before(limit, c);
      const ValueId p = undropped(row, c);
      const ValueId slope = w_.compute(Opcode::sub, {w_.load_vector(slopes_, {row, c}), level});
      const bool hides = problem_.mask && mask_.dtype == DType::boolean;
      const ValueId passes = hides ? mask_lanes(valid, absolute, first_ + c) : valid;
      const ValueId nothing = w_.f32(0);
      ValueId made = w_.compute(Opcode::mul, {p, slope});
      if (config_.rounds_weights && problem_.scale != 1) {
        made = w_.compute(Opcode::mul, {made, w_.f32(problem_.scale)});
      }
      made = w_.select(passes, made, nothing);
      w_.store_vector(slopes_, {row, c}, made);
      return made;
    };
    if (config_.rounds_weights) {
      w_.loop(zero_, pair_blocks(count_), 1, [&](Expr n) {
        const Expr c = n * (std::int64_t{2} * lanes_);
        const ValueId low = slope_at(c);
        const ValueId high = slope_at(c + lanes_);
        w_.store_vector(slope_columns_, {r, n * lanes_}, w_.rounded_pair(low, high));
      });
      return;
    }
    w_.loop(zero_, count_, lanes_, [&](Expr c) { (void)slope_at(c); });
    // The last group of columns reads more than there are.
    for (int beyond = 0; beyond < kMostRows - 1; beyond += lanes_) {
      w_.store_vector(weights_, {row, count_ + beyond}, w_.f32(0));
      w_.store_vector(slopes_, {row, count_ + beyond}, w_.f32(0));
    }
  });
}

void SlopeWriter::pair_rows() {
  Expr begin = zero_;
  if (problem_.is_causal) {  // earlier rows are fully masked in the block, and may have no weights
    begin = sym::floordiv(sym::min(sym::max(first_ - first_row_, zero_), rows_), 2);
  }
  w_.loop(begin, sym::ceildiv(rows_, 2), 1, [&](Expr i) {
    const Expr row = i * 2;
    const ValueId has_both = w_.compare(Opcode::less, b_.index(row + 1), b_.index(rows_));
    for (const auto& [from, to] : {std::pair{weights_, weight_rows_}, {slopes_, slope_rows_}}) {
      w_.loop(zero_, written(), lanes_, [&, from = from, to = to](Expr c) {
        const ValueId high = w_.select(has_both, w_.load_vector(from, {row + 1, c}), w_.f32(0));
        w_.store_vector(to, {i, c}, w_.rounded_pair(w_.load_vector(from, {row, c}), high));
      });
      // The last group of columns reads more than there are.
      w_.store_vector(to, {i, written()}, b_.integer(DType::i32, 0));
    }
  });
}

ValueId SlopeWriter::undropped(Expr row, Expr c) {
  return problem_.dropout ? w_.load_vector(factors_, {c}) : w_.load_vector(weights_, {row, c});
}

ValueId SlopeWriter::weigh_scores(Expr row, Expr absolute, Expr limit, const RowValues& of) {
  const ValueId total = w_.loop(
      zero_, written(), lanes_, Runs::perhaps, {w_.f32(0)}, [&](Expr c, const Values& before) {
        const ValueId valid = w_.lanes_before(limit, c);
        // Matrix products of columns that are masked for the whole group were skipped.
        const bool is_there = !problem_.is_causal;
        const auto score = [&] { return w_.load_vector(weights_, {row, c}); };
        const ValueId s = masked_score(score, is_there, valid, absolute, first_ + c);
        const ValueId raw = w_.exp_of_negative(w_.compute(Opcode::sub, {s, of.centre}));
        const ValueId p = w_.compute(Opcode::mul, {raw, of.inverse});
        const ValueId factor = problem_.dropout ? w_.load_vector(factors_, {c}) : kernel::kNone;
        if (problem_.dropout) {
          w_.store_vector(weights_, {row, c}, w_.compute(Opcode::mul, {p, factor}));
        }
        const auto slope = [&] {
          const ValueId dp = w_.load_vector(slopes_, {row, c});
          return problem_.dropout ? w_.compute(Opcode::mul, {dp, factor}) : dp;
        };
        const ValueId dp =
            is_there ? w_.select(valid, slope(), w_.f32(0)) : w_.where(valid, slope, w_.f32(0));
        if (problem_.dropout) {
          w_.store_vector(factors_, {c}, p);
        } else {
          w_.store_vector(weights_, {row, c}, p);
        }
        w_.store_vector(slopes_, {row, c}, dp);
        return Values{w_.compute(Opcode::fma, {p, dp, before[0]})};
      })[0];
  return w_.across(Opcode::add, total);
}

SlopeWriter::RowValues SlopeWriter::row_values(Expr row, Expr absolute) {
  const auto statistic = [&](Expr which) {
    return w_.load_scalar(statistics_.memory, {offset_of(statistics_, head_, absolute, which)});
  };
  const ValueId most = statistic(zero_);
  const ValueId sum = statistic(one_);
  // A fully masked row: 0 * 0, or with `safe` unset 0 * infinity.
  const ValueId nothing = w_.compare(Opcode::equal, most, w_.f32(-kInfinity));
  RowValues of{};
  of.centre = w_.select(nothing, w_.f32(0), most);
  of.inverse = w_.compute(Opcode::div, {w_.f32(1), sum});
  if (problem_.safe) {
    of.inverse = w_.select(w_.compare(Opcode::equal, sum, w_.f32(0)), w_.f32(0), of.inverse);
  }
  ValueId total = w_.f32(0);
  for (std::int64_t d = 0; d < size_.value; d += lanes_) {
    const ValueId g = config_.pairs ? load_row(grad_, head_, absolute, d, size_.value)
                                    : w_.load_vector(gradients_, {row, w_.number(d)});
    total = w_.compute(Opcode::fma, {g, load_row(out_, head_, absolute, d, size_.value), total});
  }
  of.level = w_.across(Opcode::add, total);
  return of;
}

}  // namespace inkle::templates
