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

}  // namespace

std::vector<BufferId> reads(const Step& step) {
  std::vector<BufferId> result;
  const auto add = [&](BufferId b) {
    if (std::find(result.begin(), result.end(), b) == result.end()) result.push_back(b);
  };
  const auto add_epilogue = [&](const std::vector<Epilogue>& epilogue) {
    for (const Epilogue& e : epilogue) {
      if (e.operand) add(e.operand->buffer);
    }
  };
  if (const auto* k = std::get_if<KernelStep>(&step.action)) {
    return distinct_buffers(*k, [](ParamRole role) { return role != ParamRole::out; });
  } else if (const auto* m = std::get_if<MatmulStep>(&step.action)) {
    add(m->a.buffer);
    add(m->b.buffer);
    if (m->bias) add(m->bias->buffer);
    add_epilogue(m->epilogue);
  } else if (const auto* c = std::get_if<ConvolutionStep>(&step.action)) {
    add(c->x.buffer);
    add(c->w.buffer);
    if (c->bias) add(c->bias->buffer);
    add_epilogue(c->epilogue);
  } else if (const auto* a = std::get_if<AttentionStep>(&step.action)) {
    add(a->q.buffer);
    add(a->k.buffer);
    add(a->v.buffer);
    if (a->mask) add(a->mask->buffer);
  } else {
    for (const auto& argument : std::get<EagerStep>(step.action).call.arguments) {
      if (const auto* b = std::get_if<BufferId>(&argument)) add(*b);
    }
  }
  return result;
}

std::vector<BufferId> writes(const Step& step) {
  std::vector<BufferId> result;
  if (const auto* k = std::get_if<KernelStep>(&step.action)) {
    result = distinct_buffers(*k, [](ParamRole role) { return role != ParamRole::in; });
  } else if (const auto* m = std::get_if<MatmulStep>(&step.action)) {
    result.push_back(m->c.buffer);
  } else if (const auto* c = std::get_if<ConvolutionStep>(&step.action)) {
    result.push_back(c->y.buffer);
  } else if (const auto* a = std::get_if<AttentionStep>(&step.action)) {
    result.push_back(a->out.buffer);
  } else {
    result = std::get<EagerStep>(step.action).call.results;
  }
  return result;
}

}  // namespace inkle::schedule
