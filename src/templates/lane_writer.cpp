#include "templates/lane_writer.h"

namespace inkle::templates {

void LaneWriter::in_lanes(const std::function<void()>& body) {
  b_.vector(lanes_, lanes_, [&](Expr lane) {
    lane_ = lane;
    lane_number_ = b_.index(lane, DType::i32);
    body();
    return Values();
  });
}

ValueId LaneWriter::compute(Opcode opcode, const Values& operands) {
  return b_.compute(opcode, b_.type_of(operands[0]).dtype, operands);
}

ValueId LaneWriter::compare(Opcode opcode, ValueId a, ValueId b) {
  return b_.compute(opcode, DType::boolean, {a, b});
}

ValueId LaneWriter::select(ValueId condition, ValueId a, ValueId b) {
  return b_.compute(Opcode::select, b_.type_of(a).dtype, {condition, a, b});
}

ValueId LaneWriter::exp_of_negative(ValueId x) {
  return b_.function(kernel::NamedFunction::exp_negative, {x});
}

ValueId LaneWriter::pair(ValueId low, ValueId high) {
  constexpr std::int64_t kHigh = -65536;  // 0xffff0000
  const auto bits = [&](ValueId v) { return b_.compute(Opcode::bitcast, DType::i32, {v}); };
  const auto number = [&](std::int64_t n) { return b_.integer(DType::i32, n); };
  const ValueId moved = compute(Opcode::shift_right, {bits(low), number(16)});
  return compute(Opcode::bit_or, {compute(Opcode::bit_and, {moved, number(0xffff)}),
                                  compute(Opcode::bit_and, {bits(high), number(kHigh)})});
}

ValueId LaneWriter::rounded_pair(ValueId low, ValueId high) {
  return b_.function(kernel::NamedFunction::pack_bf16, {low, high});
}

ValueId LaneWriter::across(Opcode opcode, ValueId v) {
  return across([&](ValueId a, ValueId b) { return compute(opcode, {a, b}); }, v);
}

ValueId LaneWriter::across(const Merge& merge, ValueId v) {
  kernel::Collective lanes;
  lanes.lanes = true;
  return b_.reduce(lanes, {v},
                   [&](const Values& a, const Values& b) { return Values{merge(a[0], b[0])}; })[0];
}

ValueId LaneWriter::load_scalar(MemoryId memory, std::vector<Expr> indices) {
  return b_.load(memory, std::move(indices), kernel::Form::splat);
}

void LaneWriter::store_scalar(MemoryId memory, std::vector<Expr> indices, ValueId v) {
  b_.store(memory, std::move(indices), v, kernel::Form::splat);
}

ValueId LaneWriter::load_vector(MemoryId memory, std::vector<Expr> indices) {
  indices.back() = indices.back() + lane_;
  return b_.load(memory, std::move(indices), kernel::Form::wide);
}

void LaneWriter::store_vector(MemoryId memory, std::vector<Expr> indices, ValueId v) {
  indices.back() = indices.back() + lane_;
  b_.store(memory, std::move(indices), v, kernel::Form::wide);
}

ValueId LaneWriter::first_lanes(std::int64_t count) {
  return compare(Opcode::less, lane_number_, b_.integer(DType::i32, count));
}

ValueId LaneWriter::lanes_before(Expr limit, Expr c) {
  const ValueId left = b_.cast(b_.index(limit - c), DType::i32);
  return compare(Opcode::less, lane_number_, left);
}

ValueId LaneWriter::where(ValueId valid, const Lazy& v, ValueId otherwise) {
  return b_.branch(
      valid, [&] { return Values{v()}; }, [&] { return Values{otherwise}; })[0];
}

void LaneWriter::in_row(std::int64_t first, std::int64_t count, const std::function<void()>& body) {
  if (first + lanes_ <= count) return body();
  b_.branch(first_lanes(count - first), [&] {
    body();
    return Values();
  });
}

void LaneWriter::loop(Expr begin, Expr end, std::int64_t step,
                      const std::function<void(Expr)>& body) {
  loop(begin, end, step, Runs::perhaps, {}, [&](Expr i, const Values&) {
    body(i);
    return Values();
  });
}

Values LaneWriter::loop(Expr begin, Expr end, std::int64_t step, Runs runs, const Values& initial,
                        const kernel::Builder::LoopBody& body) {
  return write_loop(b_, begin, end, step, runs, initial, body);
}

Values write_loop(kernel::Builder& builder, Expr begin, Expr end, std::int64_t step, Runs runs,
                  const Values& initial, const kernel::Builder::LoopBody& body) {
  kernel::Loop info;
  info.begin = begin;
  info.end = end;
  info.step = builder.context().constant(step);
  info.at_least_once = runs == Runs::surely;
  return builder.loop(std::move(info), initial, body);
}

Values LaneWriter::product(Block block, const Values& before, Expr begin, Expr end, Runs runs,
                           const Panel& panel, const Element& element) {
  return loop(begin, end, 1, runs, before, [&](Expr k, const Values& sums) {
    Values right;
    for (int v = 0; v < block.vectors; ++v) right.push_back(panel(v, k));
    Values next;
    for (int r = 0; r < block.rows; ++r) {
      const ValueId left = element(r, k);
      const bool pairs = b_.type_of(left).dtype == DType::i32;
      for (const ValueId vector : right) {
        const ValueId sum = sums[next.size()];
        next.push_back(pairs ? b_.function(kernel::NamedFunction::dot_bf16, {sum, left, vector})
                             : compute(Opcode::fma, {left, vector, sum}));
      }
    }
    return next;
  });
}

void for_each_sum(Block block, const Values& sums, const StoreSum& store) {
  for (int r = 0; r < block.rows; ++r) {
    for (int v = 0; v < block.vectors; ++v) {
      store(r, v, sums[static_cast<std::size_t>(r * block.vectors + v)]);
    }
  }
}

Values LaneWriter::zeros(Block block) {
  return Values(static_cast<std::size_t>(block.rows * block.vectors), f32(0));
}

}  // namespace inkle::templates
