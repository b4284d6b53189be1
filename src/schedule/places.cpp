#include "schedule/places.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <utility>

#include "base/error.h"
#include "schedule/linear.h"

namespace inkle::schedule {
namespace {

using loop::BufferId;
using loop::Instruction;
using loop::Opcode;

class Places {
 public:
  Places(const Placing& placing, LoopKernel& kernel, KernelStep& step)
      : group_(placing.group),
        program_(placing.program),
        context_(*placing.program.context),
        is_internal_(placing.is_internal),
        input_alignment_(placing.input_alignment),
        kernel_(kernel),
        params_(step.kernel.params),
        param_buffers_(step.buffers) {}

  void linearise(std::vector<Draft>& drafts, const std::vector<Scratch>& carried) {
    std::map<BufferId, ScratchPlace> scratch;
    for (std::size_t g = 0; g < carried.size(); ++g) {
      ScratchPlace place;
      place.number = static_cast<std::uint32_t>(g);
      const Expr one = context_.constant(1);
      place.digits = {{{one, carried[g].elements, one}}};
      place.origin = {context_.constant(0)};
      place.store_indices = {context_.constant(0)};
      scratch.emplace(static_cast<BufferId>(program_.buffers.size() + g), std::move(place));
      kernel_.scratch.push_back(carried[g]);
    }
    for (Draft& draft : drafts) {
      for (const Pending& store : draft.stores) {
        if (is_internal_(store.buffer)) scratch.emplace(store.buffer, make_scratch(draft, store));
      }
    }
    for (Draft& draft : drafts) {
      for (Instruction& i : draft.stage.body.instructions) {
        if (i.opcode == Opcode::load && !scratch.contains(i.buffer)) param(i.buffer, false, true);
      }
    }
    for (Draft& draft : drafts) {
      for (const Pending& p : draft.stores) {
        if (!scratch.contains(p.buffer)) param(p.buffer, true, p.keeps_rest);
      }
    }
    const auto count = static_cast<std::uint32_t>(params_.size());
    const auto place = [&](BufferId buffer, const std::vector<Expr>& indices, bool is_store) {
      if (const auto at = scratch.find(buffer); at != scratch.end()) {
        return std::pair(count + at->second.number, scratch_offset(at->second, indices));
      }
      const std::uint32_t number = param(buffer, is_store, !is_store);
      return std::pair(number, linear_offset(program_.buffers[buffer], indices, context_));
    };
    for (Draft& draft : drafts) {
      for (Instruction& i : draft.stage.body.instructions) {
        if (i.opcode != Opcode::load) continue;
        const auto [target, offset] = place(i.buffer, i.indices, false);
        i.buffer = target;
        i.indices = {offset};
      }
      for (const Pending& p : draft.stores) {
        const auto [target, offset] = place(p.buffer, p.indices, true);
        draft.stage.stores.push_back({target, offset, p.mode, p.yield});
      }
    }
  }

 private:
  std::uint32_t param(BufferId buffer, bool written, bool read) {
    const auto [at, is_new] =
        param_of_.try_emplace(buffer, static_cast<std::uint32_t>(params_.size()));
    if (is_new) {
      const loop::Buffer& b = program_.buffers[buffer];
      Param p;
      p.dtype = b.dtype;
      const bool ours = b.role == loop::BufferRole::temporary;
      p.alignment =
          ours ? 64 : std::max(input_alignment_, static_cast<std::int32_t>(abi::size_of(b.dtype)));
      p.role = !written ? ParamRole::in : read ? ParamRole::inout : ParamRole::out;
      p.may_alias = b.writes_into.has_value();
      params_.push_back(p);
      param_buffers_.push_back(buffer);
      return at->second;
    }
    Param& p = params_[at->second];
    if ((written && p.role == ParamRole::in) || (read && p.role == ParamRole::out)) {
      p.role = ParamRole::inout;
    }
    return at->second;
  }

  // Loops that follow each other in an index, without gaps: `count` steps of `step` in it, each
  // `stride` elements of scratch.
  struct Digit {
    Expr step, count, stride;
  };

  // For each logical dimension of the buffer that a scratch array replaces: how an index there
  // consists of the loops of the store, the largest step first, and its value where all loops
  // begin. A store at 7-j has one step of -1 and begins at 7.
  struct ScratchPlace {
    std::uint32_t number = 0;
    std::vector<std::vector<Digit>> digits;
    std::vector<Expr> origin;
    std::vector<Expr> store_indices;
  };

  // A scratch array has an element for each point of the store's inner loops, row-major.
  ScratchPlace make_scratch(const Draft& draft, const Pending& store) {
    ScratchPlace place;
    place.number = static_cast<std::uint32_t>(kernel_.scratch.size());
    place.store_indices = store.indices;
    const std::vector<Dim>& inner = draft.stage.inner;
    std::vector<Expr> loop_strides(inner.size());
    Expr running = context_.constant(1);
    for (std::size_t d = inner.size(); d-- > 0;) {
      loop_strides[d] = running;
      running = running * inner[d].extent;
    }
    for (const Expr index : store.indices) {
      Expr origin = index;
      for (const std::vector<Dim>* dims : {&inner, &group_.outer}) {
        for (const Dim& dim : *dims) {
          const std::pair<Expr, Expr> first[] = {{dim.variable, context_.constant(0)}};
          origin = sym::substitute(origin, first);
        }
      }
      place.origin.push_back(origin);
      place.digits.push_back(digits_of(index, inner, loop_strides));
    }
    const Expr offset = scratch_offset(place, store.indices);
    for (std::size_t d = 0; d < inner.size(); ++d) {
      INKLE_CHECK(inner[d].extent.is_constant(1) ||
                      sym::stride(offset, inner[d].variable) == loop_strides[d],
                  "the index of an element of scratch does not match the loops of its store");
    }
    kernel_.scratch.push_back({program_.buffers[store.buffer].dtype, running});
    return place;
  }

  static std::vector<Digit> digits_of(Expr index, const std::vector<Dim>& inner,
                                      const std::vector<Expr>& loop_strides) {
    std::vector<Digit> digits;
    for (std::size_t d = 0; d < inner.size(); ++d) {
      if (!sym::contains(index, inner[d].variable)) continue;
      const auto step = sym::stride(index, inner[d].variable);
      INKLE_CHECK(step.has_value(), "a store index is not linear in its loops");
      digits.push_back({*step, inner[d].extent, loop_strides[d]});
    }
    // The slowest loop in an index has the largest step, unless constants say otherwise.
    const auto is_known = [](const Digit& digit) { return digit.step.constant().has_value(); };
    const auto size = [](const Digit& digit) { return std::abs(*digit.step.constant()); };
    if (std::ranges::all_of(digits, is_known)) {
      std::ranges::stable_sort(digits, std::ranges::greater(), size);
    }
    std::vector<Digit> joined;
    for (const Digit& digit : digits) {
      if (!joined.empty() && joined.back().step == digit.step * digit.count &&
          joined.back().stride == digit.stride * digit.count) {
        joined.back() = {digit.step, joined.back().count * digit.count, digit.stride};
      } else {
        joined.push_back(digit);
      }
    }
    return joined;
  }

  Expr scratch_offset(const ScratchPlace& place, const std::vector<Expr>& indices) const {
    Expr offset = context_.constant(0);
    for (std::size_t d = 0; d < indices.size(); ++d) {
      if (place.digits[d].empty()) continue;
      Expr inner_part = indices[d];
      for (const Dim& dim : group_.outer) {
        const auto coefficient = sym::stride(inner_part, dim.variable);
        if (coefficient && sym::contains(place.store_indices[d], dim.variable)) {
          inner_part = inner_part - *coefficient * dim.variable;
        }
      }
      offset = offset + position(inner_part - place.origin[d], place.digits[d]);
    }
    return offset;
  }

  // The offset in scratch of an index at `distance` from the first one, in one dimension.
  Expr position(Expr distance, const std::vector<Digit>& digits) const {
    if (digits.size() == 1) return sym::floordiv(distance, digits[0].step) * digits[0].stride;
    const auto is_back = [](const Digit& digit) {
      return digit.step.constant() && *digit.step.constant() < 0;
    };
    // From the least index on, so that no digit is negative.
    for (const Digit& digit : digits) {
      if (is_back(digit)) distance = distance - digit.step * (digit.count - 1);
    }
    Expr out = context_.constant(0);
    for (const Digit& digit : digits) {
      const Expr step = is_back(digit) ? digit.step * -1 : digit.step;
      const Expr number = sym::floordiv(distance, step);
      distance = distance - number * step;
      out = out + (is_back(digit) ? digit.count - 1 - number : number) * digit.stride;
    }
    return out;
  }

  const Group& group_;
  const loop::Program& program_;
  sym::Context& context_;
  const std::function<bool(BufferId)>& is_internal_;
  std::int32_t input_alignment_;
  LoopKernel& kernel_;
  std::vector<Param>& params_;
  std::vector<BufferId>& param_buffers_;
  std::map<BufferId, std::uint32_t> param_of_;
};

}  // namespace

void place_accesses(std::vector<Draft>& drafts, const std::vector<Scratch>& carried,
                    const Placing& placing, LoopKernel& kernel, KernelStep& step) {
  Places(placing, kernel, step).linearise(drafts, carried);
}

}  // namespace inkle::schedule
