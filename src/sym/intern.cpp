// Interning: an arena of nodes, an open-addressing table over it, and the memo of binary ops.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <new>

#include "base/error.h"
#include "sym/expr.h"
#include "sym/node.h"
#include "sym/symbols.h"

namespace inkle::sym {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 16;
constexpr std::size_t kFirstTable = std::size_t{1} << 8;
constexpr std::size_t kFirstMemo = std::size_t{1} << 8;
constexpr std::size_t kLargestMemo = std::size_t{1} << 18;

std::uint32_t mix(std::uint64_t h) {
  h ^= h >> 31;
  h *= 0x9e3779b97f4a7c15ULL;
  h ^= h >> 32;
  return static_cast<std::uint32_t>(h);
}

std::uint32_t hash_node(Kind kind, std::span<const Expr> operands) {
  std::uint64_t h = static_cast<std::uint64_t>(kind) + 1;
  for (const Expr e : operands) h = (h ^ e.node()->id) * 0x9e3779b97f4a7c15ULL + (h >> 29);
  return mix(h);
}

std::uint32_t hash_constant(std::int64_t value) {
  return mix(static_cast<std::uint64_t>(value) * 0xd6e8feb86659fd93ULL + 1);
}

// Orders names like i2 before i10: up to four leading letters, then the number after them.
std::uint64_t name_key(std::string_view name) {
  std::uint64_t prefix = 0;
  std::size_t i = 0;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (; i < name.size() && !is_digit(name[i]); ++i) {
    if (i < 4) prefix |= std::uint64_t{static_cast<unsigned char>(name[i])} << (24 - 8 * i);
  }
  std::uint64_t number = 0;
  for (; i < name.size() && is_digit(name[i]); ++i) {
    number = std::min<std::uint64_t>(number * 10 + static_cast<std::uint64_t>(name[i] - '0'),
                                     0xffffffffU);
  }
  return prefix << 32 | number;
}

}  // namespace

Context::Impl::Impl(Context& owner)
    : context(owner), table_(kFirstTable, nullptr), memo_(kFirstMemo) {}

void* Context::Impl::allocate(std::size_t bytes) {
  bytes = (bytes + alignof(Node) - 1) / alignof(Node) * alignof(Node);
  if (bytes > left_) {
    const std::size_t size = std::max(bytes, kBlockBytes);
    blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(size));
    free_ = blocks_.back().get();
    left_ = size;
  }
  void* place = free_;
  free_ += bytes;
  left_ -= bytes;
  return place;
}

void Context::Impl::grow_table() {
  std::vector<const Node*> bigger(table_.size() * 2, nullptr);
  for (const Node* node : table_) {
    if (node == nullptr) continue;
    std::size_t slot = node->hash & (bigger.size() - 1);
    while (bigger[slot] != nullptr) slot = (slot + 1) & (bigger.size() - 1);
    bigger[slot] = node;
  }
  table_ = std::move(bigger);
  if (memo_.size() < table_.size() && memo_.size() < kLargestMemo) {
    memo_.assign(table_.size(), Memo());
  }
}

const Node* Context::Impl::insert(Node node, std::span<const Expr> operands, std::size_t slot) {
  if (!operands.empty()) {
    Expr* copy = static_cast<Expr*>(allocate(operands.size_bytes()));
    std::uninitialized_copy(operands.begin(), operands.end(), copy);
    node.operands = copy;
    node.count = static_cast<std::uint32_t>(operands.size());
    for (const Expr e : operands) {
      node.symbol_filter |= e.node()->symbol_filter;
      if (node.kind == Kind::add || node.kind == Kind::mul) {
        node.has_division = node.has_division || e.node()->has_division;
      }
    }
  }
  if (node.kind == Kind::floordiv || node.kind == Kind::mod) node.has_division = true;
  node.context = &context;
  node.id = count_++;
  Node* made = new (allocate(sizeof(Node))) Node(node);
  if (made->monomial == nullptr && made->kind != Kind::constant) made->monomial = made;
  if (slot < table_.size()) {
    table_[slot] = made;
    if (std::size_t{count_} * 2 > table_.size()) grow_table();
  }
  return made;
}

const Node* Context::Impl::constant(std::int64_t value) {
  const bool small = value >= -16 && value < static_cast<std::int64_t>(kSmallConstants) - 16;
  const std::size_t place = small ? static_cast<std::size_t>(value + 16) : 0;
  if (small && small_[place] != nullptr) return small_[place];
  const std::uint32_t hash = hash_constant(value);
  std::size_t slot = hash & (table_.size() - 1);
  for (; table_[slot] != nullptr; slot = (slot + 1) & (table_.size() - 1)) {
    if (table_[slot]->hash == hash && table_[slot]->is_constant(value)) return table_[slot];
  }
  Node node;
  node.kind = Kind::constant;
  node.value = value;
  node.hash = hash;
  const Node* made = insert(node, {}, slot);
  if (small) small_[place] = made;
  return made;
}

const Node* Context::Impl::intern(Kind kind, std::span<const Expr> operands, std::int64_t value,
                                  const Node* monomial) {
  const std::uint32_t hash = hash_node(kind, operands);
  std::size_t slot = hash & (table_.size() - 1);
  for (; table_[slot] != nullptr; slot = (slot + 1) & (table_.size() - 1)) {
    const Node* other = table_[slot];
    if (other->hash == hash && other->kind == kind && other->count == operands.size() &&
        std::equal(operands.begin(), operands.end(), other->operands)) {
      return other;
    }
  }
  Node node;
  node.kind = kind;
  node.value = value;
  node.monomial = monomial;
  node.hash = hash;
  return insert(node, operands, slot);
}

const Node* Context::Impl::new_symbol(std::string_view name, const SymbolInfo& info) {
  if (name.empty()) user_error("a symbol needs a name");
  if (info.divisor < 1) user_error("symbol '{}': divisor {} is not positive", name, info.divisor);
  if (info.range.low > info.range.high) {
    user_error("symbol '{}': empty range {}..{}", name, info.range.low, info.range.high);
  }
  const Node* made = add_symbol(name, info);
  if (made == nullptr) user_error("symbol '{}' is declared twice", name);
  return made;
}

const Node* Context::Impl::new_index(const SymbolInfo& info) {
  for (;;) {
    char name[16] = {'i'};
    const auto [end, error] = std::to_chars(name + 1, std::end(name), next_index++);
    INKLE_CHECK(error == std::errc(), "too many symbols");
    if (const Node* made = add_symbol({name, end}, info)) return made;
  }
}

// Null where the name is taken.
const Node* Context::Impl::add_symbol(std::string_view name, const SymbolInfo& info) {
  const auto [at, is_new] = by_name.try_emplace(names.emplace_back(name), nullptr);
  if (!is_new) {
    names.pop_back();
    return nullptr;
  }
  Node node;
  node.kind = Kind::symbol;
  node.symbol = static_cast<std::uint32_t>(infos.size());
  node.symbol_filter = std::uint64_t{1} << (node.symbol % 64);
  node.hash = mix(std::uint64_t{node.symbol} + 0x5bd1e995);
  if (!info.extent.is_null() && !info.extent.is_constant()) extent_filter |= node.symbol_filter;
  infos.push_back(info);
  name_keys.push_back(name_key(name));
  const Node* made = insert(node, {}, table_.size());
  symbol_nodes.push_back(made);
  at->second = made;
  return made;
}

const Node* Context::Impl::find_memo(Op op, const Node* a, const Node* b) const {
  const std::uint32_t h =
      mix((std::uint64_t{a->id} << 32 | b->id) * 31 + static_cast<std::uint64_t>(op));
  const Memo& memo = memo_[h & (memo_.size() - 1)];
  const bool hit = memo.a == a && memo.b == b && memo.op == op && memo.epoch == epoch;
  return hit ? memo.result : nullptr;
}

void Context::Impl::keep_memo(Op op, const Node* a, const Node* b, const Node* result) {
  if (failure != Failure::none || is_limited()) return;
  const std::uint32_t h =
      mix((std::uint64_t{a->id} << 32 | b->id) * 31 + static_cast<std::uint64_t>(op));
  memo_[h & (memo_.size() - 1)] = Memo{a, b, result, op, epoch};
}

void Context::Impl::forget() { ++epoch; }

Expr Context::Impl::finish(const Node* result) {
  const Failure failed = failure;
  failure = Failure::none;
  switch (failed) {
    case Failure::none:
      break;
    case Failure::overflow:
      unsupported("a constant in a symbolic size does not fit 64 bits");
    case Failure::zero_division:
      user_error("division by the constant 0 in a symbolic size");
  }
  return Expr(result);
}

Kind Expr::kind() const { return node_->kind; }
Context& Expr::context() const { return *node_->context; }
bool Expr::is_constant() const { return node_->is_constant(); }
bool Expr::is_constant(std::int64_t value) const { return node_->is_constant(value); }
std::optional<std::int64_t> Expr::constant() const {
  if (!node_->is_constant()) return std::nullopt;
  return node_->value;
}
std::span<const Expr> Expr::operands() const { return node_->all(); }
const std::string& Expr::name() const {
  INKLE_CHECK(node_->kind == Kind::symbol, "name() of an expression that is no symbol");
  return node_->context->impl().names[node_->symbol];
}
std::uint32_t Expr::id() const { return node_->id; }

Context::Context() : impl_(std::make_unique<Impl>(*this)) {}
Context::~Context() = default;

Expr Context::constant(std::int64_t value) { return Expr(impl_->constant(value)); }

Expr Context::symbol(std::string_view name, SymbolInfo info) {
  return Expr(impl_->new_symbol(name, info));
}

Expr Context::index(Expr extent) {
  SymbolInfo info;
  info.range.low = 0;
  info.extent = extent;
  return Expr(impl_->new_index(info));
}

Expr fresh(Context& context, const SymbolInfo& info) {
  INKLE_CHECK(info.divisor >= 1, "a symbol's divisor is not positive");
  return Expr(context.impl().new_index(info));
}

std::optional<Expr> Context::find_symbol(std::string_view name) const {
  const auto found = impl_->by_name.find(name);
  if (found == impl_->by_name.end()) return std::nullopt;
  return Expr(found->second);
}

const SymbolInfo& Context::info(Expr symbol) const {
  INKLE_CHECK(symbol.kind() == Kind::symbol, "info() of an expression that is no symbol");
  return impl_->infos[symbol.node()->symbol];
}

void Context::set_info(Expr symbol, SymbolInfo info) {
  INKLE_CHECK(symbol.kind() == Kind::symbol, "set_info() of an expression that is no symbol");
  if (info.divisor < 1) user_error("symbol '{}': divisor is not positive", symbol.name());
  if (!info.extent.is_null() && contains(info.extent, symbol)) {
    user_error("symbol '{}': its extent contains it", symbol.name());
  }
  if (!info.extent.is_null() && !info.extent.is_constant()) {
    impl_->extent_filter |= symbol.node()->symbol_filter;
  }
  impl_->infos[symbol.node()->symbol] = info;
  impl_->forget();
}

const std::vector<Context::Guard>& Context::guards() const { return impl_->guards; }

}  // namespace inkle::sym
