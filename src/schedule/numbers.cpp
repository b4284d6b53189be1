#include "schedule/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

namespace inkle::schedule {
namespace {

using loop::Instruction;
using loop::Opcode;

constexpr std::int64_t kUnit = std::int64_t{1} << 32;

// The part of the constant term that is a multiple of kUnit: the number of a random stream.
std::int64_t number_in(Expr e) {
  std::optional<std::int64_t> constant = e.constant();
  if (e.kind() == sym::Kind::add) constant = e.operands().back().constant();
  const std::int64_t value = constant.value_or(0);
  return value < kUnit ? 0 : value / kUnit * kUnit;
}

class NumberPasser {
 public:
  explicit NumberPasser(sym::Context& context) : context_(context) {}

  void pass(KernelStep& step) {
    auto* loops = std::get_if<LoopKernel>(&step.kernel.body);
    if (loops == nullptr) return;
    std::vector<std::int64_t> numbers;
    for (Stage& stage : loops->stages) {
      for (Instruction& i : stage.body.instructions) {
        if (i.opcode != Opcode::index) continue;
        const std::int64_t number = number_in(i.indices[0]);
        if (number == 0) continue;
        i.indices[0] = i.indices[0] - number + symbol(number);
        if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) {
          numbers.push_back(number);
        }
      }
    }
    if (numbers.empty()) return;
    if (step.table.empty()) step.table.push_back(step.kernel.sizes);
    for (const std::int64_t number : numbers) {
      step.kernel.sizes.push_back(symbol(number));
      for (std::vector<Expr>& sizes : step.table) sizes.push_back(context_.constant(number));
    }
  }

 private:
  Expr symbol(std::int64_t number) {
    const auto [at, is_new] = symbols_.try_emplace(number);
    if (is_new) {
      std::string name;
      do {
        name = fmt::format("number{}", named_++);
      } while (context_.find_symbol(name));
      constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
      at->second = context_.symbol(name, {.range = {0, kMost}, .divisor = kUnit, .hint = number});
    }
    return at->second;
  }

  sym::Context& context_;
  std::map<std::int64_t, Expr> symbols_;
  int named_ = 0;
};

}  // namespace

void pass_numbers(std::vector<Step>& steps, sym::Context& context) {
  NumberPasser passer(context);
  for (Step& step : steps) {
    if (auto* kernel = std::get_if<KernelStep>(&step.action)) passer.pass(*kernel);
  }
}

}  // namespace inkle::schedule
