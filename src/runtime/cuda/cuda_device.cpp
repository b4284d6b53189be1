#include "runtime/cuda/cuda_device.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "runtime/cuda/copy_rows.h"
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/cudnn.h"
#include "runtime/cuda/driver_api.h"
#include "runtime/cuda/samples.h"

namespace inkle::runtime::cuda {
namespace {

using driver::Address;
using driver::Api;

Address address(const void* p) { return reinterpret_cast<Address>(p); }

class CudaModule final : public Module {
 public:
  CudaModule(const Api& api, driver::Context context, const abi::DeviceImage& image,
             std::int64_t most_shared)
      : api_(api), context_(context), most_shared_(most_shared) {
    driver::check(api_, api_.module_load(&module_, image.data->data()), "loading kernels");
  }
  ~CudaModule() override {
    // Errors are of no use here: the driver may be gone when the process ends.
    if (api_.context_push(context_) != driver::kSuccess) return;
    api_.module_unload(module_);
    driver::Context popped = nullptr;
    api_.context_pop(&popped);
  }

  Function function(const abi::DeviceKernel& kernel) override {
    void* function = nullptr;
    driver::check(api_, api_.module_function(&function, module_, kernel.entry.c_str()),
                  "looking up a kernel");
    constexpr std::int64_t kSharedWithoutAsking = 48 << 10;
    if (kernel.shared_bytes > most_shared_) {
      unsupported("kernel {} needs {} bytes of shared memory, the device has {}", kernel.entry,
                  kernel.shared_bytes, most_shared_);
    }
    if (kernel.shared_bytes > kSharedWithoutAsking) {
      driver::check(api_,
                    api_.function_set(function, driver::kFunctionMaxDynamicShared,
                                      static_cast<int>(kernel.shared_bytes)),
                    "asking for shared memory");
    }
    return function;
  }

 private:
  const Api& api_;
  driver::Context context_;
  std::int64_t most_shared_;
  void* module_ = nullptr;
};

// Streams that have a workspace of their own; calls on others take memory of the host.
constexpr std::size_t kMostWorkspaces = 8;
constexpr std::size_t kMostZeros = 64;

class CudaDevice final : public Device {
 public:
  CudaDevice(const Api& api, std::int32_t index) : api_(api), index_(index) {
    driver::check(api_, api_.device_get(&number_, index), "opening a GPU");
    driver::check(api_, api_.primary_retain(&context_, number_), "opening a GPU's context");
    describe();
  }

  const abi::DeviceDescription& description() const override { return description_; }
  std::int32_t index() const override { return index_; }

  void enter() override {
    driver::check(api_, api_.context_push(context_), "entering a GPU's context");
  }
  void leave() override {
    driver::Context popped = nullptr;
    api_.context_pop(&popped);
  }

  std::unique_ptr<Module> load(const abi::DeviceImage& image) override {
    return std::make_unique<CudaModule>(api_, context_, image, description_.l1_bytes);
  }
  void launch(Function function, const LaunchShape& shape, Stream stream,
              void** parameters) override {
    if (shape.early || shape.co_resident) {
      const int attribute =
          shape.co_resident ? driver::kCooperative : driver::kProgrammaticStreamSerialization;
      launch_with(attribute, function, shape, stream, parameters);
      return;
    }
    driver::check(api_,
                  api_.launch(function, shape.blocks, 1, 1, shape.threads, 1, 1, shape.shared_bytes,
                              stream, parameters, nullptr),
                  "launching a kernel");
  }

  std::int64_t resident_blocks(Function function, const LaunchShape& shape) override {
    int blocks = 0;
    driver::check(
        api_,
        api_.most_blocks(&blocks, function, static_cast<int>(shape.threads), shape.shared_bytes),
        "asking how many blocks are resident");
    return std::int64_t{blocks} * description_.parallelism;
  }
  void encode(EncodedMap& map, const MapShape& shape, void* at) override;

  void* allocate(std::int64_t bytes) override {
    Address at = 0;
    driver::check(api_, api_.allocate(&at, static_cast<std::size_t>(bytes)),
                  "allocating memory of the GPU");
    return reinterpret_cast<void*>(at);
  }
  void* try_allocate(std::int64_t bytes) override {
    Address at = 0;
    const driver::Result result = api_.allocate(&at, static_cast<std::size_t>(bytes));
    if (result == driver::kOutOfMemory) return nullptr;
    driver::check(api_, result, "allocating memory of the GPU");
    return reinterpret_cast<void*>(at);
  }
  void free(void* memory) override {
    if (memory != nullptr) api_.free(address(memory));
  }
  void* allocate_shared(std::int64_t bytes) override {
    void* at = nullptr;
    driver::check(api_,
                  api_.host_allocate(&at, static_cast<std::size_t>(bytes),
                                     driver::kHostPortable | driver::kHostMapped),
                  "allocating memory that the GPU can see");
    auto* first = static_cast<std::byte*>(at);
    std::fill(first, first + bytes, std::byte{0});
    return at;
  }
  void free_shared(void* memory) override {
    if (memory != nullptr) api_.host_free(memory);
  }

  void copy(void* to, const void* from, std::int64_t bytes, Stream stream) override {
    if (bytes <= 0) return;
    driver::check(api_,
                  api_.copy(address(to), address(from), static_cast<std::size_t>(bytes), stream),
                  "copying memory");
  }
  void zero(void* at, std::int64_t bytes, Stream stream) override {
    if (bytes <= 0) return;
    driver::check(api_, api_.fill(address(at), 0, static_cast<std::size_t>(bytes), stream),
                  "clearing memory");
  }
  void copy_rows(void* to, const void* from, std::int64_t rows, std::int64_t columns,
                 std::int64_t pitch, Stream stream) override {
    if (rows <= 0 || columns <= 0) return;
    constexpr std::int64_t kThreads = 256;
    constexpr std::int64_t kOfBlock = kThreads * 8;
    auto n = static_cast<std::uint32_t>(columns);
    auto step = static_cast<std::uint32_t>(pitch);
    auto count = static_cast<std::uint64_t>(rows * columns);
    std::array<void*, 5> parameters = {&to, &from, &n, &step, &count};
    launch(own_kernel(row_copier_, kCopyRowsPtx, "copy_rows"),
           {.blocks = static_cast<std::uint32_t>((rows * columns + kOfBlock - 1) / kOfBlock),
            .threads = static_cast<std::uint32_t>(kThreads)},
           stream, parameters.data());
  }
  void sample(const SampleJob& job, bool keep, Stream stream) override {
    if (job.tensors == 0) return;
    constexpr std::uint32_t kThreads = 256;
    SampleJob given = job;
    std::uint32_t is_kept = keep ? 1 : 0;
    std::array<void*, 5> parameters = {&given.table, &given.tensors, &given.kept, &given.changed,
                                       &is_kept};
    launch(own_kernel(sampler_, kSamplesPtx, "samples"),
           {.blocks = (job.tensors * kSamples + kThreads - 1) / kThreads, .threads = kThreads},
           stream, parameters.data());
  }
  void synchronize(Stream stream) override {
    driver::check(api_, api_.stream_synchronize(stream), "waiting for the GPU");
  }
  void synchronize_all() override {
    driver::check(api_, api_.context_synchronize(), "waiting for the GPU");
  }
  bool is_capturing(Stream stream) override {
    int status = 0;
    driver::check(api_, api_.stream_is_capturing(stream, &status), "asking for a stream's state");
    return status != 0;
  }
  int relax_capture_mode() override {
    int mode = driver::kCaptureRelaxed;
    driver::check(api_, api_.exchange_capture_mode(&mode),
                  "leaving the stream capture mode of the thread");
    return mode;
  }
  void restore_capture_mode(int before) override { api_.exchange_capture_mode(&before); }

  Event make_event() override {
    Event event = nullptr;
    driver::check(api_, api_.event_create(&event, 0), "making an event");
    return event;
  }
  void free_event(Event event) override { api_.event_destroy(event); }
  void record(Event event, Stream stream) override {
    driver::check(api_, api_.event_record(event, stream), "recording an event");
  }
  double microseconds(Event from, Event to) override {
    driver::check(api_, api_.event_synchronize(to), "waiting for an event");
    float milliseconds = 0;
    driver::check(api_, api_.event_elapsed(&milliseconds, from, to), "reading events");
    return static_cast<double>(milliseconds) * 1e3;
  }

  Gemms& gemms() override {
    const std::lock_guard lock(mutex_);
    if (!gemms_) gemms_ = make_cublaslt(*this);
    return *gemms_;
  }
  Convolutions* convolutions() override {
    const std::lock_guard lock(mutex_);
    if (!asked_for_convolutions_) {
      asked_for_convolutions_ = true;
      const Scope scope(*this);
      std::string why_not;
      convolutions_ = make_cudnn(*this, why_not);
      if (!convolutions_) log(LogChannel::runtime, "convolutions are the host's: {}", why_not);
    }
    return convolutions_.get();
  }
  void* workspace(Stream stream) override {
    const std::lock_guard lock(mutex_);
    if (const auto known = workspaces_.find(stream); known != workspaces_.end()) {
      return known->second;
    }
    if (workspaces_.size() == kMostWorkspaces) return nullptr;
    void* const made = try_allocate(kWorkspaceBytes);
    if (made != nullptr) workspaces_[stream] = made;
    return made;
  }
  void* zeros(Stream stream) override {
    const std::lock_guard lock(mutex_);
    if (const auto known = zeros_.find(stream); known != zeros_.end()) return known->second;
    if (zeros_.size() == kMostZeros) return nullptr;
    void* const made = try_allocate(kZeroBytes);
    if (made == nullptr) return nullptr;
    zero(made, kZeroBytes, stream);
    return zeros_[stream] = made;
  }

 private:
  [[nodiscard]] std::int64_t attribute(int which) const {
    int value = 0;
    driver::check(api_, api_.device_attribute(&value, which, number_), "asking a GPU for facts");
    return value;
  }
  void describe();

  void launch_with(int what, Function function, const LaunchShape& shape, Stream stream,
                   void** parameters) const {
    driver::LaunchAttribute attribute{.id = what};
    attribute.value[0] = 1;
    const driver::LaunchConfig config{.grid_x = shape.blocks,
                                      .block_x = shape.threads,
                                      .shared_bytes = shape.shared_bytes,
                                      .stream = stream,
                                      .attributes = &attribute,
                                      .attribute_count = 1};
    driver::check(api_, api_.launch_with(&config, function, parameters, nullptr),
                  "launching a kernel");
  }

  // Compiled by the driver when first needed; kept as long as the process.
  [[nodiscard]] Function own_kernel(Function& known, const char* code, const char* name) {
    const std::lock_guard lock(mutex_);
    if (known == nullptr) {
      void* module = nullptr;
      driver::check(api_, api_.module_load(&module, code), "compiling a kernel");
      driver::check(api_, api_.module_function(&known, module, name), "looking up a kernel");
    }
    return known;
  }

  const Api& api_;
  std::int32_t index_;
  driver::DeviceNumber number_ = 0;
  driver::Context context_ = nullptr;
  abi::DeviceDescription description_;
  std::mutex mutex_;
  Function row_copier_ = nullptr;
  Function sampler_ = nullptr;
  std::unique_ptr<Gemms> gemms_;
  std::unique_ptr<Convolutions> convolutions_;
  bool asked_for_convolutions_ = false;
  std::map<Stream, void*> workspaces_;
  std::map<Stream, void*> zeros_;
};

// As CUtensorMapDataType counts them.
int map_dtype(abi::DType dtype) {
  switch (dtype) {
    case abi::DType::boolean:
    case abi::DType::u8:
    case abi::DType::i8:
      return 0;
    case abi::DType::u16:
    case abi::DType::i16:
      return 1;
    case abi::DType::i32:
      return 3;
    case abi::DType::i64:
      return 5;
    case abi::DType::f16:
      return 6;
    case abi::DType::f32:
      return 7;
    case abi::DType::f64:
      return 8;
    case abi::DType::bf16:
      return 9;
    default:
      unsupported("tensor maps of {}", abi::name_of(dtype));
  }
}

void CudaDevice::encode(EncodedMap& map, const MapShape& shape, void* at) {
  constexpr std::size_t kMostDims = 5;
  constexpr int kPromoteTo256 = 3;
  if (api_.encode_tiled == nullptr) {
    unsupported("the NVIDIA driver is too old for tensor maps: it has no cuTensorMapEncodeTiled");
  }
  const std::size_t rank = shape.sizes.size();
  std::array<std::uint64_t, kMostDims> sizes{}, strides{};
  std::array<unsigned, kMostDims> box{}, steps{};
  for (std::size_t d = 0; d < rank; ++d) {  // the innermost first
    const std::size_t from = rank - 1 - d;
    sizes[d] = static_cast<std::uint64_t>(shape.sizes[from]);
    box[d] = static_cast<unsigned>(shape.box[from]);
    steps[d] = 1;
    if (d > 0) {
      strides[d - 1] = static_cast<std::uint64_t>(shape.strides[from] * abi::size_of(shape.dtype));
    }
  }
  const int swizzle =
      shape.swizzle == 0 ? 0 : std::countr_zero(static_cast<unsigned>(shape.swizzle)) - 4;
  driver::check(
      api_,
      api_.encode_tiled(&map, map_dtype(shape.dtype), static_cast<unsigned>(rank), at, sizes.data(),
                        strides.data(), box.data(), steps.data(), 0, swizzle, kPromoteTo256, 0),
      "describing a tensor to the copy engine");
}

// Hopper has instructions that code for later GPUs must not use; they need the "a".
std::string architecture_of(std::int64_t major, std::int64_t minor) {
  return fmt::format("sm_{}{}{}", major, minor, major == 9 ? "a" : "");
}

void CudaDevice::describe() {
  abi::DeviceDescription& d = description_;
  std::array<char, 256> name{};
  driver::check(api_, api_.device_name(name.data(), static_cast<int>(name.size()), number_),
                "asking a GPU for its name");
  d.kind = abi::DeviceKind::cuda;
  d.name = name.data();
  driver::check(api_, api_.driver_version(&d.driver_version), "asking for the driver's version");
  d.vector_bytes = 16;
  d.input_alignment = 16;
  const std::int64_t major = attribute(driver::kComputeMajor);
  const std::int64_t minor = attribute(driver::kComputeMinor);
  if (major < 8) {
    unsupported("the GPU ({}, sm_{}{}) is too old: kernels are for sm_80 and later", d.name, major,
                minor);
  }
  d.architecture = architecture_of(major, minor);
  d.parallelism = static_cast<std::int32_t>(attribute(driver::kMultiprocessors));
  d.warp_size = static_cast<std::int32_t>(attribute(driver::kWarpSize));
  d.l1_bytes = attribute(driver::kMaxSharedBytesPerBlock);
  d.shared_bytes = attribute(driver::kSharedBytesPerMultiprocessor);
  d.l2_bytes = attribute(driver::kL2Bytes);
  d.l3_bytes = 0;
  d.block_threads = static_cast<std::int32_t>(attribute(driver::kMaxThreadsPerBlock));
  d.resident_threads = static_cast<std::int32_t>(attribute(driver::kMaxThreadsPerMultiprocessor));
  d.registers = static_cast<std::int32_t>(attribute(driver::kRegistersPerMultiprocessor));
  d.cluster_blocks = major >= 9 ? 8 : 1;
  const double clock = static_cast<double>(attribute(driver::kClockRate)) * 1e3;
  const double units = static_cast<double>(d.parallelism);
  // Two transfers a clock; a bit under nine tenths of what the bus could do is seen in copies.
  const double bus = 2 * static_cast<double>(attribute(driver::kMemoryClockRate)) * 1e3 *
                     static_cast<double>(attribute(driver::kMemoryBusWidth)) / 8;
  d.bytes_per_second = 0.89 * bus;
  d.flops_f32 = units * 128 * 2 * clock;
  d.functions_per_second = units * 16 * clock;
  d.matrix_flops = units * clock * (major >= 9 ? 4096 : 2048) * 0.8;
}

}  // namespace

int device_count(std::string& why_not) {
  const Api* api = driver::find(why_not);
  if (api == nullptr) return 0;
  int count = 0;
  driver::check(*api, api->device_count(&count), "counting GPUs");
  if (count == 0) why_not = "the NVIDIA driver sees no GPU";
  return count;
}

std::vector<std::string> architectures_here(std::string& why_not) {
  std::vector<std::string> all;
  const int count = device_count(why_not);
  if (count == 0) return all;
  const Api& api = *driver::find(why_not);
  for (int index = 0; index < count; ++index) {
    driver::DeviceNumber number{};
    driver::check(api, api.device_get(&number, index), "opening a GPU");
    int major = 0, minor = 0;
    for (const auto& [to, which] :
         {std::pair(&major, driver::kComputeMajor), std::pair(&minor, driver::kComputeMinor)}) {
      driver::check(api, api.device_attribute(to, which, number), "asking a GPU for facts");
    }
    all.push_back(architecture_of(major, minor));
  }
  return all;
}

std::shared_ptr<Device> open_device(std::int32_t index) {
  static std::mutex mutex;
  // Never freed: the driver may be gone before static objects are.
  static auto* const devices = new std::map<std::int32_t, std::shared_ptr<Device>>;
  std::string why_not;
  const int count = device_count(why_not);
  if (count == 0) unsupported("{}", why_not);
  if (index < 0 || index >= count) unsupported("there is no GPU number {}, only {}", index, count);
  const std::lock_guard lock(mutex);
  std::shared_ptr<Device>& device = (*devices)[index];
  if (!device) device = std::make_shared<CudaDevice>(*driver::find(why_not), index);
  return device;
}

}  // namespace inkle::runtime::cuda
