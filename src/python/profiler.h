// Events of torch.profiler: a call by its program's name, on the CPU also each of its steps. The
// interpreter's lock must be held, but where a step begins or ends.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <string>

#include "abi/plan.h"
#include "runtime/common/executable.h"

namespace inkle::python {

namespace nb = nanobind;

// Whether a profiler of torch records; one lookup in a dictionary.
[[nodiscard]] bool is_profiled();

// An event from here to the end of its scope. What fails on the way leaves no event.
class ProfilerEvent {
 public:
  explicit ProfilerEvent(const std::string& name);
  ~ProfilerEvent();
  ProfilerEvent(const ProfilerEvent&) = delete;
  ProfilerEvent& operator=(const ProfilerEvent&) = delete;

 private:
  nb::object event_;
};

// An event for each step: a kernel by its name, as the profiler shows kernels of a GPU.
class StepEvents final : public runtime::common::StepObserver {
 public:
  explicit StepEvents(const abi::Plan& plan) : plan_(plan) {}
  ~StepEvents() override;

  void begin(std::size_t step) override;
  void end() override;

 private:
  const abi::Plan& plan_;
  nb::object event_;
};

}  // namespace inkle::python
