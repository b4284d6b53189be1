// What an operation without regions, or the head of one with regions, says between its operands.
// For print*.cpp only.
#pragma once

#include <string>
#include <vector>

#include "kernel/print_symbols.h"

namespace inkle::kernel {

// Texts of the operands, used up from the first to the last.
struct OperandTexts {
  std::vector<std::string> list;
  std::size_t next = 0;
  std::string take() { return next < list.size() ? list[next++] : "%?"; }
  std::string rest();  // all that are left, with commas
};

[[nodiscard]] std::string memory_name(const Kernel& kernel, MemoryId id);

class OperationPrinter {
 public:
  OperationPrinter(const Kernel& kernel, SymbolPrinter& symbols) : k_(kernel), symbols_(symbols) {}
  std::string expression(const Operation& o, OperandTexts& texts);

 private:
  std::string access(const Access& access, OperandTexts& texts);
  std::string fragment_access(const FragmentAccess& access, OperandTexts& texts);
  Type result_type(const Operation& o) const;
  std::string literal(const Operation& o);
  std::string collective(const Operation& o, OperandTexts& texts);
  std::string matrix_multiply(const Operation& o, OperandTexts& texts);
  std::string copies(const Operation& o, OperandTexts& texts);
  std::string threads(const Operation& o, OperandTexts& texts);
  std::string fragments(const Operation& o, OperandTexts& texts);
  std::string memories(const Operation& o, OperandTexts& texts);

  const Kernel& k_;
  SymbolPrinter& symbols_;
};

}  // namespace inkle::kernel
