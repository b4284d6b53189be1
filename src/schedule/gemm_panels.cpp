#include "schedule/gemm_panels.h"

#include <algorithm>
#include <optional>
#include <span>

#include "sym/expr.h"

namespace inkle::schedule {
namespace {

// Of fewer columns most of a panel is zeros (2048x256 by 256x1 takes 2.6 times as long as the
// library); sums of fewer terms are stored as often as they are added to (2048x13 by 13x512: 1.3).
constexpr std::int64_t kLeastColumns = 8;
constexpr std::int64_t kLeastTerms = 16;

// What registers hold of the result: a panel's columns of a group's rows. Sums that are computed
// count, needed or not; a vector of each row alone leaves the multipliers waiting for splats (on a
// Zen 4 with AVX-512, by 128x768x768: 12 rows by 2 vectors 0.98 of 8 by 3, 6 by 4 0.97 to 0.99).
struct Block {
  std::int64_t vectors;  // of a panel
  double cost;           // of a sum
};
constexpr Block kBlocks[] = {{3, 1.0}, {4, 1.005}, {2, 1.02}, {1, 1.2}};
constexpr std::int64_t kMostRows = 12;  // more take more addresses than there are registers

// In eight tile registers: of few rows as many columns as they hold, else two tiles each way, which
// load as many tiles as they multiply.
constexpr std::int64_t kTileRows = 16;
constexpr Block kTileBlocks[] = {{2, 1.0}};
constexpr Block kFewRowsBlocks[] = {{4, 1.0}, {3, 1.02}, {2, 1.1}};

// Sums take the library longer by so much; its post-ops, in parts of a kernel's writing and reading
// the result (bench/gemm.py on a Zen 4 with AVX-512; its docs have the table).
constexpr double kOneRowGain = 0.3;
constexpr std::int64_t kManyRows = 256;
constexpr double kManyRowsGain = 0.02;
constexpr double kPostOpMoves = 0.5;
constexpr double kAdditionMoves = 0.25;

// Where no more is expected, either may be the faster one: then the library has it, whose code is
// there already.
constexpr double kLeastGain = 0.01;

// Against a multiplication, of functions like exp.
constexpr double kFunctionCost = 10;

bool is_function(const loop::Instruction& i) { return i.opcode >= loop::Opcode::sqrt; }

// A right operand that the product computes as it reads it is computed for each group of rows.
constexpr std::int64_t kMostComputedRows = 96;

std::int64_t up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// Rows of a task, in whole groups, which waste nothing.
std::int64_t rows_of_task(std::optional<std::int64_t> rows, std::int64_t most, std::int64_t group) {
  most = std::max(most / group, std::int64_t{1}) * group;
  if (!rows || *rows < 1) return most;
  if (*rows <= group * 2) return *rows;
  const std::int64_t blocks = (*rows + most - 1) / most;
  return up((*rows + blocks - 1) / blocks, group);
}

// Rows that registers have in all tasks.
std::int64_t computed_rows(std::int64_t rows, std::int64_t most, std::int64_t group) {
  const std::int64_t task = rows_of_task(rows, most, group);
  const std::int64_t groups = (task + group - 1) / group;
  const std::int64_t each = std::max((task + groups - 1) / groups, std::int64_t{1});
  return rows / task * groups * each + up(rows % task, each);
}

}  // namespace

bool PanelChoice::fits(const MatmulStep& m) const {
  for (const Expr size : m.b.sizes) {
    if ((!all_ && !size.is_constant()) || size.is_constant(0)) return false;
  }
  const auto columns = m.b.sizes.back().constant(), terms = m.a.sizes.back().constant();
  if (!all_ && (columns < kLeastColumns || terms < kLeastTerms)) return false;
  return !buffer(m.c.buffer).writes_into && m.a.sizes.size() == m.c.sizes.size() &&
         m.b.sizes.size() == m.c.sizes.size();
}

bool PanelChoice::multiplies(const MatmulStep& m, bool computes_left) const {
  const abi::DType dtype = buffer(m.a.buffer).dtype, result = buffer(m.c.buffer).dtype;
  if (dtype != buffer(m.b.buffer).dtype || (all_ && dtype != abi::DType::f32)) return false;
  if (result != dtype && result != abi::DType::f32) return false;
  if (dtype == abi::DType::f32) return true;
  const bool multiplies_pairs = device_.matrix_unit == abi::MatrixUnit::avx512_bf16 ||
                                device_.matrix_unit == abi::MatrixUnit::amx;
  return dtype == abi::DType::bf16 && multiplies_pairs && (computes_left || has_pairs(m.a));
}

std::optional<double> PanelChoice::saved_by_left(const GemmKernel& g,
                                                 const loop::Body& body) const {
  if (device_.libraries.gemm.source == abi::GemmSource::templates) return 0;
  const auto columns = sym::hint(g.columns);
  if (!columns || *columns < 1) return std::nullopt;
  // Of an element, in multiplications of sums.
  double cost = 0;
  for (const loop::Instruction& i : body.instructions) cost += is_function(i) ? kFunctionCost : 1;
  const std::int64_t tasks = up(*columns, device_.loops.gemm_columns) / device_.loops.gemm_columns;
  const double saved = device_.loops.gemm_joined_terms - static_cast<double>(tasks) * cost;
  if (saved < 0) return std::nullopt;
  return saved / static_cast<double>(*columns);
}

// Whether the terms of each row of `a` are pairs.
bool PanelChoice::has_pairs(const View& a) const {
  const std::size_t rank = a.sizes.size();
  if (!sym::divides(2, a.sizes[rank - 1]) || !a.strides[rank - 1].is_constant(1)) return false;
  for (std::size_t d = 0; d + 1 < rank; ++d) {
    if (!a.sizes[d].is_constant(1) && !sym::divides(2, a.strides[d])) return false;
  }
  return sym::divides(2, a.offset);
}

bool PanelChoice::may_compute(const MatmulStep& m) const {
  const auto rows = m.c.sizes[m.c.sizes.size() - 2].constant();
  if (device_.libraries.gemm.source == abi::GemmSource::templates) {
    return rows && *rows <= kMostComputedRows;
  }
  const auto terms = m.a.sizes.back().constant(), columns = m.b.sizes.back().constant();
  constexpr std::int64_t kBytes = 4;
  return rows && *rows <= device_.loops.gemm_few_rows && terms && columns &&
         *terms * *columns * kBytes > device_.l3_bytes;
}

// Of a task: half, where there would be too few tasks for all threads.
std::int64_t PanelChoice::most_rows(const GemmKernel& g) const {
  sym::Context& context = *program_.context;
  const std::int64_t most = device_.loops.gemm_rows, columns = device_.loops.gemm_columns;
  const auto tasks = (g.batch * sym::ceildiv(g.rows, context.constant(most)) *
                      sym::ceildiv(g.columns, context.constant(columns)))
                         .constant();
  return tasks && *tasks < std::int64_t{2} * device_.parallelism ? most / 2 : most;
}

double PanelChoice::choose(GemmKernel& g, bool whole) const {
  constexpr std::int64_t kUnknown = std::int64_t{1} << 16;
  const auto likely = [&](Expr size) {
    return std::max<std::int64_t>(sym::hint(size).value_or(kUnknown), 1);
  };
  const std::int64_t rows = likely(g.rows), columns = likely(g.columns);
  const std::int64_t lanes = device_.vector_bytes / 4;
  double least = 0;
  const std::span<const Block> blocks = !g.tiles            ? std::span<const Block>(kBlocks)
                                        : rows <= kTileRows ? std::span<const Block>(kFewRowsBlocks)
                                                            : std::span<const Block>(kTileBlocks);
  for (const Block& block : blocks) {
    std::int64_t group = std::min(device_.loops.gemm_sums / block.vectors, kMostRows);
    if (g.tiles) group = rows <= kTileRows ? kTileRows : 2 * kTileRows;
    // A panel's row and two splats have registers of their own.
    if (!g.tiles && block.vectors * (group + 1) + 2 > device_.vector_registers) continue;
    const std::int64_t panel = block.vectors * lanes;
    if (whole && !sym::divides(panel, g.columns)) continue;
    const double cost = block.cost * static_cast<double>(computed_rows(rows, most_rows(g), group)) *
                        static_cast<double>(up(columns, panel));
    if (g.panel != 0 && cost >= least) continue;
    g.panel = panel;
    g.group = group;
    least = cost;
  }
  return least / (static_cast<double>(rows) * static_cast<double>(columns));
}

void PanelChoice::tile(const GemmKernel& g, Schedule& schedule) const {
  schedule.lanes = device_.vector_bytes / 4;
  schedule.row_block = rows_of_task(g.rows.constant(), most_rows(g), g.group);
  schedule.column_block = up(device_.loops.gemm_columns, g.panel);
}

bool PanelChoice::is_chosen(const MatmulStep& m, double computed, double moves,
                            double saved_before) const {
  if (all_ || device_.libraries.gemm.source == abi::GemmSource::templates) return true;
  if (training_ || !m.b_is_weight) return false;
  const abi::LoopRules& rules = device_.loops;
  const auto rows = sym::hint(m.c.sizes[m.c.sizes.size() - 2]);
  double library = 1 + saved_before;
  if (rows && *rows == 1) {
    library += kOneRowGain;
  } else if (rows && *rows <= rules.gemm_few_rows) {
    library += rules.gemm_few_rows_gain;
  } else if (rows && *rows >= kManyRows) {
    library += kManyRowsGain;
  }
  for (const Epilogue& e : m.epilogue) {
    if (e.kind == abi::PostOpKind::relu || e.kind == abi::PostOpKind::linear) continue;
    moves = std::max(moves, e.kind == abi::PostOpKind::add ? kAdditionMoves : kPostOpMoves);
  }
  // Of bf16 multiplying takes half the time, and so does moving the result.
  library += moves * rules.gemm_joined_terms / static_cast<double>(*m.a.sizes.back().constant());
  return computed + kLeastGain <= library;
}

}  // namespace inkle::schedule
