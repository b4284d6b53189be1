// The printer's state: names of values and symbols, the values that wait to be printed inside of
// their use. print.cpp has the kernel and its regions, print_operation.cpp what an operation says
// between its operands. For the files of this folder only.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/kernel.h"
#include "loop/scope.h"

namespace inkle::kernel {

class Printer {
 public:
  explicit Printer(const Kernel& kernel) : k_(kernel), local_(scratch_) {}
  std::string run();

 private:
  // A value used once, whose text may stand in its use.
  struct Pending {
    ValueId value = kNone;
    std::string text;
  };
  // Texts of the operands, used up from the first to the last.
  struct Texts {
    std::vector<std::string> list;
    std::size_t next = 0;
    std::string take() { return next < list.size() ? list[next++] : "%?"; }
    std::string rest();  // all that are left, with commas
  };

  // --- print.cpp: the kernel
  std::string head();
  std::string launch();
  std::string memory(const Memory& memory, bool is_parameter);
  std::string memory_name(MemoryId id) const;

  // --- print.cpp: symbols
  void declare(Expr symbol, char prefix, sym::SymbolInfo facts);  // facts in terms of scratch_
  void declare_size(Expr symbol);
  Expr local(Expr e);  // the text's expression; symbols out of scope get a name with "?"
  std::string text(Expr e);
  std::string texts(const std::vector<Expr>& list);
  std::string range(const sym::SymbolInfo& info) const;

  // --- print.cpp: values and regions
  const Region& region_of(RegionId id) const;  // one without operations where it does not exist
  void count_uses(RegionId region);
  std::string name(ValueId value);
  std::vector<std::string> take(std::span<const ValueId> operands);
  void flush();
  void line(const std::string& text);
  void region(RegionId id);  // "{", lines, "}" behind what stands in the open line
  std::string arguments(std::span<const ValueId> values);  // "(%0: f32, %1: f32)"
  void operation(OperationId id);
  void control(OperationId id, const std::string& results, Texts texts);
  void regions_of_fold(const Operation& o);
  void branch(const Operation& o, const std::string& head);
  void roles(const Operation& o);
  std::string loop(const Loop& loop);
  std::string results(const Operation& o);

  // --- print_operation.cpp
  std::string expression(const Operation& o, Texts& texts);
  std::string access(const Access& access, Texts& texts);
  std::string fragment_access(const FragmentAccess& access, Texts& texts);
  Type result_type(const Operation& o) const;
  std::string literal(const Operation& o);
  std::string collective(const Operation& o, Texts& texts);
  std::string matrix_multiply(const Operation& o, Texts& texts);
  std::string copies(const Operation& o, Texts& texts);
  std::string threads(const Operation& o, Texts& texts);
  std::string fragments(const Operation& o, Texts& texts);
  std::string memories(const Operation& o, Texts& texts);

  const Kernel& k_;
  sym::Context scratch_;
  loop::Translation local_;
  std::map<std::uint32_t, bool> declared_;  // ids of symbols in local_
  std::map<char, std::size_t> counters_;    // of names, by prefix
  std::vector<std::uint32_t> uses_;
  std::vector<std::string> names_;
  std::vector<Pending> pending_;
  std::size_t named_ = 0;
  std::size_t indent_ = 1;
  std::string out_;
};

}  // namespace inkle::kernel
