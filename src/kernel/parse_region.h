// Regions and values of a kernel from text. For parse*.cpp only.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel/parse_symbols.h"

namespace inkle::kernel {

class RegionParser {
 public:
  // What stands before "=", or where a value is asked for.
  struct Wanted {
    std::vector<std::string> names;
    bool is_value = false;  // as an operand of another operation
  };
  // Reads what stands behind the operation's name.
  using ReadOperation = std::function<Values(std::string_view word, const Wanted& wanted)>;
  RegionParser(KernelText& text, SymbolParser& symbols, Kernel& kernel, ReadOperation operation)
      : text_(text),
        s_(text.scanner),
        symbols_(symbols),
        k_(kernel),
        operation_(std::move(operation)) {}

  // The body, up to its end.
  void body();
  Values append(Op op, Values operands, const TypeList& results, Detail detail,
                Regions regions = {});
  ValueId value();
  Values values(std::string_view end);
  ValueId index_value();  // i32 or i64
  Type type();
  [[nodiscard]] Type type_of(ValueId value) const { return k_.values[value].type; }
  [[nodiscard]] TypeList types_of(const Values& values) const;
  void expect_types(const TypeList& got, const TypeList& wanted, std::string_view what);
  // "(%a: f32, %b: f32)", with `initial` "(%a: f32 = v, ...)".
  using Arguments = std::vector<std::pair<std::string, Type>>;
  Arguments arguments(Values* initial);
  // "{ ... }"; types of what it yields.
  std::pair<RegionId, TypeList> region(const Arguments& arguments);
  RegionId open_region();

 private:
  void statement();
  void statements();
  void define(const std::string& name, ValueId value);
  ValueId nested_value();
  ValueId number();
  void symbolic(const std::vector<std::string>& results, const std::string& name);

  KernelText& text_;
  Scanner& s_;
  SymbolParser& symbols_;
  Kernel& k_;
  ReadOperation operation_;
  std::map<std::string, ValueId, std::less<>> values_;  // in scope
  std::vector<std::string> scope_;                      // their names in order of definition
  RegionId region_ = kNone;
};

}  // namespace inkle::kernel
