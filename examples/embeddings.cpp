// Sentence embeddings: reads sentences from standard input, one a line, and prints for each the one
// that is closest in meaning, with the cosine of the angle between the two.
//   embeddings model.inkle vocab.txt < sentences.txt
// The model takes token numbers and a mask, both i64[sentences, tokens], and gives a vector a
// sentence; export_minilm.py makes one, with its vocabulary.
#include <inkle.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <numeric>

using Vocabulary = std::map<std::string, std::int64_t>;
using Numbers = std::vector<std::int64_t>;
static Vocabulary read_vocabulary(const char* path) {
  Vocabulary words;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) words.emplace(line, words.size());
  for (const char* name : {"[PAD]", "[UNK]", "[CLS]", "[SEP]"}) {
    if (words.count(name) == 0) throw std::runtime_error(std::string(path) + " lacks " + name);
  }
  return words;
}

// Lower case; punctuation stands alone.
static std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words(1);
  for (const unsigned char c : text) {
    const std::string letter(1, static_cast<char>(std::tolower(c)));
    if (std::ispunct(c)) words.insert(words.end(), {letter, ""});
    if (std::isspace(c)) words.emplace_back();
    if (!std::ispunct(c) && !std::isspace(c)) words.back() += letter;
  }
  return words;
}

// WordPiece: each word as the longest pieces that the vocabulary has, from the left.
static Numbers tokens(const std::string& text, const Vocabulary& vocabulary, std::int64_t most) {
  Numbers ids{vocabulary.at("[CLS]")};
  for (const std::string& word : split(text)) {
    Numbers pieces;
    for (std::size_t begin = 0, size; begin < word.size(); begin += size) {
      auto found = vocabulary.end();
      for (size = word.size() - begin; size > 0; --size) {
        found = vocabulary.find((begin > 0 ? "##" : "") + word.substr(begin, size));
        if (found != vocabulary.end()) break;
      }
      pieces.push_back(found == vocabulary.end() ? -1 : found->second);
      if (size == 0) break;
    }
    if (!pieces.empty() && pieces.back() < 0) pieces = {vocabulary.at("[UNK]")};
    ids.insert(ids.end(), pieces.begin(), pieces.end());
  }
  ids.resize(std::min(ids.size(), static_cast<std::size_t>(most) - 1));
  ids.push_back(vocabulary.at("[SEP]"));
  return ids;
}

int main(int argc, char** argv) try {
  if (argc != 3) throw std::runtime_error("usage: embeddings model.inkle vocab.txt < sentences.txt");
  const inkle::Program program(argv[1]);
  const Vocabulary vocabulary = read_vocabulary(argv[2]);
  const std::int64_t most = program.inputs().at(0).most.at(1);
  std::vector<std::string> texts;
  std::vector<Numbers> rows;
  for (std::string line; std::getline(std::cin, line); texts.push_back(line)) {
    rows.push_back(tokens(line, vocabulary, most));
  }
  std::size_t length = 0;
  for (const Numbers& row : rows) length = std::max(length, row.size());
  Numbers ids(rows.size() * length, vocabulary.at("[PAD]")), mask(ids.size(), 0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::copy(rows[i].begin(), rows[i].end(), ids.data() + i * length);
    std::fill_n(mask.data() + i * length, rows[i].size(), 1);
  }
  const Numbers sizes{static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(length)};
  const inkle::Results results = program.run({{ids.data(), sizes}, {mask.data(), sizes}});
  const std::vector<float> vectors = results[0].copy<float>();
  const std::size_t n = rows.empty() ? 0 : vectors.size() / rows.size();
  const auto product = [n](auto* a, auto* b) { return std::inner_product(a, a + n, b, 0.0); };
  for (std::size_t a = 0; a < rows.size(); ++a) {
    std::pair<double, std::size_t> best{-2, a};
    for (std::size_t b = 0; b < rows.size(); ++b) {
      const float *u = &vectors[a * n], *v = &vectors[b * n];
      const double cosine = product(u, v) / std::sqrt(product(u, u) * product(v, v));
      if (b != a) best = std::max(best, {cosine, b});
    }
    std::printf("%s\n  %.4f %s\n", texts[a].c_str(), best.first, texts[best.second].c_str());
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
