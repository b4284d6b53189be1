// aten::einsum of one or two operands, each letter at most once in an operand: permutes, sums and
// one batched matrix product.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "frontend/pt2/graph_reader.h"

namespace inkle::frontend::pt2 {
namespace {

struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

bool has(const std::string& letters, char c) { return letters.find(c) != letters.npos; }

Equation parse_equation(const std::string& text) {
  Equation e;
  e.operands.emplace_back();
  bool in_result = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if (c == ',' && !in_result) {
      e.operands.emplace_back();
    } else if (c == '-' && i + 1 < text.size() && text[i + 1] == '>' && !in_result) {
      in_result = true;
      ++i;
    } else {
      const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      std::string& letters = in_result ? e.result : e.operands.back();
      if (!is_letter || has(letters, c)) unsupported("the einsum \"{}\"", text);
      letters.push_back(c);
    }
  }
  if (in_result) return e;
  std::string all;
  for (const std::string& o : e.operands) all += o;
  std::sort(all.begin(), all.end());
  for (const char c : all) {
    if (std::count(all.begin(), all.end(), c) == 1) e.result.push_back(c);
  }
  return e;
}

// A value whose dimensions are named by letters.
struct Lettered {
  ValueId value;
  std::string letters;
};

Expr size_of(Builder& b, const Lettered& x, char letter) {
  return b.type(x.value).sizes[x.letters.find(letter)];
}

// Sums over letters that are not among `kept`.
Lettered reduced(Builder& b, Lettered x, const std::string& kept) {
  std::vector<Expr> dims;
  std::string left;
  for (std::size_t d = 0; d < x.letters.size(); ++d) {
    if (has(kept, x.letters[d])) {
      left.push_back(x.letters[d]);
    } else {
      dims.push_back(b.integer(static_cast<std::int64_t>(d)));
    }
  }
  if (dims.empty()) return x;
  return {b.node("sum_dim", {x.value, dims}), left};
}

ValueId permuted(Builder& b, const Lettered& x, const std::string& order) {
  if (x.letters == order) return x.value;
  std::vector<Expr> dims;
  for (const char c : order) {
    dims.push_back(b.integer(static_cast<std::int64_t>(x.letters.find(c))));
  }
  return b.node("permute", {x.value, dims});
}

// The operand as (batch, rows, columns), each the product of some letters.
ValueId as_matrices(Builder& b, const Lettered& x, const std::string& batch,
                    const std::string& rows, const std::string& columns) {
  std::vector<Expr> sizes;
  for (const std::string& group : {batch, rows, columns}) {
    Expr size = b.integer(1);
    for (const char c : group) size = size * size_of(b, x, c);
    sizes.push_back(size);
  }
  return b.node("reshape", {permuted(b, x, batch + rows + columns), sizes});
}

Lettered contracted(Builder& b, const Lettered& x, const Lettered& y, const std::string& result) {
  std::string batch;
  std::string left;
  std::string right;
  std::string summed;
  for (const char c : x.letters) {
    std::string& group = !has(y.letters, c) ? left : (has(result, c) ? batch : summed);
    group.push_back(c);
  }
  for (const char c : y.letters) {
    if (!has(x.letters, c)) right.push_back(c);
  }
  const ValueId product = b.node(
      "bmm", {as_matrices(b, x, batch, left, summed), as_matrices(b, y, batch, summed, right)});
  std::vector<Expr> sizes;
  for (const char c : batch + left) sizes.push_back(size_of(b, x, c));
  for (const char c : right) sizes.push_back(size_of(b, y, c));
  return {b.node("reshape", {product, sizes}), batch + left + right};
}

}  // namespace

std::vector<TensorId> GraphReader::einsum(const Call& c) {
  const Operand* equation = c.find(0, "equation");
  const Operand* list = c.find(1, "tensors");
  if (equation == nullptr || !std::holds_alternative<std::string>(*equation) || list == nullptr ||
      !std::holds_alternative<TensorList>(*list)) {
    place_.fail("expected an equation and a list of tensors");
  }
  const Equation e = parse_equation(std::get<std::string>(*equation));
  const auto& tensors = std::get<TensorList>(*list);
  if (tensors.size() != e.operands.size()) place_.fail("the number of tensors differs");
  if (tensors.size() > 2) unsupported("an einsum of {} tensors", tensors.size());
  std::vector<Lettered> operands;
  std::string all;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i]) place_.fail("a tensor is missing");
    operands.push_back({storages_.read(*tensors[i]), e.operands[i]});
    if (builder_.type(operands[i].value).rank() != e.operands[i].size()) {
      place_.fail("the einsum names another number of dimensions");
    }
    all += e.operands[i];
  }
  for (const char letter : e.result) {
    if (!has(all, letter)) place_.fail("the einsum's result names an unknown dimension");
  }
  Lettered total =
      reduced(builder_, operands[0], operands.size() > 1 ? e.result + e.operands[1] : e.result);
  if (operands.size() > 1) {
    const Lettered second = reduced(builder_, operands[1], e.result + total.letters);
    for (const char letter : total.letters) {
      if (!has(second.letters, letter)) continue;
      if (!graph_.context().guard_equal(size_of(builder_, total, letter),
                                        size_of(builder_, second, letter))) {
        unsupported("an einsum that broadcasts");
      }
    }
    total = contracted(builder_, total, second, e.result);
  }
  const ValueId value = permuted(builder_, total, e.result);
  if (!c.outputs.empty()) check_result(value, c.outputs[0]);
  return {storages_.make(value)};
}

}  // namespace inkle::frontend::pt2
