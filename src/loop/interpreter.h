// The inside of the reference interpreter: buffers in memory and the values of symbols. For the
// files of this folder only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "loop/program.h"
#include "loop/scalar.h"

namespace inkle::loop {

struct Memory {
  const Buffer* buffer = nullptr;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::byte* data = nullptr;
  std::shared_ptr<std::vector<std::byte>> owned;

  // The element; InternalError if the index is outside.
  [[nodiscard]] std::byte* at(std::span<const std::int64_t> index) const;
  [[nodiscard]] Scalar read(std::span<const std::int64_t> index) const {
    return read_element(buffer->dtype, at(index));
  }
  void write(std::span<const std::int64_t> index, Scalar value) const {
    write_element(buffer->dtype, at(index), value);
  }
};

class Environment {
 public:
  void set(Expr symbol, std::int64_t value);
  [[nodiscard]] bool knows(Expr symbol) const;
  [[nodiscard]] std::int64_t value(Expr e) const;
  [[nodiscard]] std::vector<std::int64_t> values(std::span<const Expr> list) const;

 private:
  std::vector<std::optional<std::int64_t>> by_id_;
};

struct Machine {
  const Program* program = nullptr;
  Environment environment;
  std::vector<Memory> memory;  // by BufferId

  // Calls f at every point of the dims, row-major, with their variables set.
  void for_each_point(std::span<const Dim> dims, const std::function<void()>& f);
  [[nodiscard]] Scalar read(const Access& access) const {
    return memory[access.buffer].read(environment.values(access.indices));
  }
  // Stores a result of dtype `from` where `store` says.
  void write(const Store& store, Scalar value, DType from);
  // All values of the body at the current point.
  [[nodiscard]] std::vector<Scalar> run_body(const Body& body);
};

// A reduction in progress; accumulate.cpp.
class Accumulator {
 public:
  Accumulator(ReduceOp op, DType dtype);
  void add(Scalar x);
  // Result `number`, in result_dtype().
  [[nodiscard]] Scalar result(std::uint32_t number) const;
  [[nodiscard]] DType result_dtype() const;

 private:
  [[nodiscard]] bool wins(Scalar x) const;
  [[nodiscard]] Scalar welford(std::uint32_t number) const;
  [[nodiscard]] Scalar softmax(std::uint32_t number) const;

  ReduceOp op_;
  DType dtype_;
  bool real_;
  long double total_ = 0;
  std::uint64_t integer_ = 0;
  Scalar best_;
  std::int64_t position_ = 0;
  std::int64_t count_ = 0;
  std::vector<double> list_;
};

// contract.cpp
void run_matmul(Machine& machine, const Nest& nest);
void run_convolution(Machine& machine, const Nest& nest);
void run_attention(Machine& machine, const Nest& nest);

}  // namespace inkle::loop
