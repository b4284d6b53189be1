// Calls of a program on a GPU as CUDA graphs: for each set of shapes the second call is captured,
// later ones are replayed. Parameters are read in place. Another input that has moved is from then
// on copied to the address that the graph reads; a small CPU tensor is copied when its bytes have
// changed. Large results go to the caller without a copy: a graph is replayed again when the caller
// has freed them, and there are a few graphs for each set. Small results, and those of callers that
// keep more, are copied.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "python/torch_host.h"

namespace inkle::python {

// What a replayed call does, in order.
enum class ReplayPart : std::uint8_t {
  read,       // tensors and their geometry out of the caller's list
  versions,   // of weights that derived copies are kept of
  stream,     // torch's current one
  shapes,     // finds the graphs of these sizes, strides and dtypes, and makes them the latest used
  addresses,  // is each tensor at its address of the capture?
  failures,   // errors that kernels of earlier calls have reported
  prepared,   // is what was derived from weights current?
  alive,      // does the caller still hold results of a graph?
  copies,     // inputs that move
  launch,     // of the graph
  results,    // made for the caller
};
inline constexpr std::array<std::string_view, 11> kReplayParts = {
    "read",     "versions", "stream", "shapes", "addresses", "failures",
    "prepared", "alive",    "copies", "launch", "results"};

// Of a call that is not timed.
struct NoWatch {
  static void done(ReplayPart /*part*/) {}
};

// Of a call that is timed: microseconds of each part.
class Watch {
 public:
  void done(ReplayPart part) {
    const auto now = std::chrono::steady_clock::now();
    microseconds_[static_cast<std::size_t>(part)] +=
        std::chrono::duration<double, std::micro>(now - last_).count();
    last_ = std::chrono::steady_clock::now();  // without what was done here
  }
  [[nodiscard]] const auto& microseconds() const { return microseconds_; }

 private:
  std::array<double, kReplayParts.size()> microseconds_{};
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

class CudaGraphs {
 public:
  // Both outlive this object.
  CudaGraphs(runtime::common::Executable& executable, const HostContext& context);

  // `host` has read `arguments`. The result, or an invalid object if the call is to run without a
  // CUDA graph. The GIL is held at the start and the end; torch's copies, clones and replays, and
  // the run that is captured, release it. So one call at a time uses CUDA graphs: a concurrent one,
  // of another thread or of a call to eager within, runs without. `watch`: NoWatch or Watch.
  template <class W>
  [[nodiscard]] nb::object call(TorchHost& host, const nb::list& arguments, W& watch);

  // As TorchCallable's.
  int traverse(visitproc visit, void* argument) const;

  // (shapes captured, calls replayed, why not "").
  [[nodiscard]] nb::object report() const;

 private:
  // One graph, with results in memory of its own.
  struct Capture {
    nb::object graph;  // torch.cuda.CUDAGraph
    std::vector<ResultRecipe> results;
    bool is_copied = false;          // results are: the caller never sees its memory
    std::vector<std::int64_t> uses;  // of each result's storage while the caller has none of it
  };
  // What calls of the same shapes on the same stream share.
  struct Entry {
    std::vector<std::int64_t> key;
    std::list<Capture> captures;         // the one replayed last comes last
    std::vector<const void*> addresses;  // of the tensors, when they were captured
    std::vector<nb::object> copies;      // that they read in place of a tensor; null: none
    // Of copies of CPU tensors: what was copied.
    std::vector<std::vector<std::byte>> values;
    int moves = 0;  // after which all was captured anew
    bool is_hopeless = false;
  };

  template <class W>
  nb::object call_alone(TorchHost& host, const nb::list& arguments, W& watch);
  template <class W>
  Entry* find(TorchHost& host, bool& is_new, W& watch);
  [[nodiscard]] bool has_moved(const Entry& entry, std::span<const abi::TensorView> views) const;
  bool follow(Entry& entry, const TorchHost& host);
  // Makes the copy of one tensor; "" or why there is none.
  [[nodiscard]] std::string make_copy(Entry& entry, const TorchHost& host,
                                      std::size_t number) const;
  void refresh_copies(Entry& entry, const TorchHost& host) const;
  Capture* choose(Entry& entry, const nb::list& arguments);
  Capture* record(Entry& entry, const nb::list& arguments);
  template <class W>
  nb::object replay(Entry& entry, const Capture& capture, const TorchHost& host, W& watch);
  void give_up(Entry& entry, std::string reason);

  runtime::common::Executable& executable_;
  const HostContext& context_;
  std::vector<bool> is_parameter_;  // by tensor argument
  std::vector<bool> is_written_;
  std::vector<bool> is_of_cpu_;  // the views of weights do not always say it
  std::vector<std::int32_t> alignment_;
  std::list<Entry> entries_;  // the most recently used first
  std::vector<std::int64_t> key_;
  bool is_busy_ = false;  // guarded by the interpreter's lock
  std::int64_t recorded_ = 0;
  std::int64_t replayed_ = 0;
  std::string reason_;
};

extern template nb::object CudaGraphs::call(TorchHost&, const nb::list&, NoWatch&);
extern template nb::object CudaGraphs::call(TorchHost&, const nb::list&, Watch&);

}  // namespace inkle::python
