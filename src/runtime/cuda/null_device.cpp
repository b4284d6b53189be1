#include "runtime/cuda/null_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "package/target.h"
#include "runtime/cuda/convolutions.h"
#include "runtime/cuda/gemms.h"
#include "runtime/cuda/samples.h"

namespace inkle::runtime::cuda {
namespace {

struct NullFunction {
  std::string entry;
  std::int32_t block_threads;
  std::int64_t shared_bytes;
};

struct Recorder {
  std::mutex mutex;
  std::vector<NullLaunch> launches;

  void add(std::string what, const LaunchShape& shape) {
    const std::lock_guard lock(mutex);
    launches.push_back({std::move(what), shape});
  }
};

class NullModule final : public Module {
 public:
  explicit NullModule(const abi::DeviceDescription& device) : device_(device) {}

  Function function(const abi::DeviceKernel& kernel) override {
    if (kernel.shared_bytes > device_.l1_bytes) {
      unsupported("kernel {} needs {} bytes of shared memory, the device has {}", kernel.entry,
                  kernel.shared_bytes, device_.l1_bytes);
    }
    functions_.push_back({kernel.entry, kernel.block_threads, kernel.shared_bytes});
    return &functions_.back();
  }

 private:
  const abi::DeviceDescription& device_;
  std::deque<NullFunction> functions_;  // addresses are handed out
};

class NullGemm final : public Gemm {
 public:
  NullGemm(GemmShape shape, Recorder& recorder) : shape_(shape), recorder_(recorder) {}

  void run(const GemmPointers& p, void* workspace, Stream /*stream*/) const override {
    INKLE_CHECK(p.a != nullptr && p.b != nullptr && p.d != nullptr && workspace != nullptr,
                "a GEMM without operands");
    INKLE_CHECK((p.bias != nullptr) == shape_.has_bias, "a bias too many or too few");
    INKLE_CHECK((p.c != nullptr) == shape_.has_residual, "a residual too many or too few");
    recorder_.add(fmt::format("gemm {} {} {} batch {}", shape_.m, shape_.n, shape_.k, shape_.batch),
                  {});
  }
  std::string name() const override { return "null"; }

 private:
  GemmShape shape_;
  Recorder& recorder_;
};

class NullGemms final : public Gemms {
 public:
  explicit NullGemms(Recorder& recorder) : recorder_(recorder) {}

  std::shared_ptr<const Gemm> find(const GemmShape& shape, const GemmPointers& /*pointers*/,
                                   void* /*workspace*/, Stream /*stream*/) override {
    INKLE_CHECK(shape.m > 0 && shape.n > 0 && shape.k > 0 && shape.batch > 0, "an empty GEMM");
    INKLE_CHECK(shape.a_row == 1 || shape.a_depth == 1, "a is no matrix");
    INKLE_CHECK(shape.b_depth == 1 || shape.b_column == 1, "b is no matrix");
    return std::make_shared<NullGemm>(shape, recorder_);
  }

 private:
  Recorder& recorder_;
};

class NullConvolution final : public Convolution {
 public:
  NullConvolution(ConvolutionShape shape, Recorder& recorder)
      : shape_(shape), recorder_(recorder) {}

  void run(const ConvolutionPointers& p, void* workspace, Stream /*stream*/) const override {
    INKLE_CHECK(p.x != nullptr && p.w != nullptr && p.y != nullptr && workspace != nullptr,
                "a convolution without operands");
    INKLE_CHECK((p.bias != nullptr) == shape_.has_bias, "a bias too many or too few");
    INKLE_CHECK((p.residual != nullptr) == shape_.has_residual, "a residual too many or too few");
    const char* what = shape_.result == ConvolutionShape::Result::x   ? " of a gradient"
                       : shape_.result == ConvolutionShape::Result::w ? " for its weights"
                                                                      : "";
    recorder_.add(fmt::format("convolution{}{}{}{}", what, shape_.has_bias ? " bias" : "",
                              shape_.has_residual ? " residual" : "", shape_.relu ? " relu" : ""),
                  {});
  }
  std::string name() const override { return "null"; }

 private:
  ConvolutionShape shape_;
  Recorder& recorder_;
};

class NullConvolutions final : public Convolutions {
 public:
  explicit NullConvolutions(Recorder& recorder) : recorder_(recorder) {}

  void foresee(std::vector<ConvolutionShape> shapes) override {
    const std::lock_guard lock(recorder_.mutex);
    foreseen.insert(foreseen.end(), shapes.begin(), shapes.end());
  }
  std::shared_ptr<const Convolution> find(const ConvolutionShape& shape,
                                          const ConvolutionPointers& /*pointers*/,
                                          void* /*workspace*/, Stream /*stream*/) override {
    for (std::size_t d = 0; d < shape.y.size(); ++d) {
      INKLE_CHECK(shape.x[d] > 0 && shape.w[d] > 0 && shape.y[d] > 0, "an empty convolution");
    }
    INKLE_CHECK(shape.x[1] % shape.w[1] == 0, "the channels of x are not a multiple of those of w");
    const std::lock_guard lock(recorder_.mutex);
    asked.push_back(shape);
    return std::make_shared<NullConvolution>(shape, recorder_);
  }

  std::vector<ConvolutionShape> foreseen, asked;

 private:
  Recorder& recorder_;
};

class NullDeviceOf final : public NullDevice {
 public:
  explicit NullDeviceOf(abi::DeviceDescription description)
      : description_(std::move(description)), gemms_(recorder_), convolutions_(recorder_) {}

  const abi::DeviceDescription& description() const override { return description_; }
  std::int32_t index() const override { return 0; }
  void enter() override {}
  void leave() override {}

  std::unique_ptr<Module> load(const abi::DeviceImage& image) override {
    if (!package::runs_on(image.architecture, description_.architecture)) {
      unsupported("code for {} on a device of {}", image.architecture, description_.architecture);
    }
    INKLE_CHECK(image.data != nullptr && !image.data->empty(), "an image without code");
    return std::make_unique<NullModule>(description_);
  }
  void launch(Function function, const LaunchShape& shape, Stream /*stream*/,
              void** parameters) override {
    const auto& kernel = *static_cast<const NullFunction*>(function);
    INKLE_CHECK(shape.blocks > 0 && shape.threads > 0, "an empty launch of {}", kernel.entry);
    INKLE_CHECK(static_cast<std::int32_t>(shape.threads) == kernel.block_threads &&
                    shape.shared_bytes == kernel.shared_bytes,
                "{} is launched in another shape than it was made for", kernel.entry);
    INKLE_CHECK(shape.threads <= static_cast<std::uint32_t>(description_.block_threads),
                "{} has {} threads a block", kernel.entry, shape.threads);
    INKLE_CHECK(parameters != nullptr, "{} has no parameters", kernel.entry);
    if (shape.co_resident) {
      INKLE_CHECK(shape.blocks <= resident_blocks(function, shape),
                  "{}: not all blocks are resident", kernel.entry);
    }
    recorder_.add(kernel.entry, shape);
    if (clock_) now_ += clock_(shape);
  }

  // As if registers were no limit.
  std::int64_t resident_blocks(Function /*function*/, const LaunchShape& shape) override {
    std::int64_t blocks = description_.resident_threads / static_cast<std::int64_t>(shape.threads);
    if (shape.shared_bytes > 0) {
      blocks = std::min(blocks, description_.shared_bytes / std::int64_t{shape.shared_bytes});
    }
    return blocks * description_.parallelism;
  }
  void encode(EncodedMap& map, const MapShape& shape, void* at) override {
    std::memset(&map, 0, sizeof map);
    std::memcpy(&map, &at, sizeof at);
    const std::lock_guard lock(recorder_.mutex);
    maps_.push_back(shape);
  }

  void* allocate(std::int64_t bytes) override {
    INKLE_CHECK(bytes > 0, "{} bytes of memory, which a driver refuses", bytes);
    return std::calloc(1, static_cast<size_t>(bytes));
  }
  void* try_allocate(std::int64_t bytes) override { return allocate(bytes); }
  void free(void* memory) override { std::free(memory); }
  void* allocate_shared(std::int64_t bytes) override { return allocate(bytes); }
  void free_shared(void* memory) override { std::free(memory); }
  void copy(void* to, const void* from, std::int64_t bytes, Stream /*stream*/) override {
    if (bytes > 0) std::memmove(to, from, static_cast<std::size_t>(bytes));
    const std::lock_guard lock(recorder_.mutex);
    copies_.push_back(bytes);
  }
  void zero(void* at, std::int64_t bytes, Stream /*stream*/) override {
    if (bytes > 0) std::memset(at, 0, static_cast<std::size_t>(bytes));
  }
  void copy_rows(void* to, const void* from, std::int64_t rows, std::int64_t columns,
                 std::int64_t pitch, Stream stream) override {
    for (std::int64_t r = 0; r < rows; ++r) {
      copy(static_cast<std::byte*>(to) + r * columns * 2,
           static_cast<const std::byte*>(from) + r * pitch * 2, columns * 2, stream);
    }
  }
  void sample(const SampleJob& job, bool keep, Stream /*stream*/) override {
    const auto* table = static_cast<const SampledMemory*>(job.table);
    auto* kept = static_cast<std::uint32_t*>(job.kept);
    for (std::uint32_t s = 0; s < job.tensors * kSamples; ++s) {
      const auto [at, words] = table[s / kSamples];
      const std::uint64_t position = sampled_word(s, words);
      if (position >= words) continue;
      const std::uint32_t word = reinterpret_cast<const std::uint32_t*>(at)[position];
      if (keep) kept[s] = word;
      if (word != kept[s]) *job.changed = 1;
    }
  }
  void synchronize(Stream /*stream*/) override {}
  void synchronize_all() override {}
  bool is_capturing(Stream /*stream*/) override { return is_capturing_; }
  int relax_capture_mode() override { return 0; }
  void restore_capture_mode(int /*before*/) override {}
  void set_capturing(bool is_capturing) override { is_capturing_ = is_capturing; }
  Event make_event() override {
    ++events_;
    return new double(0);
  }
  void free_event(Event event) override {
    --events_;
    delete static_cast<double*>(event);
  }
  int events() const override { return events_; }
  void record(Event event, Stream /*stream*/) override { *static_cast<double*>(event) = now_; }
  double microseconds(Event from, Event to) override {
    return *static_cast<double*>(to) - *static_cast<double*>(from);
  }
  void set_clock(std::function<double(const LaunchShape&)> microseconds) override {
    clock_ = std::move(microseconds);
  }
  Gemms& gemms() override { return gemms_; }
  Convolutions* convolutions() override { return has_convolutions_ ? &convolutions_ : nullptr; }
  std::vector<ConvolutionShape> foreseen() override {
    const std::lock_guard lock(recorder_.mutex);
    return convolutions_.foreseen;
  }
  std::vector<ConvolutionShape> asked() override {
    const std::lock_guard lock(recorder_.mutex);
    return convolutions_.asked;
  }
  void lose_convolutions() override { has_convolutions_ = false; }
  void* workspace(Stream /*stream*/) override { return workspace_.data(); }
  void* zeros(Stream /*stream*/) override { return workspace_.data(); }

  std::vector<NullLaunch> take_launches() override {
    const std::lock_guard lock(recorder_.mutex);
    return std::exchange(recorder_.launches, {});
  }
  std::vector<std::int64_t> take_copies() override {
    const std::lock_guard lock(recorder_.mutex);
    return std::exchange(copies_, {});
  }
  std::vector<MapShape> take_maps() override {
    const std::lock_guard lock(recorder_.mutex);
    return std::exchange(maps_, {});
  }

 private:
  abi::DeviceDescription description_;
  std::function<double(const LaunchShape&)> clock_;
  double now_ = 0;  // microseconds, of launches
  bool is_capturing_ = false;
  std::atomic<int> events_ = 0;
  Recorder recorder_;
  std::vector<std::int64_t> copies_;  // bytes
  std::vector<MapShape> maps_;
  NullGemms gemms_;
  NullConvolutions convolutions_;
  bool has_convolutions_ = true;
  std::array<std::byte, 256> workspace_{};  // nothing runs that would use more
};

}  // namespace

std::shared_ptr<NullDevice> make_null_device(abi::DeviceDescription description) {
  return std::make_shared<NullDeviceOf>(std::move(description));
}

}  // namespace inkle::runtime::cuda
