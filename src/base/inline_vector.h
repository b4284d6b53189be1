// A vector of trivial values whose first N need no allocation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <type_traits>

namespace inkle {

template <class T, std::size_t N>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;
  using reference = T&;
  using const_reference = const T&;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;

  InlineVector() {}  // NOLINT: the elements are not made
  InlineVector(std::initializer_list<T> values) : InlineVector(values.begin(), values.end()) {}
  explicit InlineVector(std::span<const T> values) : InlineVector(values.begin(), values.end()) {}
  template <std::forward_iterator I>
  InlineVector(I first, I last) {
    const auto count = static_cast<std::size_t>(std::distance(first, last));
    reserve(count);
    std::copy(first, last, data_);
    size_ = static_cast<std::uint32_t>(count);
  }
  explicit InlineVector(std::size_t count, T value = {}) { resize(count, value); }
  InlineVector(const InlineVector& other) : InlineVector(other.data_, other.data_ + other.size_) {}
  InlineVector(InlineVector&& other) noexcept { take(other); }
  InlineVector& operator=(const InlineVector& other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  InlineVector& operator=(InlineVector&& other) noexcept {
    if (this == &other) return *this;
    release();
    take(other);
    return *this;
  }
  InlineVector& operator=(std::initializer_list<T> values) {
    assign(values.begin(), values.end());
    return *this;
  }
  ~InlineVector() { release(); }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] T* data() { return data_; }
  [[nodiscard]] const T* data() const { return data_; }
  [[nodiscard]] T* begin() { return data_; }
  [[nodiscard]] T* end() { return data_ + size_; }
  [[nodiscard]] const T* begin() const { return data_; }
  [[nodiscard]] const T* end() const { return data_ + size_; }
  [[nodiscard]] T& operator[](std::size_t i) { return data_[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const { return data_[i]; }
  // Throws std::out_of_range.
  [[nodiscard]] const T& at(std::size_t i) const {
    if (i >= size_) throw std::out_of_range("InlineVector::at");
    return data_[i];
  }
  [[nodiscard]] T& front() { return data_[0]; }
  [[nodiscard]] const T& front() const { return data_[0]; }
  [[nodiscard]] T& back() { return data_[size_ - 1]; }
  [[nodiscard]] const T& back() const { return data_[size_ - 1]; }

  void push_back(T value) {
    if (size_ == capacity_) grow(capacity_ * 2);
    data_[size_++] = value;
  }
  void pop_back() { --size_; }
  void clear() { size_ = 0; }
  void reserve(std::size_t count) {
    if (count > capacity_) grow(count);
  }
  void resize(std::size_t count, T value = {}) {
    reserve(count);
    if (count > size_) std::fill(data_ + size_, data_ + count, value);
    size_ = static_cast<std::uint32_t>(count);
  }
  template <class I>
  void assign(I first, I last) {
    clear();
    insert(end(), first, last);
  }
  // The range is no part of this vector.
  template <class I>
  T* insert(const T* before, I first, I last) {
    const auto at = before - data_;
    const auto count = std::distance(first, last);
    reserve(size_ + static_cast<std::size_t>(count));
    std::copy_backward(data_ + at, data_ + size_, data_ + size_ + count);
    std::copy(first, last, data_ + at);
    size_ += static_cast<std::uint32_t>(count);
    return data_ + at;
  }
  T* insert(const T* before, std::initializer_list<T> values) {
    return insert(before, values.begin(), values.end());
  }
  T* insert(const T* before, T value) { return insert(before, &value, &value + 1); }
  T* erase(const T* first, const T* last) {
    const auto at = data_ + (first - data_);
    size_ = static_cast<std::uint32_t>(std::copy(data_ + (last - data_), end(), at) - data_);
    return at;
  }
  T* erase(const T* at) { return erase(at, at + 1); }

  friend bool operator==(const InlineVector& a, const InlineVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  T* own() { return reinterpret_cast<T*>(inline_); }
  void grow(std::size_t capacity) {
    T* bigger = std::allocator<T>().allocate(capacity);
    std::copy(data_, data_ + size_, bigger);
    release();
    data_ = bigger;
    capacity_ = static_cast<std::uint32_t>(capacity);
  }
  void release() {
    if (data_ != own()) std::allocator<T>().deallocate(data_, capacity_);
  }
  // Of a vector that holds nothing of its own.
  void take(InlineVector& other) {
    size_ = other.size_;
    if (other.data_ == other.own()) {
      data_ = own();
      capacity_ = N;
      std::copy(other.data_, other.data_ + size_, data_);
    } else {
      data_ = other.data_;
      capacity_ = other.capacity_;
      other.data_ = other.own();
      other.capacity_ = N;
    }
    other.size_ = 0;
  }

  T* data_ = own();
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = N;
  alignas(T) std::byte inline_[N * sizeof(T)];
};

}  // namespace inkle
