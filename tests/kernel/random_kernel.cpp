#include "kernel/random_kernel.h"

#include <random>

#include "kernel/builder.h"

namespace inkle::kernel {
namespace {

using loop::Opcode;

// Values are i64, whose arithmetic wraps: every operation is exact, sums are equal in any order.
class Generator {
 public:
  Generator(Kernel& kernel, sym::Context& context, std::uint64_t seed)
      : b_(kernel, context), random_(seed) {}

  void run() {
    declare();
    values_.push_back(b_.load(x_, {global_}));
    values_.push_back(b_.index(global_));
    values_.push_back(b_.integer(DType::i64, static_cast<std::int64_t>(below(100))));
    const std::uint64_t count = 3 + below(8);
    for (std::uint64_t n = 0; n < count; ++n) statement();
    const ValueId result = sum_of_all();
    b_.store(y_, {global_}, result);
    if (below(2) == 0) blocks_sum(result);
  }

 private:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  ValueId any() { return values_[below(values_.size())]; }
  void keep(ValueId value) { values_.push_back(value); }
  Expr constant(std::int64_t value) { return b_.context().constant(value); }
  ValueId integer(std::int64_t value) { return b_.integer(DType::i64, value); }
  ValueId binary(Opcode opcode, ValueId a, ValueId b) {
    return b_.compute(opcode, DType::i64, {a, b});
  }

  void declare() {
    constexpr std::int64_t kShapes[][2] = {{1, 4}, {2, 8}, {1, 32}, {2, 32}, {3, 32}, {4, 16}};
    const auto& shape = kShapes[below(std::size(kShapes))];
    warps_ = shape[0];
    lanes_ = shape[1];
    blocks_ = 1 + static_cast<std::int64_t>(below(3));
    threads_ = warps_ * lanes_;
    const auto elements = std::vector<Expr>{constant(blocks_ * threads_)};
    x_ = b_.parameter({.name = "x", .dtype = DType::i64, .shape = elements, .alignment = 16});
    y_ = b_.parameter(
        {.name = "y", .dtype = DType::i64, .shape = elements, .alignment = 16, .role = Role::out});
    z_ = b_.parameter(
        {.name = "z", .dtype = DType::i64, .shape = {constant(1)}, .role = Role::inout});
    shared_ = b_.memory({.name = "s",
                         .space = Space::shared,
                         .dtype = DType::i64,
                         .shape = {constant(threads_)},
                         .alignment = 16});
    scratch_ = b_.memory({.name = "q",
                          .space = Space::shared,
                          .dtype = DType::i64,
                          .shape = {constant(threads_)},
                          .alignment = 16});
    registers_ = b_.memory(
        {.name = "r", .space = Space::registers, .dtype = DType::i64, .shape = {constant(8)}});
    parts_ = b_.memory({.name = "parts",
                        .space = Space::workspace,
                        .dtype = DType::i64,
                        .shape = {constant(blocks_)}});
    tickets_ = b_.memory({.name = "tickets",
                          .space = Space::workspace,
                          .dtype = DType::i32,
                          .shape = {constant(1)}});
    const Expr block = b_.axis(AxisKind::grid, constant(blocks_));
    const Expr warp = b_.axis(AxisKind::thread, constant(warps_));
    const Expr lane = b_.axis(AxisKind::thread, constant(lanes_));
    block_ = block;
    thread_ = warp * lanes_ + lane;
    global_ = block * threads_ + thread_;
  }

  void statement() {
    switch (below(8)) {
      case 0:
      case 1:
        return keep(arithmetic(any(), any()));
      case 2:
        return masked();
      case 3:
        return serial();
      case 4:
        return vector();
      case 5:
        return exchange();
      case 6:
        return collective();
      default:
        return lanes_ == 32 ? shuffle() : exchange();
    }
  }

  ValueId arithmetic(ValueId a, ValueId b) {
    constexpr Opcode kOpcodes[] = {Opcode::add, Opcode::sub,     Opcode::mul,    Opcode::min,
                                   Opcode::max, Opcode::bit_xor, Opcode::bit_and};
    return binary(kOpcodes[below(std::size(kOpcodes))], a, b);
  }

  ValueId less(ValueId a, ValueId b) { return b_.compute(Opcode::less, DType::boolean, {a, b}); }

  // A load beyond a bound is masked.
  void masked() {
    const auto ahead = static_cast<std::int64_t>(below(5));
    const ValueId bound = integer(blocks_ * threads_);
    const ValueId condition = less(b_.index(global_ + ahead), bound);
    const ValueId otherwise = any();
    keep(b_.branch(
        condition, [&] { return Values{b_.load(x_, {global_ + ahead})}; },
        [&] { return Values{otherwise}; })[0]);
  }

  void serial() {
    const Values initial = {any(), any()};
    const auto end = constant(static_cast<std::int64_t>(below(5)));
    const Values results =
        b_.loop(LoopKind::serial, end, initial, [&](Expr variable, const Values& carried) {
          const ValueId next = arithmetic(carried[0], b_.index(variable * 3 + 1));
          return Values{carried[1], binary(Opcode::add, next, carried[1])};
        });
    for (const ValueId result : results) keep(result);
  }

  // Lanes fill registers, some of them under a mask; their sum is kept.
  void vector() {
    const ValueId outside = any();
    const auto limit = static_cast<std::int64_t>(below(9));
    keep(b_.vector(8, 4, [&](Expr lane) {
      b_.store(registers_, {lane}, binary(Opcode::add, outside, b_.index(lane)), Form::wide);
      b_.branch(less(b_.index(lane), integer(limit)), [&] {
        const ValueId old = b_.load(registers_, {lane}, Form::wide);
        b_.store(registers_, {lane}, binary(Opcode::mul, old, integer(3)), Form::wide);
        return Values{};
      });
      Collective info;
      info.lanes = true;
      return b_.reduce(info, {b_.load(registers_, {lane}, Form::wide)},
                       [&](const Values& a, const Values& b) {
                         return Values{binary(Opcode::add, a[0], b[0])};
                       });
    })[0]);
  }

  // Another thread's value through shared memory.
  void exchange() {
    const auto by = static_cast<std::int64_t>(below(static_cast<std::uint64_t>(threads_)));
    b_.store(shared_, {thread_}, any());
    b_.barrier({});
    keep(b_.load(shared_, {sym::mod(thread_ + by, threads_)}));
    b_.barrier({});
  }

  void collective() {
    Collective info;
    info.axes = below(2) == 0 ? std::vector<AxisId>{1, 2} : std::vector<AxisId>{2};
    if (below(3) == 0) info.sequential = 64;
    if (threads_ > 32) info.scratch = {scratch_};
    const auto merge = [&](const Values& a, const Values& b) {
      return Values{binary(Opcode::add, a[0], b[0])};
    };
    if (below(3) > 0) {
      keep(b_.reduce(info, {any()}, merge)[0]);
      return;
    }
    const TypeList types = {scalar_type(DType::i64)};
    const TypeList both = {types[0], types[0]};
    info.exclusive = below(2) == 0;
    Values operands = {any()};
    if (info.exclusive) operands.push_back(integer(0));
    keep(b_.operation(Op::scan, operands, types, info,
                      {{both, [&](const Values& v) { return merge({v[0]}, {v[1]}); }}})[0]);
  }

  void shuffle() {
    Shuffle info;
    info.kind = static_cast<ShuffleKind>(below(4));
    info.by = static_cast<std::int32_t>(below(32));
    keep(b_.operation(Op::shuffle, {any()}, {scalar_type(DType::i64)}, info)[0]);
  }

  ValueId sum_of_all() {
    ValueId sum = values_[0];
    for (std::size_t v = 1; v < values_.size(); ++v) sum = binary(Opcode::add, sum, values_[v]);
    return sum;
  }

  // The last block adds up what the blocks have left.
  void blocks_sum(ValueId value) {
    Collective info;
    info.axes = {1, 2};
    if (threads_ > 32) info.scratch = {scratch_};
    const ValueId part = b_.reduce(info, {value}, [&](const Values& a, const Values& b) {
      return Values{binary(Opcode::add, a[0], b[0])};
    })[0];
    b_.branch(b_.compute(Opcode::equal, DType::boolean, {b_.index(thread_), integer(0)}), [&] {
      b_.store(parts_, {block_}, part);
      Atomic ticket;
      ticket.access.memory = tickets_;
      ticket.access.indices = {constant(0)};
      ticket.access.order = Order::acquire_release;
      ticket.access.scope = Scope::gpu;
      ticket.needs_old = true;
      const ValueId old = b_.operation(Op::atomic, {b_.integer(DType::i32, 1)},
                                       {scalar_type(DType::i32)}, ticket)[0];
      const ValueId last = b_.integer(DType::i32, blocks_ - 1);
      b_.branch(b_.compute(Opcode::equal, DType::boolean, {old, last}), [&] {
        const ValueId total = b_.loop(
            LoopKind::serial, constant(blocks_), {integer(0)}, [&](Expr k, const Values& carried) {
              const ValueId next = binary(Opcode::add, carried[0], b_.load(parts_, {k}));
              b_.store(parts_, {k}, integer(0));
              return Values{next};
            })[0];
        b_.store(z_, {constant(0)}, total);
        b_.store(tickets_, {constant(0)}, b_.integer(DType::i32, 0));
        return Values{};
      });
      return Values{};
    });
  }

  Builder b_;
  std::mt19937_64 random_;
  std::int64_t warps_ = 1, lanes_ = 32, blocks_ = 1, threads_ = 32;
  MemoryId x_ = 0, y_ = 0, z_ = 0, shared_ = 0, scratch_ = 0, registers_ = 0, parts_ = 0,
           tickets_ = 0;
  Expr block_, thread_, global_;
  std::vector<ValueId> values_;
};

}  // namespace

RandomKernel random_kernel(std::uint64_t seed) {
  RandomKernel made;
  made.context = std::make_unique<sym::Context>();
  made.kernel.name = "random";
  Generator(made.kernel, *made.context, seed).run();
  return made;
}

}  // namespace inkle::kernel
