#include "graph/type.h"

#include <fmt/format.h>

namespace inkle::graph {

Sizes contiguous_strides(sym::Context& context, const Sizes& sizes) {
  Sizes strides(sizes.size());
  Expr step = context.constant(1);
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    // As in torch: a dimension of size 0 counts as 1.
    const Expr size = sizes[i];
    if (i > 0) step = step * (sym::bounds(size).low >= 1 ? size : max(size, context.constant(1)));
  }
  return strides;
}

bool is_contiguous(const Type& type) {
  if (!type.strides) return false;
  if (type.sizes.empty()) return true;
  sym::Context& context = type.sizes.front().context();
  const Sizes dense = contiguous_strides(context, type.sizes);
  for (std::size_t i = 0; i < type.sizes.size(); ++i) {
    if (type.sizes[i].is_constant(1)) continue;
    if (!sym::equal((*type.strides)[i], dense[i]).value_or(false)) return false;
  }
  return true;
}

Expr element_count(sym::Context& context, const Type& type) {
  return sym::product(context, type.sizes);
}

namespace {

void append_list(std::string& out, char open, const Sizes& list, char close) {
  out += open;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i > 0) out += ',';
    out += sym::to_string(list[i]);
  }
  out += close;
}

}  // namespace

std::string to_string(const Type& type, bool with_dense_strides) {
  std::string out(abi::name_of(type.dtype));
  append_list(out, '[', type.sizes, ']');
  const bool print_strides =
      type.strides &&
      (with_dense_strides ||
       (!type.sizes.empty() &&
        *type.strides != contiguous_strides(type.sizes.front().context(), type.sizes)));
  if (print_strides) append_list(out, '{', *type.strides, '}');
  if (type.device != Device{}) out += "@" + to_string(type.device);
  return out;
}

std::string to_string(const Type& type) { return to_string(type, false); }

std::string to_string(const Device& device) {
  if (device.kind == abi::DeviceKind::cuda) return fmt::format("cuda:{}", device.index);
  return device.index == 0 ? "cpu" : fmt::format("cpu:{}", device.index);
}

}  // namespace inkle::graph
