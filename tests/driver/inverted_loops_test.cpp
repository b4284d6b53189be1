// Random programs of views, pointwise ops and reductions of one tensor, whose loops run against
// each other, in parts or in another order, against the interpreter. INKLE_FUZZ_COUNT and
// INKLE_FUZZ_SEED ask for others.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>

#include "driver/differential.h"

namespace inkle::driver {
namespace {

using Sizes = std::vector<std::int64_t>;

std::uint32_t from_environment(const char* name, std::uint32_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

// The text of a graph that reads %x in many ways; grown op by op.
class Grower {
 public:
  explicit Grower(std::uint32_t seed) : random_(seed) {}

  std::string grow() {
    const Sizes sizes = {2 + below(3), 3 + below(4), pick({4, 6, 8}), pick({5, 8, 16, 17, 33})};
    const std::string input = fmt::format("%x: {}", type(sizes));
    add("x", sizes);
    const std::uint32_t count = 4 + below(8);
    for (std::uint32_t tries = 0; made_ < count && tries < 10 * count; ++tries) grow_one();
    std::string results, types;
    for (const Value& value : values_) {
      const bool is_wanted = value.is_made && (below(4) == 0 || value.uses == 0);
      if (!is_wanted) continue;
      results += (results.empty() ? "" : ", ") + ("%" + value.name);
      types += (types.empty() ? "" : ", ") + type(value.sizes);
    }
    return fmt::format("graph @inverted({}) -> {} {{\n{}  return {}\n}}\n", input, types, lines_,
                       results);
  }

 private:
  struct Value {
    std::string name;
    Sizes sizes;
    bool is_made = false;  // rather than a view or the input
    int uses = 0;
  };

  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % n); }
  std::int64_t pick(std::vector<std::int64_t> of) {
    return of[static_cast<std::size_t>(below(static_cast<std::int64_t>(of.size())))];
  }

  static std::string type(const Sizes& sizes) {
    return fmt::format("f32[{}]", fmt::join(sizes, ","));
  }

  void add(std::string name, Sizes sizes, bool is_made = false) {
    values_.push_back({std::move(name), std::move(sizes), is_made});
  }

  void line(const Sizes& sizes, const std::string& call, bool is_made) {
    const std::string name = std::to_string(number_++);
    lines_ += fmt::format("  %{}: {} = {}\n", name, type(sizes), call);
    add(name, sizes, is_made);
    made_ += is_made ? 1 : 0;
  }

  void grow_one() {
    // Half of the time the newest value, so that chains come about.
    const auto count = static_cast<std::int64_t>(values_.size());
    const auto at = static_cast<std::size_t>(below(2) == 0 ? count - 1 : below(count));
    const std::string name = "%" + values_[at].name;
    const Sizes sizes = values_[at].sizes;
    ++values_[at].uses;
    const auto rank = static_cast<std::int64_t>(sizes.size());
    const auto dim = static_cast<std::size_t>(rank == 0 ? 0 : below(rank));
    switch (below(10)) {
      case 0:
      case 1:
        if (rank > 0) line(sizes, fmt::format("flip({}, [{}])", name, dim), false);
        break;
      case 2:
        reshape(name, sizes);
        break;
      case 3: {
        if (rank < 2) break;
        std::vector<std::int64_t> order(sizes.size());
        for (std::size_t d = 0; d < order.size(); ++d) order[d] = static_cast<std::int64_t>(d);
        std::ranges::shuffle(order, random_);
        Sizes to;
        for (const std::int64_t d : order) to.push_back(sizes[static_cast<std::size_t>(d)]);
        line(to, fmt::format("permute({}, [{}])", name, fmt::join(order, ", ")), false);
        break;
      }
      case 4:
        reduce(name, sizes, dim);
        break;
      case 5:
        binary(name, at, sizes);
        break;
      case 6:
        across(name, sizes);
        break;
      default: {
        // None of them makes a difference larger.
        constexpr std::array kNames = {"tanh", "sigmoid", "atan", "abs", "neg", "relu"};
        line(sizes, fmt::format("{}({})", kNames[static_cast<std::size_t>(below(6))], name), true);
      }
    }
  }

  // Two dimensions become one, all do, or one becomes two.
  void reshape(const std::string& name, const Sizes& sizes) {
    if (sizes.empty()) return;
    Sizes to = sizes;
    const auto at = static_cast<std::size_t>(below(static_cast<std::int64_t>(sizes.size())));
    const std::int64_t kind = below(5);
    if (kind < 2 && at + 1 < sizes.size()) {
      to[at] *= to[at + 1];
      to.erase(to.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    } else if (kind == 2) {
      to = {std::accumulate(to.begin(), to.end(), std::int64_t{1}, std::multiplies<>())};
    } else {
      const std::int64_t by = pick({2, 3, 4});
      if (to[at] % by != 0) return;
      to[at] /= by;
      // The new dimension is the inner one, or the outer.
      to.insert(to.begin() + static_cast<std::ptrdiff_t>(at) + (kind == 3 ? 1 : 0), by);
    }
    line(to, fmt::format("reshape({}, [{}])", name, fmt::join(to, ", ")), false);
  }

  std::string newest() const { return "%" + values_.back().name; }

  // What is computed in one dimension and read twice, reduced along some of two or three.
  void across(const std::string& name, const Sizes& sizes) {
    const std::int64_t all =
        std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
    const std::int64_t by = pick({2, 3, 4});
    if (all % by != 0) return;
    line({all}, fmt::format("reshape({}, [{}])", name, all), false);
    line({all}, fmt::format("tanh({})", newest()), true);
    const std::string once = newest();
    line({all}, fmt::format("neg({})", once), true);
    line({all}, fmt::format("maximum({}, {})", once, newest()), true);
    Sizes to = {by, all / by};
    if (all / by % 6 == 0 && below(2) == 0) to = {by, all / by / 6, 6};
    std::ranges::shuffle(to, random_);
    for (auto value = values_.end() - 3; value != values_.end(); ++value) ++value->uses;
    line(to, fmt::format("reshape({}, [{}])", newest(), fmt::join(to, ", ")), false);
    if (to.size() == 2 || below(2) == 0) {
      return reduce(newest(), to, static_cast<std::size_t>(below(std::ssize(to))));
    }
    const auto kept = static_cast<std::size_t>(below(3));
    Sizes dims = {0, 1, 2};
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(kept));
    line({to[kept]}, fmt::format("sum_dim({}, [{}], false)", newest(), fmt::join(dims, ", ")),
         true);
  }

  void reduce(const std::string& name, const Sizes& sizes, std::size_t dim) {
    if (sizes.empty()) return;
    Sizes to = sizes;
    to.erase(to.begin() + static_cast<std::ptrdiff_t>(dim));
    const std::int64_t kind = below(3);
    if (kind == 0) line(to, fmt::format("amax({}, [{}], false)", name, dim), true);
    if (kind == 1) line(to, fmt::format("sum_dim({}, [{}], false)", name, dim), true);
    if (kind == 2) line(sizes, fmt::format("softmax({}, {})", name, dim), true);
  }

  // With another value of the same sizes.
  void binary(const std::string& name, std::size_t at, const Sizes& sizes) {
    std::vector<std::size_t> alike;
    for (std::size_t v = 0; v < values_.size(); ++v) {
      if (v != at && values_[v].sizes == sizes) alike.push_back(v);
    }
    if (alike.empty()) return;
    Value& other =
        values_[alike[static_cast<std::size_t>(below(static_cast<std::int64_t>(alike.size())))]];
    ++other.uses;
    line(sizes, fmt::format("{}({}, %{})", below(2) == 0 ? "add" : "maximum", name, other.name),
         true);
  }

  std::mt19937 random_;
  std::vector<Value> values_;
  std::string lines_;
  int number_ = 0;
  std::uint32_t made_ = 0;
};

TEST(InvertedLoops, RunAsTheInterpreterSays) {
  const std::uint32_t first = from_environment("INKLE_FUZZ_SEED", 0);
  const std::uint32_t count = from_environment("INKLE_FUZZ_COUNT", 150);
  for (std::uint32_t seed = first; seed < first + count; ++seed) {
    const std::string text = Grower(seed).grow();
    if (text.find("return \n") != std::string::npos) continue;
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, text));
    expect_text_as_interpreted(text);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace inkle::driver
