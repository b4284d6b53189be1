#include "templates/attention_dropout.h"

#include "base/error.h"
#include "loop/scalar.h"

namespace inkle::templates {

namespace {

constexpr std::int64_t kLowWord = 0xffffffff;

}  // namespace

void DropoutWriter::prepare(ValueId seed) {
  const ValueId low = w_.i64(kLowWord);
  const ValueId high = w_.compute(Opcode::shift_right, {seed, w_.i64(32)});
  std::array<ValueId, 2> key = {w_.compute(Opcode::bit_and, {seed, low}),
                                w_.compute(Opcode::bit_and, {high, low})};
  const std::int64_t steps[2] = {0x9E3779B9, 0xBB67AE85};
  for (int round = 0; round < 10; ++round) {
    round_keys_.push_back(key);
    if (round == 9) break;
    for (std::size_t k = 0; k < 2; ++k) {
      key[k] =
          w_.compute(Opcode::bit_and, {w_.compute(Opcode::add, {key[k], w_.i64(steps[k])}), low});
    }
  }
}

// One of the ten rounds of Philox-4x32: words of 32 bits in i64.
void DropoutWriter::philox_round(Words& c, const std::array<ValueId, 2>& key) {
  const ValueId low = w_.i64(kLowWord);
  const auto upper = [&](ValueId v) {
    return w_.compute(Opcode::bit_and, {w_.compute(Opcode::shift_right, {v, w_.i64(32)}), low});
  };
  const auto mixed = [&](ValueId product, ValueId word, ValueId with) {
    const ValueId x = w_.compute(Opcode::bit_xor, {upper(product), word});
    return w_.compute(Opcode::bit_xor, {x, with});
  };
  const ValueId p0 = w_.compute(Opcode::mul, {c[0], w_.i64(0xD2511F53)});
  const ValueId p1 = w_.compute(Opcode::mul, {c[2], w_.i64(0xCD9E8D57)});
  const Words next = {mixed(p1, c[1], key[0]), w_.compute(Opcode::bit_and, {p1, low}),
                      mixed(p0, c[3], key[1]), w_.compute(Opcode::bit_and, {p0, low})};
  c = next;
}

// Word w of the counters 16 b + l is for the columns 64 b + 16 w + l, 0 <= l < 16.
void DropoutWriter::draw_factors(MemoryId to, Expr row, Expr first, Expr columns) {
  constexpr int kApart = 16;
  const double p = dropout_.p;
  if (p >= 1) {
    const Expr end = sym::ceildiv(columns, kDrawn) * kDrawn;
    w_.loop(w_.number(0), end, lanes_, [&](Expr c) { w_.store_vector(to, {c}, w_.f32(0)); });
    return;
  }
  INKLE_CHECK(lanes_ <= kApart, "vectors of {} lanes", lanes_);
  const ValueId low = w_.i64(kLowWord);
  const ValueId counted = b_.index(row, DType::i64);
  const ValueId row_low = w_.compute(Opcode::bit_and, {counted, low});
  const ValueId row_high =
      w_.compute(Opcode::bit_and, {w_.compute(Opcode::shift_right, {counted, w_.i64(32)}), low});
  const ValueId stream = w_.i64((dropout_.number + 1) & kLowWord);
  const ValueId least = w_.i64(loop::dropped_below(p));
  const ValueId kept = w_.f32(loop::dropout_scale(p));
  w_.loop(w_.number(0), columns, kDrawn, [&](Expr c) {
    const Expr block = sym::floordiv(first + c, kDrawn) * kApart;
    for (int part = 0; part < kApart; part += lanes_) {
      const ValueId counter =
          w_.compute(Opcode::add, {b_.index(block + part), b_.index(w_.lane())});
      Words w = {w_.compute(Opcode::bit_and, {counter, low}), row_low, row_high, stream};
      for (const std::array<ValueId, 2>& key : round_keys_) philox_round(w, key);
      for (int n = 0; n < 4; ++n) {
        const ValueId is_kept =
            w_.compare(Opcode::greater_equal, w[static_cast<std::size_t>(n)], least);
        w_.store_vector(to, {c + (n * kApart + part)}, w_.select(is_kept, kept, w_.f32(0)));
      }
    }
  });
}

}  // namespace inkle::templates
