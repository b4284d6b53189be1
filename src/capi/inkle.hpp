// Inkle's runtime for C++17 and later: inkle.h with destructors, vectors and exceptions. All of it
// is in this header; what a program links is libinkle_runtime.
//
//   inkle::Program program("model.inkle");
//   std::vector<float> x(3 * 4);
//   inkle::Results results = program.run({{x.data(), {3, 4}}});
//   const float* y = results[0].data<float>();
#pragma once

#include <inkle.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace inkle {

// A function of the runtime failed; what() is inkle_last_error().
class Error : public std::runtime_error {
 public:
  explicit Error(inkle_status status) : std::runtime_error(inkle_last_error()), status_(status) {}
  inkle_status status() const noexcept { return status_; }

 private:
  inkle_status status_;
};

inline void check(inkle_status status) {
  if (status != INKLE_OK) throw Error(status);
}

// The dtype of a C++ type; for the others (f16, bf16, complex) it is given.
template <class T>
constexpr inkle_dtype dtype_of() = delete;
template <>
constexpr inkle_dtype dtype_of<bool>() {
  return INKLE_BOOL;
}
template <>
constexpr inkle_dtype dtype_of<std::uint8_t>() {
  return INKLE_U8;
}
template <>
constexpr inkle_dtype dtype_of<std::int8_t>() {
  return INKLE_I8;
}
template <>
constexpr inkle_dtype dtype_of<std::int16_t>() {
  return INKLE_I16;
}
template <>
constexpr inkle_dtype dtype_of<std::int32_t>() {
  return INKLE_I32;
}
template <>
constexpr inkle_dtype dtype_of<std::int64_t>() {
  return INKLE_I64;
}
template <>
constexpr inkle_dtype dtype_of<float>() {
  return INKLE_F32;
}
template <>
constexpr inkle_dtype dtype_of<double>() {
  return INKLE_F64;
}

// An input of a call, or a weight: memory of the caller's that lives as long as it is used, or an
// integer. Inputs are only read unless the program says is_written.
class Tensor {
 public:
  template <class T>
  Tensor(const T* data, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides = {})
      : Tensor(const_cast<T*>(data), dtype_of<T>(), std::move(sizes), std::move(strides)) {}
  Tensor(void* data, inkle_dtype dtype, std::vector<std::int64_t> sizes,
         std::vector<std::int64_t> strides = {})
      : data_(data), dtype_(dtype), sizes_(std::move(sizes)), strides_(std::move(strides)) {
    if (!strides_.empty() && strides_.size() != sizes_.size()) {
      throw std::invalid_argument("as many strides as sizes are needed");
    }
  }
  // In memory of the program's GPU.
  static Tensor on_device(void* data, inkle_dtype dtype, std::vector<std::int64_t> sizes,
                          std::vector<std::int64_t> strides = {}) {
    Tensor made(data, dtype, std::move(sizes), std::move(strides));
    made.kind_ = INKLE_DEVICE_TENSOR;
    return made;
  }
  static Tensor integer(std::int64_t value) {
    Tensor made(nullptr, INKLE_I64, {});
    made.kind_ = INKLE_INTEGER;
    made.integer_ = value;
    return made;
  }

  // Points into this object.
  inkle_value value() const {
    const std::int64_t* strides = strides_.empty() ? nullptr : strides_.data();
    return {kind_, integer_,
            {data_, dtype_, static_cast<std::int32_t>(sizes_.size()), sizes_.data(), strides}};
  }

 private:
  inkle_kind kind_ = INKLE_TENSOR;
  std::int64_t integer_ = 0;
  void* data_;
  inkle_dtype dtype_;
  std::vector<std::int64_t> sizes_, strides_;
};

// One result; valid as long as its Results are, and until they are used for another call.
class Result {
 public:
  explicit Result(const inkle_value& value) : value_(value) {}
  inkle_kind kind() const { return value_.kind; }
  bool is_on_device() const { return kind() == INKLE_DEVICE_TENSOR; }
  std::int64_t integer() const { return value_.integer; }
  const inkle_tensor& tensor() const { return value_.tensor; }
  std::vector<std::int64_t> sizes() const {
    return {value_.tensor.sizes, value_.tensor.sizes + value_.tensor.rank};
  }
  std::size_t element_count() const {
    std::size_t count = 1;
    for (const std::int64_t s : sizes()) count *= static_cast<std::size_t>(s);
    return count;
  }
  // The elements one after another, on the device if they are; throws if it is another dtype, or
  // lies otherwise (copy()).
  template <class T>
  const T* data() const {
    if ((kind() != INKLE_TENSOR && !is_on_device()) || value_.tensor.dtype != dtype_of<T>()) {
      throw std::invalid_argument(std::string("the result is no tensor of ") +
                                  inkle_dtype_name(dtype_of<T>()));
    }
    std::int64_t step = 1;
    for (std::int32_t d = value_.tensor.rank; d-- > 0;) {
      if (value_.tensor.sizes[d] != 1 && value_.tensor.strides[d] != step) {
        throw std::invalid_argument("the result is not row-major");
      }
      step *= value_.tensor.sizes[d];
    }
    return static_cast<const T*>(value_.tensor.data);
  }
  // Row-major, whatever its strides are; not of what lies on a device (Results::fetch()).
  template <class T>
  std::vector<T> copy() const {
    if (kind() != INKLE_TENSOR) throw std::invalid_argument("the result is no tensor of the host");
    std::vector<T> made(element_count());
    const inkle_tensor to{made.data(), dtype_of<T>(), value_.tensor.rank, value_.tensor.sizes,
                          nullptr};
    check(inkle_copy(&value_.tensor, &to));
    return made;
  }

 private:
  inkle_value value_;
};

class Results {
 public:
  Results() : results_(nullptr, inkle_results_release) {
    inkle_results* made = nullptr;
    check(inkle_results_new(&made));
    results_.reset(made);
  }
  std::size_t size() const { return inkle_result_count(results_.get()); }
  Result operator[](std::size_t number) const {
    inkle_value value;
    check(inkle_result(results_.get(), number, &value));
    return Result(value);
  }
  // Of Program::run_on(): waits for its work, and throws what that met.
  void wait() { check(inkle_results_wait(results_.get())); }
  // The same, and copies results that lie on a device to the host.
  void fetch() { check(inkle_results_fetch(results_.get())); }
  inkle_results* get() const { return results_.get(); }

 private:
  std::unique_ptr<inkle_results, void (*)(inkle_results*)> results_;
};

// A set of weights by name, shared by the programs that use it.
class Weights {
 public:
  // Copies the tensors.
  explicit Weights(const std::vector<std::pair<std::string, Tensor>>& tensors)
      : weights_(nullptr, inkle_weights_release) {
    std::vector<inkle_named_tensor> given;
    for (const auto& [name, tensor] : tensors) given.push_back({name.c_str(), tensor.value().tensor});
    inkle_weights* made = nullptr;
    check(inkle_weights_new(given.data(), given.size(), &made));
    weights_.reset(made);
  }
  explicit Weights(inkle_weights* taken) : weights_(taken, inkle_weights_release) {}
  const inkle_weights* get() const { return weights_.get(); }

 private:
  std::unique_ptr<inkle_weights, void (*)(inkle_weights*)> weights_;
};

// What a program takes or gives.
struct Info {
  std::string name;
  inkle_kind kind;
  inkle_dtype dtype;
  std::vector<std::int64_t> least, most;  // sizes, by dimension
  bool is_written;
};

// What a program is to run on: "cpu", "cuda", "cuda:1".
struct Device {
  std::string name;
};

// May be called by any number of threads at once.
class Program {
 public:
  explicit Program(const std::string& path) : program_(nullptr, inkle_program_release) {
    inkle_program* made = nullptr;
    check(inkle_load(path.c_str(), &made));
    program_.reset(made);
  }
  // Only if the key's holder has signed it: inkle_load_signed().
  Program(const std::string& path, const std::string& key)
      : program_(nullptr, inkle_program_release) {
    inkle_program* made = nullptr;
    check(inkle_load_signed(path.c_str(), key.c_str(), &made));
    program_.reset(made);
  }

  // On that device: inkle_load_on().
  Program(const std::string& path, const Device& device)
      : program_(nullptr, inkle_program_release) {
    inkle_program* made = nullptr;
    check(inkle_load_on(path.c_str(), device.name.c_str(), nullptr, &made));
    program_.reset(made);
  }
  Program(const std::string& path, const Device& device, const std::string& key)
      : program_(nullptr, inkle_program_release) {
    inkle_program* made = nullptr;
    check(inkle_load_on(path.c_str(), device.name.c_str(), key.c_str(), &made));
    program_.reset(made);
  }

  Results run(const std::vector<Tensor>& inputs) const {
    Results results;
    run(inputs, results);
    return results;
  }
  // In memory of an earlier call's results.
  void run(const std::vector<Tensor>& inputs, Results& results) const {
    const std::vector<inkle_value> values = values_of(inputs);
    check(inkle_run(program_.get(), values.data(), values.size(), results.get()));
  }
  // On a GPU: queued on this CUstream or cudaStream_t; results lie on the device.
  void run_on(void* stream, const std::vector<Tensor>& inputs, Results& results) const {
    const std::vector<inkle_value> values = values_of(inputs);
    check(inkle_run_on(program_.get(), stream, values.data(), values.size(), results.get()));
  }

  std::vector<Info> inputs() const { return infos(inkle_input_count, inkle_input_info); }
  std::vector<Info> outputs() const { return infos(inkle_output_count, inkle_output_info); }
  std::vector<Info> weights() const { return infos(inkle_weight_count, inkle_weight_info); }
  std::string device() const { return inkle_program_device(program_.get()); }
  std::string target() const { return inkle_program_target(program_.get()); }
  // Reads all weights and checks them, which the first call does otherwise.
  void check_weights() const { check(inkle_program_check(program_.get())); }

  Weights weight_set() const {
    inkle_weights* made = nullptr;
    check(inkle_program_weights(program_.get(), &made));
    return Weights(made);
  }
  // Calls that have begun go on with the set that they have.
  void set_weights(const Weights& weights) {
    check(inkle_set_weights(program_.get(), weights.get()));
  }
  inkle_program* get() const { return program_.get(); }

 private:
  static std::vector<inkle_value> values_of(const std::vector<Tensor>& inputs) {
    std::vector<inkle_value> values;
    values.reserve(inputs.size());
    for (const Tensor& input : inputs) values.push_back(input.value());
    return values;
  }
  template <class Count, class Get>
  std::vector<Info> infos(Count count, Get get) const {
    std::vector<Info> all;
    for (std::size_t i = 0; i < count(program_.get()); ++i) {
      inkle_info info;
      check(get(program_.get(), i, &info));
      all.push_back({info.name, info.kind, info.dtype, {info.least, info.least + info.rank},
                     {info.most, info.most + info.rank}, info.is_written != 0});
    }
    return all;
  }
  std::unique_ptr<inkle_program, void (*)(inkle_program*)> program_;
};

}  // namespace inkle
