#include "schedule/kernel_builder.h"

#include <cmath>
#include <map>
#include <optional>
#include <random>

#include "loop/scalar.h"

namespace inkle::schedule::testing {

using loop::Instruction;
using loop::Scalar;

Array::Array(DType d, std::int64_t n)
    : dtype(d), count(n), bytes(static_cast<std::size_t>(n * abi::size_of(d))) {}

double Array::get(std::int64_t i) const {
  const Scalar s = loop::read_element(dtype, bytes.data() + i * abi::size_of(dtype));
  return abi::is_float(dtype) ? s.real : static_cast<double>(s.integer);
}
void Array::set(std::int64_t i, double v) {
  loop::write_element(dtype, bytes.data() + i * abi::size_of(dtype), loop::make_scalar(dtype, v));
}
void Array::fill_random(unsigned seed, double low, double high) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  for (std::int64_t i = 0; i < count; ++i) set(i, uniform(generator));
}

Array random_array(DType dtype, std::int64_t n, unsigned seed, double low, double high) {
  Array a(dtype, n);
  a.fill_random(seed, low, high);
  return a;
}

std::uint32_t KernelBuilder::param(DType dtype, ParamRole role) {
  kernel.params.push_back({role, dtype, static_cast<std::int32_t>(abi::size_of(dtype)), false});
  return static_cast<std::uint32_t>(kernel.params.size() - 1);
}
std::uint32_t KernelBuilder::scratch(DType dtype, Expr elements) {
  loops.scratch.push_back({dtype, elements});
  return static_cast<std::uint32_t>(kernel.params.size() + loops.scratch.size() - 1);
}
Expr KernelBuilder::size(std::string_view name, std::int64_t hint, std::int64_t low) {
  Expr s = context.symbol(name, {.range = {low, 1 << 20}, .hint = hint});
  kernel.sizes.push_back(s);
  return s;
}
Expr KernelBuilder::outer(Expr extent) {
  loops.outer.push_back({context.index(extent), extent});
  return loops.outer.back().variable;
}

namespace {

std::vector<Expr> make_inner(KernelBuilder& b, Stage& stage, const std::vector<Expr>& extents) {
  std::vector<Expr> variables;
  for (const Expr extent : extents) {
    variables.push_back(b.context.index(extent));
    stage.inner.push_back({variables.back(), extent});
  }
  return variables;
}

}  // namespace

Stage& KernelBuilder::pointwise(
    std::vector<Expr> inner, const Record& record,
    const std::function<std::vector<StageStore>(const std::vector<Expr>&)>& stores) {
  Stage stage;
  const auto variables = make_inner(*this, stage, inner);
  BodyBuilder body(stage.body, context);
  record(body, variables);
  stage.stores = stores(variables);
  loops.stages.push_back(std::move(stage));
  return loops.stages.back();
}

std::uint32_t KernelBuilder::reduce(ReduceOp op, DType accumulator, std::vector<Expr> inner,
                                    const Record& record) {
  Stage stage;
  stage.kind = StageKind::reduction;
  stage.reduce = op;
  stage.accumulator = accumulator;
  stage.first_row = static_cast<std::uint32_t>(loops.rows.size());
  const auto variables = make_inner(*this, stage, inner);
  BodyBuilder body(stage.body, context);
  record(body, variables);
  DType row = accumulator;
  if (op == ReduceOp::argmin || op == ReduceOp::argmax) row = DType::i64;
  if (op == ReduceOp::any || op == ReduceOp::all) row = DType::boolean;
  for (std::size_t r = 0; r < loop::result_count(op); ++r) loops.rows.push_back(row);
  loops.stages.push_back(std::move(stage));
  return loops.stages.back().first_row;
}

void KernelBuilder::store_row(std::uint32_t row, std::uint32_t target, Expr offset) {
  const DType dtype = loops.rows.at(row);
  pointwise(
      {}, [&](BodyBuilder& body, const std::vector<Expr>&) { body.yield(body.row(row, dtype)); },
      [&](const std::vector<Expr>&) {
        return std::vector<StageStore>{{target, offset}};
      });
}

void KernelBuilder::finish() {
  kernel.name = "k";
  kernel.body = loops;
}

namespace {

struct Interpreter {
  const Kernel& kernel;
  const LoopKernel& loops;
  std::vector<Array>& arrays;
  std::map<const sym::Node*, std::int64_t> symbols;
  std::vector<Array> scratch;
  std::vector<Scalar> rows;
  std::int64_t status = 0;

  std::int64_t value(Expr e) {
    return sym::evaluate(e, [&](Expr s) { return symbols.at(s.node()); });
  }
  Array& array(std::uint32_t b) {
    return b < kernel.params.size() ? arrays[b] : scratch[b - kernel.params.size()];
  }

  std::vector<Scalar> run_body(const loop::Body& body) {
    std::vector<Scalar> v(body.instructions.size());
    for (std::size_t k = 0; k < v.size(); ++k) {
      const Instruction& i = body.instructions[k];
      std::vector<Scalar> operands;
      for (const Val o : i.used()) operands.push_back(v[o]);
      const DType from = i.operand_count > 0 ? body[i.operands[0]].dtype : i.dtype;
      switch (i.opcode) {
        case Opcode::constant:
          v[k] = abi::is_float(i.dtype) ? loop::make_scalar(i.dtype, i.real)
                                        : loop::make_scalar(i.dtype, i.integer);
          break;
        case Opcode::index:
          v[k].integer = value(i.indices[0]);
          break;
        case Opcode::load:
          if (i.operand_count == 2 && operands[0].integer == 0) {
            v[k] = operands[1];
          } else {
            Array& a = array(i.buffer);
            const std::int64_t at = value(i.indices[0]);
            EXPECT_GE(at, 0);
            EXPECT_LT(at, a.count);
            v[k] = loop::read_element(a.dtype, a.bytes.data() + at * abi::size_of(a.dtype));
          }
          break;
        case Opcode::row:
          v[k] = rows.at(static_cast<std::size_t>(i.integer));
          break;
        case Opcode::random:
          v[k].integer = loop::philox(operands[0].integer, operands[1].integer);
          break;
        case Opcode::cast:
          v[k] = loop::convert(operands[0], from, i.dtype);
          break;
        case Opcode::bitcast:
          v[k] = loop::bit_convert(operands[0], from, i.dtype);
          break;
        case Opcode::select:
          v[k] = operands[0].integer != 0 ? operands[1] : operands[2];
          break;
        case Opcode::indirect: {
          const std::int64_t extent = value(i.indices[0].context().info(i.indices[0]).extent);
          std::int64_t at = operands[0].integer;
          if (at < 0 || at >= extent) {
            status = 1;
            at = 0;
          }
          symbols[i.indices[0].node()] = at;
          v[k].integer = at;
          break;
        }
        default:
          try {
            v[k] = loop::evaluate(i.opcode, from, operands);
          } catch (const std::exception&) {
            status = 2;
          }
      }
    }
    return v;
  }

  void points(const std::vector<loop::Dim>& dims, std::size_t level,
              const std::function<void()>& body) {
    if (level == dims.size()) return body();
    const std::int64_t extent = value(dims[level].extent);
    for (std::int64_t i = 0; i < extent; ++i) {
      symbols[dims[level].variable.node()] = i;
      points(dims, level + 1, body);
    }
  }

  void reduce(const Stage& stage) {
    const Val y = stage.body.yields[0];
    std::vector<double> reals;
    std::vector<std::int64_t> integers;
    const DType dtype = stage.accumulator;
    const bool real = abi::is_float(dtype);
    points(stage.inner, 0, [&] {
      const Scalar s = loop::convert(run_body(stage.body)[y], stage.body[y].dtype, dtype);
      reals.push_back(real ? s.real : static_cast<double>(s.integer));
      integers.push_back(s.integer);
    });
    double result = 0;
    std::int64_t integer = 0;
    double second = 0;
    const auto better = [&](double a, double b) {
      if (std::isnan(b)) return !std::isnan(a);
      return stage.reduce == ReduceOp::argmin || stage.reduce == ReduceOp::min ? b < a : b > a;
    };
    switch (stage.reduce) {
      case ReduceOp::sum:
        for (std::size_t i = 0; i < reals.size(); ++i) result += reals[i], integer += integers[i];
        break;
      case ReduceOp::prod:
        result = 1;
        integer = 1;
        for (std::size_t i = 0; i < reals.size(); ++i) result *= reals[i], integer *= integers[i];
        break;
      case ReduceOp::any:
      case ReduceOp::all:
        integer = stage.reduce == ReduceOp::all ? 1 : 0;
        for (const double x : reals) {
          if (stage.reduce == ReduceOp::all ? x == 0 : x != 0)
            integer = 1 - (stage.reduce == ReduceOp::all);
        }
        break;
      case ReduceOp::min:
      case ReduceOp::max:
      case ReduceOp::argmin:
      case ReduceOp::argmax: {
        std::size_t best = 0;
        for (std::size_t i = 1; i < reals.size(); ++i) {
          if (better(reals[best], reals[i])) best = i;
        }
        result = reals.empty() ? 0 : reals[best];
        integer = integers.empty() ? 0 : integers[best];
        if (stage.reduce == ReduceOp::argmin || stage.reduce == ReduceOp::argmax) {
          integer = static_cast<std::int64_t>(best);
        }
        break;
      }
      case ReduceOp::welford:
        for (const double x : reals) result += x;
        result /= static_cast<double>(reals.size());
        for (const double x : reals) second += (x - result) * (x - result);
        break;
      case ReduceOp::online_softmax:
        result = reals[0];
        for (const double x : reals) result = better(result, x) ? x : result;
        for (const double x : reals)
          second += std::exp(x - (std::isinf(result) && result < 0 ? 0 : result));
        break;
    }
    rows[stage.first_row] = {result, integer};
    if (loop::result_count(stage.reduce) == 2) rows[stage.first_row + 1] = {second, 0};
  }

  // The running value in place of a scan's yield.
  static Scalar scanned(const Stage& stage, const std::vector<Scalar>& v,
                        std::optional<Scalar>& running) {
    const Val y = stage.body.yields[0];
    const Scalar x = loop::convert(v[y], stage.body[y].dtype, stage.accumulator);
    const Opcode op = stage.reduce == ReduceOp::sum    ? Opcode::add
                      : stage.reduce == ReduceOp::prod ? Opcode::mul
                      : stage.reduce == ReduceOp::min  ? Opcode::min
                                                       : Opcode::max;
    const Scalar both[] = {running.value_or(x), x};
    running = running ? loop::evaluate(op, stage.accumulator, both) : x;
    return loop::convert(*running, stage.accumulator, stage.body[y].dtype);
  }

  void part() {
    iteration(Phase::first);
    const std::vector<loop::Dim> walked(
        loops.outer.end() - static_cast<std::ptrdiff_t>(loops.sequential), loops.outer.end());
    points(walked, 0, [&] { iteration(Phase::each); });
    iteration(Phase::last);
  }

  void iteration(Phase phase) {
    for (const Stage& stage : loops.stages) {
      if (stage.phase != phase) continue;
      if (stage.kind == StageKind::reduction) {
        reduce(stage);
        continue;
      }
      std::optional<Scalar> running;
      points(stage.inner, 0, [&] {
        std::vector<Scalar> v = run_body(stage.body);
        if (stage.kind == StageKind::scan) v[stage.body.yields[0]] = scanned(stage, v, running);
        for (const StageStore& s : stage.stores) {
          const Val y = stage.body.yields[s.yield];
          Array& a = array(s.target);
          const std::int64_t at = value(s.offset);
          ASSERT_GE(at, 0);
          ASSERT_LT(at, a.count);
          std::byte* place = a.bytes.data() + at * abi::size_of(a.dtype);
          Scalar out = loop::convert(v[y], stage.body[y].dtype, a.dtype);
          if (s.mode == loop::StoreMode::atomic_add) {
            const Scalar both[] = {loop::read_element(a.dtype, place), out};
            out = loop::evaluate(Opcode::add, a.dtype, both);
          }
          loop::write_element(a.dtype, place, out);
        }
      });
    }
  }
};

}  // namespace

namespace {

std::int64_t interpret(const Kernel& kernel, const LoopKernel& loops, std::vector<Array>& arrays,
                       const std::vector<std::int64_t>& sizes) {
  Interpreter machine{kernel, loops, arrays, {}, {}, std::vector<Scalar>(loops.rows.size()), 0};
  for (std::size_t i = 0; i < sizes.size(); ++i) machine.symbols[kernel.sizes[i].node()] = sizes[i];
  for (const auto& s : loops.scratch)
    machine.scratch.emplace_back(s.dtype, machine.value(s.elements));
  const std::vector<loop::Dim> parts(
      loops.outer.begin(), loops.outer.end() - static_cast<std::ptrdiff_t>(loops.sequential));
  machine.points(parts, 0, [&] { machine.part(); });
  return machine.status;
}

}  // namespace

std::int64_t interpret(const Kernel& kernel, std::vector<Array>& arrays,
                       const std::vector<std::int64_t>& sizes) {
  std::int64_t status = 0;
  for_each_loops(
      kernel, [&](const LoopKernel& loops) { status |= interpret(kernel, loops, arrays, sizes); });
  return status;
}

void expect_run(const inkle::kernel::Kernel& made, const std::vector<Array>& arrays,
                const std::vector<Array>& expected, const std::vector<std::int64_t>& sizes,
                inkle::kernel::Writes writes, double tolerance, const std::string& name) {
  std::vector<Array> actual = arrays;
  inkle::kernel::Instance instance;
  for (Array& a : actual) instance.arguments.push_back({a.bytes, writes});
  instance.sizes = sizes;
  inkle::kernel::CheckOptions options;
  options.seeds = 1;
  options.limit_residency = false;
  const inkle::kernel::CheckResult result = inkle::kernel::check(made, {&instance, 1}, options);
  for (const inkle::kernel::Finding& finding : result.findings) {
    ADD_FAILURE() << name << ", " << result.schedule << ": "
                  << inkle::kernel::to_string(made, finding);
  }
  EXPECT_EQ(result.status, 0);
  ASSERT_EQ(result.results.size(), actual.size());
  for (std::size_t p = 0; p < actual.size(); ++p) actual[p].bytes = result.results[p];
  expect_near(actual, expected, tolerance, name);
}

void expect_near(const std::vector<Array>& actual, const std::vector<Array>& expected,
                 double tolerance, const std::string& who) {
  for (std::size_t p = 0; p < actual.size(); ++p) {
    double scale = 0;
    for (std::int64_t i = 0; i < actual[p].count; ++i) {
      const double e = expected[p].get(i);
      if (std::isfinite(e)) scale = std::max(scale, std::abs(e));
    }
    int wrong = 0;
    for (std::int64_t i = 0; i < actual[p].count && wrong < 5; ++i) {
      const double e = expected[p].get(i);
      const double a = actual[p].get(i);
      if (std::isnan(e) ? std::isnan(a) : e == a) continue;
      if (std::abs(e - a) <= tolerance * scale) continue;
      ADD_FAILURE() << who << ", parameter " << p << "[" << i << "]: " << a << ", expected " << e;
      ++wrong;
    }
  }
}

}  // namespace inkle::schedule::testing
