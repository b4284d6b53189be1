#include "loop/program.h"

#include <algorithm>

namespace inkle::loop {
namespace {

void add_once(std::vector<BufferId>& list, BufferId buffer) {
  if (std::find(list.begin(), list.end(), buffer) == list.end()) list.push_back(buffer);
}

struct DetailReads {
  std::vector<BufferId>& list;

  void operator()(const std::monostate&) const {}
  void operator()(const Matmul& m) const {
    add_once(list, m.a.buffer);
    add_once(list, m.b.buffer);
  }
  void operator()(const Convolution& c) const {
    add_once(list, c.x);
    add_once(list, c.w);
    if (c.bias) add_once(list, *c.bias);
  }
  void operator()(const Attention& a) const {
    add_once(list, a.q.buffer);
    add_once(list, a.k.buffer);
    add_once(list, a.v.buffer);
    if (a.mask) add_once(list, a.mask->buffer);
    if (a.dropout) add_once(list, a.dropout->seed);
    if (!a.gradient) return;
    add_once(list, a.gradient->grad.buffer);
    add_once(list, a.gradient->out.buffer);
    add_once(list, a.gradient->statistics);
  }
  void operator()(const EagerCall& e) const {
    for (const auto& argument : e.arguments) {
      if (const auto* buffer = std::get_if<BufferId>(&argument)) add_once(list, *buffer);
    }
  }
};

}  // namespace

std::size_t result_count(ReduceOp op) {
  return op == ReduceOp::welford || op == ReduceOp::online_softmax ? 2 : 1;
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::prod:
      return "prod";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
    case ReduceOp::any:
      return "any";
    case ReduceOp::all:
      return "all";
    case ReduceOp::argmin:
      return "argmin";
    case ReduceOp::argmax:
      return "argmax";
    case ReduceOp::welford:
      return "welford";
    case ReduceOp::online_softmax:
      return "online_softmax";
  }
  return "";
}

std::string_view name_of(NestKind kind) {
  switch (kind) {
    case NestKind::pointwise:
      return "pointwise";
    case NestKind::reduction:
      return "reduce";
    case NestKind::scan:
      return "scan";
    case NestKind::sort:
      return "sort";
    case NestKind::scatter:
      return "scatter";
    case NestKind::matmul:
      return "matmul";
    case NestKind::convolution:
      return "convolution";
    case NestKind::attention:
      return "attention";
    case NestKind::eager:
      return "eager";
  }
  return "";
}

bool may_fail(const Body& body) {
  return std::any_of(body.instructions.begin(), body.instructions.end(), [](const Instruction& i) {
    const bool divides = i.opcode == Opcode::div || i.opcode == Opcode::floordiv ||
                         i.opcode == Opcode::remainder || i.opcode == Opcode::fmod;
    return i.opcode == Opcode::indirect || (divides && abi::is_integer(i.dtype));
  });
}

std::vector<BufferId> reads(const Nest& nest) {
  constexpr std::size_t kUsual = 8;
  std::vector<BufferId> list;
  list.reserve(kUsual);
  for (const Instruction& i : nest.body.instructions) {
    if (i.opcode == Opcode::load) add_once(list, i.buffer);
  }
  std::visit(DetailReads{list}, nest.detail);
  return list;
}

std::vector<BufferId> writes(const Nest& nest) {
  std::vector<BufferId> list;
  for (const Store& store : nest.stores) add_once(list, store.buffer);
  if (const auto* attention = std::get_if<Attention>(&nest.detail)) {
    if (attention->lse) add_once(list, *attention->lse);
    if (attention->statistics) add_once(list, *attention->statistics);
  }
  if (const auto* call = std::get_if<EagerCall>(&nest.detail)) {
    for (const BufferId b : call->results) add_once(list, b);
  }
  return list;
}

void for_each_buffer(Nest& nest, const std::function<void(BufferId&)>& f) {
  for (Instruction& i : nest.body.instructions) {
    if (i.opcode == Opcode::load) f(i.buffer);
  }
  for (Store& store : nest.stores) f(store.buffer);
  if (auto* m = std::get_if<Matmul>(&nest.detail)) {
    f(m->a.buffer);
    f(m->b.buffer);
  } else if (auto* c = std::get_if<Convolution>(&nest.detail)) {
    f(c->x);
    f(c->w);
    if (c->bias) f(*c->bias);
  } else if (auto* a = std::get_if<Attention>(&nest.detail)) {
    f(a->q.buffer);
    f(a->k.buffer);
    f(a->v.buffer);
    if (a->mask) f(a->mask->buffer);
    if (a->lse) f(*a->lse);
    if (a->dropout) f(a->dropout->seed);
    if (a->statistics) f(*a->statistics);
    if (a->gradient) {
      f(a->gradient->grad.buffer);
      f(a->gradient->out.buffer);
      f(a->gradient->statistics);
    }
  } else if (auto* e = std::get_if<EagerCall>(&nest.detail)) {
    for (auto& argument : e->arguments) {
      if (auto* buffer = std::get_if<BufferId>(&argument)) f(*buffer);
    }
    for (BufferId& b : e->results) f(b);
  }
}

}  // namespace inkle::loop
