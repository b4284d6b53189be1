// The head of a kernel from text: parameters, launch, memories. For parse*.cpp
// only.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernel/parse_symbols.h"

namespace inkle::kernel {

class DeclarationParser {
 public:
  DeclarationParser(KernelText& text, SymbolParser& symbols, Kernel& kernel)
      : text_(text), s_(text.scanner), symbols_(symbols), k_(kernel) {}
  void head();
  void launch();
  void declarations();  // those that stand before the body
  // What a name in the text stands for.
  MemoryId memory_id();
  AxisId axis_id();

 private:
  void parameter(bool sizes);  // in two rounds: sizes alone, then the rest
  bool is_declaration();
  void skip_parameter();
  void axis(AxisKind kind);
  void memory(Space space, Role role);
  void resolve_maps();

  KernelText& text_;
  Scanner& s_;
  SymbolParser& symbols_;
  Kernel& k_;
  std::map<std::string, MemoryId, std::less<>> memories_;
  std::map<std::string, AxisId, std::less<>> axes_;
  std::vector<std::pair<MemoryId, std::string>> maps_;  // names of what maps are of
};

}  // namespace inkle::kernel
