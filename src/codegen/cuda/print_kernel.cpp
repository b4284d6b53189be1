#include "codegen/cuda/print_kernel.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "codegen/cuda/print_region.h"
#include "codegen/cuda/restrict.h"

namespace inkle::codegen::cuda {

using kernel::AxisKind;
using kernel::Memory;
using kernel::MemoryId;
using kernel::Space;
using sym::Expr;

namespace {

// Static shared memory that every architecture gives a block, in bytes.
constexpr std::int64_t kStaticShared = 48 << 10;
// Of each memory in the workspace.
constexpr std::int64_t kWorkspaceAlignment = 16;

// Of most texts, so that they need not grow.
constexpr std::size_t kBytes = 1024;
constexpr std::size_t kBytesOfOperation = 64;

class KernelPrinter {
 public:
  KernelPrinter(const kernel::Kernel& kernel, sym::Context& context)
      : k_(kernel),
        context_(context),
        restrict_(restrict_parameters(kernel)),
        plan_(kernel),
        text_(kernel, plan_),
        memory_(kernel, text_) {}

  KernelSource run(const std::string& name, const std::string& note) {
    if (!k_.sources.empty()) out_.line("// {}", fmt::join(k_.sources, ", "));
    out_.put("// ", note);
    begin(name);
    sizes();
    blocks();
    threads();
    memories();
    RegionPrinter region(k_, plan_, text_, memory_, out_);
    region.body();
    out_.close();
    return {out_.take(), region.can_fail(), dynamic_shared_,
            workspace_ * std::int64_t{k_.launch.instances}, asynchronous_helpers(k_)};
  }

 private:
  ShortText pointer_type(MemoryId m) const {
    const Memory& memory = k_.memories[m];
    return {memory.role == kernel::Role::in ? "const " : "", type_of(memory.dtype), "*"};
  }
  ShortText parameter(MemoryId m) const {
    return {pointer_type(m), restrict_[m] ? " __restrict__ " : " ", memory_.name(m)};
  }

  bool is_map(MemoryId m) const { return k_.memories[m].space == Space::map; }
  bool has_roles() const {
    return std::ranges::find(k_.operations, kernel::Op::roles, &kernel::Operation::op) !=
           k_.operations.end();
  }
  bool is_table() const { return k_.launch.instances > 1; }

  void begin(const std::string& name) {
    if (is_table()) declare_table(name);
    const std::int64_t cluster = k_.cluster();
    out_.begin("extern \"C\" __global__ void ");
    if (cluster > 1) out_.add("__cluster_dims__(", digits(cluster), ", 1, 1) ");
    out_.add("__launch_bounds__(", digits(k_.threads()));
    if (k_.launch.resident_blocks > 0) out_.add(", ", digits(k_.launch.resident_blocks));
    out_.add(") ", name, "(");
    if (is_table()) {
      out_.add("const __grid_constant__ Table_", name, " table, ");
    } else {
      parameters();
    }
    if (has_workspace()) out_.add("char* workspace, ");
    out_.end_open("u32* status) {");
    if (is_table()) find_instance();
  }

  void parameters() {
    for (MemoryId m = 0; m < k_.parameter_count; ++m) {
      if (!is_map(m)) out_.add(parameter(m), ", ");
    }
    for (std::size_t s = 0; s < k_.sizes.size(); ++s) out_.add("i64 ", numbered('n', s), ", ");
    for (MemoryId m = 0; m < k_.parameter_count; ++m) {
      if (is_map(m)) out_.add("const __grid_constant__ TensorMap ", memory_.name(m), ", ");
    }
  }

  // The structure of a table, as abi/plan.h says it.
  void declare_table(const std::string& name) {
    const auto instances = k_.launch.instances;
    out_.open("struct Table_", name);
    out_.line("void* p[{}];", std::int64_t{instances} * k_.parameter_count);
    if (!k_.sizes.empty()) {
      out_.line("i64 n[{}];", instances * static_cast<std::int64_t>(k_.sizes.size()));
    }
    out_.line("u32 first[{}];", instances + 1);
    out_.close(";");
  }

  // The instance of this block, and its index in that instance.
  void find_instance() {
    const auto instances = k_.launch.instances;
    out_.line("int at = 0;");
    out_.line("for (int step = {}; step > 0; step /= 2) {{",
              std::bit_floor(static_cast<std::uint32_t>(instances)));
    out_.line("  if (at + step < {} && table.first[at + step] <= blockIdx.x) at += step;",
              instances);
    out_.put("}");
    out_.put("const u32 block = blockIdx.x - table.first[at];");
    for (MemoryId m = 0; m < k_.parameter_count; ++m) {
      out_.line("{} = ({})table.p[at * {} + {}];", parameter(m), pointer_type(m),
                k_.parameter_count, m);
    }
    for (std::size_t s = 0; s < k_.sizes.size(); ++s) {
      out_.line("const i64 n{} = table.n[at * {} + {}];", s, k_.sizes.size(), s);
    }
  }

  void sizes() {
    for (std::size_t s = 0; s < k_.sizes.size(); ++s) {
      const bool wide = !text_.fits32(k_.sizes[s]);
      const ShortText passed = numbered('n', s);
      const ShortText name = wide ? passed : numbered('s', s);
      if (!wide) out_.put("const int ", name, " = (int)", passed, ";");
      text_.define(k_.sizes[s], name, wide);
    }
  }

  // The block's index split into indices along the grid's axes, the last one fastest, and its rank.
  void blocks() {
    std::vector<const kernel::Axis*> grid;
    for (const kernel::Axis& axis : k_.launch.axes) {
      if (axis.kind == AxisKind::grid) grid.push_back(&axis);
      if (axis.kind == AxisKind::cluster) {
        out_.put("const int rank = cluster_rank();");
        text_.define(axis.variable, {"rank"}, false);
      }
    }
    ShortText rest{is_table() ? "block" : "blockIdx.x"};
    if (k_.cluster() > 1) rest = {"(", rest, " / ", digits(k_.cluster()), ")"};
    for (std::size_t d = grid.size(); d-- > 0;) {
      const Expr variable = grid[d]->variable;
      const bool wide = !text_.fits32(variable);
      const ShortText name = numbered('g', d);
      const std::string_view type = wide ? "i64" : "int";
      if (d == 0) {
        out_.put("const ", type, " ", name, " = (", type, ")", rest, ";");
      } else {
        const std::string extent = text_.index(grid[d]->extent, false);
        const ShortText above = numbered('b', d);
        out_.put("const u32 ", above, " = ", rest, " / (u32)(", extent, ");");
        out_.put("const ", type, " ", name, " = (", type, ")(", rest, " % (u32)(", extent, "));");
        rest = above;
      }
      text_.define(variable, name, wide);
    }
  }

  void threads() {
    std::int64_t inner = k_.threads();
    bool first = true;
    const bool by_roles = has_roles();
    if (by_roles) out_.put("const int warp = uniform_warp();");
    const kernel::Axis* outer = nullptr;
    Expr joint;  // the number of the thread along the axes so far
    for (std::size_t a = 0; a < k_.launch.axes.size(); ++a) {
      const kernel::Axis& axis = k_.launch.axes[a];
      if (axis.kind != AxisKind::thread) continue;
      const std::int64_t extent = *axis.extent.constant();
      inner /= extent;
      const bool of_warps = by_roles && inner % 32 == 0;
      const std::int64_t each = of_warps ? inner / 32 : inner;
      const ShortText name = numbered('t', a);
      out_.begin("const int ", name, of_warps ? " = warp" : " = threadIdx.x");
      if (each > 1) out_.add(" / ", digits(each));
      if (!first) out_.add(" % ", digits(extent));
      out_.end(";");
      first = false;
      text_.define(axis.variable, name, false);
      if (of_warps) continue;
      if (outer != nullptr) {
        const Expr both = context_.index(context_.constant(k_.threads() / inner));
        text_.define(both,
                     inner > 1 ? ShortText{"(int)(threadIdx.x / ", digits(inner), ")"}
                               : ShortText{"(int)threadIdx.x"},
                     false);
        text_.join(joint, axis.variable, extent, both);
        joint = both;
      } else {
        joint = axis.variable;
      }
      outer = &axis;
    }
  }

  // Shared memory beyond the static limit is one dynamic array that all memories are laid out in.
  void memories() {
    const bool is_dynamic = shared_bytes() > kStaticShared;
    const std::int64_t alignment = shared_alignment();
    const std::string shared = alignment > 16 ? fmt::format("shared_{}", alignment) : "shared";
    if (is_dynamic) {
      out_.line("{}extern __shared__ uint4 {}[];",
                alignment > 16 ? fmt::format("alignas({}) ", alignment) : "", shared);
    }
    for (MemoryId m = k_.parameter_count; m < k_.memories.size(); ++m) {
      const Memory& memory = k_.memories[m];
      const ShortText name = memory_.name(m);
      const std::string_view type = type_of(memory.dtype);
      if (memory.space == Space::workspace) {
        out_.line("{0}* const {1} = ({0}*)({2});", type, name, take_workspace(memory));
        continue;
      }
      const auto elements = kernel::element_count(memory).constant();
      if (!elements) unsupported("kernel {}: {} needs a constant size", k_.name, memory.name);
      switch (memory.space) {
        case Space::registers:
        case Space::stack:
          if (const int lanes = memory_.pack_lanes(m); lanes != 0) {
            out_.put("Pack<", type, ", ", digits(lanes), "> ", name, "[", digits(*elements / lanes),
                     "];");
          } else {
            out_.put(type, " ", name, "[", digits(*elements), "];");
          }
          break;
        case Space::shared:
        case Space::barrier:
          if (memory.of != kernel::kNone) {
            out_.line("{0}* const {1} = ({0}*)((char*)({2}) + {3});", type, name,
                      memory_.name(memory.of), memory.offset);
            break;
          }
          if (is_dynamic) {
            dynamic_shared_ = round_up(dynamic_shared_, memory.alignment);
            out_.line("{0}* const {1} = ({0}*)((char*){2} + {3});", type, name, shared,
                      dynamic_shared_);
            dynamic_shared_ += shared_bytes(memory);
            break;
          }
          out_.put("__shared__ alignas(", digits(std::max(16, memory.alignment)), ") ", type, " ",
                   name, "[", digits(*elements), "];");
          break;
        default:
          INKLE_CHECK(false, "kernel {}: no text of CUDA for memory in {}", k_.name,
                      name_of(memory.space));
      }
    }
  }

  static std::int64_t round_up(std::int64_t bytes, std::int64_t to) {
    return (bytes + to - 1) / to * to;
  }
  static bool has_place(const Memory& memory) {
    return (memory.space == Space::shared || memory.space == Space::barrier) &&
           memory.of == kernel::kNone;
  }
  [[nodiscard]] std::int64_t shared_alignment() const {
    std::int64_t most = 16;
    for (const Memory& memory : k_.memories) {
      if (has_place(memory)) most = std::max<std::int64_t>(most, memory.alignment);
    }
    return most;
  }

  // Its offset is a multiple of 16 bytes.
  static std::int64_t shared_bytes(const Memory& memory) {
    const std::int64_t bytes =
        kernel::element_count(memory).constant().value_or(0) * kernel::element_bytes(memory);
    return (bytes + 15) / 16 * 16;
  }
  [[nodiscard]] std::int64_t shared_bytes() const {
    std::int64_t all = 0;
    for (const Memory& memory : k_.memories) {
      if (has_place(memory)) all = round_up(all, memory.alignment) + shared_bytes(memory);
    }
    return all;
  }

  [[nodiscard]] bool has_workspace() const {
    return std::any_of(k_.memories.begin(), k_.memories.end(),
                       [](const Memory& memory) { return memory.space == Space::workspace; });
  }

  // Bytes of each instance of a table. They have sizes of their own, so it may have none.
  std::int64_t workspace_of_instance() const {
    Expr all = context_.constant(0);
    for (const Memory& memory : k_.memories) {
      if (memory.space == Space::workspace) all = all + workspace_of(memory);
    }
    const auto bytes = all.constant();
    if (!bytes) unsupported("kernel {}: a table needs workspaces of constant size", k_.name);
    return *bytes;
  }

  static Expr workspace_of(const Memory& memory) {
    const Expr bytes = kernel::element_count(memory) * kernel::element_bytes(memory);
    return sym::ceildiv(bytes, kWorkspaceAlignment) * kWorkspaceAlignment;
  }

  // The address of a memory in the workspace, behind those before it.
  std::string take_workspace(const Memory& memory) {
    std::string address = "workspace";
    if (!workspace_.is_constant(0))
      address += fmt::format(" + ({})", text_.index(workspace_, true));
    if (is_table()) address += fmt::format(" + at * {}", workspace_of_instance());
    workspace_ = workspace_ + workspace_of(memory);
    return address;
  }

  const kernel::Kernel& k_;
  sym::Context& context_;
  Expr workspace_ = context_.constant(0);  // bytes
  std::int64_t dynamic_shared_ = 0;        // bytes
  std::vector<bool> restrict_;             // of each parameter
  LanePlan plan_;
  ValueText text_;
  MemoryText memory_;
  Writer out_{kBytes + kBytesOfOperation * k_.operations.size()};
};

}  // namespace

KernelSource print_kernel(const kernel::Kernel& kernel, const std::string& name,
                          const std::string& note, sym::Context& context) {
  return KernelPrinter(kernel, context).run(name, note);
}

}  // namespace inkle::codegen::cuda
