#include "templates/attention_softmax.h"

#include <algorithm>
#include <limits>

#include "templates/attention_tiles.h"

namespace inkle::templates {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Groups of up to two tiles, as few and as low ones as there are rows.
void set_tiles(Rows& rows, std::int64_t most) {
  constexpr std::int64_t kDown = 2;
  rows.tiles = static_cast<int>(std::min(kDown, (most + kTileSide - 1) / kTileSide));
  const std::int64_t groups = (most + rows.tiles * kTileSide - 1) / (rows.tiles * kTileSide);
  const std::int64_t all = groups * rows.tiles;
  rows.group = static_cast<int>((most + all - 1) / all) * rows.tiles;
}

}  // namespace

Rows rows_of(const AttentionProblem& problem, const AttentionConfig& config) {
  Rows rows{};
  rows.block = std::max<std::int64_t>(config.q_block, 1);
  std::int64_t most = rows.block;
  if (const auto length = problem.q_length.constant()) {
    most = std::clamp<std::int64_t>(*length, 1, most);
  }
  if (config.tiles) {
    set_tiles(rows, most);
  } else {
    rows.group = static_cast<int>(std::min<std::int64_t>(config.rows, most));
  }
  rows.padded = round_up(most, rows.group);
  return rows;
}

SoftmaxWriter::SoftmaxWriter(const AttentionProblem& problem, const AttentionConfig& config,
                             kernel::Kernel& made, sym::Context& context)
    : AttentionWriter(problem, config, made, context), rows_(rows_of(problem, config)) {
  const std::int64_t all = problem.kv_length.constant().value_or(0);
  one_block_ = config.tiles && all > 0 && all <= size_.columns;
}

void SoftmaxWriter::find_arrays() {
  scores_ = array("s");
  maximum_ = array("maximum");
  sum_ = array("sum");
  alpha_ = array("alpha");
  weights_ = array("weights");
  factors_ = array("factors");
  centre_ = array("centre");
  block_sum_ = array("block_sum");
}

void SoftmaxWriter::softmax(Expr row, const Columns& columns) {
  w_.loop(zero_, w_.number(rows_.group), 1, [&](Expr r) {
    const Expr absolute = first_row_ + sym::min(row + r, count_ - 1);
    const ValueId most = mask_scores(r, absolute, columns);
    const ValueId old = w_.load_scalar(maximum_, {row + r});
    const ValueId highest = w_.compute(Opcode::max, {most, old});
    // A fully masked row so far: any finite value does.
    const ValueId nothing = w_.compare(Opcode::equal, highest, w_.f32(-kInfinity));
    const ValueId centre = w_.select(nothing, w_.f32(0), highest);
    const ValueId alpha = w_.exp_of_negative(w_.compute(Opcode::sub, {old, centre}));
    if (problem_.dropout) draw_factors(factors_, absolute, columns.first, columns.count);
    const ValueId sum = weigh(r, centre, columns);
    const ValueId before = w_.compute(Opcode::mul, {w_.load_scalar(sum_, {row + r}), alpha});
    w_.store_scalar(sum_, {row + r}, w_.compute(Opcode::add, {before, sum}));
    w_.store_scalar(maximum_, {row + r}, highest);
    w_.store_scalar(alpha_, {r}, alpha);
  });
}

ValueId SoftmaxWriter::mask_scores(Expr r, Expr absolute, const Columns& columns) {
  Expr limit = columns.count;
  if (problem_.is_causal) limit = sym::min(limit, absolute + 1 - columns.first);
  const auto largest = [&](Expr c, const Values& before) {
    const auto score = [&] { return w_.load_vector(scores_, {r, c}); };
    const ValueId s =
        masked_score(score, true, w_.lanes_before(limit, c), absolute, columns.first + c);
    w_.store_vector(scores_, {r, c}, s);
    return Values{w_.compute(Opcode::max, {s, before[0]})};
  };
  const Expr end = config_.rounds_weights ? pair_blocks(columns) * (2 * lanes_) : columns.count;
  const Values most = w_.loop(zero_, end, lanes_, Runs::surely, {w_.f32(-kInfinity)}, largest);
  return w_.across(Opcode::max, most[0]);
}

ValueId SoftmaxWriter::weigh(Expr r, ValueId centre, const Columns& columns) {
  ValueId sum = kernel::kNone;
  const auto weight_of = [&](Expr c) {
    ValueId s = w_.load_vector(scores_, {r, c});
    if (scales_late()) s = scaled(s);
    const ValueId p = w_.exp_of_negative(w_.compute(Opcode::sub, {s, centre}));
    sum = w_.compute(Opcode::add, {sum, p});
    return problem_.dropout ? w_.compute(Opcode::mul, {p, w_.load_vector(factors_, {c})}) : p;
  };
  if (config_.rounds_weights) {
    const auto add_two = [&](Expr n, const Values& before) {
      sum = before[0];
      const Expr c = n * (2 * lanes_);
      const ValueId low = weight_of(c);
      const ValueId high = weight_of(c + lanes_);
      w_.store_vector(weights_, {r, n * lanes_}, w_.rounded_pair(low, high));
      return Values{sum};
    };
    return w_.across(Opcode::add, w_.loop(zero_, pair_blocks(columns), 1, Runs::surely, {w_.f32(0)},
                                          add_two)[0]);
  }
  const auto add = [&](Expr c, const Values& before) {
    sum = before[0];
    w_.store_vector(scores_, {r, c}, weight_of(c));
    return Values{sum};
  };
  const Values total = w_.loop(zero_, columns.count, lanes_, Runs::surely, {w_.f32(0)}, add);
  return w_.across(Opcode::add, total[0]);
}

void SoftmaxWriter::softmax_of_tiles(Expr row, const Columns& columns) {
  const auto for_each_row = [&](const std::function<void(Expr r)>& body) {
    w_.loop(zero_, w_.number(rows_.group), 1, body);
  };
  const auto for_rows = [&](const std::function<void(Expr r)>& body) {
    for (std::int64_t r = 0; r < rows_.group; r += lanes_) {
      w_.in_row(r, rows_.group, [&] { body(w_.number(r)); });
    }
  };
  for_each_row([&](Expr r) {
    const Expr absolute = first_row_ + sym::min(row + r, count_ - 1);
    w_.store_scalar(centre_, {r}, largest_of_tiles(r, absolute, columns));
  });
  for_rows([&](Expr r) {
    ValueId most = w_.load_vector(centre_, {r});
    if (scales_late()) most = scaled(most);
    const ValueId old = w_.load_vector(maximum_, {row + r});
    const ValueId highest = greater_of(most, old);
    const ValueId nothing = w_.compare(Opcode::equal, highest, w_.f32(-kInfinity));
    const ValueId centre = w_.select(nothing, w_.f32(0), highest);
    w_.store_vector(centre_, {r}, centre);
    w_.store_vector(maximum_, {row + r}, highest);
    if (one_block_) return;
    w_.store_vector(alpha_, {r}, w_.exp_of_negative(w_.compute(Opcode::sub, {old, centre})));
  });
  for_each_row([&](Expr r) {
    w_.store_scalar(block_sum_, {r}, weigh(r, w_.load_scalar(centre_, {r}), columns));
  });
  for_rows([&](Expr r) {
    ValueId sum = w_.load_vector(block_sum_, {r});
    if (!one_block_) {
      const ValueId before = w_.load_vector(sum_, {row + r});
      sum = w_.compute(Opcode::fma, {before, w_.load_vector(alpha_, {r}), sum});
    }
    w_.store_vector(sum_, {row + r}, sum);
  });
}

ValueId SoftmaxWriter::largest_of_tiles(Expr r, Expr absolute, const Columns& columns) {
  const Expr end = pair_blocks(columns) * (2 * lanes_);
  Expr limit = columns.count;
  if (problem_.is_causal) {
    limit = sym::max(sym::min(limit, absolute + 1 - columns.first), zero_);
  }
  const auto score = [&](Expr c) { return w_.load_vector(scores_, {r, c}); };
  const auto masked = [&](Expr c) {
    const ValueId s = masked_score([&] { return scales_late() ? score(c) : scaled(score(c)); },
                                   true, w_.lanes_before(limit, c), absolute, columns.first + c);
    w_.store_vector(scores_, {r, c}, s);
    return s;
  };
  const auto over = [&](Expr first, Expr last, const Values& before,
                        const std::function<ValueId(Expr c)>& of) {
    return w_.loop(first, last, std::int64_t{2} * lanes_, Runs::perhaps, before,
                   [&](Expr c, const Values& most) {
                     const ValueId low = greater_of(of(c), most[0]);
                     return Values{low, greater_of(of(c + lanes_), most[1])};
                   });
  };
  Values most(2, w_.f32(-kInfinity));
  Expr whole = zero_;
  if (scales_late()) {
    whole = has_whole_columns() ? end : sym::floordiv(limit, 2 * lanes_) * (2 * lanes_);
    most = over(zero_, whole, most, score);
  }
  if (!scales_late() || !has_whole_columns()) most = over(whole, end, most, masked);
  return w_.across([&](ValueId a, ValueId b) { return greater_of(a, b); },
                   greater_of(most[0], most[1]));
}

bool SoftmaxWriter::scales_late() const {
  return config_.tiles && !problem_.mask && problem_.scale > 0;
}
ValueId SoftmaxWriter::scaled(ValueId score) {
  return w_.compute(Opcode::mul, {score, w_.f32(problem_.scale)});
}

ValueId SoftmaxWriter::greater_of(ValueId a, ValueId b) {
  return w_.select(w_.compare(Opcode::greater, a, b), a, b);
}

bool SoftmaxWriter::has_whole_columns() const {
  return !problem_.is_causal && sym::divides(2 * lanes_, problem_.kv_length);
}

Expr SoftmaxWriter::pair_blocks(const Columns& columns) const {
  return sym::ceildiv(columns.count, std::int64_t{2} * lanes_);
}

}  // namespace inkle::templates
