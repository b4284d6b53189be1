#include "graph/inference.h"

#include <fmt/format.h>

#include "base/error.h"

namespace inkle::graph {

bool Inference::is_none(std::size_t i) const { return std::holds_alternative<None>(args_[i]); }

bool Inference::is_tensor(std::size_t i) const { return std::holds_alternative<ValueId>(args_[i]); }

const Type& Inference::tensor(std::size_t i) const {
  const auto* value = std::get_if<ValueId>(&args_[i]);
  if (value == nullptr || value->is_none()) fail(fmt::format("argument {} must be a tensor", i));
  return graph_.type(*value);
}

const Type* Inference::optional_tensor(std::size_t i) const {
  if (is_none(i)) return nullptr;
  return &tensor(i);
}

std::vector<const Type*> Inference::tensors(std::size_t i) const {
  if (is_none(i)) return {};
  const auto* list = std::get_if<std::vector<ValueId>>(&args_[i]);
  if (list == nullptr) fail(fmt::format("argument {} must be a list of tensors", i));
  std::vector<const Type*> types;
  for (const ValueId v : *list) types.push_back(v.is_none() ? nullptr : &graph_.type(v));
  return types;
}

Expr Inference::integer(std::size_t i) const {
  const auto* e = std::get_if<Expr>(&args_[i]);
  if (e == nullptr) fail(fmt::format("argument {} must be an integer", i));
  return *e;
}

std::int64_t Inference::constant_integer(std::size_t i) const {
  const auto value = integer(i).constant();
  if (!value) unsupported("{}: argument {} is a symbolic integer", op_.name, i);
  return *value;
}

std::vector<Expr> Inference::integers(std::size_t i) const {
  if (is_none(i)) return {};
  const auto* list = std::get_if<std::vector<Expr>>(&args_[i]);
  if (list == nullptr) fail(fmt::format("argument {} must be a list of integers", i));
  return *list;
}

std::vector<std::int64_t> Inference::constant_integers(std::size_t i) const {
  std::vector<std::int64_t> out;
  for (const Expr e : integers(i)) {
    const auto value = e.constant();
    if (!value) unsupported("{}: argument {} holds symbolic integers", op_.name, i);
    out.push_back(*value);
  }
  return out;
}

double Inference::real(std::size_t i) const {
  if (const auto* d = std::get_if<double>(&args_[i])) return *d;
  if (const auto* b = std::get_if<bool>(&args_[i])) return *b ? 1.0 : 0.0;
  if (const auto* e = std::get_if<Expr>(&args_[i])) {
    if (const auto value = e->constant()) return static_cast<double>(*value);
    unsupported("{}: argument {} is a symbolic number", op_.name, i);
  }
  fail(fmt::format("argument {} must be a number", i));
}

std::int64_t Inference::whole(std::size_t i) const {
  if (std::holds_alternative<Expr>(args_[i])) return constant_integer(i);
  return static_cast<std::int64_t>(real(i));
}

bool Inference::boolean(std::size_t i) const {
  const auto* b = std::get_if<bool>(&args_[i]);
  if (b == nullptr) fail(fmt::format("argument {} must be true or false", i));
  return *b;
}

std::optional<DType> Inference::dtype(std::size_t i) const {
  if (is_none(i)) return std::nullopt;
  const auto* d = std::get_if<DType>(&args_[i]);
  if (d == nullptr) fail(fmt::format("argument {} must be a dtype", i));
  return *d;
}

std::string_view Inference::string(std::size_t i) const {
  const auto* s = std::get_if<std::string>(&args_[i]);
  if (s == nullptr) fail(fmt::format("argument {} must be a string", i));
  return *s;
}

std::size_t Inference::dim(std::int64_t d, std::size_t rank) const {
  const auto count = static_cast<std::int64_t>(rank == 0 ? 1 : rank);
  if (d < -count || d >= count) {
    fail(fmt::format("dimension {} is out of range for rank {}", d, rank));
  }
  return static_cast<std::size_t>(d < 0 ? d + count : d);
}

void Inference::fail(std::string_view message) const { user_error("{}: {}", op_.name, message); }

}  // namespace inkle::graph
