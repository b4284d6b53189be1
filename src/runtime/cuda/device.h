// A GPU as the executor sees it: code, memory, streams, launches. Two implementations: the driver
// of the card (cuda_device.h), and one that does everything but run (null_device.h), for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "abi/code.h"
#include "abi/device.h"
#include "abi/plan.h"
#include "runtime/cuda/tensor_map.h"

namespace inkle::runtime::cuda {

using Stream = void*;    // null: the device's default stream
using Function = void*;  // a kernel in loaded code
using Event = void*;     // a point in a stream, with the time at which it was reached

struct LaunchShape {
  std::uint32_t blocks = 1;
  std::uint32_t threads = 1;
  std::uint32_t shared_bytes = 0;
  // May be brought up before the kernel queued before it has ended (abi::DeviceKernel::waits).
  // Saves 1.1 to 1.8 us a kernel on an H200.
  bool early = false;
  // The blocks wait for each other (abi::DeviceKernel::co_resident).
  bool co_resident = false;
};

// Words of tensors that are kept to be compared later (samples.h); all is memory of the device but
// `changed`, which may be shared with the host.
struct SampleJob {
  const void* table = nullptr;  // SampledMemory by tensor
  std::uint32_t tensors = 0;
  void* kept = nullptr;              // kSamples words for each
  std::uint32_t* changed = nullptr;  // becomes 1 where a word is not what was kept
};

// Code on the device. Destroyed after the last launch of its functions has been queued.
class Module {
 public:
  virtual ~Module() = default;
  // Throws InternalError if there is no such kernel, Unsupported if it asks for too much of the
  // device.
  [[nodiscard]] virtual Function function(const abi::DeviceKernel& kernel) = 0;
};

class Convolutions;    // convolutions.h
class Gemms;           // gemms.h
class LibraryChoices;  // library_choices.h

// All functions but load() and the constructors may be called by several threads at once; each
// needs a Scope in its thread. Failures of the device throw UserError (out of memory) or
// InternalError, with the driver's words.
class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual const abi::DeviceDescription& description() const = 0;
  [[nodiscard]] virtual std::int32_t index() const = 0;

  // Makes the device the calling thread's; `leave` restores what was before.
  virtual void enter() = 0;
  virtual void leave() = 0;

  [[nodiscard]] virtual std::unique_ptr<Module> load(const abi::DeviceImage& image) = 0;
  virtual void launch(Function function, const LaunchShape& shape, Stream stream,
                      void** parameters) = 0;
  // Blocks of this shape that the device holds at once, whatever else runs.
  [[nodiscard]] virtual std::int64_t resident_blocks(Function function,
                                                     const LaunchShape& shape) = 0;
  // `shape` has been checked (check_map) with this address.
  virtual void encode(EncodedMap& map, const MapShape& shape, void* at) = 0;

  [[nodiscard]] virtual void* allocate(std::int64_t bytes) = 0;
  // The same; null if there is none.
  [[nodiscard]] virtual void* try_allocate(std::int64_t bytes) = 0;
  virtual void free(void* memory) = 0;
  // Memory of the host that kernels can write, zeroed; at the same address on both sides.
  [[nodiscard]] virtual void* allocate_shared(std::int64_t bytes) = 0;
  virtual void free_shared(void* memory) = 0;

  // Between any two addresses of host and device memory, queued; host memory is read before return.
  virtual void copy(void* to, const void* from, std::int64_t bytes, Stream stream) = 0;
  virtual void zero(void* at, std::int64_t bytes, Stream stream) = 0;
  // to[i] = from[i / columns * pitch + i % columns] for i < columns * rows, in elements of two
  // bytes; `to`, `from` and the pitch are 16-byte aligned.
  virtual void copy_rows(void* to, const void* from, std::int64_t rows, std::int64_t columns,
                         std::int64_t pitch, Stream stream) = 0;
  // Keeps the words, or compares them with those kept.
  virtual void sample(const SampleJob& job, bool keep, Stream stream) = 0;
  virtual void synchronize(Stream stream) = 0;
  virtual void synchronize_all() = 0;
  // The stream is being captured into a CUDA graph: nothing may wait for it.
  [[nodiscard]] virtual bool is_capturing(Stream stream) = 0;
  // Sets the calling thread's capture mode to relaxed: its calls outside of streams (allocate, load
  // code) neither invalidate captures of other threads nor fail because of them. Returns the mode
  // that restore_capture_mode() restores.
  [[nodiscard]] virtual int relax_capture_mode() = 0;
  virtual void restore_capture_mode(int before) = 0;

  [[nodiscard]] virtual Event make_event() = 0;
  virtual void free_event(Event event) = 0;
  virtual void record(Event event, Stream stream) = 0;
  // Waits for `to`; between two recorded events of one stream.
  [[nodiscard]] virtual double microseconds(Event from, Event to) = 0;

  // Matrix products of a library; shared by all executables of the device.
  [[nodiscard]] virtual Gemms& gemms() = 0;
  // Convolutions of a library; null where there is none, and the host does them.
  [[nodiscard]] virtual Convolutions* convolutions() = 0;
  // Memory that libraries work in, kWorkspaceBytes of it, for whatever is queued on this stream in
  // order; kept as long as the device. Null if there is none to be had. Libraries want 32 MB; the
  // rest is for the blocks of GEMMs that are computed there (matmul.h).
  static constexpr std::int64_t kWorkspaceBytes = std::int64_t{40} << 20;
  [[nodiscard]] virtual void* workspace(Stream stream) = 0;
  // Memory of zeros, kZeroBytes of it, for kernels that leave zeros there: for whatever is queued
  // on this stream in order and is not captured; kept as long as the device. Null if there is
  // none.
  static constexpr std::int64_t kZeroBytes = std::int64_t{1} << 20;
  [[nodiscard]] virtual void* zeros(Stream stream) = 0;

  // The fastest measured algorithms of its libraries, across processes; null: nothing is kept.
  void set_library_choices(std::shared_ptr<LibraryChoices> choices) {
    const std::lock_guard lock(choices_mutex_);
    choices_ = std::move(choices);
  }
  [[nodiscard]] std::shared_ptr<LibraryChoices> library_choices() const {
    const std::lock_guard lock(choices_mutex_);
    return choices_;
  }

 private:
  mutable std::mutex choices_mutex_;
  std::shared_ptr<LibraryChoices> choices_;
};

// The device is the calling thread's for the life of this object.
class Scope {
 public:
  explicit Scope(Device& device) : device_(device) { device_.enter(); }
  ~Scope() { device_.leave(); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Device& device_;
};

// An event that is given back.
class OwnedEvent {
 public:
  explicit OwnedEvent(Device& device) : device_(device), event_(device.make_event()) {}
  ~OwnedEvent() { device_.free_event(event_); }
  OwnedEvent(const OwnedEvent&) = delete;
  OwnedEvent& operator=(const OwnedEvent&) = delete;
  [[nodiscard]] Event get() const { return event_; }

 private:
  Device& device_;
  Event event_;
};

// The calling thread has the relaxed capture mode for the life of this object.
class RelaxedCaptureMode {
 public:
  explicit RelaxedCaptureMode(Device& device)
      : device_(device), before_(device.relax_capture_mode()) {}
  ~RelaxedCaptureMode() { device_.restore_capture_mode(before_); }
  RelaxedCaptureMode(const RelaxedCaptureMode&) = delete;
  RelaxedCaptureMode& operator=(const RelaxedCaptureMode&) = delete;

 private:
  Device& device_;
  int before_;
};

}  // namespace inkle::runtime::cuda
