#include <fmt/format.h>

#include <algorithm>

#include "golden/commands.h"
#include "kernel/interpret_inputs.h"
#include "kernel/parse.h"
#include "loop/scalar.h"

namespace inkle::golden {
namespace {

// The first values of a parameter, as many to a line as fit.
std::string values_of(const kernel::Memory& memory, std::span<const std::byte> data) {
  std::string out;
  std::string line = memory.name + ":";
  constexpr std::size_t kMost = 64;
  const auto size = static_cast<std::size_t>(kernel::element_bytes(memory));
  for (std::size_t at = 0; at < data.size(); at += size) {
    if (at == kMost * size) return out + line + " ...\n";
    const loop::Scalar value = loop::read_element(memory.dtype, data.data() + at);
    line += abi::is_float(memory.dtype) ? fmt::format(" {}", value.real)
                                        : fmt::format(" {}", value.integer);
    if (line.size() < 90) continue;
    out += line + "\n";
    line = " ";
  }
  return line == " " ? out : out + line + "\n";
}

}  // namespace

// interpret [size=value] [--seeds=n] [--orders=n] [--steps=n] [--print=a,b] [--once]
// [--off=n] [--overlap] [--any-order]: what the interpreter finds in a kernel, or the values
// of some parameters after it. --once: every `out` and `inout` element is written exactly once.
// --off=n: arguments lie n bytes after an aligned address. --overlap: the second argument is the
// first. --any-order: results may depend on the schedule.
std::string interpret(std::string_view text, std::span<const std::string> args) {
  const kernel::ParsedKernel parsed = kernel::parse_kernel(text, "in");
  kernel::CheckOptions options;
  std::vector<std::string> given;
  std::vector<std::string_view> printed;
  bool once = false, overlap = false;
  std::size_t off = 0;
  for (const std::string& arg : args) {
    const std::string value = arg.substr(std::min(arg.find('='), arg.size() - 1) + 1);
    if (arg.starts_with("--seeds=")) {
      options.seeds = std::stoi(value);
    } else if (arg.starts_with("--orders=")) {
      options.max_orders = std::stoll(value);
    } else if (arg.starts_with("--steps=")) {
      options.max_steps = std::stoll(value);
    } else if (arg.starts_with("--print=")) {
      printed = split(std::string_view(arg).substr(8));
    } else if (arg.starts_with("--off=")) {
      off = std::stoul(value);
    } else if (arg == "--once" || arg == "--overlap") {
      (arg == "--once" ? once : overlap) = true;
    } else if (arg == "--any-order") {
      options.compare_results = false;
    } else {
      given.push_back(arg);
    }
  }
  kernel::Inputs inputs =
      kernel::make_inputs(parsed.kernel, kernel::choose_sizes(parsed.kernel, given));
  for (kernel::Instance& instance : inputs.instances) {
    for (kernel::MemoryId m = 0; m < parsed.kernel.parameter_count; ++m) {
      kernel::Argument& argument = instance.arguments[m];
      if (off > 0) argument.data = {argument.data.data() + off, argument.data.size()};
      const bool is_written = parsed.kernel.memories[m].role != kernel::Role::in;
      if (once && is_written) argument.writes = kernel::Writes::exactly_once;
    }
    if (overlap) instance.arguments.at(1).data = instance.arguments.at(0).data;
  }
  const kernel::CheckResult result = kernel::check(parsed.kernel, inputs.instances, options);
  std::string out;
  for (const kernel::Finding& finding : result.findings) {
    out += fmt::format("{}: {}\n", result.schedule, kernel::to_string(parsed.kernel, finding));
  }
  if (!out.empty()) return out;
  out = fmt::format("{} runs", result.runs - result.orders);
  if (options.max_orders > 0) {
    out += fmt::format(", {} orders{}", result.orders, result.all_orders ? ", all" : "");
  }
  if (result.status != 0) out += fmt::format(", status {}", result.status);
  out += "\n";
  for (kernel::MemoryId m = 0; m < parsed.kernel.parameter_count; ++m) {
    const kernel::Memory& memory = parsed.kernel.memories[m];
    const bool wanted = std::find(printed.begin(), printed.end(), memory.name) != printed.end();
    if (wanted) out += values_of(memory, result.results.at(m));
  }
  return out;
}

}  // namespace inkle::golden
