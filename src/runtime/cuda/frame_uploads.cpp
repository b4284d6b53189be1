// Uploads of CPU tensors that steps on the device read, such as scalars that are not constants of
// the program: small arguments in one copy when a call begins, others each when it is first read.
// All from pageable memory, which the driver has read when it returns: a caller may overwrite it
// at once.
#include <algorithm>
#include <cstring>

#include "runtime/cuda/frame.h"

namespace inkle::runtime::cuda {
namespace {

using abi::BufferDecl;
using abi::PlanBuffer;
using Kind = BufferDecl::Kind;

// A copy by the driver takes as long as a launch, so arguments that are cheaper to copy on the CPU
// are packed into one upload.
constexpr std::int64_t kMostPackedBytes = 256;
constexpr std::int64_t kPackedAlignment = 16;

}  // namespace

void Frame::find_uploads() {
  const auto add = [&](PlanBuffer b) {
    const BufferDecl& decl = plan_.buffers[b];
    const bool is_known = std::any_of(uploads_.begin(), uploads_.end(),
                                      [&](const Upload& u) { return u.buffer == b; });
    if (is_on_host(decl) && decl.kind != Kind::constant && decl.kind != Kind::arena &&
        decl.kind != Kind::prepared && !is_known) {
      uploads_.push_back({b});
    }
  };
  for (Executable::BoundStep& step : executable_.steps_) {
    for (const PlanBuffer b : step.buffers) add(b);
    if (step.call) abi::for_each_operand(*step.call, [&](abi::Operand& o) { add(o.buffer); });
  }
}

// Those that are packed lie together, first.
void Frame::plan_uploads() {
  upload_bytes_ = 0;
  for (Upload& u : uploads_) {
    const std::int64_t bytes = slots_[plan_.buffers[u.buffer].bytes];
    u.is_packed = executable_.is_given_alone(u.buffer) && bytes <= kMostPackedBytes;
    if (!u.is_packed) continue;
    u.at = upload_bytes_;
    upload_bytes_ += round_up_to(kPackedAlignment, bytes);
  }
  packed_.assign(static_cast<std::size_t>(upload_bytes_), std::byte{0});
  upload_bytes_ = round_up_to(kMemoryAlignment, upload_bytes_);
  for (Upload& u : uploads_) {
    if (u.is_packed) continue;
    u.at = upload_bytes_;
    upload_bytes_ += round_up_to(kMemoryAlignment, slots_[plan_.buffers[u.buffer].bytes]);
  }
}

void Frame::upload_arguments() {
  // A captured graph reads the tensors themselves when it is replayed.
  if (packed_.empty() || has_copies_ || is_captured_) return;
  for (Upload& u : uploads_) {
    if (!u.is_packed) continue;
    const std::int64_t bytes = slots_[plan_.buffers[u.buffer].bytes];
    if (bytes > 0) {
      std::memcpy(packed_.data() + u.at, buffers_[u.buffer], static_cast<std::size_t>(bytes));
    }
    u.is_done = true;
  }
  device_.copy(memory_ + arena_bytes_, packed_.data(), static_cast<std::int64_t>(packed_.size()),
               stream_);
}

void Frame::upload(const void* from, std::int64_t bytes, void* to) {
  if (!is_captured_) {
    const auto* first = static_cast<const std::byte*>(from);
    staged_.assign(first, first + bytes);
    from = staged_.data();
  }
  device_.copy(to, from, bytes, stream_);
}

void* Frame::on_device(PlanBuffer root) {
  const BufferDecl& decl = plan_.buffers[root];
  if (!is_on_host(decl) || decl.kind == Kind::constant) [[likely]]
    return buffers_[root];
  if (has_copies_ && decl.kind == Kind::argument) return buffers_[root];
  for (Upload& u : uploads_) {
    if (u.buffer != root) continue;
    void* const to = memory_ + arena_bytes_ + u.at;
    if (!u.is_done) upload(buffers_[root], slots_[decl.bytes], to);
    u.is_done = true;
    return to;
  }
  return buffers_[root];  // working memory, which is all on the device
}

}  // namespace inkle::runtime::cuda
