#include "runtime/cpu/library_step.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/threads.h"
#include "base/unsupported.h"
#include "runtime/cpu/library_shapes.h"

namespace inkle::runtime::cpu {
namespace {

// Shapes kept compiled per call; a plan with dynamic sizes may see many.
constexpr std::size_t kKnownShapes = 64;

// Below this no sum can overflow to infinity, hence none be NaN, rounding included.
constexpr double kSafeBound = 1e37;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr std::size_t index(Role role) { return static_cast<std::size_t>(role); }

[[noreturn]] void no_attention() { unsupported("attention as a library call on the CPU"); }

CompiledCall compile(const abi::AttentionCall& /*call*/, std::span<const std::int64_t> /*slots*/,
                     bool /*stable_weights*/) {
  no_attention();
}

std::vector<const abi::Operand*> operands_of(const abi::LibraryCall& call) {
  std::vector<const abi::Operand*> result;
  const auto add_post_ops = [&](const std::vector<abi::PostOp>& post_ops) {
    for (const abi::PostOp& p : post_ops) {
      if (p.kind == abi::PostOpKind::add || p.kind == abi::PostOpKind::mul) {
        result.push_back(&p.operand);
      }
    }
  };
  if (const auto* m = std::get_if<abi::MatmulCall>(&call)) {
    result = {&m->a, &m->b, &m->c, m->has_bias ? &m->bias : nullptr};
    add_post_ops(m->post_ops);
  } else {
    if (std::holds_alternative<abi::AttentionCall>(call)) no_attention();
    const auto& c = std::get<abi::ConvolutionCall>(call);
    result = {&c.x, &c.w, &c.y, c.has_bias ? &c.bias : nullptr};
    if (c.weight_gradient) std::swap(result[0], result[1]);
    add_post_ops(c.post_ops);
  }
  return result;
}

std::byte* advance(void* pointer, std::int64_t bytes) {
  return static_cast<std::byte*>(pointer) + bytes;
}

std::int64_t round_up(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

LibraryStep::LibraryStep(const abi::LibraryCall& call, std::string_view source, bool stable_weights)
    : call_(&call),
      node_(source.substr(0, source.find(", "))),
      stable_weights_(stable_weights),
      operands_(operands_of(call)) {
  for (const abi::Operand* o : operands_) {
    if (o == nullptr) continue;
    key_slots_.insert(key_slots_.end(), o->sizes.begin(), o->sizes.end());
    key_slots_.insert(key_slots_.end(), o->strides.begin(), o->strides.end());
  }
}

void LibraryStep::bind(std::span<const std::int64_t> slots, State& state) {
  std::vector<std::int64_t> key;
  key.reserve(key_slots_.size() + 1);
  for (const abi::Slot s : key_slots_) key.push_back(slots[s]);
  key.push_back(num_threads());  // a primitive divides its work among as many as it was made for
  if (state.compiled && state.key == key) return;
  state = State();
  {
    // Compiled under the lock, so that two threads do not do the same work.
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(known_.begin(), known_.end(), [&](const Known& k) { return k.key == key; });
    if (found != known_.end()) {
      state.compiled = found->compiled;
      std::rotate(found, found + 1, known_.end());
    } else {
      const auto make = [&](const auto& call) { return compile(call, slots, stable_weights_); };
      try {
        state.compiled = std::make_shared<const CompiledCall>(std::visit(make, *call_));
      } catch (const Unsupported& error) {
        if (node_.empty()) throw;
        unsupported_at({&node_, 1}, "{}: {}", node_, error.message());
      }
      if (known_.size() == kKnownShapes) known_.erase(known_.begin());
      known_.push_back({key, state.compiled});
    }
  }
  if (state.compiled->primitive) state.execution = state.compiled->primitive->bind();
  if (state.compiled->quick) state.quick = state.compiled->quick->bind();
  state.pointers.assign(operands_.size(), nullptr);
  state.key = std::move(key);
}

std::int64_t LibraryStep::scratchpad_bytes(const State& state) const {
  if (!state.compiled || !state.compiled->primitive) return 0;
  const Primitive& p = *state.compiled->primitive;
  const Primitive* quick = state.compiled->quick.get();
  const std::int64_t own =
      std::max(p.scratchpad_bytes(), quick == nullptr ? 0 : quick->scratchpad_bytes());
  return round_up(own) + (stable_weights_ ? 0 : round_up(p.packed_bytes()));
}

void LibraryStep::run(std::span<void* const> buffers, std::span<const std::int64_t> slots,
                      State& state, std::byte* scratchpad, WeightCache& weights,
                      std::int64_t version, bool is_sampled, Magnitudes& magnitudes) const {
  const CompiledCall& c = *state.compiled;
  if (c.is_empty) return;
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    const abi::Operand* o = operands_[i];
    if (o == nullptr) continue;
    state.pointers[i] = advance(buffers[o->buffer], slots[o->offset] * abi::size_of(o->dtype));
  }
  void* const destination = state.pointers[index(Role::destination)];
  if (c.is_fill) {
    fill_bias(c.destination, destination, c.channel, c.bias ? &*c.bias : nullptr,
              state.pointers[index(Role::bias)]);
  } else {
    void*& w = state.pointers[index(Role::weights)];
    const void* const plain_weights = w;
    if (c.primitive->packed_bytes() != 0 && stable_weights_) {
      const WeightIdentity identity{static_cast<const std::byte*>(w), c.weight_span, version,
                                    is_sampled};
      if (!state.packed || !state.packed->is_current(identity)) {
        state.packed = weights.get(*c.primitive, identity);
      }
      w = state.packed->data();
    } else if (c.primitive->packed_bytes() != 0) {
      c.primitive->pack(w, scratchpad);
      w = scratchpad;
      scratchpad += round_up(c.primitive->packed_bytes());
    }
    double result = kInfinity;
    if (state.quick) {
      const float magnitude = state.packed ? state.packed->magnitude()
                                           : largest_magnitude(plain_weights, c.weight_span);
      result = bound(c, state, magnitude, magnitudes);
    }
    const bool is_safe = result < kSafeBound;
    execute(is_safe ? *state.quick : *state.execution, c, state, scratchpad);
    magnitudes.set(operands_[index(Role::destination)]->buffer,
                   is_safe && c.rest.empty() ? result : kInfinity);
  }
  if (!c.rest.empty()) {
    const std::span<void* const> pointers(state.pointers);
    apply_post_ops(c.rest, c.destination, destination, pointers.subspan(c.rest_operand));
  }
}

// Bound of an operand's magnitude: what an earlier step of the call has shown, if that is small
// enough to be of use, else read off the operand.
double LibraryStep::operand_bound(std::size_t operand, std::int64_t span, const State& state,
                                  double useful, Magnitudes& magnitudes) const {
  const abi::PlanBuffer buffer = operands_[operand]->buffer;
  const double known = magnitudes.bound(buffer);
  if (known < useful) return known;
  return largest_magnitude(state.pointers[operand], span);
}

// Bound of the results' magnitude; infinity if anything on the way to them may overflow.
double LibraryStep::bound(const CompiledCall& c, const State& state, float weights,
                          Magnitudes& magnitudes) const {
  constexpr double kRounding = 1.01;  // of sums of up to 10^5 terms
  // Bounds grow from layer to layer, in truth values do not: looking at them starts anew.
  constexpr double kUseful = kSafeBound / 1e6;
  const double gain = weights * static_cast<double>(c.terms) * kRounding;
  double bound =
      gain * operand_bound(index(Role::source), c.source_span, state, kUseful / gain, magnitudes);
  if (c.bias) {
    bound += largest_magnitude(state.pointers[index(Role::bias)], 4 * c.bias->sizes[0]);
  }
  std::size_t operand = 0;
  for (const PostOpDescription& p : c.fused) {
    if (!(bound < kSafeBound)) return kInfinity;
    double other = 0;
    if (p.kind == abi::PostOpKind::add || p.kind == abi::PostOpKind::mul) {
      other = operand_bound(index(Role::first_post_op) + operand, c.operand_spans[operand], state,
                            kUseful, magnitudes);
      ++operand;
    }
    bound = kRounding * bound_after(p, bound, other);
  }
  return bound < kSafeBound ? bound : kInfinity;
}

void LibraryStep::execute(Execution& execution, const CompiledCall& c, State& state,
                          std::byte* scratchpad) const {
  if (c.loops.empty()) {
    execution.run(state.pointers, scratchpad);
    return;
  }
  std::vector<std::int64_t> position(c.loops.size(), 0);
  const std::vector<void*> start = state.pointers;
  while (true) {
    execution.run(state.pointers, scratchpad);
    std::size_t d = c.loops.size();
    while (d > 0 && ++position[d - 1] == c.loops[d - 1].extent) position[--d] = 0;
    if (d == 0) break;
    for (std::size_t i = 0; i < start.size(); ++i) {
      if (start[i] == nullptr) continue;
      std::int64_t offset = 0;
      for (std::size_t l = 0; l < c.loops.size(); ++l) offset += position[l] * c.loops[l].steps[i];
      state.pointers[i] = advance(start[i], offset);
    }
  }
  // What is left of the post-ops reads its operands from their beginning.
  std::ranges::copy(start, state.pointers.begin());
}

}  // namespace inkle::runtime::cpu
