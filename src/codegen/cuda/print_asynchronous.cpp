#include "codegen/cuda/print_asynchronous.h"

#include <algorithm>

#include "base/error.h"
#include "kernel/fragment.h"
#include "kernel/lanes.h"

namespace inkle::codegen::cuda {

using kernel::Access;
using kernel::FragmentAccess;
using kernel::FragmentType;
using kernel::Op;
using kernel::Operation;
using kernel::OperationId;
using kernel::ValueId;

AsynchronousPrinter::AsynchronousPrinter(const kernel::Kernel& kernel, ValueText& text,
                                         const MemoryText& memory, Writer& out)
    : kernel_(kernel), text_(text), memory_(memory), out_(out) {
  if (kernel.fragments.empty()) return;
  // A fragment that is updated in place twice, or read after an update, needs a copy.
  std::vector<int> taken(kernel.values.size(), 0);
  uses_.resize(kernel.values.size(), 0);
  for (const Operation& op : kernel.operations) {
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      const ValueId v = op.operands[i];
      if (!is_fragment(v)) continue;
      ++uses_[v];
      if (op.op == Op::loop || (op.op == Op::mma && i == 0)) ++taken[v];
    }
  }
  for (ValueId v = 0; v < kernel.values.size(); ++v) {
    INKLE_CHECK(taken[v] == 0 || uses_[v] == 1,
                "kernel {}: a fragment that is used again after it was added to", kernel.name);
  }
}

bool AsynchronousPrinter::print(OperationId o) {
  const Operation& op = kernel_.operations[o];
  const auto count = [&] { return std::get<kernel::Count>(op.detail).count; };
  const auto barrier = [&] { return barrier_of(std::get<kernel::Count>(op.detail).access); };
  switch (op.op) {
    case Op::barrier_init:
      out_.line("init_barrier({}, {});", barrier(), count());
      return true;
    case Op::barrier_arrive:
      if (count() > 0)
        out_.line("arrive_expecting({}, {});", barrier(), count());
      else
        out_.line("arrive({});", barrier());
      return true;
    case Op::barrier_wait:
      out_.line("wait_barrier({}, (u32){});", barrier(), text_.of(op.operands.back()));
      return true;
    case Op::tma_load:
    case Op::tma_store:
      bulk(op);
      return true;
    case Op::bulk_commit:
      out_.put("commit_boxes();");
      return true;
    case Op::bulk_wait:
      out_.line("wait_for_boxes<{}>();", count());
      return true;
    case Op::fragment_fill:
      fill(op);
      return true;
    case Op::fragment_load:
      load(op);
      return true;
    case Op::mma:
      multiply(op);
      return true;
    case Op::mma_fence:
      out_.put("begin_multiplications();");
      return true;
    case Op::mma_commit:
      out_.put("commit_multiplications();");
      return true;
    case Op::mma_wait:
      wait_for_multiplications(count());
      return true;
    case Op::launch_dependents:
      out_.put("asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");");
      return true;
    default:
      return false;
  }
}

std::string AsynchronousPrinter::barrier_of(const Access& access) {
  return "&" + memory_.element(access);
}

void AsynchronousPrinter::bulk(const Operation& op) {
  const auto& detail = std::get<kernel::Bulk>(op.detail);
  const kernel::Memory& map = kernel_.memories[detail.map];
  std::string coordinates;  // the innermost first
  for (std::size_t d = map.shape.size(); d-- > 0;) {
    append(coordinates, {", (int)", text_.of(op.operands[d])});
  }
  const std::string place = memory_.address(detail.shared);
  if (op.op == Op::tma_load) {
    out_.line("load_box({}, {}, {}{});", place, memory_.name(detail.map),
              barrier_of(detail.barrier), coordinates);
  } else {
    out_.line("store_box({}, {}{});", memory_.name(detail.map), place, coordinates);
  }
}

// --- Fragments -------------------------------------------------------------------------------

void AsynchronousPrinter::declare(ValueId fragment) {
  const FragmentType& type = fragment_type(fragment);
  out_.line("{} {}[{}];", type_of(type.dtype), text_.variable(fragment), kernel::elements_of(type));
}

void AsynchronousPrinter::fill(const Operation& op) {
  const ValueId v = op.results[0];
  declare(v);
  out_.put("#pragma unroll");
  out_.line("for (int e = 0; e < {0}; ++e) {1}[e] = {2};", kernel::elements_of(fragment_type(v)),
            text_.variable(v), text_.of(op.operands[0]));
  out_.line("hold({});", text_.variable(v));
}

// Whether contiguous elements have the same k (MN-major, not K-major).
static bool is_across(const FragmentAccess& tile, bool is_right) {
  return (is_right ? tile.column_stride : tile.row_stride).is_constant(1);
}

// The descriptor of a tile in shared memory (PTX, "Matrix descriptor"): of rows of `swizzle` bytes,
// eight of which are an atom. In MN-major tiles the leading offset is the distance between panels
// of such rows.
std::string AsynchronousPrinter::matrix(const FragmentAccess& tile, bool is_right) {
  const kernel::Memory& memory = kernel_.memories[tile.access.memory];
  const std::int64_t bytes = kernel::element_bytes(memory);
  const bool across = is_across(tile, is_right);
  const auto row = (across == is_right ? tile.row_stride : tile.column_stride).constant();
  INKLE_CHECK(row && *row * bytes == memory.swizzle, "kernel {}: a tile of {} in rows of others",
              kernel_.name, memory.name);
  const std::int32_t extent = is_right ? tile.columns : tile.rows;
  const std::int32_t panel = tile.panel == 0 ? extent : tile.panel;
  INKLE_CHECK(!across || panel == *row || (panel == extent && panel < *row),
              "kernel {}: a tile of {} in panels of others", kernel_.name, memory.name);
  const std::int64_t leading = panel < extent ? tile.panel_stride * bytes : 16;
  const int layout = memory.swizzle == 128 ? 1 : memory.swizzle == 64 ? 2 : 3;
  return fmt::format("matrix<{}, {}, {}>({})", leading, memory.swizzle * 8, layout,
                     memory_.address(tile.access));
}

// 64 rows by 16 terms of a swizzled tile, by ldmatrix.
void AsynchronousPrinter::load(const Operation& op) {
  const auto& tile = std::get<FragmentAccess>(op.detail);
  const ValueId v = op.results[0];
  const FragmentType& type = fragment_type(v);
  const kernel::Memory& memory = kernel_.memories[tile.access.memory];
  const bool across = is_across(tile, false);
  const auto stride = (across ? tile.column_stride : tile.row_stride).constant();
  INKLE_CHECK(type.layout == kernel::FragmentLayout::wgmma_c && type.columns == 16 &&
                  kernel::element_bytes(memory) == 2 && memory.space == kernel::Space::shared &&
                  tile.row_limit.is_null() && tile.column_limit.is_null() && stride &&
                  (across || tile.column_stride.is_constant(1)),
              "kernel {}: no text of CUDA for this load of a fragment", kernel_.name);
  declare(v);
  out_.line("load_matrix<{}, {}, {}>({}, {});", across ? 1 : 0, *stride, memory.swizzle,
            text_.variable(v), memory_.address(tile.access));
}

void AsynchronousPrinter::multiply(const Operation& op) {
  const auto& detail = std::get<kernel::MatrixMultiply>(op.detail);
  INKLE_CHECK(detail.unit == kernel::MatrixUnit::wgmma && !detail.shared.empty(),
              "kernel {}: no text of CUDA for products of this unit", kernel_.name);
  text_.alias(op.results[0], op.operands[0]);
  const ShortText sums = text_.variable(op.results[0]);
  const std::int32_t columns = fragment_type(op.results[0]).columns;
  const FragmentAccess& b = detail.shared.back();
  const int transposes_b = is_across(b, true) ? 1 : 0;
  if (detail.shared.size() == 2) {
    const FragmentAccess& a = detail.shared[0];
    out_.line("multiply_{}<{}, {}>({}, {}, {});", columns, is_across(a, false) ? 1 : 0,
              transposes_b, sums, matrix(a, false), matrix(b, true));
  } else {
    out_.line("multiply_{}<{}>({}, {}, {});", columns, transposes_b, sums,
              text_.variable(op.operands[1]), matrix(b, true));
  }
  if (std::ranges::find(under_way_, sums) == under_way_.end()) under_way_.push_back(sums);
}

void AsynchronousPrinter::wait_for_multiplications(std::int64_t count) {
  out_.line("wait_for_multiplications<{}>();", count);
  if (count > 0) return;
  for (const ShortText& sums : under_way_) out_.line("hold({});", sums);
  under_way_.clear();
}

void AsynchronousPrinter::open_map(const Operation& op) {
  const auto& detail = std::get<kernel::FragmentMap>(op.detail);
  const FragmentType& type = fragment_type(op.operands[0]);
  INKLE_CHECK(type.layout == kernel::FragmentLayout::wgmma_c,
              "kernel {}: no text of CUDA for a fragment of layout {}", kernel_.name,
              name_of(type.layout));
  for (std::size_t i = 0; i < op.results.size(); ++i) {
    const ValueId v = op.results[i];
    // In place, where the old value has no other use.
    const bool in_place = i < op.operands.size() && uses_[op.operands[i]] == 1 &&
                          fragment_type(op.operands[i]) == fragment_type(v);
    if (in_place)
      text_.alias(v, op.operands[i]);
    else
      declare(v);
  }
  const int n = maps_++;
  out_.put("#pragma unroll");
  const ShortText e = numbered('e', n);
  out_.open("for (int ", e, " = 0; ", e, " < ", digits(kernel::elements_of(type)), "; ++", e, ")");
  // As fragment_element (kernel/fragment.h) says it.
  out_.line(
      "const int r{0} = (int)(threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4) + e{0} / 2 % 2 * "
      "8;",
      n);
  out_.line("const int q{0} = (int)(threadIdx.x % 4 * 2) + (e{0} % 2 + e{0} / 4 * 8);", n);
  text_.define(detail.row, numbered('r', n), false);
  text_.define(detail.column, numbered('q', n), false);
  const kernel::Region& region = kernel_.regions[op.regions[0]];
  for (std::size_t i = 0; i < region.arguments.size(); ++i) {
    const ValueId v = region.arguments[i];
    out_.line("const {} {} = {}[e{}];", text_.type(v), text_.variable(v),
              text_.variable(op.operands[i]), n);
  }
  open_maps_.push_back(n);
}

void AsynchronousPrinter::close_map(const Operation& op) {
  const kernel::Region& region = kernel_.regions[op.regions[0]];
  for (std::size_t i = 0; i < op.results.size(); ++i) {
    out_.line("{}[e{}] = {};", text_.variable(op.results[i]), open_maps_.back(),
              text_.of(region.yields[i]));
  }
  open_maps_.pop_back();
  out_.close();
}

// --- Helpers -----------------------------------------------------------------------------------

namespace {

constexpr const char* kHelpers = R"(
struct alignas(64) TensorMap { char bytes[128]; };
INLINE u32 shared_place(const void* p) { return (u32)__cvta_generic_to_shared(p); }
// The number of this thread's warp, which the compiler then knows to be one for all its lanes.
INLINE int uniform_warp() { return __shfl_sync(0xffffffffu, (int)(threadIdx.x / 32), 0); }
template <int Registers> INLINE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers> INLINE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
INLINE void init_barrier(i64* b, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_place(b)), "r"(count)
               : "memory");
}
INLINE void arrive(i64* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_place(b)) : "memory");
}
INLINE void arrive_expecting(i64* b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_place(b)),
               "r"(bytes)
               : "memory");
}
INLINE void wait_barrier(i64* b, u32 parity) {
  const u32 at = shared_place(b);
  u32 done;
  do {
    asm volatile("{\n.reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(at), "r"(parity)
                 : "memory");
  } while (done == 0);
}
// Boxes of tensors, coordinates of the innermost dimension first.
INLINE void load_box(void* to, const TensorMap& map, i64* b, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%3, %4}], [%2];" ::"r"(shared_place(to)), "l"(&map),
               "r"(shared_place(b)), "r"(x), "r"(y)
               : "memory");
}
INLINE void load_box(void* to, const TensorMap& map, i64* b, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_place(to)), "l"(&map),
               "r"(shared_place(b)), "r"(x), "r"(y), "r"(z)
               : "memory");
}
INLINE void store_box(const TensorMap& map, const void* from, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
                   &map),
               "r"(shared_place(from)), "r"(x), "r"(y)
               : "memory");
}
INLINE void store_box(const TensorMap& map, const void* from, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::
                   "l"(&map),
               "r"(shared_place(from)), "r"(x), "r"(y), "r"(z)
               : "memory");
}
INLINE void commit_boxes() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int Groups> INLINE void wait_for_boxes() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Groups) : "memory");
}
// Nothing passes this line that reads or writes the elements.
template <int N> INLINE void hold(float (&v)[N]) {
#pragma unroll
  for (int e = 0; e < N; ++e) asm volatile("" : "+f"(v[e])::"memory");
}
INLINE void begin_multiplications() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void commit_multiplications() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int Groups> INLINE void wait_for_multiplications() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Groups) : "memory");
}
// 64 rows by 16 terms, of which each warp has 16 rows, as operand a; across: of one term, rows follow
// each other.
template <int Across, int Stride, int Swizzle> INLINE void load_matrix(bf16 (&v)[8],
                                                                       const bf16* p) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16;
  p += Across ? row + lane / 8 % 2 * 8 + (lane % 8 + lane / 16 * 8) * Stride
              : (row + lane % 16) * Stride + lane / 16 * 8;
  u32 at = shared_place(p), w[4];
  if (Swizzle > 0) at ^= ((at >> 7) & (Swizzle / 16 - 1)) << 4;
  if (Across)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "r"(at)
                 : "memory");
#pragma unroll
  for (int e = 0; e < 8; ++e) v[e].bits = (unsigned short)(w[e / 2] >> e % 2 * 16);
}
INLINE u32 pair(bf16 low, bf16 high) { return (u32)low.bits | (u32)high.bits << 16; }
template <int Leading, int Stride, int Layout> INLINE u64 matrix(const void* at) {
  return (u64)((shared_place(at) & 0x3ffff) >> 4) | (u64)(Leading >> 4) << 16 |
         (u64)(Stride >> 4) << 32 | (u64)Layout << 62;
}
)";

// v += a * b, 64 rows by so many columns by 16 terms; transposed: elements of one term are
// contiguous (MN-major).
std::string multiply_helper(std::int32_t columns, DType dtype) {
  const int elements = columns / 2;
  std::string names, operands;
  for (int e = 0; e < elements; ++e) {
    names += fmt::format("{}%{}", e == 0 ? "" : ", ", e);
    operands += fmt::format("{}\"+f\"(v[{}])", e == 0 ? "" : ", ", e);
  }
  const std::string_view type = dtype == DType::f16 ? "f16" : "bf16";
  return fmt::format(
      "template <int A, int B> INLINE void multiply_{0}(float (&v)[{1}], u64 a, u64 b) {{\n"
      "  asm volatile(\"wgmma.mma_async.sync.aligned.m64n{0}k16.f32.{2}.{2} {{{3}}}, %{4}, %{5}, "
      "1, 1, 1, %{6}, %{7};\"\n      : {8}\n      : \"l\"(a), \"l\"(b), \"n\"(A), \"n\"(B));\n}}\n",
      columns, elements, type, names, elements, elements + 1, elements + 2, elements + 3, operands);
}

// The same with a in registers; ptxas needs a fence before each wgmma.
std::string multiply_registers_helper(std::int32_t columns) {
  const int elements = columns / 2;
  std::string names, operands;
  for (int e = 0; e < elements; ++e) {
    names += fmt::format("{}%{}", e == 0 ? "" : ", ", e);
    operands += fmt::format("{}\"+f\"(v[{}])", e == 0 ? "" : ", ", e);
  }
  return fmt::format(
      "template <int B> INLINE void multiply_{0}(float (&v)[{1}], const bf16 (&a)[8], u64 b) {{\n"
      "  asm volatile(\"wgmma.fence.sync.aligned;\\n\"\n"
      "      \"wgmma.mma_async.sync.aligned.m64n{0}k16.f32.bf16.bf16 {{{2}}}, {{%{3}, %{4}, %{5}, "
      "%{6}}}, %{7}, 1, 1, 1, %{8};\"\n      : {9}\n      : \"r\"(pair(a[0], a[1])), "
      "\"r\"(pair(a[2], a[3])), \"r\"(pair(a[4], a[5])), \"r\"(pair(a[6], a[7])), \"l\"(b), "
      "\"n\"(B) : \"memory\");\n}}\n",
      columns, elements, names, elements, elements + 1, elements + 2, elements + 3, elements + 4,
      elements + 5, operands);
}

bool is_asynchronous(Op op) {
  switch (op) {
    case Op::roles:
    case Op::barrier_init:
    case Op::tma_load:
    case Op::tma_store:
    case Op::mma:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::vector<std::string> asynchronous_helpers(const kernel::Kernel& kernel) {
  std::vector<std::string> helpers;
  const auto add = [&](std::string text) {
    if (std::ranges::find(helpers, text) == helpers.end()) helpers.push_back(std::move(text));
  };
  for (const Operation& op : kernel.operations) {
    if (!is_asynchronous(op.op)) continue;
    add(kHelpers);
    if (op.op != Op::mma) continue;
    const auto& detail = std::get<kernel::MatrixMultiply>(op.detail);
    if (detail.shared.empty()) continue;
    const FragmentType& type = kernel.fragments[kernel.type_of(op.results[0]).fragment];
    const DType dtype = kernel.memories[detail.shared[0].access.memory].dtype;
    if (detail.shared.size() == 2) {
      add(multiply_helper(type.columns, dtype));
      continue;
    }
    INKLE_CHECK(dtype == DType::bf16, "kernel {}: an operand in registers of {}", kernel.name,
                abi::name_of(dtype));
    add(multiply_registers_helper(type.columns));
  }
  return helpers;
}

}  // namespace inkle::codegen::cuda
