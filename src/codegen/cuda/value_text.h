// Values and index expressions of a kernel as text, at the point that is being printed.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/cuda/lane_plan.h"
#include "codegen/cuda/text.h"

namespace inkle::codegen::cuda {

class ValueText {
 public:
  ValueText(const kernel::Kernel& kernel, const LanePlan& plan);

  // --- Where the text stands
  void enter_vector(sym::Expr lane, int lanes);
  void leave_vector();
  // Inside of the loop over the lanes of a segment.
  void enter_lanes(std::uint32_t segment) { segment_ = segment, in_lanes_ = true; }
  void leave_lanes() { in_lanes_ = false; }
  [[nodiscard]] bool in_lanes() const { return in_lanes_; }
  [[nodiscard]] int lanes() const { return lanes_; }

  // --- Values
  // The value; of one that varies by lane, that of lane `l`.
  [[nodiscard]] ShortText of(kernel::ValueId v) const;
  // What varies and is held in an array: its name, a Pack.
  [[nodiscard]] ShortText pack(kernel::ValueId v) const;
  [[nodiscard]] ShortText variable(kernel::ValueId v) const;
  [[nodiscard]] bool is_array(kernel::ValueId v) const;
  // The value as f32, of a reduced float.
  [[nodiscard]] ShortText widened(kernel::ValueId v) const;
  [[nodiscard]] abi::DType dtype(kernel::ValueId v) const { return k_.type_of(v).dtype; }
  [[nodiscard]] std::string_view type(kernel::ValueId v) const { return type_of(dtype(v)); }
  // The declaration of what a loop or a branch assigns.
  [[nodiscard]] ShortText declaration(kernel::ValueId v) const;
  // The variable of `v` as f32, which the text has from here on: the lane of a pack as f32 is
  // cheaper than that of an element taken out of it.
  [[nodiscard]] ShortText define_widened(kernel::ValueId v);
  // An i64 that fits into 32 bits, and is declared so; `of` widens it.
  void declare_narrow(kernel::ValueId v) { is_narrow_[alias_[v]] = true; }
  [[nodiscard]] bool is_narrow(kernel::ValueId v) const { return is_narrow_[alias_[v]]; }
  // From here on `v` is what `name` is.
  void alias(kernel::ValueId v, kernel::ValueId name) { alias_[v] = alias_[name]; }

  // --- Symbols and expressions
  void define(sym::Expr symbol, const ShortText& text, bool wide);
  // Symbols whose values are values of the kernel.
  void define(sym::Expr symbol, kernel::ValueId v);
  // `inner` counts the threads between two values of `outer`: where an expression has both as
  // parts of one number of theirs, it is `joint`.
  void join(sym::Expr outer, sym::Expr inner, std::int64_t extent, sym::Expr joint);
  // Writes the value of an expression.
  void index(Writer& to, sym::Expr e) { index(to, e, !fits32(e)); }
  void index(Writer& to, sym::Expr e, bool wide);
  [[nodiscard]] std::string index(sym::Expr e, bool wide);
  [[nodiscard]] bool fits32(sym::Expr e) { return widths_.fits32(e); }

 private:
  void symbol(Writer& to, sym::Expr s, bool wide) const;
  [[nodiscard]] sym::Expr joined(sym::Expr e) const;

  struct Symbol {
    ShortText text;
    bool wide = false;                      // i64, else int
    kernel::ValueId value = kernel::kNone;  // of which the text is
  };
  struct Joint {
    sym::Expr outer, inner;
    std::int64_t extent;
    sym::Expr change;  // of `inner`, where it is the number of both less `outer`
  };

  const kernel::Kernel& k_;
  const LanePlan& plan_;
  std::vector<kernel::ValueId> alias_;
  std::vector<bool> has_widened_, is_narrow_;
  std::unordered_map<const sym::Node*, Symbol> symbols_;
  Widths widths_;
  RecentExpressions<sym::Expr> joined_;
  std::vector<Joint> joints_;
  sym::Expr lane_;
  int lanes_ = 1;
  std::uint32_t segment_ = 0;
  bool in_lanes_ = false;
};

}  // namespace inkle::codegen::cuda
