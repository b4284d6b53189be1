// The gradient of attention, flash style: weights are computed again, a block of rows by a block of
// columns at a time, from the statistics that the forward saved. A task computes a kv head of a
// batch:
//
//   dq := 0
//   for each block of columns j
//     kt, vt := keys and values transposed; k := scale * keys        stack
//     dk, dv := 0                                                    stack
//     for each head that reads these keys, each block of rows i
//       q := scale * rows, g := rows of the gradient                 stack
//       for each group of rows
//         s := q kt, dp := g vt                                      [rows][columns]
//         p := exp(s - maximum) / sum, p' := p * factor
//         ds := p * (dp * factor - level), level := sum over d of g * out, or, where one block has
//           all columns, over them of p * dp * factor
//       dv := dv + p'^T g
//       dk := dk + ds^T q
//       dq[i] := dq[i] + ds k
//     write dk, dv
//
// dq accumulates in the result itself where that is f32, else in an array. A row that is hidden
// from the block (causal) takes no part in it.
//
// Of bf16 where the machine multiplies pairs of them, s and dp are sums of pairs of features a
// vector apart, which loses nothing. Where weights may be rounded, dq is one of pairs of columns a
// vector apart, dv and dk of pairs of neighbouring rows; the scale is then a factor of ds. Sums are
// f32.
#include <algorithm>

#include "templates/attention_slopes.h"

namespace inkle::templates {

namespace {

// Whether dq accumulates in the result.
bool accumulates_in_place(const AttentionProblem& problem, const AttentionConfig& config) {
  const Dimensions size = dimensions_of(problem, config);
  const AttentionOperand& dq = problem.gradient->q;
  const auto stride = sym::stride(dq.offset, problem.variables[3]);
  return dq.dtype == DType::f32 && stride && stride->is_constant(1) && size.head_width == size.head;
}

// Heads of q for each kv head.
Expr share_of(const AttentionProblem& problem) {
  const Expr one = problem.q_length.context().constant(1);
  return sym::max(sym::floordiv(problem.heads, sym::max(problem.kv_heads, one)), one);
}

class GradientWriter : SlopeWriter {
 public:
  GradientWriter(const AttentionProblem& problem, const AttentionConfig& config,
                 kernel::Kernel& made, sym::Context& context)
      : SlopeWriter(problem, config, made, context), share_(share_of(problem)) {
    declare_parameters();
    batch_ = b_.axis(kernel::AxisKind::task, problem.batch);
    kv_head_ = b_.axis(kernel::AxisKind::task, problem.kv_heads);
    declare_arrays();
  }

  void run() {
    w_.in_lanes([&] {
      prepare_dropout();
      task();
    });
  }

 private:
  void declare_parameters() {
    const AttentionProblem::Gradient& g = *problem_.gradient;
    q_ = parameter(problem_.q, kernel::Role::in);
    k_ = parameter(problem_.k, kernel::Role::in);
    v_ = parameter(problem_.v, kernel::Role::in);
    out_ = parameter(problem_.out, kernel::Role::in);
    grad_ = parameter(g.out, kernel::Role::in);
    statistics_ = parameter(*problem_.statistics, kernel::Role::in);
    dq_ = parameter(g.q, kernel::Role::out);
    dk_ = parameter(g.k, kernel::Role::out);
    dv_ = parameter(g.v, kernel::Role::out);
    if (problem_.mask) mask_ = parameter(*problem_.mask, kernel::Role::in);
    if (problem_.dropout) seed_ = parameter(problem_.dropout->seed, kernel::Role::in);
  }

  void declare_arrays() {
    in_place_ = accumulates_in_place(problem_, config_);
    declare(gradient_arrays(problem_, config_));
    find_arrays();
    queries_ = array("qs");
    keys_across_ = array("kt");
    values_across_ = array("vt");
    keys_ = array("ks");
    query_rows_ = config_.pairs ? array("q_rows") : queries_;
    gradient_rows_ = config_.pairs ? array("g_rows") : gradients_;
    dk_sums_ = array("dks");
    dv_sums_ = array("dvs");
    dq_sums_ = array("dqs");
  }

  // `body` gets the number of the head among those of the task.
  void for_each_head(const std::function<void(Expr number)>& body) {
    w_.loop(zero_, share_, 1, [&](Expr n) {
      head_ = kv_head_ * share_ + n;
      body(n);
    });
  }

  void task() {
    for_each_head([&](Expr n) {
      w_.loop(zero_, problem_.q_length, 1, [&](Expr row) {
        for (std::int64_t d = 0; d < size_.head_width; d += lanes_) {
          store_dq(n, row, w_.number(d), w_.f32(0));
        }
      });
    });
    w_.loop(zero_, problem_.kv_length, size_.columns, [&](Expr first) {
      first_ = first;
      count_ = sym::min(problem_.kv_length - first, w_.number(size_.columns));
      columns();
    });
    if (in_place_) return;
    for_each_head([&](Expr n) {
      w_.loop(zero_, problem_.q_length, 1, [&](Expr row) {
        for (std::int64_t d = 0; d < size_.head; d += lanes_) {
          store_row(dq_, head_, row, d, size_.head, load_dq(n, row, w_.number(d)));
        }
      });
    });
  }

  // --- dq, where it accumulates
  ValueId load_dq(Expr head_number, Expr row, Expr feature) {
    if (in_place_) return load_lanes(dq_, head_, row, feature);
    return w_.load_vector(dq_sums_, {head_number * problem_.q_length + row, feature});
  }
  void store_dq(Expr head_number, Expr row, Expr feature, ValueId v) {
    if (in_place_) return store_lanes(dq_, head_, row, feature, v);
    w_.store_vector(dq_sums_, {head_number * problem_.q_length + row, feature}, v);
  }

  // --- A block of columns
  void columns() {
    pack_columns();
    w_.loop(zero_, count_, 1, [&](Expr c) {
      if (!config_.rounds_weights) {
        pack_row(k_, size_.head, problem_.scale, kv_head_, first_ + c, keys_, c);
      }
      clear(c);
    });
    // The last group of columns adds to more than there are.
    w_.loop(count_, count_ + (kMostRows - 1), 1, [&](Expr c) { clear(c); });
    for_each_head([&](Expr head_number) {
      // Earlier rows are fully masked in this block.
      Expr begin = zero_;
      if (problem_.is_causal) begin = sym::floordiv(first_, blocks_.rows) * blocks_.rows;
      w_.loop(begin, problem_.q_length, blocks_.rows, [&](Expr row) {
        first_row_ = row;
        rows_ = sym::min(problem_.q_length - row, w_.number(blocks_.rows));
        block(head_number);
      });
    });
    w_.loop(zero_, count_, 1, [&](Expr c) {
      write_row(dk_, dk_sums_, c, size_.head);
      write_row(dv_, dv_sums_, c, size_.value);
    });
  }

  void pack_columns() {
    if (!config_.pairs) {
      pack_transposed(k_, size_.head, keys_across_, first_, count_);
      return pack_transposed(v_, size_.value, values_across_, first_, count_);
    }
    pack_transposed_pairs(k_, size_.head, keys_across_, first_, count_);
    pack_transposed_pairs(v_, size_.value, values_across_, first_, count_);
    if (!config_.rounds_weights) return;
    pack_column_pairs(k_, size_.head, keys_, first_, count_,
                      sym::divides(std::int64_t{2} * lanes_, problem_.kv_length));
  }

  void clear(Expr c) {
    for (std::int64_t d = 0; d < size_.head_width; d += lanes_) {
      w_.store_vector(dk_sums_, {c, w_.number(d)}, w_.f32(0));
    }
    for (std::int64_t d = 0; d < size_.value_width; d += lanes_) {
      w_.store_vector(dv_sums_, {c, w_.number(d)}, w_.f32(0));
    }
  }

  // to[r] := factor * the row, f32, whole vectors.
  void pack_row(const Operand& operand, std::int64_t features, double factor, Expr head, Expr row,
                MemoryId to, Expr r) {
    for (std::int64_t d = 0; d < features; d += lanes_) {
      ValueId v = load_row(operand, head, row, d, features);
      if (factor != 1) v = w_.compute(Opcode::mul, {v, w_.f32(factor)});
      w_.store_vector(to, {r, w_.number(d)}, v);
    }
  }

  void write_row(const Operand& operand, MemoryId from, Expr c, std::int64_t features) {
    for (std::int64_t d = 0; d < features; d += lanes_) {
      store_row(operand, kv_head_, first_ + c, d, features,
                w_.load_vector(from, {c, w_.number(d)}));
    }
  }

  // --- A block of rows by a block of columns
  void block(Expr head_number) {
    const Expr groups = sym::ceildiv(rows_, config_.rows);
    w_.loop(zero_, groups * config_.rows, 1, [&](Expr r) {
      // Padding repeats the last row: finite values whose results are not used.
      const Expr row = first_row_ + sym::min(r, rows_ - 1);
      if (config_.pairs) {
        pack_feature_pairs(q_, size_.head, row, queries_, r);
        pack_feature_pairs(grad_, size_.value, row, gradients_, r);
      }
      if (config_.rounds_weights) return;
      pack_row(q_, size_.head, problem_.scale, head_, row, query_rows_, r);
      pack_row(grad_, size_.value, 1, head_, row, gradient_rows_, r);
    });
    w_.loop(zero_, groups, 1, [&](Expr g) {
      const Expr row = g * config_.rows;
      const auto group = [&](Expr seen) {
        const bool pairs = config_.pairs;
        tiles(row, seen, queries_, pairs ? size_.head_pairs : size_.head, keys_across_, weights_);
        tiles(row, seen, gradients_, pairs ? size_.value_pairs : size_.value, values_across_,
              slopes_);
        weigh(row, seen);
        add_to_rows(head_number, row, seen);
      };
      if (!problem_.is_causal) return group(count_);
      // The columns that are not masked for every row of the group.
      const Expr last = first_row_ + row + config_.rows;
      const Expr seen = sym::min(count_, last - first_);
      b_.branch(w_.compare(Opcode::greater, b_.index(seen), w_.i64(0)), [&] {
        group(seen);
        return Values();
      });
    });
    if (!config_.rounds_weights) {
      add_to_columns(dv_sums_, size_.value_width, weights_, gradient_rows_);
      return add_to_columns(dk_sums_, size_.head_width, slopes_, query_rows_);
    }
    pair_rows();
    pack_row_pairs(q_, size_.head, query_rows_);
    pack_row_pairs(grad_, size_.value, gradient_rows_);
    add_to_columns(dv_sums_, size_.value_width, weight_rows_, gradient_rows_);
    add_to_columns(dk_sums_, size_.head_width, slope_rows_, query_rows_);
  }

  // to[r] := the row as pairs of features, 0 beyond the last.
  void pack_feature_pairs(const Operand& operand, std::int64_t features, Expr row, MemoryId to,
                          Expr r) {
    for (std::int64_t d = 0; d < features; d += std::int64_t{2} * lanes_) {
      w_.store_vector(to, {r, w_.number(d / 2)}, load_pairs(operand, head_, row, d, features));
    }
  }

  // to[i] := rows 2 i and 2 i + 1 of the block as pairs; the last repeats itself.
  void pack_row_pairs(const Operand& operand, std::int64_t features, MemoryId to) {
    w_.loop(zero_, sym::ceildiv(rows_, 2), 1, [&](Expr i) {
      const Expr low = first_row_ + i * 2;
      const Expr high = first_row_ + sym::min(i * 2 + 1, rows_ - 1);
      for (std::int64_t d = 0; d < features; d += lanes_) {
        w_.store_vector(to, {i, w_.number(d)},
                        w_.pair(load_row(operand, head_, low, d, features),
                                load_row(operand, head_, high, d, features)));
      }
    });
  }

  // to[row + r][c] := sum over k of left[row + r][k] * panel[k][c].
  void tiles(Expr row, Expr seen, MemoryId left, std::int64_t features, MemoryId panel,
             MemoryId to) {
    const Block block{config_.rows, config_.vectors};
    w_.loop(zero_, seen, std::int64_t{lanes_} * block.vectors, [&](Expr c) {
      const auto right = [&](int v, Expr d) { return w_.load_vector(panel, {d, c + v * lanes_}); };
      const auto element = [&](int r, Expr d) { return w_.load_scalar(left, {row + r, d}); };
      const Values sums = w_.product(block, w_.zeros(block), zero_, w_.number(features),
                                     Runs::surely, right, element);
      for_each_sum(block, sums, [&](int r, int v, ValueId sum) {
        // Queries in pairs are as they were.
        if (config_.pairs && to == weights_ && problem_.scale != 1) {
          sum = w_.compute(Opcode::mul, {sum, w_.f32(problem_.scale)});
        }
        w_.store_vector(to, {row + r, c + v * lanes_}, sum);
      });
    });
  }

  // --- Accumulating matrix products
  // As many vectors of a row as registers hold of a few rows; `body` gets the first of them.
  void for_each_width(std::int64_t width, const std::function<void(int first, Block)>& body) {
    const auto all = static_cast<int>(width / lanes_);
    const int parts = (all + config_.vectors - 1) / config_.vectors;
    const int most = (all + parts - 1) / parts;
    for (int v = 0; v < all; v += most) {
      const int vectors = std::min(most, all - v);
      body(v, {std::min(config_.rows * config_.vectors / vectors, kMostRows), vectors});
    }
  }

  // to[r] := to[r] + sum over k in [begin, end) of element(r, k) * panel[k], vectors of the rows
  // from `first` on.
  using LoadSum = std::function<ValueId(int r, Expr feature)>;
  using StoreRow = std::function<void(int r, Expr feature, ValueId sum)>;
  void add_product(Block block, int first, Expr begin, Expr end, MemoryId panel,
                   const Element& element, const LoadSum& load, const StoreRow& store) {
    const auto feature = [&](int v) { return w_.number((first + v) * lanes_); };
    Values sums;
    for (int r = 0; r < block.rows; ++r) {
      for (int v = 0; v < block.vectors; ++v) sums.push_back(load(r, feature(v)));
    }
    const auto right = [&](int v, Expr k) { return w_.load_vector(panel, {k, feature(v)}); };
    sums = w_.product(block, sums, begin, end, Runs::perhaps, right, element);
    for_each_sum(block, sums, [&](int r, int v, ValueId sum) { store(r, feature(v), sum); });
  }

  // Of a group of rows. Padding rows are not accumulated.
  void add_to_rows(Expr head_number, Expr row, Expr seen) {
    for_each_width(size_.head_width, [&](int first, Block block) {
      const auto add = [&](Expr from, int rows) {
        const auto absolute = [&](int r) { return first_row_ + from + r; };
        const auto slope = [&](int r, Expr c) {
          return config_.rounds_weights ? w_.load_scalar(slope_columns_, {from + r - row, c})
                                        : w_.load_scalar(slopes_, {from + r, c});
        };
        const auto load = [&](int r, Expr d) { return load_dq(head_number, absolute(r), d); };
        const auto store = [&](int r, Expr d, ValueId sum) {
          store_dq(head_number, absolute(r), d, sum);
        };
        const Expr end = config_.rounds_weights ? pair_blocks(seen) * lanes_ : seen;
        add_product({rows, block.vectors}, first, zero_, end, keys_, slope, load, store);
      };
      const ValueId is_whole =
          w_.compare(Opcode::less_equal, b_.index(row + config_.rows), b_.index(rows_));
      b_.branch(
          is_whole,
          [&] {
            add(row, config_.rows);
            return Values();
          },
          [&] {
            // The last group, a row at a time.
            w_.loop(zero_, rows_ - row, 1, [&](Expr r) { add(row + r, 1); });
            return Values();
          });
    });
  }

  // to[c] := to[c] + sum over rows r, or pairs of them, of weights[r][c] * rows[r].
  void add_to_columns(MemoryId to, std::int64_t width, MemoryId weights, MemoryId rows) {
    for_each_width(width, [&](int first, Block block) {
      w_.loop(zero_, count_, block.rows, [&](Expr c) {
        Expr begin = zero_;
        if (problem_.is_causal) {  // the first row that sees column c
          begin = sym::min(sym::max(first_ + c - first_row_, zero_), rows_);
          if (config_.rounds_weights) begin = sym::floordiv(begin, 2);
        }
        const Expr end = config_.rounds_weights ? sym::ceildiv(rows_, 2) : rows_;
        const auto weight = [&](int r, Expr row) { return w_.load_scalar(weights, {row, c + r}); };
        const auto load = [&](int r, Expr d) { return w_.load_vector(to, {c + r, d}); };
        const auto store = [&](int r, Expr d, ValueId sum) {
          w_.store_vector(to, {c + r, d}, sum);
        };
        add_product(block, first, begin, end, rows, weight, load, store);
      });
    });
  }

  Expr share_;
  bool in_place_ = false;
  Operand dq_, dk_, dv_;
  MemoryId queries_ = kernel::kNone;
  MemoryId keys_across_ = kernel::kNone, values_across_ = kernel::kNone, keys_ = kernel::kNone;
  MemoryId query_rows_ = kernel::kNone, gradient_rows_ = kernel::kNone;
  MemoryId dk_sums_ = kernel::kNone, dv_sums_ = kernel::kNone, dq_sums_ = kernel::kNone;
};

}  // namespace

std::vector<Array> gradient_arrays(const AttentionProblem& problem, const AttentionConfig& config) {
  const Dimensions size = dimensions_of(problem, config);
  const GradientBlocks blocks = gradient_blocks_of(problem, config);
  sym::Context& context = problem.q_length.context();
  const auto n = [&](std::int64_t v) { return context.constant(v); };
  const bool pairs = config.pairs, rounds = config.rounds_weights;
  const DType dtype = pairs ? DType::i32 : DType::f32;
  const std::int64_t head = pairs ? size.head_pairs : size.head;
  const std::int64_t value = pairs ? size.value_pairs : size.value;
  const DType rows_of = rounds ? DType::i32 : DType::f32;
  std::vector<Array> arrays = {
      {"qs", {n(blocks.padded), n(pairs ? head : size.head_width)}, dtype},
      {"gs", {n(blocks.padded), n(pairs ? value : size.value_width)}, dtype},
      {"kt", {n(head), n(panel_line(size.columns))}, dtype},
      {"vt", {n(value), n(panel_line(size.columns))}, dtype},
      {"ks", {n(rounds ? size.columns / 2 : size.columns), n(size.head_width)}, rows_of},
      {"p", {n(blocks.padded), n(blocks.line)}},
      {"ds", {n(blocks.padded), n(blocks.line)}},
      // Whole groups of columns; the sums of those beyond the block are not used.
      {"dks", {n(size.columns + kMostRows), n(size.head_width)}},
      {"dvs", {n(size.columns + kMostRows), n(size.value_width)}},
  };
  if (pairs) {
    const std::int64_t rows = rounds ? blocks.padded / 2 : blocks.padded;
    arrays.push_back({"q_rows", {n(rows), n(size.head_width)}, rows_of});
    arrays.push_back({"g_rows", {n(rows), n(size.value_width)}, rows_of});
  }
  if (rounds) {
    arrays.push_back({"p_rows", {n(blocks.padded / 2), n(blocks.line)}, dtype});
    arrays.push_back({"ds_rows", {n(blocks.padded / 2), n(blocks.line)}, dtype});
    arrays.push_back({"ds_columns", {n(config.rows), n(size.columns / 2)}, dtype});
  }
  if (problem.dropout) arrays.push_back({"factors", {n(size.columns)}});
  if (!accumulates_in_place(problem, config)) {
    arrays.push_back({"dqs", {share_of(problem) * problem.q_length, n(size.head_width)}});
  }
  return arrays;
}

kernel::Kernel emit_gradient(const AttentionProblem& problem, const AttentionConfig& config,
                             sym::Context& context) {
  kernel::Kernel made;
  GradientWriter(problem, config, made, context).run();
  return made;
}

}  // namespace inkle::templates
