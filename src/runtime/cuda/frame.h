// The state of one call of an Executable, kept for the next call of the same shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/common/frame.h"
#include "runtime/cuda/convolutions.h"
#include "runtime/cuda/executable.h"
#include "runtime/cuda/host.h"
#include "runtime/cuda/matmul.h"
#include "runtime/cuda/step_allocations.h"

namespace inkle::runtime::cuda {

// Of each temporary.
inline constexpr std::int64_t kMemoryAlignment = 256;

inline std::int64_t round_up_to(std::int64_t alignment, std::int64_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

inline bool is_on_host(const abi::BufferDecl& decl) {
  return decl.device.kind == abi::DeviceKind::cpu;
}

// What a step does, with aliases resolved.
struct Executable::BoundStep {
  enum class Kind : std::uint8_t { launch, matmul, convolution, attention, eager, copy };
  Kind kind = Kind::launch;
  const abi::Launch* launch = nullptr;
  const abi::EagerCall* eager = nullptr;
  const abi::CopyStep* copy = nullptr;
  std::optional<abi::LibraryCall> call;  // with roots for buffers
  Function function = nullptr;
  LaunchShape shape;  // but for the number of blocks
  bool has_workspace = false;
  bool can_fail = false;
  bool is_prepare = false;
  std::vector<abi::PlanBuffer> buffers;  // of a launch: roots
  std::vector<abi::PlanBuffer> mapped;   // of its tensor maps: roots
};

class Frame final : public common::Frame {
 public:
  explicit Frame(Executable& executable);
  ~Frame() override;

  // As common::Frame's, but that it queues the plan's work; `microseconds` are filled when all is
  // done.
  void run(const common::Call& call, DeviceHost& host, double* microseconds);

  [[nodiscard]] common::MemoryReport memory() const;
  [[nodiscard]] std::string implementation(std::size_t step) const;

 private:
  // What is known of a step for the shapes at hand.
  struct State {
    std::uint32_t blocks = 0;
    std::vector<void*> values;  // of a launch: buffers
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> table;  // of a kernel over a table: its first parameter
    std::vector<MapShape> map_shapes;
    std::vector<EncodedMap> maps;  // of the addresses in `mapped`
    std::vector<void*> mapped;
    void* scratch = nullptr;
    void* status = nullptr;
    std::vector<void*> parameters;  // addresses of the above
    std::optional<GemmPlan> gemm_plan;
    std::shared_ptr<const Gemm> gemm;
    std::int32_t gemm_alignment = 0;
    std::int64_t padded_rows = 0;  // of a product that is made in parts; 0: whole
    std::optional<ConvolutionShape> convolution_shape;  // none: the host's
    std::shared_ptr<const Convolution> convolution;
    std::int32_t convolution_alignment = 0;
  };
  // A CPU tensor that steps on the device read.
  struct Upload {
    abi::PlanBuffer buffer = 0;
    std::int64_t at = 0;
    bool is_packed = false;
    bool is_done = false;
  };

  void plan_shapes() override;
  void plan_arena();
  void plan_allocations();
  void plan_launch(std::size_t step);
  void plan_table(const abi::Launch& launch, State& state) const;
  void find_uploads();
  void plan_uploads();
  void upload_arguments();
  void upload(const void* from, std::int64_t bytes, void* to);
  void align(const abi::PlanArgument& argument, abi::PlanBuffer buffer) override;
  [[nodiscard]] bool allocates_outputs_first() const override;
  void bind_memory(const common::Call& call) override;
  void bind_arena();
  void finish() override;
  void prepare(const common::Call& call) override;
  void execute_step(std::size_t number) override;
  void run_timed(std::size_t number) override;
  void run_step(std::size_t number) override;
  void run_launch(std::size_t number);
  void encode_maps(std::size_t number);
  void run_matmul(std::size_t number);
  void run_padded(const State& state, const GemmPointers& whole);
  void run_convolution(std::size_t number);
  bool run_convolution_here(std::size_t number);
  void run_attention(std::size_t number);
  void run_copy(std::size_t number);
  void allocate_before(std::size_t step);
  void release_after(std::size_t step);
  void take_result(abi::PlanBuffer buffer, const abi::TensorView& expected,
                   const std::optional<common::HostTensor>& result);
  void adopt(abi::PlanBuffer buffer, const common::HostTensor& result,
             const std::string& name) override;
  void copy_constant(abi::PlanBuffer root, const abi::TensorView& to, std::int64_t bytes) override;
  [[nodiscard]] void* original_of(const void* data) const override;
  void refresh(const void* copy, common::Refreshed which) override;
  void read_times();

  // Where a step on the device finds a buffer.
  [[nodiscard]] void* on_device(abi::PlanBuffer root);
  [[nodiscard]] abi::TensorView view_of(abi::PlanBuffer declared) override;
  // For an op in eager: where the tensor is that it is a part of.
  [[nodiscard]] abi::TensorView part_of(const abi::Operand& operand) override;
  // For a library: on the device.
  [[nodiscard]] abi::TensorView device_part(const abi::Operand& operand);
  [[nodiscard]] abi::TensorView part_at(void* whole, abi::Device device,
                                        const abi::Operand& operand);

  Executable& executable_;
  Device& device_;
  DeviceHost* host_ = nullptr;
  Stream stream_ = nullptr;
  std::vector<State> states_;                                    // by step
  std::vector<std::pair<abi::PlanBuffer, std::int64_t>> arena_;  // buffer, offset
  // Temporaries that are dead before the largest output is written lie in that output.
  std::vector<std::pair<abi::PlanBuffer, std::int64_t>> in_output_;  // buffer, offset
  abi::PlanBuffer donor_ = 0;
  std::vector<std::vector<abi::PlanBuffer>> released_;  // by step: externals last used
  bool donates_arguments_ = false;
  std::vector<StepAllocations> step_allocations_;  // by step; empty unless arguments are donated
  // Temporaries outside of the arena: by buffer, and a free list. An allocation of the same size is
  // reused without asking the host, which takes one to three microseconds.
  struct Allocation {
    common::Handle handle = nullptr;
    void* data = nullptr;
    std::int64_t bytes = 0;
  };
  std::vector<Allocation> temporaries_, free_list_;
  std::vector<Upload> uploads_;
  std::int64_t arena_bytes_ = 0;
  std::uint32_t arena_first_ = 0;  // the first step that uses it
  bool has_arena_ = false;         // this call has taken it
  std::int64_t upload_bytes_ = 0;
  std::vector<std::byte> packed_;  // small CPU arguments, packed for upload
  std::vector<std::byte> staged_;  // another CPU tensor, likewise
  bool has_copies_ = false;        // CPU arguments are passed as copies on the device
  // The largest workspace of a kernel. All kernels share it, as each leaves it zeroed.
  std::int64_t kernel_bytes_ = 0;
  bool needs_workspace_ = false;  // of a library
  bool is_captured_ = false;      // this call becomes a graph
  std::byte* memory_ = nullptr;   // arena, uploads, kernels' workspace, library: in this order
  void* workspace_ = nullptr;     // for libraries: the device's, or behind all of these
  struct Clone {
    void* copy;
    void* original;
    std::int64_t bytes;
    bool is_written;
  };
  std::vector<Clone> clones_;
  // Of memory that kernels need aligned and that is not.
  [[nodiscard]] void* aligned_copy(void* original, std::int64_t bytes, bool is_written);
  Executable::PreparedPlace prepared_;
  Executable::Weights weights_;  // that prepare steps read
  std::vector<Event> events_;    // two a step: before and after
};

}  // namespace inkle::runtime::cuda
