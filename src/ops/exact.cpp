#include "ops/exact.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "ops/interpreter.h"

namespace inkle::ops {

using abi::DType;
using graph::Trait;

namespace {

constexpr ExactOnGpu kCpuOnly = ExactOnGpu::no;

// What is not here: functions (ATen has vendors' and SLEEF's, and MKL's square root), sums of
// floats (in cascades), chains within one of ATen's kernels, which its compiler may contract to
// multiply-adds, matrix products and convolutions (MKL's and oneDNN's, in an order of their own).
constexpr ExactRow kRows[] = {
    {"_to_copy", Exact::casts},
    {"abs"},
    {"add", Exact::sums},
    {"all"},
    {"all_dim"},
    {"all_dims"},
    {"amax"},
    {"amin"},
    {"any"},
    {"any_dim"},
    {"any_dims"},
    {"arange", Exact::integers},
    {"arange_start", Exact::integers},
    {"arange_step", Exact::integers},
    {"argmax"},
    {"argmin"},
    {"bitwise_and"},
    {"bitwise_left_shift"},
    {"bitwise_not"},
    {"bitwise_or"},
    {"bitwise_right_shift"},
    {"bitwise_xor"},
    {"cat"},
    {"ceil"},
    {"channel_shuffle"},
    {"clamp", Exact::always, ExactOnGpu::no_bytes},
    {"clamp_max", Exact::always, ExactOnGpu::no_bytes},
    {"clamp_min", Exact::always, ExactOnGpu::no_bytes},
    {"clone"},
    {"constant_pad_nd"},
    {"convert_element_type", Exact::casts},
    {"copy", Exact::casts},
    {"copy_", Exact::casts},
    {"copysign"},
    {"count_nonzero"},
    {"cumprod", Exact::integers},
    {"cumsum", Exact::integers},
    {"deg2rad"},
    {"diag_embed"},
    {"diagonal_backward"},
    {"div", Exact::always, kCpuOnly},
    {"div_mode", Exact::f32_f64, kCpuOnly},
    {"embedding"},
    {"empty"},
    {"empty_like"},
    {"empty_permuted"},
    {"empty_strided"},
    {"eq"},
    {"expand_as"},
    {"fill"},
    {"flip"},
    {"floor"},
    {"floor_divide", Exact::f32_f64, kCpuOnly},
    {"fmax", Exact::integers},
    {"fmin", Exact::integers},
    {"fmod", Exact::integers, ExactOnGpu::no_integers},
    {"frac"},
    {"full"},
    {"full_like"},
    {"gather"},
    {"ge"},
    {"gt"},
    {"hardshrink"},
    {"hardsigmoid", Exact::always, kCpuOnly},
    {"hardsigmoid_backward", Exact::always, kCpuOnly},
    {"hardswish", Exact::always, kCpuOnly},
    {"hardtanh", Exact::floats},
    {"heaviside"},
    {"index"},
    {"index_select"},
    {"isfinite"},
    {"isinf"},
    {"isnan"},
    {"isneginf"},
    {"isposinf"},
    {"le"},
    {"leaky_relu"},
    {"leaky_relu_backward"},
    {"lerp", Exact::f32_f64, kCpuOnly},
    {"lift_fresh_copy"},
    {"logical_and"},
    {"logical_not"},
    {"logical_or"},
    {"logical_xor"},
    {"lt"},
    {"mT"},
    {"masked_fill"},
    {"max"},
    {"max_dim"},
    {"maximum"},
    {"min"},
    {"min_dim"},
    {"minimum"},
    {"mul"},
    {"nan_to_num"},
    {"ne"},
    {"neg"},
    {"new_empty"},
    {"new_empty_strided"},
    {"new_full"},
    {"new_ones"},
    {"new_zeros"},
    {"one_hot"},
    {"ones"},
    {"ones_like"},
    {"pad"},
    {"pixel_shuffle"},
    {"pixel_unshuffle"},
    {"pow", Exact::integers},
    {"prelu"},
    {"prod", Exact::integers},
    {"prod_dim", Exact::integers},
    {"rad2deg"},
    {"reciprocal", Exact::always, kCpuOnly},
    {"relu"},
    {"relu6"},
    {"remainder", Exact::integers, ExactOnGpu::no_integers},
    {"repeat"},
    {"repeat_interleave"},
    {"roll"},
    {"round"},
    {"rsqrt", Exact::f32_f64, kCpuOnly},
    {"rsub", Exact::sums},
    {"scalar_tensor"},
    {"select_backward"},
    {"select_scatter"},
    {"sign"},
    {"signbit"},
    {"slice_backward"},
    {"slice_scatter"},
    {"square"},
    {"stack"},
    {"sub", Exact::sums},
    {"sum", Exact::integers},
    {"sum_dim", Exact::integers},
    {"threshold", Exact::always, ExactOnGpu::own_numbers},
    {"threshold_backward", Exact::always, ExactOnGpu::own_numbers},
    {"to_dtype", Exact::casts},
    {"tril"},
    {"triu"},
    {"trunc"},
    {"type_as", Exact::casts},
    {"unbind"},
    {"where"},
    {"zero"},
    {"zeros"},
    {"zeros_like"},
};

constexpr bool is_sorted() {
  for (std::size_t r = 1; r < std::size(kRows); ++r) {
    if (kRows[r - 1].row >= kRows[r].row) return false;
  }
  return true;
}
static_assert(is_sorted());

const ExactRow* find(std::string_view name) {
  const auto* at = std::lower_bound(
      std::begin(kRows), std::end(kRows), name,
      [](const ExactRow& row, std::string_view wanted) { return row.row < wanted; });
  return at != std::end(kRows) && at->row == name ? at : nullptr;
}

// Whether numbers among the arguments are of the result's dtype.
bool has_own_numbers(const ExactQuery& query) {
  const DType dtype = query.results.front().dtype;
  for (const graph::Argument& argument : query.args) {
    const auto* real = std::get_if<double>(&argument);
    const auto* integer = std::get_if<graph::Expr>(&argument);
    if (integer != nullptr && !integer->is_constant()) return false;
    const double value = real != nullptr      ? *real
                         : integer != nullptr ? static_cast<double>(*integer->constant())
                                              : 0;
    if (round_to(dtype, value) != value) return false;
  }
  return true;
}

// Whether eager's kernel for a sum of f16 or bf16, which reads its operands in that type, sees the
// same values as ours.
bool has_own_operands(const ExactQuery& query) {
  const DType dtype = query.results.front().dtype;
  return std::all_of(query.operands.begin(), query.operands.end(),
                     [&](const graph::Type* type) { return type->dtype == dtype; }) &&
         has_own_numbers(query);
}

bool is_one(const graph::Argument& argument) {
  if (const auto* real = std::get_if<double>(&argument)) return *real == 1;
  const auto* integer = std::get_if<graph::Expr>(&argument);
  return integer != nullptr && integer->is_constant(1);
}

template <class F>
bool any_type(const ExactQuery& query, const F& f) {
  return std::any_of(query.operands.begin(), query.operands.end(),
                     [&](const graph::Type* type) { return f(type->dtype); }) ||
         std::any_of(query.results.begin(), query.results.end(),
                     [&](const graph::Type& type) { return f(type.dtype); });
}

bool is_on_gpu(const ExactQuery& query) {
  return std::any_of(query.results.begin(), query.results.end(), [](const graph::Type& type) {
    return type.device.kind == abi::DeviceKind::cuda;
  });
}

// Whether a 0-dim CUDA tensor has another dtype than a float tensor beside it: eager rounds it to
// that dtype first, as it does not for CPU tensors.
bool has_other_scalar(const ExactQuery& query) {
  for (const graph::Type* scalar : query.operands) {
    if (scalar->rank() != 0 || scalar->device.kind != abi::DeviceKind::cuda) continue;
    if (scalar->dtype == DType::boolean) continue;
    for (const graph::Type* other : query.operands) {
      if (other->rank() == 0 || !abi::is_float(other->dtype)) continue;
      const bool is_rounded = abi::is_float(scalar->dtype) || abi::is_reduced_float(other->dtype);
      if (is_rounded && scalar->dtype != other->dtype) return true;
    }
  }
  return false;
}

// Why results that have eager's bits on a CPU may not have them on a GPU.
std::string_view why_not_exact_on_gpu(const ExactQuery& query, ExactOnGpu where) {
  if (has_other_scalar(query)) return "eager rounds a scalar on the GPU first";
  switch (where) {
    case ExactOnGpu::yes:
      return {};
    case ExactOnGpu::no:
      return "its bits are not eager's on a GPU";
    case ExactOnGpu::no_integers:
      return "eager's remainders by 0 are others on a GPU";
    case ExactOnGpu::no_bytes: {
      const bool is_byte = any_type(query, [](DType d) { return d == DType::u8; });
      return is_byte ? "eager converts the limits to u8 on a GPU" : "";
    }
    case ExactOnGpu::own_numbers: {
      const bool is_narrow = any_type(query, [](DType d) { return abi::is_reduced_float(d); });
      return is_narrow && !has_own_numbers(query) ? "eager rounds its numbers first on a GPU" : "";
    }
  }
  return {};
}

}  // namespace

std::span<const ExactRow> exact_rows() { return kRows; }

std::string_view meaning_of(Exact where) {
  switch (where) {
    case Exact::always:
      return "always";
    case Exact::integers:
      return "of integers and bool";
    case Exact::sums:
      return "of floats with alpha = 1; of f16 and bf16 if all operands, numbers too, are of it";
    case Exact::f32_f64:
      return "but of f16 and bf16";
    case Exact::casts:
      return "but of floats to u8";
    case Exact::floats:
      return "of floats";
  }
  return "";
}

std::string_view meaning_of(ExactOnGpu where) {
  switch (where) {
    case ExactOnGpu::yes:
      return "yes";
    case ExactOnGpu::no:
      return "left to eager";
    case ExactOnGpu::no_integers:
      return "integers are left to eager";
    case ExactOnGpu::no_bytes:
      return "u8 is left to eager";
    case ExactOnGpu::own_numbers:
      return "f16 and bf16 if the numbers are of it";
  }
  return "";
}

std::string_view why_not_exact(const ExactQuery& query) {
  if (graph::has(query.row->traits, Trait::view)) return {};
  const bool has_float = any_type(query, [](DType d) { return abi::is_float(d); });
  const bool is_narrow = any_type(query, [](DType d) { return abi::is_reduced_float(d); });
  const ExactRow* row = find(query.row->name);
  if (row == nullptr && query.row->name == "native_dropout_backward" && is_narrow) {
    return "not held: eager rounds dropout's factor to f16 or bf16, what AOTAutograd traces does "
           "not";
  }
  if (row == nullptr) return "its bits are not eager's";
  if (is_on_gpu(query)) {
    if (const auto why = why_not_exact_on_gpu(query, row->on_gpu); !why.empty()) return why;
  }
  switch (row->where) {
    case Exact::always:
      return {};
    case Exact::integers:
      return has_float ? "eager adds floats in another order" : "";
    case Exact::sums:
      if (!has_float) return {};
      // Without alpha: of lists of tensors.
      if (query.args.size() > 2 && !is_one(query.args[2]))
        return "eager may multiply and add with one rounding";
      return is_narrow && !has_own_operands(query) ? "eager rounds an operand first" : "";
    case Exact::casts:
      return query.results.front().dtype == DType::u8 && has_float
                 ? "what floats beyond u8 become is not defined"
                 : "";
    case Exact::floats:
      return has_float ? "" : "its bits are not eager's in integers";
    case Exact::f32_f64:
      return is_narrow ? "its bits are not eager's in f16 and bf16" : "";
  }
  return {};
}

std::string exact_rows_markdown() {
  std::string text = "| row | bits are eager's | on a GPU |\n|---|---|---|\n";
  for (const ExactRow& row : kRows) {
    text +=
        fmt::format("| `{}` | {} | {} |\n", row.row, meaning_of(row.where), meaning_of(row.on_gpu));
  }
  return text;
}

}  // namespace inkle::ops
