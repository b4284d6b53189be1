// Names in text of the enumerations and alternatives of a plan, by value.
#pragma once

#include <array>
#include <string_view>

#include "abi/plan.h"

namespace inkle::abi {

inline constexpr auto names_of(DeviceKind) {
  return std::array<std::string_view, 2>{"cpu", "cuda"};
}
inline constexpr auto names_of(SizeInstruction::Op) {
  return std::array<std::string_view, 10>{"constant", "argument", "size", "stride", "add",
                                          "mul",      "floordiv", "mod",  "min",    "max"};
}
inline constexpr auto names_of(Guard::Relation) {
  return std::array<std::string_view, 4>{"equal", "not_equal", "less", "less_equal"};
}
inline constexpr auto names_of(BufferDecl::Kind) {
  return std::array<std::string_view, 8>{"argument", "output", "arena",    "constant",
                                         "external", "alias",  "prepared", "formal"};
}
inline constexpr auto names_of(EagerArgument::Kind) {
  return std::array<std::string_view, 2>{"buffer", "slot"};
}
inline constexpr auto names_of(PlanOutput::Kind) {
  return std::array<std::string_view, 4>{"buffer", "argument", "integer", "none"};
}
// Of PlanStep::action, those of LibraryCall in place of it.
inline constexpr std::string_view name_of_action(const Launch*) { return "launch"; }
inline constexpr std::string_view name_of_action(const MatmulCall*) { return "matmul"; }
inline constexpr std::string_view name_of_action(const ConvolutionCall*) { return "convolution"; }
inline constexpr std::string_view name_of_action(const AttentionCall*) { return "attention"; }
inline constexpr std::string_view name_of_action(const EagerCall*) { return "eager"; }
inline constexpr std::string_view name_of_action(const CopyStep*) { return "copy"; }
inline constexpr std::string_view name_of_action(const Branch*) { return "branch"; }
inline constexpr std::string_view name_of_action(const Loop*) { return "loop"; }
inline constexpr std::string_view name_of_action(const RegionCall*) { return "call"; }

}  // namespace inkle::abi
