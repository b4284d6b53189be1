// The commands that golden tests may run. A new one is a function and a line in the table.
#include "base/error.h"
#include "golden/golden.h"
#include "graph/text.h"
#include "ops/table.h"
#include "passes/pipeline.h"

namespace inkle::golden {
namespace {

std::vector<std::string_view> split(std::string_view list) {
  std::vector<std::string_view> out;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    out.push_back(list.substr(0, comma));
    list.remove_prefix(std::min(list.size(), comma + 1));
  }
  return out;
}

// opt [--passes=a,b | --pipeline] [--freeze] [--skip=a,b] [--stop-after=n]: the graph after passes.
std::string opt(std::string_view text, std::span<const std::string> args) {
  std::vector<std::string_view> names;
  passes::PassContext context;
  passes::RunOptions options;
  for (const std::string_view arg : args) {
    const std::string_view value = arg.substr(std::min(arg.find('='), arg.size() - 1) + 1);
    if (arg.starts_with("--passes=")) {
      names = split(value);
    } else if (arg == "--pipeline") {
      names.assign(passes::standard_pipeline().begin(), passes::standard_pipeline().end());
    } else if (arg == "--freeze") {
      context.options.freeze = true;
    } else if (arg.starts_with("--skip=")) {
      for (const std::string_view name : split(value)) options.skip.emplace_back(name);
    } else if (arg.starts_with("--stop-after=")) {
      options.stop_after = std::stoul(std::string(value));
    } else {
      user_error("opt: unknown option '{}'", arg);
    }
  }
  graph::Graph graph = graph::parse(text, "in", ops::op_table());
  graph = passes::run_passes(std::move(graph), names, context, options);
  const std::string out = graph::to_string(graph);
  // Every golden text also tests that what is printed reads back as it was.
  const std::string again = graph::to_string(graph::parse(out, "out", ops::op_table()));
  if (again != out) user_error("the text does not read back:\n{}\nbecame\n{}", out, again);
  return out;
}

constexpr Command kCommands[] = {
    {"opt", opt},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace inkle::golden
