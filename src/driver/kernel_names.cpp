#include "driver/kernel_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <variant>
#include <vector>

#include "base/hash.h"

namespace inkle::driver {
namespace {

// More words are left out; the first word stays, however long, up to this.
constexpr std::size_t kMostLetters = 40;

// Words that say little beside others: what moves elements and computes nothing.
constexpr std::array<std::string_view, 6> kPlain = {"cast",       "channels_last", "clone",
                                                    "contiguous", "copy",          "output"};

bool is_plain(const std::string& word) {
  return std::find(kPlain.begin(), kPlain.end(), word) != kPlain.end();
}

// Letters, digits and single underscores, none of them at the ends.
std::string identifier(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    const bool is_letter = is_upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (is_letter) {
      result += static_cast<char>(is_upper ? c - 'A' + 'a' : c);
    } else if (!result.empty() && result.back() != '_') {
      result += '_';
    }
  }
  if (!result.empty() && result.back() == '_') result.pop_back();
  return result;
}

// Of the label, each once and in order.
std::vector<std::string> words_of(std::string_view label) {
  std::vector<std::string> words;
  while (!label.empty()) {
    const std::size_t end = std::min(label.find('+'), label.size());
    std::string word = identifier(label.substr(0, end));
    label.remove_prefix(std::min(end + 1, label.size()));
    if (word.empty() || std::find(words.begin(), words.end(), word) != words.end()) continue;
    words.push_back(std::move(word));
  }
  if (!std::all_of(words.begin(), words.end(), is_plain)) std::erase_if(words, is_plain);
  return words;
}

std::string words_of(const schedule::Kernel& kernel, std::string_view label) {
  std::vector<std::string> words = words_of(label);
  if (std::holds_alternative<schedule::GemmKernel>(kernel.body)) {
    std::erase(words, "matmul");
    words.insert(words.begin(), "gemm");
  } else if (const auto* a = std::get_if<schedule::AttentionKernel>(&kernel.body)) {
    std::erase(words, "attention");
    words.insert(words.begin(), a->is_gradient ? "attention_gradient" : "attention");
  }
  std::string result = words.empty() ? "kernel" : words.front().substr(0, kMostLetters);
  for (std::size_t w = 1; w < words.size(); ++w) {
    if (result.size() + 1 + words[w].size() > kMostLetters) break;
    result += "_" + words[w];
  }
  if (result.front() >= '0' && result.front() <= '9') result.insert(0, "kernel_");
  return result;
}

}  // namespace

std::string text_of(const schedule::Kernel& kernel, const schedule::Schedule& schedule,
                    bool keeps_functions) {
  return schedule::to_string(kernel) + schedule::to_string(schedule) +
         (keeps_functions ? "\nas its functions are\n" : "\n");
}

std::string KernelNames::name(const schedule::Kernel& kernel, std::string_view label,
                              std::string_view text) {
  std::string name = fmt::format("{}_{:08x}", words_of(kernel, label),
                                 static_cast<std::uint32_t>(hash_bytes(text)));
  if (given_.insert(name).second) return name;
  for (int n = 2;; ++n) {
    std::string other = fmt::format("{}_{}", name, n);
    if (given_.insert(other).second) return other;
  }
}

}  // namespace inkle::driver
