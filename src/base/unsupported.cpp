#include "base/unsupported.h"

namespace inkle {

void UnsupportedNodes::add(const Unsupported& error) {
  const UnsupportedAt at(error);
  if (!first_) {
    first_.emplace(at);
  } else if (at.nodes().empty()) {
    // Without nodes nothing can be left to eager: this error is the one to report.
    if (!first_->nodes().empty()) first_.emplace(at);
  } else if (!first_->nodes().empty()) {
    for (const NodeFault& fault : at.nodes()) first_->add(fault);
  }
}

void UnsupportedNodes::add_note(std::string_view note) {
  if (first_) first_->add_note(note);
}

void UnsupportedNodes::check() const {
  if (first_) throw UnsupportedAt(*first_);
}

}  // namespace inkle
