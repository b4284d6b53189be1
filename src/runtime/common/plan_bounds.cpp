#include "runtime/common/plan_bounds.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"

namespace inkle::runtime::common {
namespace {

using abi::BufferDecl;
using abi::PlanBuffer;
using abi::Slot;

// Limit of the memory of a call; no machine has as much.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 46;
// Holds any sum of 64 products of two 64-bit integers.
__extension__ using Wide = __int128;

class Checker {
 public:
  Checker(const abi::Plan& plan, const PlanFacts& facts, std::span<const std::int64_t> slots)
      : plan_(plan), facts_(facts), slots_(slots) {}

  void run() {
    Wide total = 0;
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
      place_ = "buffer " + plan_.buffers[b].name;
      buffer(static_cast<PlanBuffer>(b));
      total += bytes_of(static_cast<PlanBuffer>(b));
    }
    place_ = "all buffers";
    if (total > kMostBytes) fail("more bytes than memory has");
    steps(plan_.steps);
    for (const abi::Region& region : plan_.regions) steps(region.steps);
    for (std::size_t i = 0; i < plan_.outputs.size(); ++i) {
      const abi::PlanOutput& o = plan_.outputs[i];
      place_ = fmt::format("output {}", i);
      if (o.kind != abi::PlanOutput::Kind::buffer) continue;
      const BufferDecl& decl = plan_.buffers[o.index];
      inside(span(decl.dtype, o.sizes, o.strides, slots_[o.offset]), o.index);
    }
  }

 private:
  // The range of bytes that is accessed, as offsets from the buffer's first byte.
  struct Span {
    Wide first = 0, end = 0;
  };

  [[noreturn]] void fail(std::string_view what) const {
    user_error("plan {}, {}: {}", plan_.name, place_, what);
  }

  [[nodiscard]] Span span(abi::DType dtype, const std::vector<Slot>& sizes,
                          const std::vector<Slot>& strides, std::int64_t offset) const {
    Wide low = offset, high = offset;
    bool is_empty = false;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const std::int64_t size = slots_[sizes[d]];
      if (size < 0) fail(fmt::format("a size of {}", size));
      is_empty |= size == 0;
      if (size == 0) continue;
      const Wide reach = static_cast<Wide>(size - 1) * slots_[strides[d]];
      (reach < 0 ? low : high) += reach;
      if (high > kMostBytes || low < -kMostBytes) fail("more elements than memory has");
    }
    if (is_empty) return {};
    return {low * abi::size_of(dtype), (high + 1) * abi::size_of(dtype)};
  }
  void inside(const Span& span, PlanBuffer buffer) const {
    const PlanBuffer root = facts_.roots[buffer];
    if (span.first >= 0 && span.end <= bytes_of(root)) return;
    fail(fmt::format("bytes {} to {} of {}, which has {}", static_cast<std::int64_t>(span.first),
                     static_cast<std::int64_t>(span.end), plan_.buffers[root].name,
                     bytes_of(root)));
  }

  [[nodiscard]] std::int64_t bytes_of(PlanBuffer b) const { return slots_[plan_.buffers[b].bytes]; }
  // That there are for a root, whoever has them.
  [[nodiscard]] Wide available(PlanBuffer root) const {
    const BufferDecl& decl = plan_.buffers[root];
    if (decl.kind == BufferDecl::Kind::argument) {
      const abi::PlanArgument& a = plan_.arguments[decl.index];
      return span(a.dtype, a.sizes, a.strides, 0).end;
    }
    if (decl.kind == BufferDecl::Kind::output)
      return span(decl.dtype, decl.sizes, decl.strides, 0).end;
    if (decl.kind == BufferDecl::Kind::constant) {
      const abi::ConstantDecl& c = plan_.constants[decl.index];
      Wide bytes = abi::size_of(c.dtype);
      for (const std::int64_t size : c.sizes) bytes *= size;  // fits: check_references
      return bytes;
    }
    return bytes_of(root);
  }

  void buffer(PlanBuffer b) const {
    const BufferDecl& decl = plan_.buffers[b];
    if (bytes_of(b) < 0 || bytes_of(b) > kMostBytes) fail(fmt::format("{} bytes", bytes_of(b)));
    if (decl.kind == BufferDecl::Kind::formal || decl.kind == BufferDecl::Kind::external) return;
    const Span touched = span(decl.dtype, decl.sizes, decl.strides, 0);
    if (touched.first < 0 || touched.end > bytes_of(b)) {
      fail(fmt::format("{} bytes, {} are touched", bytes_of(b),
                       static_cast<std::int64_t>(touched.end)));
    }
    const PlanBuffer root = facts_.roots[b];
    const Wide there = root == b ? available(b) : bytes_of(root);
    if (bytes_of(b) > there) {
      fail(fmt::format("{} bytes in {}", bytes_of(b), static_cast<std::int64_t>(there)));
    }
  }

  void steps(const std::vector<abi::PlanStep>& all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      place_ = fmt::format("step {}", i);
      if (const auto* launch = std::get_if<abi::Launch>(&all[i].action)) {
        check(*launch);
      } else if (const auto* call = std::get_if<abi::LibraryCall>(&all[i].action)) {
        abi::for_each_operand(*call, [this](const abi::Operand& o) {
          inside(span(o.dtype, o.sizes, o.strides, slots_[o.offset]), o.buffer);
        });
      } else if (const auto* copy = std::get_if<abi::CopyStep>(&all[i].action)) {
        const BufferDecl &from = plan_.buffers[copy->from], &to = plan_.buffers[copy->to];
        for (std::size_t d = 0; d < to.sizes.size(); ++d) {
          if (slots_[from.sizes[d]] != slots_[to.sizes[d]]) fail("a copy between unequal sizes");
        }
      }
    }
  }
  void check(const abi::Launch& launch) const {
    if (slots_[launch.scratch_bytes] < 0 || slots_[launch.scratch_bytes] > kMostBytes) {
      fail(fmt::format("{} bytes of scratch", slots_[launch.scratch_bytes]));
    }
    for (const abi::TensorMap& m : launch.maps) {
      inside(span(m.dtype, m.sizes, m.strides, 0), m.buffer);
    }
    if (launch.extents.empty()) return;
    Wide sum = 0;
    for (const Slot s : launch.extents) {
      if (slots_[s] < 0) fail(fmt::format("an instance of {} iterations", slots_[s]));
      sum += slots_[s];
    }
    if (sum != slots_[launch.extent]) fail("a table whose instances are not its extent");
  }

  const abi::Plan& plan_;
  const PlanFacts& facts_;
  std::span<const std::int64_t> slots_;
  std::string place_;
};

}  // namespace

void check_bounds(const abi::Plan& plan, const PlanFacts& facts,
                  std::span<const std::int64_t> slots) {
  Checker(plan, facts, slots).run();
}

}  // namespace inkle::runtime::common
