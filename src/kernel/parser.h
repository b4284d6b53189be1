// The parser's state. parse.cpp has the kernel's head and its memories, parse_region.cpp regions,
// values and control, parse_operation.cpp the other operations. For the files of this folder only.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "kernel/kernel.h"
#include "kernel/names.h"
#include "loop/scope.h"

namespace inkle::kernel {

class Parser {
 public:
  Parser(std::string_view text, std::string_view file, sym::Context& context)
      : s_(text, file), context_(context), global_(context) {}
  Kernel run();

 private:
  using Values = std::vector<ValueId>;
  // What stands before "=", or where a value is asked for.
  struct Wanted {
    std::vector<std::string> names;
    bool is_value = false;  // as an operand of another operation
  };

  // --- parse.cpp
  void head();
  void parameter(bool sizes);  // in two rounds: sizes alone, then the rest
  bool is_declaration();
  void skip_parameter();
  void size(const std::string& name);
  void axis(AxisKind kind);
  void launch();
  void declarations();
  void memory(Space space, Role role);
  void resolve_maps();
  MemoryId memory_id();
  std::int32_t count(std::string_view what);  // 0 <= n < 2^31
  std::string name_or_quoted();
  Expr local_expression();  // in terms of `names_`
  Expr expression();        // of the kernel's symbols
  std::vector<Expr> expressions(std::string_view end);
  // A symbol called `name` in the text: the kernel's own for it. Facts in terms of `names_`.
  Expr declare(const std::string& name, const sym::SymbolInfo& facts);
  Expr declare_index(const std::string& name, Expr extent);
  sym::SymbolInfo range();

  // --- parse_region.cpp
  Values append(Op op, Values operands, const std::vector<Type>& results, Detail detail,
                std::vector<RegionId> regions = {});
  RegionId open_region();
  void statement();
  void statements();
  void define(const std::string& name, ValueId value);
  std::string value_name();
  ValueId value();
  ValueId nested_value();
  ValueId number();
  Values values(std::string_view end);
  Values divide_index(std::string_view suffix);
  ValueId index_value();  // i32 or i64
  Type type();
  DType dtype(std::string_view name) const;
  Type type_of(ValueId value) const { return k_.values[value].type; }
  std::vector<Type> types_of(const Values& values) const;
  void symbolic(const std::vector<std::string>& results, const std::string& name);
  // "(%a: f32, %b: f32)", with `initial` "(%a: f32 = v, ...)".
  std::vector<std::pair<std::string, Type>> arguments(Values* initial);
  // "{ ... }"; types of what it yields.
  std::pair<RegionId, std::vector<Type>> region(
      const std::vector<std::pair<std::string, Type>>& arguments);
  void expect_types(const std::vector<Type>& got, const std::vector<Type>& wanted,
                    std::string_view what);
  [[noreturn]] void refuse(std::string_view message);  // the operation that is being read
  Loop loop();
  Values loop_operation();
  Values repeat();
  Values branch();
  Values vector();
  Values fold();
  Values roles();

  // --- parse_operation.cpp
  Values operation(std::string_view word, const Wanted& wanted);
  Values dispatch(Op op, std::string_view suffix, const Wanted& wanted);
  Values compute(loop::Opcode opcode, std::string_view suffix);
  Access access(Values& operands, ValueId* rank);
  FragmentAccess fragment_access(Values& operands);
  Values load();
  Values store();
  Values atomic(std::string_view suffix, const Wanted& wanted);
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
    return type_of(value).kind == TypeKind::fragment;
  }
  template <class E, std::size_t N>
  E named(const Names<E, N>& table, std::string_view what) {
    const Scanner::Mark start = s_.mark();
    const std::string_view word = s_.identifier();
    const auto found = table.find(word);
    if (found) return *found;
    s_.reset(start);
    s_.fail(std::string("unknown ") + std::string(what));
  }
  template <class E, std::size_t N>
  E suffix_named(const Names<E, N>& table, std::string_view suffix, std::string_view what) {
    const auto found = table.find(suffix);
    if (!found) refuse("unknown " + std::string(what) + " '" + std::string(suffix) + "'");
    return *found;
  }

  Scanner s_;
  Kernel k_;
  sym::Context& context_;
  sym::Context names_;  // the symbols by their names in the text
  loop::Translation global_;
  std::map<std::string, MemoryId, std::less<>> memories_;
  std::map<std::string, AxisId, std::less<>> axes_;
  std::vector<std::pair<MemoryId, std::string>> maps_;  // names of what maps are of
  std::map<std::string, ValueId, std::less<>> values_;  // in scope
  std::vector<std::string> scope_;                      // their names in order of definition
  RegionId region_ = kNone;
  Scanner::Mark start_{};  // of the operation that is being read
  int depth_ = 0;
};

}  // namespace inkle::kernel
