// Which buffers a step reads and writes.
#include <algorithm>
#include <set>

#include "schedule/scheduled.h"

namespace inkle::schedule {
namespace {

using loop::BufferId;

// Buffers of parameters with such roles, each once, in order.
template <class F>
std::vector<BufferId> distinct_buffers(const KernelStep& step, const F& has_role) {
  std::vector<BufferId> result;
  std::set<BufferId> seen;
  for (std::size_t p = 0; p < step.buffers.size(); ++p) {
    if (has_role(step.param(p).role) && seen.insert(step.buffers[p]).second) {
      result.push_back(step.buffers[p]);
    }
  }
  return result;
}

// The buffers of a step that is not a kernel: operands and results.
template <class Step, class F>
void for_each_operand(Step& step, const F& f) {
  const auto epilogue = [&](auto& ops) {
    for (auto& e : ops) {
      if (e.operand) f(e.operand->buffer);
    }
  };
  if (auto* m = std::get_if<MatmulStep>(&step.action)) {
    f(m->a.buffer);
    f(m->b.buffer);
    if (m->bias) f(m->bias->buffer);
    epilogue(m->epilogue);
  } else if (auto* c = std::get_if<ConvolutionStep>(&step.action)) {
    f(c->x.buffer);
    f(c->w.buffer);
    if (c->bias) f(c->bias->buffer);
    epilogue(c->epilogue);
  } else if (auto* a = std::get_if<AttentionStep>(&step.action)) {
    f(a->q.buffer);
    f(a->k.buffer);
    f(a->v.buffer);
    if (a->mask) f(a->mask->buffer);
  } else {
    for (auto& argument : std::get<EagerStep>(step.action).call.arguments) {
      if (auto* b = std::get_if<BufferId>(&argument)) f(*b);
    }
  }
}

template <class Step, class F>
void for_each_result(Step& step, const F& f) {
  if (auto* m = std::get_if<MatmulStep>(&step.action)) {
    f(m->c.buffer);
  } else if (auto* c = std::get_if<ConvolutionStep>(&step.action)) {
    f(c->y.buffer);
  } else if (auto* a = std::get_if<AttentionStep>(&step.action)) {
    f(a->out.buffer);
  } else {
    for (auto& b : std::get<EagerStep>(step.action).call.results) f(b);
  }
}

}  // namespace

std::vector<BufferId> reads(const Step& step) {
  if (const auto* k = std::get_if<KernelStep>(&step.action)) {
    return distinct_buffers(*k, [](ParamRole role) { return role != ParamRole::out; });
  }
  std::vector<BufferId> result;
  for_each_operand(step, [&](BufferId b) {
    if (std::find(result.begin(), result.end(), b) == result.end()) result.push_back(b);
  });
  return result;
}

std::vector<BufferId> writes(const Step& step) {
  if (const auto* k = std::get_if<KernelStep>(&step.action)) {
    return distinct_buffers(*k, [](ParamRole role) { return role != ParamRole::in; });
  }
  std::vector<BufferId> result;
  for_each_result(step, [&](BufferId b) { result.push_back(b); });
  return result;
}

void for_each_buffer(Step& step, const std::function<void(BufferId&)>& f) {
  if (auto* k = std::get_if<KernelStep>(&step.action)) {
    for (BufferId& b : k->buffers) f(b);
    return;
  }
  for_each_operand(step, f);
  for_each_result(step, f);
}

}  // namespace inkle::schedule
