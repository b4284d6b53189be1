// Operations of a kernel from text. For parse*.cpp only.
#pragma once

#include <string_view>

#include "kernel/parse_control.h"
#include "kernel/parse_declarations.h"

namespace inkle::kernel {

class OperationParser {
 public:
  OperationParser(KernelText& text, SymbolParser& symbols, DeclarationParser& declarations,
                  RegionParser& regions, Kernel& kernel)
      : text_(text),
        s_(text.scanner),
        symbols_(symbols),
        declarations_(declarations),
        regions_(regions),
        control_(text, symbols, regions),
        k_(kernel) {}
  // `word` is a name of the set, with a suffix behind a dot, or an opcode or a
  // named function.
  Values operation(std::string_view word, const RegionParser::Wanted& wanted);

 private:
  Values dispatch(Op op, std::string_view suffix, const RegionParser::Wanted& wanted);
  Values divide_index(std::string_view suffix);
  Values compute(loop::Opcode opcode, std::string_view suffix);
  Access access(Values& operands, ValueId* rank);
  FragmentAccess fragment_access(Values& operands);
  Values load();
  Values store();
  Values atomic(std::string_view suffix, const RegionParser::Wanted& wanted);
  Values collective(Op op);
  Values shuffle(std::string_view suffix);
  Values barrier();
  Values fence();
  Values copy();
  Values count_operation(Op op);
  Values bulk(Op op);
  Values fragment(Op op);
  Values fragment_map();
  Values mma(std::string_view suffix);
  [[nodiscard]] bool is_fragment(ValueId value) const {
    return regions_.type_of(value).kind == TypeKind::fragment;
  }

  KernelText& text_;
  Scanner& s_;
  SymbolParser& symbols_;
  DeclarationParser& declarations_;
  RegionParser& regions_;
  ControlParser control_;
  Kernel& k_;
};

}  // namespace inkle::kernel
