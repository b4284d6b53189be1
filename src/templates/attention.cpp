// The table of templates: what they are for, how they are configured, what they need and cost.
#include "templates/attention.h"

#include "base/error.h"
#include "templates/attention_tiles.h"
#include "templates/attention_writer.h"

namespace inkle::templates {

namespace {

// Rows of a block of registers: with 4 vectors of a row 24 of 32 registers accumulate, with 2 of
// them 12 of 16; the others hold the operands.
constexpr std::int32_t kRows = 6;
constexpr std::int32_t kManyRegisters = 32;

bool is_forward(const AttentionProblem& problem) { return !problem.gradient; }
bool is_gradient(const AttentionProblem& problem) { return problem.gradient.has_value(); }

// Processors with tiles have dot_bf16, too, at a quarter of the rate of f32's multiply-adds: on a
// Xeon attention took 1.3 to 1.7 times as long with it.
bool multiplies_pairs(const abi::Target& target) {
  return target.matrix_unit == abi::MatrixUnit::avx512_bf16;
}

// Pairs take half the multiplications, of sizes that are rounded up to two vectors, and more work
// to pack. What a row of q costs in f32 and in pairs: a score for each column, then the products of
// the weights with the columns' values.
bool gains_by_pairs(const AttentionProblem& problem, std::int64_t lanes, bool rounds_weights) {
  constexpr std::int64_t kUnknown = 256;
  constexpr double kLeastGain = 0.9;
  const auto likely = [=](Expr size) { return sym::hint(size).value_or(kUnknown); };
  const std::int64_t columns = likely(problem.kv_length), head = likely(problem.head_dim);
  const std::int64_t values = round_up(likely(problem.value_dim), lanes);
  const std::int64_t wide = round_up(columns, lanes) * head + columns * values;
  const std::int64_t weighted =
      (rounds_weights ? round_up(columns, 2 * lanes) / 2 : columns) * values;
  const std::int64_t pairs = round_up(columns, lanes) * round_up(head, 2 * lanes) / 2 + weighted;
  return static_cast<double>(pairs) < kLeastGain * static_cast<double>(wide);
}

// The same of the gradient: scores and gradients of weights, then those of values, keys and
// queries.
bool gradient_gains_by_pairs(const AttentionProblem& problem, std::int64_t lanes,
                             bool rounds_weights) {
  constexpr std::int64_t kUnknown = 256;
  constexpr double kLeastGain = 0.9;
  const auto likely = [=](Expr size) { return sym::hint(size).value_or(kUnknown); };
  const std::int64_t columns = likely(problem.kv_length), rows = likely(problem.q_length);
  const std::int64_t head = likely(problem.head_dim), value = likely(problem.value_dim);
  const std::int64_t heads = round_up(head, lanes), values = round_up(value, lanes);
  const std::int64_t wide =
      rows * (round_up(columns, lanes) * (head + value) + columns * (2 * heads + values));
  const std::int64_t across = (round_up(head, 2 * lanes) + round_up(value, 2 * lanes)) / 2;
  const std::int64_t scores = rows * round_up(columns, lanes) * across;
  const std::int64_t weighted = rounds_weights
                                    ? rows * round_up(columns, 2 * lanes) / 2 * heads +
                                          round_up(rows, 2) / 2 * columns * (heads + values)
                                    : rows * columns * (2 * heads + values);
  const std::int64_t pairs = scores + weighted;
  return static_cast<double>(pairs) < kLeastGain * static_cast<double>(wide);
}

// Tiles take a step for 16 rows and columns, however few there are, and of one row nothing pays for
// packing. A causal mask needs less than half of the products of a short length: 72 columns
// take 1.12 times as long in tiles as in f32, 256 columns 0.55 times.
bool gains_by_tiles(const AttentionProblem& problem) {
  constexpr std::int64_t kLeastRows = 4;
  const std::int64_t least_columns = problem.is_causal ? 96 : 16;
  return sym::hint(problem.q_length).value_or(kLeastRows) >= kLeastRows &&
         sym::hint(problem.kv_length).value_or(least_columns) >= least_columns;
}

AttentionConfig registers_of(const abi::Target& target) {
  AttentionConfig config;
  config.lanes = target.vector_bytes / 4;
  config.rows = kRows;
  config.vectors = target.vector_registers >= kManyRegisters ? 4 : 2;
  return config;
}

std::vector<AttentionConfig> forward_configs(const AttentionProblem& problem,
                                             const abi::Target& target) {
  AttentionConfig config = registers_of(target);
  const bool is_narrow = problem.dtype == DType::bf16;
  // Dropped weights are few and large, and their rounding shows: eager's are f32.
  config.rounds_weights = is_narrow && !problem.dropout;
  config.tiles = config.rounds_weights && target.matrix_unit == abi::MatrixUnit::amx &&
                 config.lanes == kTileSide && gains_by_tiles(problem);
  config.pairs = config.tiles || (is_narrow && multiplies_pairs(target) &&
                                  gains_by_pairs(problem, config.lanes, config.rounds_weights));
  config.rounds_weights = config.rounds_weights && config.pairs;
  if (config.tiles) config.vectors = static_cast<std::int32_t>(kTilesAcross);
  // 128 rows or more keep packing below 5 per cent of the time; at 32 it takes 15.
  config.q_block = 128;
  config.kv_block = 256;
  return {config};
}

std::vector<AttentionConfig> gradient_configs(const AttentionProblem& problem,
                                              const abi::Target& target) {
  AttentionConfig config = registers_of(target);
  // Eager's gradient rounds weights where its own algorithm takes the call: without dropout, and
  // with values as wide as keys.
  config.rounds_weights = !problem.dropout && problem.head_dim == problem.value_dim;
  config.pairs = problem.dtype == DType::bf16 && multiplies_pairs(target) &&
                 gradient_gains_by_pairs(problem, config.lanes, config.rounds_weights);
  config.rounds_weights = config.rounds_weights && config.pairs;
  config.q_block = 64;
  config.kv_block = 128;
  return {config};
}

// Every parameter of a problem.
std::vector<const AttentionOperand*> operands_of(const AttentionProblem& problem) {
  std::vector<const AttentionOperand*> all = {&problem.q, &problem.k, &problem.v, &problem.out};
  const auto add = [&](const std::optional<AttentionOperand>& operand) {
    if (operand) all.push_back(&*operand);
  };
  if (const auto& g = problem.gradient) all.insert(all.end(), {&g->out, &g->q, &g->k, &g->v});
  add(problem.mask);
  add(problem.lse);
  add(problem.statistics);
  if (problem.dropout) all.push_back(&problem.dropout->seed);
  return all;
}

std::string needs(const AttentionProblem& problem, const AttentionConfig& config) {
  if (!problem.head_dim.constant() || !problem.value_dim.constant()) {
    return "attention whose head size is not constant";
  }
  if (problem.dtype != DType::f32 && !abi::is_reduced_float(problem.dtype)) {
    return fmt::format("attention of {}", abi::name_of(problem.dtype));
  }
  for (const AttentionOperand* operand : operands_of(problem)) {
    if (!abi::is_computable(operand->dtype)) {
      return fmt::format("no code for values of type {}", abi::name_of(operand->dtype));
    }
    for (const Expr variable : problem.variables) {
      if (!sym::stride(operand->offset, variable)) {
        return "attention whose operand is not linear in its indices";
      }
    }
  }
  constexpr int kMostLanes = 16;  // columns that dropout counts together
  if (config.tiles && config.lanes != kTileSide) {
    return fmt::format("tiles beside {} lanes", config.lanes);
  }
  if (config.lanes > kMostLanes) return fmt::format("vectors of {} lanes", config.lanes);
  return {};
}

Estimate estimate_of(const AttentionProblem& problem, std::span<const Array> arrays,
                     std::int64_t head_products, std::int64_t value_products) {
  sym::Context& context = problem.q_length.context();
  const Expr weights = problem.batch * problem.heads * problem.q_length * problem.kv_length;
  const Expr each = problem.head_dim * head_products + problem.value_dim * value_products;
  return {stack_bytes(context, arrays), weights * each * 2};
}

Estimate estimate_forward(const AttentionProblem& problem, const AttentionConfig& config) {
  return estimate_of(problem, forward_arrays(problem, config), 1, 1);
}

Estimate estimate_gradient(const AttentionProblem& problem, const AttentionConfig& config) {
  // Scores again, and the gradients of weights, of values, of keys and of queries.
  return estimate_of(problem, gradient_arrays(problem, config), 3, 2);
}

constexpr std::array kTemplates = {
    AttentionTemplate{"attention_cpu", "Flash-style attention in vectors of a core.", is_forward,
                      forward_configs, needs, estimate_forward, emit_forward},
    AttentionTemplate{"attention_gradient_cpu", "Its gradient, from the statistics of its rows.",
                      is_gradient, gradient_configs, needs, estimate_gradient, emit_gradient},
};

}  // namespace

std::string to_string(const AttentionConfig& config) {
  return fmt::format("lanes {} rows {} vectors {} q_block {} kv_block {}{}{}", config.lanes,
                     config.rows, config.vectors, config.q_block, config.kv_block,
                     config.pairs ? config.rounds_weights ? " pairs" : " pairs of operands" : "",
                     config.tiles ? " tiles" : "");
}

std::span<const AttentionTemplate> attention_templates() { return kTemplates; }

const AttentionTemplate& attention_template_of(const AttentionProblem& problem) {
  return first_match(attention_templates(), problem);
}

}  // namespace inkle::templates
