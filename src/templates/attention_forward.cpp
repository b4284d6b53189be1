// Attention as one flash-style kernel; the header of attention.h has its picture. Rows are padded
// to whole groups; a row's columns at and beyond its limit (the end, or itself when causal) count
// as minus infinity, and blocks beyond all limits are skipped.
//
// Of bf16 where the machine multiplies pairs of them: q, k, v and the weights, which are rounded,
// lie as pairs, of elements a vector apart; sums and softmax are f32. Where it has tiles of its
// own, those multiply the same pairs: packing, softmax and what follows are vector regions between
// them.
#include <algorithm>
#include <limits>
#include <optional>

#include "templates/attention_softmax.h"
#include "templates/attention_tiles.h"

namespace inkle::templates {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Whether a block's values are copied: they are read in whole vectors of f32.
bool packs_values(const AttentionProblem& problem, const AttentionConfig& config) {
  const Dimensions size = dimensions_of(problem, config);
  const auto stride = sym::stride(problem.v.offset, problem.variables[3]);
  return problem.dtype != DType::f32 || !stride || !stride->is_constant(1) ||
         size.value_width != size.value;
}

class ForwardWriter : SoftmaxWriter {
 public:
  ForwardWriter(const AttentionProblem& problem, const AttentionConfig& config,
                kernel::Kernel& made, sym::Context& context)
      : SoftmaxWriter(problem, config, made, context) {
    declare_parameters();
    batch_ = b_.axis(kernel::AxisKind::task, problem.batch);
    head_ = b_.axis(kernel::AxisKind::task, problem.heads);
    const Expr block = b_.axis(kernel::AxisKind::task, sym::ceildiv(problem.q_length, rows_.block));
    const Expr kv_heads = sym::max(problem.kv_heads, one_);
    kv_head_ = sym::floordiv(head_, sym::max(sym::floordiv(problem.heads, kv_heads), one_));
    first_row_ = block * rows_.block;
    count_ = sym::min(problem.q_length - first_row_, w_.number(rows_.block));
    declare_arrays();
  }

  void run() {
    if (config_.tiles) {
      tiles_.emplace(b_, rows_.group / rows_.tiles, rows_.tiles);
      return task();
    }
    w_.in_lanes([&] {
      prepare_dropout();
      task();
    });
  }

 private:
  // All is in lanes but tiles and the loops around them.
  void in_lanes(const std::function<void()>& body) {
    if (!config_.tiles) return body();
    w_.in_lanes(body);
  }

  void declare_parameters() {
    q_ = parameter(problem_.q, kernel::Role::in);
    k_ = parameter(problem_.k, kernel::Role::in);
    v_ = parameter(problem_.v, kernel::Role::in);
    out_ = parameter(problem_.out, kernel::Role::out);
    if (problem_.mask) mask_ = parameter(*problem_.mask, kernel::Role::in);
    if (problem_.lse) lse_ = parameter(*problem_.lse, kernel::Role::out);
    if (problem_.statistics) statistics_ = parameter(*problem_.statistics, kernel::Role::out);
    if (problem_.dropout) seed_ = parameter(problem_.dropout->seed, kernel::Role::in);
  }

  void declare_arrays() {
    packs_values_ = packs_values(problem_, config_);
    declare(forward_arrays(problem_, config_));
    queries_ = array("qs");
    keys_ = array("ks");
    values_ = array("vs");
    totals_ = array("sums");
    find_arrays();
  }

  void task() {
    const Expr groups = sym::ceildiv(count_, rows_.group);
    in_lanes([&] { prepare_rows(groups * rows_.group); });
    Expr end = problem_.kv_length;
    if (problem_.is_causal) end = sym::min(end, first_row_ + count_);
    w_.loop(zero_, end, size_.columns, [&](Expr first) {
      const Columns columns{first, sym::min(end - first, w_.number(size_.columns))};
      in_lanes([&] { pack(columns); });
      w_.loop(zero_, groups, 1, [&](Expr g) { group(g * rows_.group, columns); });
    });
    in_lanes([&] { finish_rows(); });
  }

  void pack(const Columns& columns) {
    if (config_.pairs) {
      pack_transposed_pairs(k_, size_.head, keys_, columns.first, columns.count);
    } else {
      pack_transposed(k_, size_.head, keys_, columns.first, columns.count);
    }
    if (config_.rounds_weights) {
      return pack_column_pairs(v_, size_.value, values_, columns.first, columns.count,
                               has_whole_columns());
    }
    if (packs_values_) pack_values(columns);
  }

  void prepare_rows(Expr padded) {
    w_.loop(zero_, padded, 1, [&](Expr r) {
      // Padding repeats the last row: finite values whose results are not used.
      const Expr row = first_row_ + sym::min(r, count_ - 1);
      prepare_query(r, row);
      for (std::int64_t d = 0; d < size_.value_width; d += lanes_) {
        w_.store_vector(totals_, {r, w_.number(d)}, w_.f32(0));
      }
      w_.store_scalar(maximum_, {r}, w_.f32(-kInfinity));
      w_.store_scalar(sum_, {r}, w_.f32(0));
    });
  }

  void prepare_query(Expr r, Expr row) {
    if (config_.pairs) {
      for (std::int64_t d = 0; d < size_.head; d += std::int64_t{2} * lanes_) {
        w_.store_vector(queries_, {r, w_.number(d / 2)}, load_pairs(q_, head_, row, d, size_.head));
      }
      return;
    }
    for (std::int64_t d = 0; d < size_.head; d += lanes_) {
      w_.in_row(d, size_.head, [&] {
        const ValueId q = load_lanes(q_, head_, row, w_.number(d));
        w_.store_vector(queries_, {r, w_.number(d)},
                        w_.compute(Opcode::mul, {q, w_.f32(problem_.scale)}));
      });
    }
  }

  void pack_values(const Columns& columns) {
    w_.loop(zero_, columns.count, 1, [&](Expr c) {
      for (std::int64_t d = 0; d < size_.value_width; d += lanes_) {
        w_.store_vector(values_, {c, w_.number(d)},
                        load_row(v_, kv_head_, columns.first + c, d, size_.value));
      }
    });
  }

  // The rows [row, row + rows_.group) of the block, unless they are all fully masked.
  void group(Expr row, const Columns& columns) {
    if (!problem_.is_causal) return seen(row, columns);
    const Expr last = first_row_ + row + rows_.group;
    const Columns before{columns.first, sym::min(columns.count, last - columns.first)};
    b_.branch(w_.compare(Opcode::greater, b_.index(before.count), w_.i64(0)), [&] {
      seen(row, before);
      return Values();
    });
  }

  void seen(Expr row, const Columns& columns) {
    if (config_.tiles) return seen_in_tiles(row, columns);
    scores(row, columns);
    softmax(row, columns);
    accumulate(row, columns);
  }

  void seen_in_tiles(Expr row, const Columns& columns) {
    const Expr padded = pair_blocks(columns) * (2 * lanes_);
    tiles_->multiply({.left = queries_,
                      .right = keys_,
                      .to = scores_,
                      .left_row = row,
                      .to_row = zero_,
                      .pairs = w_.number(size_.head_pairs),
                      .columns = padded});
    w_.in_lanes([&] {
      softmax_of_tiles(row, columns);
      if (!one_block_) rescale(row);
    });
    tiles_->multiply({.left = weights_,
                      .right = values_,
                      .to = totals_,
                      .left_row = zero_,
                      .to_row = row,
                      .pairs = pair_blocks(columns) * lanes_,
                      .columns = w_.number(size_.value_width),
                      .adds = !one_block_});
  }

  void rescale(Expr row) {
    w_.loop(zero_, w_.number(rows_.group), 1, [&](Expr r) {
      const ValueId alpha = w_.load_scalar(alpha_, {r});
      for (std::int64_t d = 0; d < size_.value_width; d += lanes_) {
        const ValueId total = w_.load_vector(totals_, {row + r, w_.number(d)});
        w_.store_vector(totals_, {row + r, w_.number(d)}, w_.compute(Opcode::mul, {total, alpha}));
      }
    });
  }

  void scores(Expr row, const Columns& columns) {
    const Block block{rows_.group, config_.vectors};
    w_.loop(
        zero_, columns.count, std::int64_t{lanes_} * block.vectors, Runs::surely, {},
        [&](Expr c, const Values&) {
          const auto key = [&](int v, Expr d) {
            return w_.load_vector(keys_, {d, c + v * lanes_});
          };
          const auto query = [&](int r, Expr d) { return w_.load_scalar(queries_, {row + r, d}); };
          const std::int64_t terms = config_.pairs ? size_.head_pairs : size_.head;
          const Values sums =
              w_.product(block, w_.zeros(block), zero_, w_.number(terms), Runs::surely, key, query);
          for_each_sum(block, sums, [&](int r, int v, ValueId sum) {
            // Queries in pairs are as they were.
            if (config_.pairs) sum = scaled(sum);
            w_.store_vector(scores_, {w_.number(r), c + v * lanes_}, sum);
          });
          return Values();
        });
  }

  void accumulate(Expr row, const Columns& columns) {
    const auto all = static_cast<int>(size_.value_width / lanes_);
    const int tiles = (all + config_.vectors - 1) / config_.vectors;
    const int width = (all + tiles - 1) / tiles;
    for (int v = 0; v < all; v += width) {
      accumulate_tile(row, columns, v, {rows_.group, std::min(width, all - v)});
    }
  }

  // Vectors of the rows from `first` on.
  void accumulate_tile(Expr row, const Columns& columns, int first, Block block) {
    const auto feature = [&](int v) { return w_.number((first + v) * lanes_); };
    Values sums;
    for (int r = 0; r < block.rows; ++r) {
      const ValueId alpha = w_.load_scalar(alpha_, {w_.number(r)});
      for (int v = 0; v < block.vectors; ++v) {
        sums.push_back(
            w_.compute(Opcode::mul, {w_.load_vector(totals_, {row + r, feature(v)}), alpha}));
      }
    }
    const auto value = [&](int v, Expr c) {
      return packs_values_ ? w_.load_vector(values_, {c, feature(v)})
                           : load_lanes(v_, kv_head_, columns.first + c, feature(v));
    };
    const MemoryId from = config_.rounds_weights ? weights_ : scores_;
    const auto weight = [&](int r, Expr c) { return w_.load_scalar(from, {w_.number(r), c}); };
    const Expr terms = config_.rounds_weights ? pair_blocks(columns) * lanes_ : columns.count;
    sums = w_.product(block, sums, zero_, terms, Runs::surely, value, weight);
    for_each_sum(block, sums, [&](int r, int v, ValueId sum) {
      w_.store_vector(totals_, {row + r, feature(v)}, sum);
    });
  }

  void finish_rows() {
    w_.loop(zero_, count_, 1, [&](Expr r) {
      const Expr row = first_row_ + r;
      const ValueId sum = w_.load_scalar(sum_, {r});
      // 0 / 1 is the 0 that `safe` asks for, and that no columns at all give; 0 / 0 the NaN
      // otherwise.
      const ValueId empty =
          problem_.safe ? w_.compare(Opcode::equal, sum, w_.f32(0))
                        : w_.compare(Opcode::less_equal, b_.index(problem_.kv_length), w_.i64(0));
      ValueId divisor = w_.select(empty, w_.f32(1), sum);
      // Of tiles one division serves the whole row.
      if (config_.tiles) divisor = w_.compute(Opcode::div, {w_.f32(1), divisor});
      const Opcode by = config_.tiles ? Opcode::mul : Opcode::div;
      for (std::int64_t d = 0; d < size_.value_width; d += lanes_) {
        const ValueId total = w_.load_vector(totals_, {r, w_.number(d)});
        store_row(out_, head_, row, d, size_.value, w_.compute(by, {total, divisor}));
      }
      if (!problem_.lse && !problem_.statistics) return;
      const ValueId maximum = w_.load_scalar(maximum_, {r});
      if (problem_.lse) {
        const ValueId lse = w_.compute(Opcode::add, {maximum, w_.compute(Opcode::log, {sum})});
        w_.store_scalar(lse_.memory, {offset_of(lse_, head_, row, zero_)},
                        b_.cast(lse, lse_.dtype));
      }
      if (problem_.statistics) {
        w_.store_scalar(statistics_.memory, {offset_of(statistics_, head_, row, zero_)}, maximum);
        w_.store_scalar(statistics_.memory, {offset_of(statistics_, head_, row, one_)}, sum);
      }
    });
  }

  std::optional<TileMultiplier> tiles_;
  bool packs_values_ = false;
  MemoryId queries_ = kernel::kNone, keys_ = kernel::kNone, values_ = kernel::kNone;
  MemoryId totals_ = kernel::kNone;
};

}  // namespace

std::vector<Array> forward_arrays(const AttentionProblem& problem, const AttentionConfig& config) {
  const Dimensions size = dimensions_of(problem, config);
  const Rows rows = rows_of(problem, config);
  sym::Context& context = problem.q_length.context();
  const auto n = [&](std::int64_t v) { return context.constant(v); };
  const DType dtype = config.pairs ? DType::i32 : DType::f32;
  const std::int64_t features = config.pairs ? size.head_pairs : size.head;
  const std::int64_t values = config.rounds_weights ? size.columns / 2 : size.columns;
  const DType weights = config.rounds_weights ? DType::i32 : DType::f32;
  std::vector<Array> arrays = {{"qs", {n(rows.padded), n(features)}, dtype},
                               {"ks", {n(features), n(panel_line(size.columns))}, dtype}};
  if (packs_values(problem, config))
    arrays.push_back({"vs", {n(values), n(size.value_width)}, weights});
  arrays.push_back({"s", {n(rows.group), n(size.columns)}});
  arrays.push_back({"sums", {n(rows.padded), n(size.value_width)}});
  arrays.push_back({"maximum", {n(rows.padded)}});
  arrays.push_back({"sum", {n(rows.padded)}});
  arrays.push_back({"alpha", {n(rows.group)}});
  if (problem.dropout) arrays.push_back({"factors", {n(size.columns)}});
  if (config.rounds_weights) {
    arrays.push_back({"weights", {n(rows.group), n(values)}, weights});
  }
  if (config.tiles) {
    arrays.push_back({"centre", {n(rows.group)}});
    arrays.push_back({"block_sum", {n(rows.group)}});
  }
  return arrays;
}

kernel::Kernel emit_forward(const AttentionProblem& problem, const AttentionConfig& config,
                            sym::Context& context) {
  kernel::Kernel made;
  ForwardWriter(problem, config, made, context).run();
  return made;
}

}  // namespace inkle::templates
