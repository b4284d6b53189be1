#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "driver/target.h"
#include "image/code_names.h"
#include "image/processor.h"

namespace inkle::driver {

namespace {

constexpr std::string_view kTile = "template:";

std::string_view gemm_setting() {
  const char* value = std::getenv("INKLE_GEMM");
  return value == nullptr ? std::string_view() : value;
}

[[noreturn]] void refuse(std::string_view by) {
  user_error("INKLE_GEMM is '{}', expected library, template, auto or template:128x256p/2+left",
             by);
}

struct Tile {
  std::int32_t rows = 0, columns = 0, parts = 1;
  bool ping_pong = false, computes_left = false;
};

Tile tile_of(std::string_view by) {
  std::string_view rest = by.substr(kTile.size());
  const auto number = [&] {
    std::int32_t n = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), n);
    if (error != std::errc() || n <= 0 || n > 1024) refuse(by);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    return n;
  };
  const auto accept = [&](char c) {
    if (rest.empty() || rest.front() != c) return false;
    rest.remove_prefix(1);
    return true;
  };
  Tile tile;
  tile.rows = number();
  if (!accept('x')) refuse(by);
  tile.columns = number();
  tile.ping_pong = accept('p');
  if (accept('/')) tile.parts = number();
  tile.computes_left = rest == "+left";
  if (!rest.empty() && !tile.computes_left) refuse(by);
  return tile;
}

}  // namespace

std::optional<abi::GemmSource> gemm_source_from_environment() {
  const std::string_view by = gemm_setting();
  if (by.empty()) return std::nullopt;
  if (by == "library") return abi::GemmSource::library;
  if (by == "template") return abi::GemmSource::templates;
  if (by == "auto") return abi::GemmSource::least;
  if (!by.starts_with(kTile)) refuse(by);
  (void)tile_of(by);
  return abi::GemmSource::templates;
}

void take_tile(abi::Target& target, std::string_view by) {
  abi::GemmRules& rules = target.gemm;
  if (!by.starts_with(kTile) || rules.tiles.front().rows == 0) return;
  const Tile tile = tile_of(by);
  abi::GemmTile made = rules.tiles.front();
  const std::int64_t stage = std::int64_t{tile.rows + tile.columns} * rules.terms * 2;
  constexpr std::int64_t kBeside = 21 * 1024;  // sums on their way and barriers
  made.rows = tile.rows;
  made.columns = tile.columns;
  made.ping_pong = tile.ping_pong;
  made.stages = static_cast<std::int32_t>(
      std::clamp<std::int64_t>((target.l1_bytes - kBeside) / stage, 1, 8));
  rules.tiles = {made};
  rules.ping_pong_elements = std::numeric_limits<std::int32_t>::max();
  rules.parts = tile.parts;
  constexpr std::int32_t kComputedAgain = 4;
  rules.computed_again = tile.computes_left ? kComputedAgain : 0;
}

void take_tile_from_environment(abi::Target& target) { take_tile(target, gemm_setting()); }

void check_settings() {
  (void)gemm_source_from_environment();
  (void)image::vectors_allowed();
  (void)image::perf_output();
}

}  // namespace inkle::driver
