// Values whose last bits do not count, because only roundings of them to 8 or 11 bits are used, and
// what is computed in their place.
#include <algorithm>

#include "codegen/cuda/body.h"

namespace inkle::codegen::cuda {

using loop::Instruction;
using loop::Opcode;
using loop::Val;

// A quotient of each lane by what all lanes share, of which only narrow roundings are used.
bool BodyText::divides_by_one_number(Val v) const {
  const Instruction& i = body_[v];
  if (i.opcode != Opcode::div || i.dtype != DType::f32 || place_.lanes == 1) return false;
  if (!varying_[v] || varying_[i.operands[1]] || captures_.contains(v) || known_.contains(v)) {
    return false;
  }
  if (std::find(body_.yields.begin(), body_.yields.end(), v) != body_.yields.end()) return false;
  for (const Instruction& user : body_.instructions) {
    for (const Val operand : user.used()) {
      const bool narrow = user.opcode == Opcode::cast && abi::is_reduced_float(user.dtype);
      if (operand == v && !narrow) return false;
    }
  }
  return true;
}

// An exponential of which only narrow roundings, or those of a quotient, are used: its error of |x|
// 2^-24 and more is nothing beside those of 8 or 11 bits.
bool BodyText::is_rounded_exponential(Val v) const {
  const Instruction& i = body_[v];
  if (i.opcode != Opcode::exp || i.dtype != DType::f32 || place_.lanes == 1) return false;
  if (captures_.contains(v) || known_.contains(v)) return false;
  if (std::find(body_.yields.begin(), body_.yields.end(), v) != body_.yields.end()) return false;
  for (Val u = 0; u < body_.instructions.size(); ++u) {
    const Instruction& user = body_[u];
    for (const Val operand : user.used()) {
      const bool narrow = user.opcode == Opcode::cast && abi::is_reduced_float(user.dtype);
      const bool quotient = divides_by_one_number(u) && user.operands[1] != v;
      if (operand == v && !narrow && !quotient) return false;
    }
  }
  return true;
}

// Of the value, and of sums and products with it, only narrow roundings are used.
bool BodyText::is_only_rounded(Val v) const {
  if (captures_.contains(v) || known_.contains(v)) return false;
  if (std::find(body_.yields.begin(), body_.yields.end(), v) != body_.yields.end()) return false;
  for (Val u = v + 1; u < body_.instructions.size(); ++u) {
    const Instruction& user = body_[u];
    const auto used = user.used();
    if (std::find(used.begin(), used.end(), v) == used.end()) continue;
    if (user.opcode == Opcode::cast && abi::is_reduced_float(user.dtype)) continue;
    const bool passes = user.opcode == Opcode::mul || user.opcode == Opcode::add;
    if (!passes || !is_only_rounded(u)) return false;
  }
  return true;
}

// The x of 1 + erf(x), the half of a gelu, if its last bits do not count.
std::optional<Val> BodyText::rounded_one_plus_erf(Val v) const {
  const Instruction& i = body_[v];
  if (i.opcode != Opcode::add || i.dtype != DType::f32) return std::nullopt;
  for (const std::size_t k : {0, 1}) {
    const Instruction& one = body_[i.operands[k]];
    const Instruction& erf = body_[i.operands[1 - k]];
    if (one.opcode != Opcode::constant || one.real != 1 || erf.opcode != Opcode::erf) continue;
    if (known_.contains(i.operands[1 - k]) || !is_only_rounded(v)) continue;
    return erf.operands[0];
  }
  return std::nullopt;
}

// A cast to a narrow float and back.
std::optional<std::string> BodyText::rounded_text(const Instruction& i, bool in_lanes) {
  if (i.opcode != Opcode::cast || i.dtype != DType::f32 || known_.contains(i.operands[0])) {
    return std::nullopt;
  }
  const Instruction& narrow = body_[i.operands[0]];
  if (narrow.opcode != Opcode::cast || !abi::is_reduced_float(narrow.dtype) ||
      body_[narrow.operands[0]].dtype != DType::f32) {
    return std::nullopt;
  }
  return fmt::format("round_{}({})", abi::name_of(narrow.dtype),
                     name_of(narrow.operands[0], in_lanes));
}

}  // namespace inkle::codegen::cuda
