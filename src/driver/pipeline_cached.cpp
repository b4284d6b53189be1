// What a Compiler takes from earlier processes, and leaves for later ones.
#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cache/store.h"
#include "driver/pipeline.h"
#include "driver/stored.h"

namespace inkle::driver {
namespace {

// The key of programs in the user's cache; empty without a cache, or if all stages must run: dumps
// of stages and of code need them.
Identity keyed_identity(const Backend& target, const CompileOptions& options) {
  const bool runs_all = options.dump || options.dump_nest_pass || options.dump_kernel_pass ||
                        options.keep_code || options.keep_objects || options.only_text ||
                        !options.fail_stage.empty() || options.pass_limit != PassLimit::kAll ||
                        options.passes.attention;
  if (!options.cache || runs_all || cache::user_store() == nullptr) return {};
  return identity_of(target, options);
}

}  // namespace

Compiler::Entry Compiler::entry_of(const graph::Graph& graph, const CompileOptions& options) const {
  Entry entry{keyed_identity(*target_, options), graph.name, {}};
  if (entry.key.empty()) return entry;
  GraphText made = driver::text_of(graph, target_->location());
  entry.key.emplace_back("graph", std::move(made.digest));
  entry.text = std::move(made.text);
  return entry;
}

std::optional<Compiled> Compiler::find(const Entry& entry) const {
  if (entry.key.empty()) return {};
  auto bytes = cache::user_store()->find(entry.key, entry.name);
  if (!bytes) return {};
  try {
    Compiled found = restore(std::move(*bytes));
    log(LogChannel::cache, "graph {} was compiled by an earlier process", found.plan->name);
    cache::user_store()->settle();
    return found;
  } catch (const Error& error) {
    warn("cache.graph", "a graph of the cache is compiled anew: {}", error.what());
    return {};
  }
}

cache::Claim Compiler::claim(const Entry& entry, const CompileOptions& options) const {
  if (entry.key.empty()) return {};
  return cache::user_store()->claim(entry.key, options.wait_with);
}

bool Compiler::keep(Entry entry, Compiled& compiled) const {
  compiled.graph = std::move(entry.text);
  if (entry.key.empty() || !can_store(compiled) || !has_few_constants(compiled)) return false;
  const auto store = cache::user_store();
  store->put(entry.key, driver::store(compiled, maker_of(*target_)));
  store->settle();
  return true;
}

std::string Compiler::identity(const CompileOptions& options) const {
  std::string text;
  for (const auto& [name, value] : keyed_identity(*target_, options)) {
    text += fmt::format("{}: {}\n", name, value);
  }
  return text;
}

Compiled Compiler::restore(std::vector<std::byte> bytes) const {
  const auto start = std::chrono::steady_clock::now();
  Compiled compiled = driver::restore(std::move(bytes), *target_);
  if (target_->device().kind == abi::DeviceKind::cuda) target_->foresee(*compiled.plan);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  compiled.report.stages.push_back({"cache", seconds.count()});
  log(LogChannel::driver, "cache: {:.2f} ms", seconds.count() * 1e3);
  return compiled;
}

Compiled Compiler::compile(graph::Graph graph, const CompileOptions& options) {
  Entry entry = entry_of(graph, options);
  if (auto found = find(entry)) return std::move(*found);
  cache::Claim claimed = claim(entry, options);
  if (claimed.has_waited()) {
    if (auto found = find(entry)) {
      claimed.kept();
      return std::move(*found);
    }
  }
  Compiled compiled = compile_anew(std::move(graph), options);
  if (keep(std::move(entry), compiled)) claimed.kept();
  return compiled;
}

std::pair<Compiled, Compiled> Compiler::compile(graph::Graph first, graph::Graph second,
                                                const CompileOptions& options) {
  Entry first_entry = entry_of(first, options), second_entry = entry_of(second, options);
  const auto find_both = [&]() -> std::optional<std::pair<Compiled, Compiled>> {
    auto a = find(first_entry);
    auto b = a ? find(second_entry) : std::nullopt;
    if (!b) return {};
    return std::pair(std::move(*a), std::move(*b));
  };
  if (auto found = find_both()) return std::move(*found);
  // Of the two the second is the rarer: forwards may be those of several backwards.
  cache::Claim claimed = claim(second_entry, options);
  if (claimed.has_waited()) {
    if (auto found = find_both()) {
      claimed.kept();
      return std::move(*found);
    }
  }
  auto both = compile_anew(std::move(first), std::move(second), options);
  const bool has_first = keep(std::move(first_entry), both.first);
  if (keep(std::move(second_entry), both.second) && has_first) claimed.kept();
  return both;
}

}  // namespace inkle::driver
