// The part of a call that sees to the results of prepare steps.
#include <cstring>

#include "runtime/cpu/frame.h"

namespace inkle::runtime::cpu {

// Finds or makes the results of prepare steps for the weights of this call.
void Frame::prepare(const Call& call) {
  for (std::size_t g = 0; g < prepared_.size(); ++g) {
    const PreparedGroup& group = executable_.groups_[g];
    group.identify(call, true, identities_);
    if (prepared_[g] && prepared_[g]->is_current(identities_)) continue;
    prepared_[g].reset();  // may be the last to hold it
    const auto [set, is_new] = executable_.sets_[g]->get(identities_, [&](const PreparedSet& made) {
      group.bind(made.data(), buffers_);
      if (const int poison = executable_.options_.poison; poison >= 0) {
        std::memset(made.data(), poison, static_cast<std::size_t>(group.bytes));
      }
      for (const std::uint32_t step : group.steps) run_timed(step);
    });
    prepared_[g] = set;
    group.bind(set->data(), buffers_);
    if (is_new) executable_.release_outdated();
  }
}

void Frame::release_outdated() {
  for (std::size_t g = 0; g < prepared_.size(); ++g) {
    if (!prepared_[g] || executable_.sets_[g]->contains(*prepared_[g])) continue;
    prepared_[g].reset();
    for (std::size_t i = 0; i < library_.size(); ++i) {
      const abi::PlanBuffer weights = executable_.library_steps_[i]->weights_buffer();
      if (plan_.buffers[weights].kind == abi::BufferDecl::Kind::prepared &&
          executable_.group_of_[weights] == g) {
        library_[i].packed.reset();
      }
    }
  }
}

}  // namespace inkle::runtime::cpu
