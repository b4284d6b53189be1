// Operands, results and details of operations. For verify*.cpp only.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "kernel/verify_diagnostics.h"

namespace inkle::kernel {

// The types of an operation's values, which are few as a rule.
class Types {
 public:
  Types(const Kernel& kernel, std::span<const ValueId> values) : size_(values.size()) {
    if (size_ > few_.size()) more_.resize(size_);
    Type* to = size_ > few_.size() ? more_.data() : few_.data();
    for (const ValueId v : values) *to++ = kernel.type_of(v);
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const Type* data() const { return more_.empty() ? few_.data() : more_.data(); }
  [[nodiscard]] const Type* begin() const { return data(); }
  [[nodiscard]] const Type* end() const { return data() + size_; }
  [[nodiscard]] const Type& operator[](std::size_t i) const { return data()[i]; }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  std::array<Type, 4> few_;
  std::vector<Type> more_;
  std::size_t size_;
};

class TypeChecker {
 public:
  explicit TypeChecker(const Diagnostics& diagnostics) : d_(diagnostics), k_(d_.kernel()) {}

  [[nodiscard]] Types of(std::span<const ValueId> values) const { return {k_, values}; }
  void same(std::span<const Type> got, std::span<const Type> wanted, std::string_view what) const;
  void same(std::span<const Type> got, std::initializer_list<Type> wanted,
            std::string_view what) const {
    same(got, std::span<const Type>(wanted.begin(), wanted.size()), what);
  }
  // The same of the types of values.
  void are(std::span<const ValueId> values, std::span<const Type> wanted,
           std::string_view what) const;
  void are(std::span<const ValueId> values, std::initializer_list<Type> wanted,
           std::string_view what) const {
    are(values, std::span<const Type>(wanted.begin(), wanted.size()), what);
  }
  void check_detail(const Operation& o) const;
  void check(const Operation& o) const;
  [[nodiscard]] std::size_t index_operands(const Access& access) const;

 private:
  void compute_types(const Operation& o, const Type& result) const;
  void symbolic_types(const Operation& o) const;
  void access_types(const Operation& o) const;
  void copy_types(const Operation& o) const;
  void fragment_types(const Operation& o) const;
  void mma_types(const Operation& o) const;
  [[nodiscard]] bool is_zero(ValueId value) const;  // a constant
  [[nodiscard]] const FragmentType& fragment(ValueId value) const;
  void operands_are(const Operation& o, std::size_t first, std::size_t count,
                    std::string_view what) const;  // indices: i32 or i64

  const Diagnostics& d_;
  const Kernel& k_;
  // Opcode and types of some operations that are known to be right: most of a kernel's are alike.
  mutable std::array<std::uint64_t, 32> right_{};
};

}  // namespace inkle::kernel
