// `inkle cache`: what earlier compilations have left, and why the last one found less.
#include "cli/cache.h"

#include <cstdio>
#include <memory>
#include <string>

#include "base/error.h"
#include "cache/store.h"

namespace inkle::cli {
namespace {

std::shared_ptr<cache::Store> store() {
  auto found = cache::user_store();
  if (found == nullptr) user_error("there is no cache: INKLE_CACHE_DIR, XDG_CACHE_HOME and HOME");
  return found;
}

unsigned long long wide(std::uint64_t number) { return number; }

void stats() {
  const auto found = store();
  const auto s = found->stats();
  std::printf("%s: %llu entries, %.1f of %.1f MiB\n", found->folder().c_str(), wide(s.entries),
              static_cast<double>(s.bytes) / (1 << 20), static_cast<double>(s.limit) / (1 << 20));
  if (const std::string remote = found->remote_state(); !remote.empty()) {
    std::printf("%s\n", remote.c_str());
  }
}

void verify() {
  const auto v = store()->verify();
  std::printf("%llu entries are right, %llu files were deleted\n", wide(v.right), wide(v.deleted));
  if (v.of_other_versions != 0) {
    std::printf("%llu entries are of other versions of Inkle, and stay\n",
                wide(v.of_other_versions));
  }
}

void clear() { std::printf("%llu entries were deleted\n", wide(store()->clear())); }

void explain() {
  for (const std::string& line : store()->explain()) std::printf("%s\n", line.c_str());
}

}  // namespace

void add_cache(CLI::App& app) {
  CLI::App* command = app.add_subcommand("cache", "Show, verify or clear the compilation cache.");
  command->require_subcommand(1);
  command->add_subcommand("stats", "Print the cache's folder, its number of entries and its size.")
      ->callback(stats);
  command->add_subcommand("verify", "Read every entry and delete the damaged ones.")
      ->callback(verify);
  command->add_subcommand("clear", "Delete every entry.")->callback(clear);
  command
      ->add_subcommand(
          "explain",
          "Explain the latest misses: which graph or kernel, and how its key differs from "
          "the nearest entry.")
      ->callback(explain);
}

}  // namespace inkle::cli
