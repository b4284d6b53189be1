#include "runtime/common/plan_check.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/error.h"

namespace inkle::runtime::common {
namespace {

using abi::BufferDecl;

// Of all elements; nothing for sizes below 0 or beyond 64 bits.
std::optional<std::uint64_t> bytes_of(const abi::ConstantDecl& constant) {
  std::int64_t bytes = abi::size_of(constant.dtype);
  for (const std::int64_t size : constant.sizes) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return {};
  }
  return static_cast<std::uint64_t>(bytes);
}

class Checker {
 public:
  explicit Checker(const abi::Plan& plan) : plan_(plan) {}

  void run() {
    for (const abi::PlanArgument& a : plan_.arguments) {
      place_ = fmt::format("argument {}", a.name);
      geometry(a.sizes, a.strides);
      if (a.alignment < 1) fail("alignment below one");
    }
    for (const BufferDecl& b : plan_.buffers) buffer_declaration(b);
    for (const abi::Guard& g : plan_.guards) {
      place_ = "a guard";
      slot(g.a);
      slot(g.b);
    }
    for (std::size_t i = 0; i < plan_.constants.size(); ++i) {
      place_ = fmt::format("constant {}", i);
      if (!bytes_of(plan_.constants[i])) fail("sizes that no memory has");
    }
    check_steps(plan_.steps, "step");
    for (std::size_t r = 0; r < plan_.regions.size(); ++r) {
      first_region_ = r + 1;
      check_steps(plan_.regions[r].steps, fmt::format("region {}, step", r));
    }
    for (std::size_t i = 0; i < plan_.outputs.size(); ++i) {
      place_ = fmt::format("output {}", i);
      check(plan_.outputs[i]);
    }
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    user_error("plan {}, {}: {}", plan_.name, place_, what);
  }
  void slot(abi::Slot s) const {
    if (s >= plan_.slot_count) fail(fmt::format("slot {} of {}", s, plan_.slot_count));
  }
  void slots(const std::vector<abi::Slot>& all) const {
    for (const abi::Slot s : all) slot(s);
  }
  void geometry(const std::vector<abi::Slot>& sizes, const std::vector<abi::Slot>& strides) const {
    slots(sizes);
    slots(strides);
    if (sizes.size() != strides.size()) fail("as many strides as sizes are needed");
  }
  void buffer(abi::PlanBuffer b) const {
    if (b >= plan_.buffers.size()) fail(fmt::format("buffer {} of {}", b, plan_.buffers.size()));
  }

  // A buffer of a step. Prepare steps do not run in every call: theirs must persist between calls.
  void used(abi::PlanBuffer b) const {
    buffer(b);
    if (prepares_) stays(b);
  }
  void stays(abi::PlanBuffer b) const {
    for (std::size_t hops = 0; plan_.buffers[b].kind == BufferDecl::Kind::alias; ++hops) {
      if (hops > plan_.buffers.size()) fail("aliases in a circle");
      b = plan_.buffers[b].index;
    }
    const BufferDecl& decl = plan_.buffers[b];
    const bool is_parameter =
        decl.kind == BufferDecl::Kind::argument && plan_.arguments[decl.index].is_parameter;
    if (!is_parameter && decl.kind != BufferDecl::Kind::constant &&
        decl.kind != BufferDecl::Kind::prepared) {
      fail(fmt::format("a prepare step uses {}, which changes from call to call", decl.name));
    }
  }

  void buffer_declaration(const BufferDecl& b) {
    place_ = fmt::format("buffer {}", b.name);
    geometry(b.sizes, b.strides);
    slot(b.bytes);
    switch (b.kind) {
      case BufferDecl::Kind::argument:
        if (b.index >= plan_.arguments.size() || plan_.arguments[b.index].is_integer) {
          fail("no such tensor argument");
        }
        break;
      case BufferDecl::Kind::constant:
        if (b.index >= plan_.constants.size()) fail("no such constant");
        break;
      case BufferDecl::Kind::alias:
        buffer(b.index);
        break;
      case BufferDecl::Kind::arena:
        if (b.first_use > b.last_use) fail("its last use is before its first use");
        break;
      case BufferDecl::Kind::output:
      case BufferDecl::Kind::external:
      case BufferDecl::Kind::prepared:
      case BufferDecl::Kind::formal:
        break;
    }
  }

  void check_steps(const std::vector<abi::PlanStep>& steps, std::string_view what) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      place_ = fmt::format("{} {}", what, i);
      const abi::PlanStep& step = steps[i];
      prepares_ = step.prepare;
      if (prepares_ && first_region_ > 0) fail("a region has no prepare steps");
      if (prepares_ && !std::holds_alternative<abi::Launch>(step.action) &&
          !std::holds_alternative<abi::LibraryCall>(step.action)) {
        fail("only launches and library calls can be prepare steps");
      }
      if (step.bytes) slot(*step.bytes);
      if (step.flops) slot(*step.flops);
      std::visit([this](const auto& action) { check(action); }, step.action);
    }
  }

  // A region names later ones only, so there is no recursion.
  void region(std::uint32_t r) const {
    if (r >= plan_.regions.size() || r < first_region_) {
      fail(fmt::format("region {} of {} to {}", r, first_region_, plan_.regions.size()));
    }
  }
  void check(const abi::Branch& b) const {
    slot(b.condition);
    region(b.then_region);
    region(b.else_region);
  }
  void check(const abi::Loop& l) const {
    slot(l.trips);
    region(l.body);
  }
  void check(const abi::RegionCall& c) const {
    region(c.region);
    if (c.formals.size() != c.actuals.size()) fail("as many formal as actual buffers are needed");
    for (std::size_t i = 0; i < c.formals.size(); ++i) {
      buffer(c.formals[i]);
      buffer(c.actuals[i]);
      const BufferDecl& formal = plan_.buffers[c.formals[i]];
      const BufferDecl& actual = plan_.buffers[c.actuals[i]];
      if (formal.kind != BufferDecl::Kind::formal) {
        fail(fmt::format("{} is not a formal buffer", formal.name));
      }
      if (formal.dtype != actual.dtype || formal.sizes.size() != actual.sizes.size()) {
        fail(fmt::format("{} is of another rank or dtype than {}", actual.name, formal.name));
      }
    }
  }

  void check(const abi::Launch& l) const {
    if (l.kernel >= plan_.kernels.size()) fail("no such kernel");
    for (const abi::PlanBuffer b : l.buffers) used(b);
    slots(l.sizes);
    slots(l.extents);
    if (l.buffers.size() % l.instances() != 0 || l.sizes.size() % l.instances() != 0) {
      fail("a table of instances with different numbers of parameters");
    }
    const auto& device = plan_.kernels[l.kernel].device;
    if (!l.maps.empty() && (!device || l.instances() > 1)) {
      fail("tensor maps of a kernel that takes none");
    }
    if (device && device->co_resident && (device->waits || device->cluster_blocks != 1)) {
      fail("blocks that wait for each other, in clusters or before earlier kernels have ended");
    }
    for (const abi::TensorMap& m : l.maps) map(m);
    slot(l.extent);
    slot(l.grain);
    slot(l.scratch_bytes);
  }
  void map(const abi::TensorMap& m) const {
    used(m.buffer);
    geometry(m.sizes, m.strides);
    if (m.sizes.empty() || m.sizes.size() > 5 || m.box.size() != m.sizes.size()) {
      fail("a tensor map needs 1 to 5 dimensions and a box of the same rank");
    }
    if (m.swizzle != 0 && m.swizzle != 32 && m.swizzle != 64 && m.swizzle != 128) {
      fail(fmt::format("a swizzle of {} bytes", m.swizzle));
    }
  }
  void operand(const abi::Operand& o) const {
    used(o.buffer);
    slot(o.offset);
    geometry(o.sizes, o.strides);
  }
  void bias(const abi::Operand& o) const {
    operand(o);
    if (o.sizes.size() != 1) fail("a bias that is no vector");
  }
  void post_ops(const std::vector<abi::PostOp>& all, std::size_t rank) const {
    for (const abi::PostOp& p : all) {
      if (p.kind != abi::PostOpKind::add && p.kind != abi::PostOpKind::mul) continue;
      operand(p.operand);
      if (p.operand.sizes.size() > rank) fail("a post-op with an operand of too large a rank");
    }
  }
  void check(const abi::LibraryCall& call) const {
    std::visit([this](const auto& c) { check(c); }, call);
  }
  void check(const abi::MatmulCall& m) const {
    operand(m.a);
    operand(m.b);
    operand(m.c);
    const std::size_t rank = m.c.sizes.size();
    if (rank < 2 || m.a.sizes.size() != rank || m.b.sizes.size() != rank) {
      fail("a matrix product of operands of unequal ranks");
    }
    if (m.has_bias) bias(m.bias);
    post_ops(m.post_ops, rank);
  }
  void check(const abi::ConvolutionCall& c) const {
    operand(c.x);
    operand(c.w);
    operand(c.y);
    const std::size_t rank = c.y.sizes.size();
    if (rank < 3 || rank > 5 || c.x.sizes.size() != rank || c.w.sizes.size() != rank) {
      fail("a convolution of operands of unequal ranks");
    }
    const std::size_t spatial = rank - 2;
    if (c.stride.size() != spatial || c.padding.size() > spatial || c.dilation.size() > spatial ||
        c.output_padding.size() > spatial || c.groups < 1) {
      fail("a convolution whose stride, padding or dilation is of another rank");
    }
    if (c.has_bias) bias(c.bias);
    post_ops(c.post_ops, rank);
  }
  void check(const abi::AttentionCall& a) const {
    operand(a.q);
    operand(a.k);
    operand(a.v);
    operand(a.out);
    if (a.has_mask) operand(a.mask);
  }
  void check(const abi::EagerCall& e) const {
    for (const abi::EagerArgument& a : e.arguments) {
      if (a.kind == abi::EagerArgument::Kind::slot) {
        slot(a.index);
      } else {
        buffer(a.index);
        if (a.part) operand(*a.part);
      }
    }
    for (const abi::PlanBuffer b : e.results) {
      buffer(b);
      if (plan_.buffers[b].kind != BufferDecl::Kind::external) {
        fail("a result of an eager call that is not external");
      }
    }
  }
  void check(const abi::CopyStep& c) const {
    buffer(c.from);
    buffer(c.to);
    const BufferDecl& from = plan_.buffers[c.from];
    const BufferDecl& to = plan_.buffers[c.to];
    if (from.sizes.size() != to.sizes.size() || from.dtype != to.dtype) {
      fail("a copy between tensors of different rank or dtype");
    }
  }
  void check(const abi::PlanOutput& o) const {
    switch (o.kind) {
      case abi::PlanOutput::Kind::none:
        break;
      case abi::PlanOutput::Kind::integer:
        slot(o.index);
        break;
      case abi::PlanOutput::Kind::argument:
        if (o.index >= plan_.arguments.size() || plan_.arguments[o.index].is_integer) {
          fail("no such tensor argument");
        }
        break;
      case abi::PlanOutput::Kind::buffer:
        buffer(o.index);
        geometry(o.sizes, o.strides);
        slot(o.offset);
        break;
    }
  }

  const abi::Plan& plan_;
  std::string place_;
  bool prepares_ = false;         // the step at hand
  std::size_t first_region_ = 0;  // that the steps at hand may name
};

}  // namespace

void check_references(const abi::Plan& plan) { Checker(plan).run(); }

void refuse_nested(const abi::Plan& plan, const abi::PlanStep& step) {
  if (abi::is_nested(step)) unsupported("plan {}: a branch, loop or region is not run", plan.name);
}

void check_code(const abi::Plan& plan, const abi::Code& code) {
  if (code.functions.size() != plan.kernels.size()) {
    user_error("plan {}: code of {} kernels, {} are needed", plan.name, code.functions.size(),
               plan.kernels.size());
  }
  if (code.constants.size() != plan.constants.size()) {
    user_error("plan {}: {} constants, {} are needed", plan.name, code.constants.size(),
               plan.constants.size());
  }
  for (std::size_t i = 0; i < plan.constants.size(); ++i) {
    if (code.constants[i].data.size() == bytes_of(plan.constants[i])) continue;
    user_error("plan {}: constant {} has {} bytes, {} are needed", plan.name, i,
               code.constants[i].data.size(), bytes_of(plan.constants[i]).value_or(0));
  }
}

}  // namespace inkle::runtime::common
