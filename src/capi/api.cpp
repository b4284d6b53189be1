// The C API: handles over the classes of this folder, and exceptions as statuses.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/function_ref.h"
#include "base/threads.h"
#include "capi/inkle.h"
#include "capi/program.h"
#include "runtime/common/errors.h"
#include "runtime/cpu/strided_copy.h"

using inkle::abi::DType;
namespace common = inkle::runtime::common;

struct inkle_program {
  std::shared_ptr<inkle::capi::Program> program;
};
struct inkle_results {
  inkle::capi::Results results;
  std::vector<inkle::capi::Value> inputs;  // of the call
};
struct inkle_weights {
  std::shared_ptr<const inkle::capi::WeightSet> set;
};

namespace {

constexpr std::int32_t kMostRank = 64;

// By number of inkle_dtype, from 1.
constexpr std::array kDTypes = {
    DType::boolean, DType::u8,       DType::i8,     DType::i16,        DType::i32,
    DType::i64,     DType::f16,      DType::bf16,   DType::f32,        DType::f64,
    DType::u16,     DType::u32,      DType::u64,    DType::c32,        DType::c64,
    DType::c128,    DType::f8e4m3fn, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz};
static_assert(kDTypes.size() == INKLE_F8_E5M2FNUZ);

bool is_dtype(inkle_dtype dtype) {
  return dtype >= INKLE_BOOL && static_cast<std::size_t>(dtype) <= kDTypes.size();
}

DType from_c(inkle_dtype dtype) { return kDTypes[static_cast<std::size_t>(dtype) - 1]; }

inkle_dtype to_c(DType dtype) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i] == dtype) return static_cast<inkle_dtype>(i + 1);
  }
  return static_cast<inkle_dtype>(0);
}

inkle_kind to_c(inkle::capi::Kind kind) {
  switch (kind) {
    case inkle::capi::Kind::tensor:
      return INKLE_TENSOR;
    case inkle::capi::Kind::integer:
      return INKLE_INTEGER;
    case inkle::capi::Kind::none:
      return INKLE_NONE;
  }
  return INKLE_NONE;
}

// Of a thread. A fixed array, so that a failure for lack of memory can be told, too.
thread_local std::array<char, 2048> last_error{};

inkle_status fail(inkle_status status, std::string_view message) noexcept {
  const std::size_t size = std::min(message.size(), last_error.size() - 1);
  std::memcpy(last_error.data(), message.data(), size);
  last_error[size] = '\0';
  return status;
}

// `otherwise`: what a UserError of no other kind means where the function stands.
template <class Function>
inkle_status guarded(inkle_status otherwise, Function&& function) noexcept {
  try {
    function();
    return INKLE_OK;
  } catch (const common::WrongArgument& error) {
    return fail(INKLE_WRONG_ARGUMENT, error.what());
  } catch (const common::OutOfRange& error) {
    return fail(INKLE_OUT_OF_RANGE, error.what());
  } catch (const common::OutOfMemory& error) {
    return fail(INKLE_OUT_OF_MEMORY, error.what());
  } catch (const inkle::capi::BadFile& error) {
    return fail(INKLE_BAD_FILE, error.what());
  } catch (const inkle::UserError& error) {
    return fail(otherwise, error.what());
  } catch (const inkle::Unsupported& error) {
    return fail(INKLE_UNSUPPORTED, error.what());
  } catch (const std::bad_alloc&) {
    return fail(INKLE_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return fail(INKLE_INTERNAL, error.what());
  } catch (...) {
    return fail(INKLE_INTERNAL, "an exception of unknown kind");
  }
}

template <class... Args>
[[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) {
  throw common::WrongArgument(fmt::format(format, std::forward<Args>(args)...));
}

void not_null(const void* pointer, std::string_view what) {
  if (pointer == nullptr) wrong("{} is null", what);
}

inkle::abi::TensorView view_of(const inkle_tensor& tensor, std::string_view what) {
  if (!is_dtype(tensor.dtype)) {
    wrong("{}: {} is no dtype", what, static_cast<int>(tensor.dtype));
  }
  if (tensor.rank < 0 || tensor.rank > kMostRank) wrong("{}: rank {}", what, tensor.rank);
  if (tensor.rank > 0 && tensor.sizes == nullptr) wrong("{}: its sizes are null", what);
  return {.data = tensor.data,
          .dtype = from_c(tensor.dtype),
          .rank = tensor.rank,
          .sizes = tensor.sizes,
          .strides = tensor.strides};
}

std::span<const std::int64_t> sizes_of(const inkle::abi::TensorView& view) {
  return {view.sizes, static_cast<std::size_t>(view.rank)};
}

// `gpu`: where tensors of a device lie.
inkle::capi::Value input_of(const inkle_value& value, std::string_view name,
                            inkle::abi::Device gpu) {
  if (value.kind == INKLE_INTEGER) return {inkle::capi::Kind::integer, value.integer, {}};
  if (value.kind == INKLE_TENSOR || value.kind == INKLE_DEVICE_TENSOR) {
    inkle::abi::TensorView view = view_of(value.tensor, name);
    if (value.kind == INKLE_DEVICE_TENSOR) view.device = gpu;
    return {inkle::capi::Kind::tensor, 0, view};
  }
  wrong("input {}: {} is no kind of input", name, static_cast<int>(value.kind));
}

inkle_status describe(const std::vector<inkle::capi::Declared>& all, std::size_t number,
                      inkle_info* info, std::string_view what) {
  return guarded(INKLE_WRONG_ARGUMENT, [&] {
    not_null(info, "info");
    if (number >= all.size()) wrong("{} {} of {}", what, number, all.size());
    const inkle::capi::Declared& d = all[number];
    *info = {.name = d.name.c_str(),
             .kind = to_c(d.kind),
             .dtype = to_c(d.dtype),
             .rank = static_cast<std::int32_t>(d.least.size()),
             .least = d.least.data(),
             .most = d.most.data(),
             .is_written = d.is_written ? 1 : 0};
  });
}

using inkle::package::Package;
using inkle::package::Trust;

using inkle::capi::ProgramDevice;

inkle_status load(inkle_program** program, const char* device,
                  inkle::function_ref<std::shared_ptr<const Package>(std::string_view)> open) {
  return guarded(INKLE_BAD_FILE, [&] {
    not_null(program, "program");
    *program = nullptr;
    not_null(device, "device");
    ProgramDevice chosen = ProgramDevice::named(device);
    auto package = open(chosen.architecture());
    *program = new inkle_program{
        std::make_shared<inkle::capi::Program>(std::move(package), std::move(chosen))};
  });
}

std::shared_ptr<const Package> from_bytes(const char* name, const void* bytes, std::size_t size,
                                          const char* signature, const Trust& trust,
                                          std::string_view architecture) {
  not_null(name, "name");
  not_null(bytes, "bytes");
  const auto* const first = static_cast<const std::byte*>(bytes);
  std::vector<std::byte> copy(first, first + size);
  trust.check(name, copy,
              signature == nullptr ? std::nullopt : std::optional<std::string>(signature));
  return Package::from_bytes(name, std::move(copy), Package::Use::run, {}, architecture);
}

Trust trust_of(const char* key) {
  return key == nullptr ? Trust::of_environment() : Trust::of_key(key);
}

// Of a call that asks for a signature: never anyone.
Trust required(const char* key) {
  Trust trust = trust_of(key);
  if (trust.key() == nullptr) wrong("key is null, and INKLE_PACKAGE_KEY is not set");
  return trust;
}

// Into `results`, where there are none then.
void take_inputs(const inkle_program* program, const inkle_value* inputs, std::size_t count,
                 inkle_results* results) {
  not_null(program, "program");
  not_null(results, "results");
  results->results.forget();
  if (count > 0) not_null(inputs, "inputs");
  const inkle::capi::Program& p = *program->program;
  const auto& gpu = p.device().gpu;
  const inkle::abi::Device there{inkle::abi::DeviceKind::cuda, gpu == nullptr ? 0 : gpu->index()};
  results->inputs.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view name = i < p.inputs().size() ? p.inputs()[i].name : "input";
    results->inputs.push_back(input_of(inputs[i], name, there));
  }
}

}  // namespace

extern "C" {

const char* inkle_version(void) noexcept { return "0.1.0"; }

const char* inkle_last_error(void) noexcept { return last_error.data(); }

const char* inkle_status_name(inkle_status status) noexcept {
  constexpr std::array kNames = {"ok",           "wrong argument", "bad file", "unsupported",
                                 "out of range", "out of memory",  "failed",   "internal error"};
  const auto number = static_cast<std::size_t>(status);
  return number < kNames.size() ? kNames[number] : "?";
}

const char* inkle_dtype_name(inkle_dtype dtype) noexcept {
  return is_dtype(dtype) ? inkle::abi::name_of(from_c(dtype)).data() : "?";
}

size_t inkle_dtype_bytes(inkle_dtype dtype) noexcept {
  return is_dtype(dtype) ? static_cast<std::size_t>(inkle::abi::size_of(from_c(dtype))) : 0;
}

inkle_status inkle_set_threads(int32_t count) noexcept {
  return guarded(INKLE_WRONG_ARGUMENT, [&] { inkle::set_num_threads(count); });
}

inkle_status inkle_load(const char* path, inkle_program** program) noexcept {
  return inkle_load_on(path, "cpu", nullptr, program);
}

inkle_status inkle_load_bytes(const char* name, const void* bytes, size_t size,
                              inkle_program** program) noexcept {
  return load(program, "cpu", [&](std::string_view architecture) {
    return from_bytes(name, bytes, size, nullptr, Trust::of_environment(), architecture);
  });
}

inkle_status inkle_load_signed(const char* path, const char* key,
                               inkle_program** program) noexcept {
  return load(program, "cpu", [&](std::string_view architecture) {
    not_null(path, "path");
    return Package::open(path, Package::Use::run, architecture, required(key));
  });
}

inkle_status inkle_load_bytes_signed(const char* name, const void* bytes, size_t size,
                                     const char* signature, const char* key,
                                     inkle_program** program) noexcept {
  return load(program, "cpu", [&](std::string_view architecture) {
    return from_bytes(name, bytes, size, signature, required(key), architecture);
  });
}

inkle_status inkle_load_on(const char* path, const char* device, const char* key,
                           inkle_program** program) noexcept {
  return load(program, device, [&](std::string_view architecture) {
    not_null(path, "path");
    return Package::open(path, Package::Use::run, architecture, trust_of(key));
  });
}

inkle_status inkle_load_bytes_on(const char* name, const void* bytes, size_t size,
                                 const char* device, const char* signature, const char* key,
                                 inkle_program** program) noexcept {
  return load(program, device, [&](std::string_view architecture) {
    return from_bytes(name, bytes, size, signature, trust_of(key), architecture);
  });
}

void inkle_program_release(inkle_program* program) noexcept { delete program; }

inkle_status inkle_program_check(inkle_program* program) noexcept {
  return guarded(INKLE_BAD_FILE, [&] {
    not_null(program, "program");
    program->program->check();
  });
}

const char* inkle_program_device(const inkle_program* program) noexcept {
  return program->program->device().name.c_str();
}

const char* inkle_program_target(const inkle_program* program) noexcept {
  return program->program->target().c_str();
}

size_t inkle_input_count(const inkle_program* program) noexcept {
  return program->program->inputs().size();
}
size_t inkle_output_count(const inkle_program* program) noexcept {
  return program->program->outputs().size();
}
size_t inkle_weight_count(const inkle_program* program) noexcept {
  return program->program->weights().size();
}

inkle_status inkle_input_info(const inkle_program* program, size_t number,
                              inkle_info* info) noexcept {
  return describe(program->program->inputs(), number, info, "input");
}
inkle_status inkle_output_info(const inkle_program* program, size_t number,
                               inkle_info* info) noexcept {
  return describe(program->program->outputs(), number, info, "output");
}
inkle_status inkle_weight_info(const inkle_program* program, size_t number,
                               inkle_info* info) noexcept {
  return describe(program->program->weights(), number, info, "weight");
}

inkle_status inkle_results_new(inkle_results** results) noexcept {
  return guarded(INKLE_INTERNAL, [&] {
    not_null(results, "results");
    *results = new inkle_results();
  });
}

void inkle_results_release(inkle_results* results) noexcept { delete results; }

inkle_status inkle_run(inkle_program* program, const inkle_value* inputs, size_t count,
                       inkle_results* results) noexcept {
  return guarded(INKLE_FAILED, [&] {
    take_inputs(program, inputs, count, results);
    program->program->run(results->inputs, results->results);
  });
}

inkle_status inkle_run_on(inkle_program* program, void* stream, const inkle_value* inputs,
                          size_t count, inkle_results* results) noexcept {
  return guarded(INKLE_FAILED, [&] {
    take_inputs(program, inputs, count, results);
    program->program->run_on(stream, results->inputs, results->results);
  });
}

inkle_status inkle_results_wait(inkle_results* results) noexcept {
  return guarded(INKLE_FAILED, [&] {
    not_null(results, "results");
    results->results.wait();
  });
}

inkle_status inkle_results_fetch(inkle_results* results) noexcept {
  return guarded(INKLE_FAILED, [&] {
    not_null(results, "results");
    results->results.fetch();
  });
}

size_t inkle_result_count(const inkle_results* results) noexcept {
  return results->results.values().size();
}

inkle_status inkle_result(const inkle_results* results, size_t number,
                          inkle_value* value) noexcept {
  return guarded(INKLE_WRONG_ARGUMENT, [&] {
    not_null(results, "results");
    not_null(value, "value");
    const auto values = results->results.values();
    if (number >= values.size()) wrong("result {} of {}", number, values.size());
    const inkle::capi::Value& v = values[number];
    const bool on_gpu =
        v.kind == inkle::capi::Kind::tensor && v.view.device.kind != inkle::abi::DeviceKind::cpu;
    *value = {.kind = on_gpu ? INKLE_DEVICE_TENSOR : to_c(v.kind),
              .integer = v.integer,
              .tensor = {.data = v.view.data,
                         .dtype = to_c(v.view.dtype),
                         .rank = v.view.rank,
                         .sizes = v.view.sizes,
                         .strides = v.view.strides}};
  });
}

inkle_status inkle_copy(const inkle_tensor* from, const inkle_tensor* to) noexcept {
  return guarded(INKLE_WRONG_ARGUMENT, [&] {
    not_null(from, "from");
    not_null(to, "to");
    const inkle::abi::TensorView a = view_of(*from, "from");
    const inkle::abi::TensorView b = view_of(*to, "to");
    const auto sizes = sizes_of(a);
    if (a.dtype != b.dtype || !std::ranges::equal(sizes, sizes_of(b))) {
      wrong("a copy of {} to {}", inkle::capi::describe(a.dtype, sizes),
            inkle::capi::describe(b.dtype, sizes_of(b)));
    }
    const std::vector<std::int64_t> dense = inkle::capi::row_major(sizes);
    if (inkle::capi::span_bytes(a.dtype, sizes, dense) == 0) return;
    not_null(a.data, "the memory of from");
    not_null(b.data, "the memory of to");
    const auto strides = [&](const std::int64_t* given) {
      return std::span(given == nullptr ? dense.data() : given, dense.size());
    };
    inkle::runtime::cpu::strided_copy(sizes, inkle::abi::size_of(a.dtype), a.data,
                                      strides(a.strides), b.data, strides(b.strides));
  });
}

inkle_status inkle_weights_new(const inkle_named_tensor* tensors, size_t count,
                               inkle_weights** weights) noexcept {
  return guarded(INKLE_WRONG_ARGUMENT, [&] {
    not_null(weights, "weights");
    *weights = nullptr;
    if (count > 0) not_null(tensors, "tensors");
    std::vector<inkle::capi::NamedView> given;
    std::vector<std::vector<std::int64_t>> strides(count);
    for (std::size_t i = 0; i < count; ++i) {
      not_null(tensors[i].name, "the name of a weight");
      inkle::abi::TensorView view = view_of(tensors[i].tensor, tensors[i].name);
      strides[i] = inkle::capi::row_major(sizes_of(view));
      if (view.strides == nullptr) view.strides = strides[i].data();
      if (inkle::capi::span_bytes(view.dtype, sizes_of(view), strides[i]) != 0) {
        not_null(view.data, fmt::format("the memory of weight {}", tensors[i].name));
      }
      given.push_back({tensors[i].name, view});
    }
    *weights = new inkle_weights{inkle::capi::WeightSet::copy_of(given)};
  });
}

inkle_status inkle_program_weights(const inkle_program* program, inkle_weights** weights) noexcept {
  return guarded(INKLE_WRONG_ARGUMENT, [&] {
    not_null(program, "program");
    not_null(weights, "weights");
    auto set = program->program->weight_set();
    if (set == nullptr) wrong("the program has no weights yet");
    *weights = new inkle_weights{std::move(set)};
  });
}

inkle_status inkle_set_weights(inkle_program* program, const inkle_weights* weights) noexcept {
  return guarded(INKLE_BAD_FILE, [&] {
    not_null(program, "program");
    not_null(weights, "weights");
    program->program->set_weights(weights->set);
  });
}

void inkle_weights_release(inkle_weights* weights) noexcept { delete weights; }

}  // extern "C"
