// The table of devices. A figure that was measured says where, and on what.
#include "abi/targets.h"

#include <array>
#include <charconv>

#include "base/error.h"

namespace inkle::abi {
namespace {

constexpr std::int64_t kKilo = std::int64_t{1} << 10;
constexpr std::int64_t kMega = std::int64_t{1} << 20;

// --- Libraries -----------------------------------------------------------------------------------

// oneDNN: what it computes as eager does. Its leaky relu and clip drop NaN.
constexpr SetOf<PostOpKind> kOneDnnPostOps = {
    PostOpKind::relu,     PostOpKind::gelu_erf, PostOpKind::gelu_tanh, PostOpKind::tanh,
    PostOpKind::logistic, PostOpKind::swish,    PostOpKind::hardswish, PostOpKind::elu,
    PostOpKind::linear,   PostOpKind::abs,      PostOpKind::square,    PostOpKind::sqrt,
    PostOpKind::add,      PostOpKind::mul};

// Seven layers of 512 channels and 3 taps in groups of 384 products instead of 1536: see
// split_channels. Its fast transposed convolutions have no post-ops.
constexpr Libraries one_dnn(SetOf<DType> types) {
  return {.gemm = {.name = "oneDNN",
                   .types = types,
                   .f32_results = types,
                   .post_ops = kOneDnnPostOps,
                   .column_loops = {DType::f32}},
          .convolution = {.name = "oneDNN",
                          .types = types,
                          .post_ops = kOneDnnPostOps,
                          .own = types,
                          .transposed_with_post_ops = false,
                          .longest_sum = 384}};
}

constexpr SetOf<DType> kFloats = {DType::f16, DType::bf16, DType::f32, DType::f64};
constexpr SetOf<DType> kReducedFloats = {DType::f16, DType::bf16};

constexpr SetOf<DType> all_but_reduced_floats() {
  SetOf<DType> all;
  for (auto d = DType::boolean; d <= DType::opaque;
       d = static_cast<DType>(static_cast<std::uint8_t>(d) + 1)) {
    if (!kReducedFloats.has(d)) all = all.with(d);
  }
  return all;
}

constexpr SetOf<PostOpKind> kGpuPostOps = {PostOpKind::add, PostOpKind::relu,
                                           PostOpKind::gelu_tanh};

// cuBLASLt, whose tanh has fewer bits than f32; cuDNN, and attention, by the host. Fast algorithms
// want rows at multiples of 16 bytes and groups of 8 channels (pad_gemms, pad_channels).
// Products of bf16 run at four fifths of the datasheet's rate on an H200.
constexpr Libraries kCuda = {.gemm = {.name = "cuBLASLt",
                                      .types = kFloats,
                                      .f32_results = kReducedFloats,
                                      .post_ops = kGpuPostOps,
                                      .inexact_in_f32 = {PostOpKind::gelu_tanh},
                                      .fused = FusedWork::residual_activation,
                                      .needs_matrices = true,
                                      .row_bytes = 16,
                                      .least_row = 1024,
                                      .least_elements = std::int64_t{1} << 22,
                                      .reached = 0.8,
                                      .seconds_of_call = 2.5e-6,
                                      .template_types = {DType::bf16}},
                             .convolution = {.name = "cuDNN",
                                             .types = kFloats,
                                             .post_ops = kGpuPostOps,
                                             .fused = FusedWork::residual_activation,
                                             .own = kReducedFloats,
                                             .transposed_with_post_ops = false,
                                             .keeps_order = all_but_reduced_floats(),
                                             .weights_channels_last = true,
                                             .least_channels = 8},
                             .attention = {.name = "the host", .types = kFloats},
                             .keep_roundings = true,
                             .adds_before_rounding = true,
                             .eager_takes_parts = true};

// --- Processors ----------------------------------------------------------------------------------

// A fork and join takes some hundred nanoseconds, and the other core's cache has to be filled.
// Blocks of 2048 elements are 8 KB a stream. Sums of columns are chains of 64 terms in f32, and
// take 32 KB of the L2. Tasks of products keep their sums, rows and panels in 512 KB of
// it, and leave two threads enough of them; against the library they were measured on a Zen 4 with
// AVX-512 (bench/gemm.py). Packing keys for attention costs a tenth to a fifth of
// a block of 32 rows, from 128 on little; of its gradient two blocks of weights are live, and rows
// of up to 512 columns are one (256 KB), whose gradients are then as exact as those of a softmax.
constexpr LoopRules kLoops = {.thread_nanoseconds = 5000,
                              .elementwise = 2048,
                              .long_reduction = 1 << 16,
                              .part_rows = 64,
                              .part_sums = 8192,
                              .gemm_rows = 192,
                              .gemm_columns = 128,
                              .gemm_sums = 12,
                              .gemm_few_rows = 8,
                              .gemm_few_rows_gain = 0.1,
                              .gemm_joined_terms = 24,
                              .attention_rows = 128,
                              .gradient_rows = 64,
                              .gradient_columns = 128,
                              .whole_columns = 512};

// `split_saves`: softmax(x, 1) and x.mean(0) take 1.30 times as long apart where x has 3 MB, 1.36
// with 16 MB, 1.12 with 64 MB (Zen with AVX2, one thread); moments and a mean of 200 KB 0.89.
constexpr SplitRules kCpuSplit = {.least_rows = 16, .split_saves = kMega};

constexpr Target kAvx2 = {.row = "x86-64-v3",
                          .kind = DeviceKind::cpu,
                          .processor = "x86-64-v3",
                          .vector_bytes = 32,
                          .vector_registers = 16,
                          .loops = kLoops,
                          .split = kCpuSplit,
                          .libraries = one_dnn({DType::f32})};

constexpr Target with_avx512(std::string_view row, std::string_view own_feature, MatrixUnit unit) {
  Target t = kAvx2;
  t.row = row;
  t.processor = "x86-64-v4";
  if (unit == MatrixUnit::avx512_bf16) t.features = "+avx512bf16";
  if (unit == MatrixUnit::amx) t.features = "+amx-bf16,+amx-tile,+avx512bf16";
  t.own_feature = own_feature;
  t.matrix_unit = unit;
  t.vector_bytes = 64;
  t.vector_registers = 32;
  t.loops.gemm_sums = 24;
  t.libraries = one_dnn({DType::f32, DType::bf16});
  return t;
}

// --- GPUs ----------------------------------------------------------------------------------------

// Of an H200. Four accesses of a row keep every load of a block in flight, at 32 registers a
// thread.
// `own_block_accesses`: 32 blocks of a multiprocessor have enough on the way (layer norms of 16384
// rows of 768: 19.1 us, 20.4 with four warps; of sums of 1024: 31.5, 32.9; but with two accesses,
// softmax of 512: 65, 53).
// `searched_accesses`: 8192 columns of bf16 take 36.4 us with 2, 38.4 with 4, 38.8 with 8;
// remembering where each thread's maximum was: 39.3.
// `part_bytes`: a sum of 8192 x 8192 of bf16 takes 36.0 us with blocks of 32 KB, 38.2 with four a
// multiprocessor.
// `scan_threads`: with more, the wait for the last warp shows (rows of 8192: 3.36 TB/s with 1024,
// 3.55 with 512, 3.64 with 256).
// `sequential_sums`: of a thread that shares a row with its warp alone, which then waits for
// nobody, more, with what is kept of the row; eight warps' sums, half of them at a time, are joined
// in 24 KB. `tile_row`: x.t() + y of 8192 x 8192 of bf16 takes 99.5 us with 256 bytes, 101 with
// 128, and 103.5 with tiles of threads; where one operand is of f32, 107, 93.5 (of its bytes: 256)
// and 119. `bounded_threads`: up to 128 registers each make tiles in registers 1.28 times as fast,
// and columns in few blocks, all of which are resident anyway, 1.04 times. `large_tile_blocks`: one
// waits for its loads while the other stores. `bounded_sequential`: 120 to 128 registers do for 24
// elements of two sums each, with 56 bytes at most in memory; with 32 elements it would be 200 to
// 400 bytes. `bounded_chunk`: running sums of 16-bit elements are 8 to 11 per cent faster, since
// one block more is resident; of half as many elements the bound costs up to 17 per cent.
constexpr BlockRules kBlocks = {.measured_on = "H200",
                                .kept_accesses = 4,
                                .most_kept_accesses = 8,
                                .own_block_accesses = 3,
                                .read_accesses = 8,
                                .searched_accesses = 2,
                                .part_bytes = 32 * kKilo,
                                .part_accesses = 2,
                                .exchanged_bytes = 32 * kKilo,
                                .scan_threads = 256,
                                .few_rows = 4,
                                .least_chunks = 4,
                                .chunk_accesses = 4,
                                .most_chunk_accesses = 8,
                                .long_column = 128,
                                .few_columns = 8,
                                .column_threads = 512,
                                .column_streams = 6,
                                .sequential_sums = 32,
                                .sequential_elements = 16,
                                .sequential_of_warp = 96,
                                .sequential_warps = 8,
                                .sequential_threads = 1024,
                                .tile_accesses = 2,
                                .tile_row = 256,
                                .least_tile_row = 128,
                                .tile_bytes = 32 * kKilo,
                                .large_tiles = 4,
                                .large_tile_loads = 2,
                                .bounded_threads = 512,
                                .large_tile_blocks = 2,
                                .bounded_columns = 100,
                                .bounded_sequential = 24,
                                .bounded_chunk = 32,
                                .chunk_registers = 16};

// Parts' sums are written and read once more, which 16 rows make little; 24576 sums are 24
// registers of each of 1024 threads. `split_saves` is more than half of L2, from which less is read
// the second time; not measured on a card.
constexpr SplitRules kGpuSplit = {.part_of_row = 8192,
                                  .part_of_column = 32,
                                  .column_blocks = 4,
                                  .most_blocks = 16384,
                                  .least_rows = 16,
                                  .least_columns = 256,
                                  .split_sums = 24576,
                                  .split_threads = 512,
                                  .split_saves = 32 * kMega,
                                  .last_block_points = 32,
                                  .last_block_numbers = 16,
                                  .last_block_rows = 512,
                                  .last_block_cells = 32768,
                                  .last_block_shared = 40 * kKilo};

// Four stages of 128 x 256 take 192 of 227 KB. A multiprocessor multiplies 2048 pairs a cycle.
// Terms in parts and computed left operands were slower than the library and a kernel before it on
// an H100 (docs/templates.md), so there are none. Of epilogues that read an operand as large as the
// result, ping-pong tiles of 128 x 192 took 144 us where those of 128 x 128 took 105 us.
constexpr GemmRules kGemmRules = {.tiles = {{{128, 256, 4},
                                             {128, 192, 5},
                                             {128, 160, 5},
                                             {128, 128, 6},
                                             {128, 96, 6},
                                             {128, 64, 8},
                                             {128, 192, 5, true},
                                             {128, 160, 5, true},
                                             {128, 128, 6, true},
                                             {64, 256, 5, true},
                                             {64, 128, 8, true}}},
                                  .terms = 64,
                                  .group = 8,
                                  .multiplication = 4,
                                  .byte = 1.0 / 52,
                                  .tile = 900,
                                  .element = 0.1,
                                  .ping_pong_elements = 128 * 128};

constexpr FusionRules kFusion = {.row_threads = 1024,
                                 .long_row = 8192,
                                 .column_team = 8,
                                 .many_elements = 1 << 20,
                                 .kept_of_row = 32 * kKilo};

constexpr CacheRules kCaches = {.least_part = 3, .most_caches = 8, .written_part = 4};

// Parameters of a launch: every architecture from sm_70 on takes 32000 bytes.
constexpr Target kGpu = {.kind = DeviceKind::cuda,
                         .vector_bytes = 16,
                         .warp_size = 32,
                         .input_alignment = 16,
                         .has_blocks = true,
                         .block_threads = 1024,
                         .resident_threads = 2048,
                         .registers = 65536,
                         .table_bytes = 32000,
                         .scatters_at_once = true,
                         .launches_cost = true,
                         .blocks = kBlocks,
                         .split = kGpuSplit,
                         .fusion = kFusion,
                         .caches = kCaches,
                         .libraries = kCuda};

constexpr Target sm_80() {
  Target t = kGpu;
  t.row = "sm_80";
  t.card = "A100";
  t.matrix_unit = MatrixUnit::mma;
  t.parallelism = 108;
  t.l1_bytes = 163 * kKilo;
  t.shared_bytes = 164 * kKilo;
  t.l2_bytes = 40 * kMega;
  t.bytes_per_second = 1.8e12;
  t.flops_f32 = 19.5e12;
  t.functions_per_second = 2.4e12;
  t.matrix_flops = 280e12;
  return t;
}

constexpr Target sm_90() {
  Target t = kGpu;
  t.row = "sm_90a";
  t.card = "H200";
  t.matrix_unit = MatrixUnit::wgmma;
  t.parallelism = 132;
  t.l1_bytes = 227 * kKilo;
  t.shared_bytes = 228 * kKilo;
  t.l2_bytes = 60 * kMega;
  t.bytes_per_second = 4.3e12;
  t.flops_f32 = 56e12;
  t.functions_per_second = 4.2e12;
  t.matrix_flops = 765e12;
  t.cluster_blocks = 8;
  t.can_wait = true;
  t.gemm = kGemmRules;
  return t;
}

constexpr Target sm_100() {
  Target t = sm_90();
  t.row = "sm_100";
  t.card = "B200";
  t.matrix_unit = MatrixUnit::tcgen05;
  t.gemm = {};
  t.parallelism = 148;
  t.l2_bytes = 126 * kMega;
  t.bytes_per_second = 7.2e12;
  t.flops_f32 = 70e12;
  t.functions_per_second = 4.7e12;
  t.matrix_flops = 1800e12;
  return t;
}

// --- The table -----------------------------------------------------------------------------------

constexpr std::array kTargets = {
    kAvx2,
    with_avx512("x86-64-v4", "", MatrixUnit::none),
    with_avx512("x86-64-v4+bf16", "avx512bf16", MatrixUnit::avx512_bf16),
    with_avx512("x86-64-v4+amx", "amx-bf16", MatrixUnit::amx),
    sm_80(),
    sm_90(),
    sm_100(),
};

// 90 of "sm_90a"; 0 for another text.
// Of PTX that of the first card of its name.
int number_of(std::string_view architecture) {
  int number = 0;
  for (const std::string_view prefix : {"sm_", "compute_"}) {
    if (!architecture.starts_with(prefix)) continue;
    const char* const end = architecture.data() + architecture.size();
    (void)std::from_chars(architecture.data() + prefix.size(), end, number);
  }
  return number;
}

// PTX for one card alone, "compute_90a".
bool is_specific_ptx(std::string_view architecture) {
  return architecture.starts_with("compute_") && architecture.ends_with("a");
}

}  // namespace

std::span<const Target> targets() { return kTargets; }

const Target* target_named(std::string_view row) {
  for (const Target& t : kTargets) {
    if (t.row == row) return &t;
  }
  return nullptr;
}

const Target* gpu_target(std::string_view architecture) {
  const int number = number_of(architecture);
  const Target* found = nullptr;
  for (const Target& t : kTargets) {
    if (t.has_blocks && number_of(t.row) <= number) found = &t;
  }
  return found;
}

Target target_of(const Target& row, const DeviceDescription& device) {
  Target t = row;
  t.vector_bytes = device.vector_bytes;
  t.vector_registers = device.vector_registers;
  t.parallelism = device.parallelism;
  t.warp_size = device.warp_size;
  t.l1_bytes = device.l1_bytes;
  t.l2_bytes = device.l2_bytes;
  t.l3_bytes = device.l3_bytes;
  t.bytes_per_second = device.bytes_per_second;
  t.flops_f32 = device.flops_f32;
  t.input_alignment = device.input_alignment;
  t.block_threads = device.block_threads;
  t.resident_threads = device.resident_threads;
  t.registers = device.registers;
  t.shared_bytes = device.shared_bytes;
  t.cluster_blocks = device.cluster_blocks;
  t.functions_per_second = device.functions_per_second;
  t.matrix_flops = device.matrix_flops;
  return t;
}

Target gpu_target_of(const DeviceDescription& device) {
  const Target* const row = gpu_target(device.architecture);
  if (row == nullptr) unsupported("{} has no row in the table of devices", device.architecture);
  return target_of(*row, device);
}

DeviceDescription device_of(const Target& row) {
  DeviceDescription d;
  d.kind = row.kind;
  d.name = row.has_blocks ? row.card : row.processor;
  if (row.has_blocks) d.architecture = row.row;
  d.vector_bytes = row.vector_bytes;
  d.vector_registers = row.vector_registers;
  d.parallelism = row.parallelism;
  d.warp_size = row.warp_size;
  d.l1_bytes = row.l1_bytes;
  d.l2_bytes = row.l2_bytes;
  d.l3_bytes = row.l3_bytes;
  d.bytes_per_second = row.bytes_per_second;
  d.flops_f32 = row.flops_f32;
  d.input_alignment = row.input_alignment;
  d.block_threads = row.block_threads;
  d.resident_threads = row.resident_threads;
  d.registers = row.registers;
  d.shared_bytes = row.shared_bytes;
  d.cluster_blocks = row.cluster_blocks;
  d.functions_per_second = row.functions_per_second;
  d.matrix_flops = row.matrix_flops;
  return d;
}

DeviceDescription typical_device(std::string_view architecture) {
  const Target* const row = gpu_target(architecture);
  if (row == nullptr || number_of(row->row) != number_of(architecture) ||
      is_specific_ptx(architecture)) {
    user_error("no typical device of architecture '{}'", architecture);
  }
  DeviceDescription d = device_of(*row);
  d.architecture = architecture;
  return d;
}

}  // namespace inkle::abi
