// Ops of torch.export's dialect that have no row: composites of rows, and those of which only the
// file says whether they copy.
#include <algorithm>

#include "base/error.h"
#include "frontend/pt2/graph_reader.h"

namespace inkle::frontend::pt2 {
namespace {

std::optional<std::int64_t> constant(const Operand* operand) {
  const auto* e = operand == nullptr ? nullptr : std::get_if<Expr>(operand);
  return e == nullptr ? std::nullopt : e->constant();
}

bool is_given(const Operand* operand) {
  return operand != nullptr && !std::holds_alternative<graph::None>(*operand);
}

bool is_true(const Operand* operand) {
  const auto* b = operand == nullptr ? nullptr : std::get_if<bool>(operand);
  return b != nullptr && *b;
}

// ATen's rule of when a tensor can be seen with other sizes without a copy; sizes are those of the
// exported example.
bool can_view(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
              std::span<const std::int64_t> wanted) {
  if (sizes.empty() || std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return true;
  std::size_t w = wanted.size();
  std::int64_t base = strides.back();
  std::int64_t chunk = 1;
  std::int64_t seen = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    chunk *= sizes[d];  // the caller has seen that the product of all fits
    std::int64_t span = 0;
    if (__builtin_mul_overflow(chunk, base, &span)) return false;
    if (d > 0 && (sizes[d - 1] == 1 || strides[d - 1] == span)) continue;
    while (w > 0 && (seen < chunk || wanted[w - 1] == 1)) {
      if (__builtin_mul_overflow(seen, wanted[--w], &seen)) return false;
    }
    if (seen != chunk) return false;
    if (d > 0) base = strides[d - 1];
    chunk = 1;
    seen = 1;
  }
  return w == 0;
}

}  // namespace

const GraphReader::Composite* GraphReader::find_composite(std::string_view overload) {
  static constexpr Composite kComposites[] = {
      {"aten::T", &GraphReader::reversed},
      {"aten::_to_copy", &GraphReader::convert},
      {"aten::alpha_dropout", &GraphReader::dropout},
      {"aten::alpha_dropout_", &GraphReader::dropout},
      {"aten::batch_norm", &GraphReader::batch_norm},
      {"aten::broadcast_tensors", &GraphReader::broadcast_tensors},
      {"aten::contiguous", &GraphReader::contiguous},
      {"aten::copy", &GraphReader::copy},
      {"aten::detach_", &GraphReader::same},
      {"aten::diff", &GraphReader::diff},
      {"aten::dropout", &GraphReader::dropout},
      {"aten::dropout_", &GraphReader::dropout},
      {"aten::einsum", &GraphReader::einsum},
      {"aten::expand_as", &GraphReader::like_other},
      {"aten::feature_dropout", &GraphReader::dropout},
      {"aten::feature_dropout_", &GraphReader::dropout},
      {"aten::flatten.using_ints", &GraphReader::reshape},
      {"aten::max.other", &GraphReader::extremum},
      {"aten::meshgrid", &GraphReader::meshgrid},
      {"aten::meshgrid.indexing", &GraphReader::meshgrid},
      {"aten::min.other", &GraphReader::extremum},
      {"aten::numpy_T", &GraphReader::reversed},
      {"aten::pad", &GraphReader::pad},
      {"aten::requires_grad_", &GraphReader::same},
      {"aten::reshape", &GraphReader::reshape},
      {"aten::reshape_as", &GraphReader::like_other},
      {"aten::scaled_dot_product_attention", &GraphReader::attention},
      {"aten::to.device", &GraphReader::convert},
      {"aten::to.dtype", &GraphReader::convert},
      {"aten::to.dtype_layout", &GraphReader::convert},
      {"aten::to.other", &GraphReader::type_as},
      {"aten::type_as", &GraphReader::type_as},
      {"aten::unflatten.int", &GraphReader::reshape},
      {"aten::view_as", &GraphReader::like_other},
  };
  for (const Composite& c : kComposites) {
    if (c.overload == overload) return &c;
  }
  return nullptr;
}

std::vector<TensorId> GraphReader::same(const Call& c) { return {tensor(c, 0, "self")}; }

std::vector<TensorId> GraphReader::converted(TensorId from, DType dtype, bool copy) {
  if (!copy && type_of(from).dtype == dtype) return {from};
  return {storages_.make(builder_.node("to_dtype", {storages_.read(from), dtype}))};
}

std::vector<TensorId> GraphReader::convert(const Call& c) {
  const TensorId self = tensor(c, 0, "self");
  const bool device_first = c.overload == "aten::to.device";
  const bool named = c.overload == "aten::to.dtype_layout" || c.base == "_to_copy";
  constexpr std::size_t kNever = ~std::size_t{0};
  const Operand* dtype = c.find(named ? kNever : (device_first ? 2U : 1U), "dtype");
  const Operand* to = c.find(device_first ? 1 : kNever, "device");
  if (is_given(to) && std::holds_alternative<Device>(*to) &&
      std::get<Device>(*to).kind != type_of(self).device.kind) {
    unsupported("a copy to another device");
  }
  const std::size_t copy_at = c.overload == "aten::to.dtype" ? 3 : (device_first ? 4 : kNever);
  const Operand* format = c.find(copy_at == kNever ? kNever : copy_at + 1, "memory_format");
  const bool reorders = is_given(format) && std::holds_alternative<std::string>(*format) &&
                        std::get<std::string>(*format) != "preserve_format";
  const bool copy = c.base == "_to_copy" || reorders || is_true(c.find(copy_at, "copy"));
  DType wanted = type_of(self).dtype;
  if (is_given(dtype)) {
    if (!std::holds_alternative<DType>(*dtype)) place_.fail("\"dtype\" is no dtype");
    wanted = std::get<DType>(*dtype);
  }
  return converted(self, wanted, copy);
}

std::vector<TensorId> GraphReader::type_as(const Call& c) {
  return converted(tensor(c, 0, "self"), type_of(tensor(c, 1, "other")).dtype, false);
}

bool GraphReader::is_viewed(TensorId from, const std::string& result) const {
  const auto known = metas_.find(from.index);
  const Json* to = result.empty() ? nullptr : meta(result);
  if (known == metas_.end() || known->second == nullptr || to == nullptr) return false;
  const auto numbers = [&](const Json& m, const char* key) {
    std::vector<std::int64_t> list;
    for (const Json& s : array(place_, m, key)) {
      const Json* as_int = find_member(s, "as_int");
      const Json* expression = find_member(s, "as_expr");
      const Json* hint = expression == nullptr ? nullptr : find_member(*expression, "hint");
      if (hint != nullptr) as_int = find_member(*hint, "as_int");
      if (as_int == nullptr) return std::vector<std::int64_t>{};
      list.push_back(std::clamp<std::int64_t>(integer(place_, *as_int), 0, 1 << 30));
    }
    return list;
  };
  const std::vector<std::int64_t> sizes = numbers(*known->second, "sizes");
  const std::vector<std::int64_t> strides = numbers(*known->second, "strides");
  if (sizes.size() != strides.size() || sizes.size() > 32) return false;
  std::vector<std::int64_t> wanted = numbers(*to, "sizes");
  std::int64_t count = 1;
  for (const std::int64_t s : sizes) {
    if (__builtin_mul_overflow(count, s, &count)) return false;
  }
  return can_view(sizes, strides, wanted);
}

// The second tensor in dtype and sizes of the first, of which nothing else is left.
std::vector<TensorId> GraphReader::copy(const Call& c) {
  const graph::Type wanted = type_of(tensor(c, 0, "self"));
  ValueId value = storages_.read(tensor(c, 1, "src"));
  if (builder_.type(value).dtype != wanted.dtype) {
    value = builder_.node("to_dtype", {value, wanted.dtype});
  }
  if (!(builder_.type(value).sizes == wanted.sizes)) {
    value = builder_.node("expand", {value, wanted.sizes});
  }
  return {storages_.make(value)};
}

std::vector<TensorId> GraphReader::contiguous(const Call& c) {
  const TensorId self = tensor(c, 0, "self");
  const Operand* format = c.find(1, "memory_format");
  const auto known = metas_.find(self.index);
  bool is_dense = false;
  if (known != metas_.end() && known->second != nullptr) {
    graph::Type t = type(*known->second);
    const auto* name = is_given(format) ? std::get_if<std::string>(format) : nullptr;
    is_dense = (name == nullptr || *name == "contiguous_format") && graph::is_contiguous(t);
  }
  if (is_dense) return {self};
  return {storages_.make(builder_.node("clone", {storages_.read(self)}))};
}

// reshape, flatten, unflatten: a view where eager needs no copy.
std::vector<TensorId> GraphReader::reshape(const Call& c) {
  Call view = c;
  if (c.base == "unflatten") {
    const TensorId self = tensor(c, 0, "self");
    const graph::Type from = type_of(self);
    const auto rank = static_cast<std::int64_t>(from.rank());
    const auto dim = constant(c.find(1, "dim"));
    const Operand* pieces = c.find(2, "sizes");
    if (!dim || *dim < -rank || *dim >= rank || !is_given(pieces) ||
        !std::holds_alternative<std::vector<Expr>>(*pieces)) {
      place_.fail("wrong arguments");
    }
    const auto at = static_cast<std::ptrdiff_t>(*dim < 0 ? *dim + rank : *dim);
    const auto& inner = std::get<std::vector<Expr>>(*pieces);
    std::vector<Expr> wanted(from.sizes.begin(), from.sizes.begin() + at);
    wanted.insert(wanted.end(), inner.begin(), inner.end());
    wanted.insert(wanted.end(), from.sizes.begin() + at + 1, from.sizes.end());
    view.overload = "aten::reshape";
    view.args = {{"self", false, self}, {"shape", false, wanted}};
  }
  const graph::OpDef* row = graph_.table().find_aten(view.overload);
  if (row == nullptr) unsupported("there is no code for {}", view.overload);
  const TensorId self = tensor(view, 0, "self");
  const bool shares = !c.outputs.empty() && is_viewed(self, c.outputs[0]);
  if (!shares) view.base = "copy of " + c.base;
  return native(view, *row);
}

// expand_as, reshape_as, view_as: the sizes of the second tensor.
std::vector<TensorId> GraphReader::like_other(const Call& c) {
  Call other = c;
  other.base = c.base.substr(0, c.base.rfind('_'));
  other.overload = "aten::" + other.base;
  other.args = {{"self", false, tensor(c, 0, "self")},
                {"size", false, type_of(tensor(c, 1, "other")).sizes}};
  return call(other);
}

// numpy_T: all dimensions in reverse order.
std::vector<TensorId> GraphReader::reversed(const Call& c) {
  const TensorId self = tensor(c, 0, "self");
  const auto rank = static_cast<std::int64_t>(type_of(self).rank());
  std::vector<Expr> dims;
  for (std::int64_t d = rank; d-- > 0;) dims.push_back(builder_.integer(d));
  Call permute = c;
  permute.base = "permute";
  permute.overload = "aten::permute";
  permute.args = {{"self", false, self}, {"dims", false, dims}};
  return call(permute);
}

// x[1:] - x[:-1] along a dimension, n times, with tensors put before and behind it first.
std::vector<TensorId> GraphReader::diff(const Call& c) {
  const TensorId self = tensor(c, 0, "self");
  const auto n =
      c.find(1, "n") == nullptr ? std::optional<std::int64_t>(1) : constant(c.find(1, "n"));
  const auto given_dim =
      c.find(2, "dim") == nullptr ? std::optional<std::int64_t>(-1) : constant(c.find(2, "dim"));
  if (!n || *n < 0 || *n > 64 || !given_dim) unsupported("differences of an order not constant");
  ValueId x = storages_.read(self);
  const auto rank = static_cast<std::int64_t>(builder_.type(x).rank());
  if (rank == 0 || *given_dim < -rank || *given_dim >= rank) place_.fail("a wrong dimension");
  const std::int64_t d = *given_dim < 0 ? *given_dim + rank : *given_dim;
  const Expr dim = builder_.integer(d);
  std::vector<ValueId> parts;
  if (is_given(c.find(3, "prepend"))) parts.push_back(storages_.read(tensor(c, 3, "prepend")));
  parts.push_back(x);
  if (is_given(c.find(4, "append"))) parts.push_back(storages_.read(tensor(c, 4, "append")));
  if (parts.size() > 1) x = builder_.node("cat", {parts, dim});
  for (std::int64_t i = 0; i < *n; ++i) {
    const Expr size = builder_.type(x).sizes[static_cast<std::size_t>(d)];
    const Expr one = builder_.integer(1);
    const ValueId high = builder_.node("slice", {x, dim, one, size, one});
    const ValueId low = builder_.node("slice", {x, dim, builder_.integer(0), size - 1, one});
    const bool is_bool = builder_.type(x).dtype == DType::boolean;
    x = builder_.node(is_bool ? "logical_xor" : "sub", {high, low});
  }
  if (!c.outputs.empty()) check_result(x, c.outputs[0]);
  return {storages_.make(x)};
}

std::vector<TensorId> GraphReader::extremum(const Call& c) {
  const ValueId a = storages_.read(tensor(c, 0, "self"));
  const ValueId b = storages_.read(tensor(c, 1, "other"));
  return {storages_.make(builder_.node(c.base == "max" ? "maximum" : "minimum", {a, b}))};
}

std::vector<TensorId> GraphReader::pad(const Call& c) {
  const Operand* mode = c.find(2, "mode");
  std::string name = "constant";
  if (is_given(mode) && std::holds_alternative<std::string>(*mode)) {
    name = std::get<std::string>(*mode);
  }
  const Operand* widths = c.find(1, "pad");
  if (!is_given(widths) || !std::holds_alternative<std::vector<Expr>>(*widths)) {
    place_.fail("the argument \"pad\" is no list of integers");
  }
  Call padded = c;
  padded.args = {{"self", false, tensor(c, 0, "self")}, {"pad", false, *widths}};
  if (name == "constant") {
    padded.base = "constant_pad_nd";
    if (is_given(c.find(3, "value"))) padded.args.push_back({"value", false, *c.find(3, "value")});
  } else {
    const std::size_t rank = std::get<std::vector<Expr>>(*widths).size() / 2;
    padded.base = fmt::format("{}_pad{}d", name == "reflect" ? "reflection" : "replication", rank);
    if (name != "reflect" && name != "replicate") unsupported("padding of mode {}", name);
  }
  padded.overload = "aten::" + padded.base;
  const graph::OpDef* row = graph_.table().find_aten(padded.overload);
  if (row == nullptr) unsupported("there is no code for {}", padded.overload);
  return native(padded, *row);
}

// Outside training eager returns its argument itself.
std::vector<TensorId> GraphReader::dropout(const Call& c) {
  if (is_true(c.find(2, "train"))) {
    unsupported("dropout in training mode; export the model after model.eval()");
  }
  return {tensor(c, 0, "input")};
}

// In training mode the running statistics are written, too.
std::vector<TensorId> GraphReader::batch_norm(const Call& c) {
  const bool has_statistics = is_given(c.find(3, "running_mean"));
  if (!is_true(c.find(5, "training")) || !has_statistics) {
    return native(c, *graph_.table().find_aten(c.overload));
  }
  Call functional = c;
  functional.overload = "aten::_native_batch_norm_legit_functional";
  functional.base = "_native_batch_norm_legit_functional";
  if (functional.args.size() < 8) place_.fail("wrong arguments");
  functional.args.resize(8);
  const graph::OpDef* row = graph_.table().find_aten(functional.overload);
  if (row == nullptr) unsupported("batch norm in training mode");
  const std::vector<TensorId> results = native(functional, *row);
  storages_.write(tensor(c, 3, "running_mean"), storages_.read(results[3]));
  storages_.write(tensor(c, 4, "running_var"), storages_.read(results[4]));
  return {results[0]};
}

// Keys and values of one head serve all heads of the query; the row wants that said.
std::vector<TensorId> GraphReader::attention(const Call& c) {
  Call all_heads = c;
  const graph::Type query = type_of(tensor(c, 0, "query"));
  for (std::size_t i = 1; i <= 2 && i < c.args.size(); ++i) {
    const TensorId one = tensor(c, i, i == 1 ? "key" : "value");
    graph::Sizes sizes = type_of(one).sizes;
    if (query.rank() != 4 || sizes.size() != 4 || !sizes[1].is_constant(1)) continue;
    if (query.sizes[1].is_constant(1)) continue;
    sizes[1] = query.sizes[1];
    all_heads.args[i].operand =
        storages_.make(builder_.node("expand", {storages_.read(one), sizes}));
  }
  return native(all_heads, *graph_.table().find_aten(c.overload));
}

std::vector<TensorId> GraphReader::broadcast_tensors(const Call& c) {
  const Operand* list = c.find(0, "tensors");
  if (list == nullptr || !std::holds_alternative<TensorList>(*list)) place_.fail("needs tensors");
  const auto& tensors = std::get<TensorList>(*list);
  if (tensors.size() != c.outputs.size()) place_.fail("the number of results differs");
  std::vector<TensorId> results;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Json* m = meta(c.outputs[i]);
    if (!tensors[i] || m == nullptr) place_.fail("a tensor is missing");
    Call expand;
    expand.overload = "aten::expand";
    expand.base = "expand";
    expand.outputs = {c.outputs[i]};
    expand.args = {{"self", false, *tensors[i]}, {"size", false, type(*m).sizes}};
    results.push_back(call(expand).front());
  }
  return results;
}

// Vectors as the axes of a grid: each is reshaped to lie along its axis and expanded.
std::vector<TensorId> GraphReader::meshgrid(const Call& c) {
  const Operand* list = c.find(0, "tensors");
  if (list == nullptr || !std::holds_alternative<TensorList>(*list)) place_.fail("needs tensors");
  const auto& tensors = std::get<TensorList>(*list);
  const Operand* indexing = c.find(1, "indexing");
  const bool swaps = is_given(indexing) && std::holds_alternative<std::string>(*indexing) &&
                     std::get<std::string>(*indexing) == "xy" && tensors.size() >= 2;
  std::vector<TensorId> results;
  for (std::size_t i = 0; i < tensors.size() && i < c.outputs.size(); ++i) {
    const Json* m = meta(c.outputs[i]);
    if (!tensors[i] || m == nullptr) place_.fail("a tensor is missing");
    const std::vector<Expr> wanted = type(*m).sizes;
    const std::size_t axis = swaps && i < 2 ? 1 - i : i;
    if (axis >= wanted.size()) place_.fail("the grid has too few dimensions");
    std::vector<Expr> line(wanted.size(), builder_.integer(1));
    line[axis] = wanted[axis];
    const ValueId along = builder_.node("reshape", {storages_.read(*tensors[i]), line});
    const ValueId value = builder_.node("expand", {along, wanted});
    check_result(value, c.outputs[i]);
    results.push_back(storages_.make(value));
  }
  return results;
}

}  // namespace inkle::frontend::pt2
