#include "frontend/pt2/functional.h"

#include "base/error.h"

namespace inkle::frontend::pt2 {
namespace {

struct KindOfBase {
  std::string_view base;
  ViewKind kind;
};

constexpr KindOfBase kKinds[] = {
    {"alias", ViewKind::same},
    {"as_strided", ViewKind::expand},
    {"chunk", ViewKind::pieces},
    {"detach", ViewKind::same},
    {"diagonal", ViewKind::expand},
    {"expand", ViewKind::expand},
    {"flatten", ViewKind::reshape},
    {"lift_fresh", ViewKind::same},
    {"movedim", ViewKind::expand},
    {"narrow", ViewKind::slice},
    {"permute", ViewKind::permute},
    {"positive", ViewKind::same},
    {"reshape", ViewKind::reshape},
    {"select", ViewKind::select},
    {"slice", ViewKind::slice},
    {"split", ViewKind::pieces},
    {"split_with_sizes", ViewKind::pieces},
    {"squeeze", ViewKind::reshape},
    {"swapaxes", ViewKind::transpose},
    {"swapdims", ViewKind::transpose},
    {"t", ViewKind::transpose},
    {"transpose", ViewKind::transpose},
    {"unbind", ViewKind::unbind},
    {"unflatten", ViewKind::reshape},
    {"unfold", ViewKind::expand},
    {"unsqueeze", ViewKind::reshape},
    {"view", ViewKind::reshape},
};

constexpr std::uint32_t kDepthLimit = 1000;

std::int64_t constant(const Argument& argument) {
  const auto* e = std::get_if<Expr>(&argument);
  if (e == nullptr || !e->is_constant()) unsupported("a dimension number that is not constant");
  return *e->constant();
}

}  // namespace

ViewKind view_kind(std::string_view base) {
  for (const KindOfBase& k : kKinds) {
    if (k.base == base) return k.kind;
  }
  return ViewKind::none;
}

TensorId Storages::make(ValueId value) {
  const auto storage = static_cast<std::uint32_t>(storages_.size());
  storages_.push_back({value, value, 0, std::nullopt});
  const auto tensor = static_cast<std::uint32_t>(tensors_.size());
  Tensor whole;
  whole.storage = storage;
  whole.value = value;
  tensors_.push_back(std::move(whole));
  return {tensor};
}

TensorId Storages::make_input(ValueId value, std::uint32_t number) {
  const TensorId id = make(value);
  storages_.back().input = number;
  return id;
}

std::vector<TensorId> Storages::view(TensorId of, std::string_view base, const graph::OpDef& row,
                                     std::vector<Argument> args,
                                     const std::vector<ValueId>& results) {
  std::vector<TensorId> made;
  for (std::size_t r = 0; r < results.size(); ++r) {
    made.push_back({static_cast<std::uint32_t>(tensors_.size())});
    const Tensor& parent = tensors_[of.index];
    if (parent.depth >= kDepthLimit) unsupported("more than {} views of views", kDepthLimit);
    Tensor t;
    t.storage = parent.storage;
    t.parent = of.index;
    t.depth = parent.depth + 1;
    t.base = base;
    t.row = &row;
    t.args = args;
    t.result = static_cast<std::uint32_t>(r);
    t.value = results[r];
    t.version = storages_[parent.storage].version;
    tensors_.push_back(std::move(t));
  }
  return made;
}

ValueId Storages::read(TensorId tensor) {
  const std::uint32_t version = storages_[tensors_[tensor.index].storage].version;
  if (!tensors_[tensor.index].parent) return storages_[tensors_[tensor.index].storage].value;
  if (tensors_[tensor.index].version != version) {
    const ValueId parent = read({*tensors_[tensor.index].parent});
    Tensor& t = tensors_[tensor.index];
    std::vector<Argument> args = t.args;
    args[0] = parent;
    t.value = builder_.nodes(t.row->name, std::move(args))[t.result];
    t.version = version;
  }
  return tensors_[tensor.index].value;
}

void Storages::write(TensorId tensor, ValueId value) {
  Tensor& t = tensors_[tensor.index];
  Storage& storage = storages_[t.storage];
  if (!t.parent) {
    storage.value = value;
    ++storage.version;
  } else {
    const TensorId parent{*t.parent};
    const ValueId old = read(parent);
    write(parent, put_back(tensors_[tensor.index], old, value));
  }
  Tensor& written = tensors_[tensor.index];
  written.value = value;
  written.version = storages_[written.storage].version;
}

ValueId Storages::put_back(const Tensor& view, ValueId parent, ValueId value) {
  const graph::Sizes parent_sizes = builder_.type(parent).sizes;
  switch (view_kind(view.base)) {
    case ViewKind::same:
      return value;
    case ViewKind::reshape:
      return builder_.node("reshape", {value, parent_sizes});
    case ViewKind::transpose: {
      std::vector<Argument> args = view.args;
      args[0] = value;
      return builder_.node(view.row->name, std::move(args));
    }
    case ViewKind::permute: {
      const auto& dims = std::get<std::vector<Expr>>(view.args[1]);
      const auto rank = static_cast<std::int64_t>(dims.size());
      std::vector<Expr> inverse(dims.size());
      for (std::int64_t d = 0; d < rank; ++d) {
        const std::int64_t from = constant(dims[static_cast<std::size_t>(d)]);
        inverse[static_cast<std::size_t>(from < 0 ? from + rank : from)] = builder_.integer(d);
      }
      return builder_.node("permute", {value, inverse});
    }
    case ViewKind::slice:
    case ViewKind::select:
    case ViewKind::pieces:
    case ViewKind::unbind:
      return put_piece(view, parent, value);
    case ViewKind::expand:
      if (builder_.type(value).sizes == parent_sizes && view.base == "expand") return value;
      break;
    case ViewKind::none:
      break;
  }
  unsupported("a write through a view made by {}", view.base);
}

ValueId Storages::put_piece(const Tensor& view, ValueId parent, ValueId value) {
  const std::string_view row = view.base;
  if (row == "select") {
    return builder_.node("select_scatter", {parent, value, view.args[1], view.args[2]});
  }
  if (row == "slice") {
    return builder_.node("slice_scatter",
                         {parent, value, view.args[1], view.args[2], view.args[3], view.args[4]});
  }
  if (row == "narrow") {
    const Expr start = std::get<Expr>(view.args[2]);
    const Expr end = start + std::get<Expr>(view.args[3]);
    return builder_.node("slice_scatter",
                         {parent, value, view.args[1], start, end, builder_.integer(1)});
  }
  const Argument dim = row == "unbind" ? view.args[1] : view.args[2];
  if (row == "unbind") {
    return builder_.node("select_scatter", {parent, value, dim, builder_.integer(view.result)});
  }
  // All pieces but the last are as large as the first, or their sizes are listed.
  const auto rank = static_cast<std::int64_t>(builder_.type(value).rank());
  const std::int64_t d = constant(dim);
  const auto axis = static_cast<std::size_t>(d < 0 ? d + rank : d);
  Expr start = builder_.integer(0);
  if (const auto* sizes = std::get_if<std::vector<Expr>>(&view.args[1])) {
    for (std::uint32_t r = 0; r < view.result; ++r) start = start + (*sizes)[r];
  } else if (row == "split") {
    start = std::get<Expr>(view.args[1]) * view.result;
  } else {
    const Expr whole = builder_.type(parent).sizes[axis];
    start = sym::ceildiv(whole, std::get<Expr>(view.args[1])) * view.result;
  }
  const Expr end = start + builder_.type(value).sizes[axis];
  return builder_.node("slice_scatter", {parent, value, dim, start, end, builder_.integer(1)});
}

void Storages::written(std::uint32_t number, ValueId value) {
  for (Storage& s : storages_) {
    if (s.input == number) s.value = value;
  }
}

void Storages::settle(const std::vector<TensorId>& returned) {
  std::vector<std::uint32_t> counts(storages_.size(), 0);
  for (const TensorId t : returned) ++counts[tensors_[t.index].storage];
  for (std::size_t i = 0; i < counts.size(); ++i) {
    Storage& s = storages_[i];
    if (s.version > 0 && counts[i] > (s.input ? 0U : 1U)) ++s.version;
  }
}

std::vector<Storages::Mutation> Storages::mutations() const {
  std::vector<Mutation> result;
  for (const Storage& s : storages_) {
    if (s.input && s.version > 0) result.push_back({*s.input, s.original, s.value});
  }
  return result;
}

}  // namespace inkle::frontend::pt2
