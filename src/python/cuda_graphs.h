// Calls of a program on a GPU as recorded graphs: for each set of shapes the second call is
// recorded, later ones are replayed. Parameters are read where they lie. Another input that has
// moved is from then on copied to where the recording reads it. Large results are the caller's as
// they are: a recording is replayed again when the caller has dropped them, and there are a few.
// Small results, and those of callers that keep more, are copied.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "python/torch_host.h"

namespace inkle::python {

class CudaGraphs {
 public:
  // Both outlive this object.
  CudaGraphs(runtime::common::Executable& executable, const HostContext& context);

  // `host` has read `arguments`. The result, or an invalid object if the call is to run as usual.
  // The interpreter's lock is held throughout.
  [[nodiscard]] nb::object call(TorchHost& host, const nb::list& arguments);

  // (shapes recorded, calls replayed, why not "").
  [[nodiscard]] nb::object report() const;

 private:
  // One graph, with results in memory of its own.
  struct Recording {
    nb::object graph;  // torch.cuda.CUDAGraph
    std::vector<ResultRecipe> results;
    bool is_copied = false;          // results are: the caller never sees its memory
    std::vector<std::int64_t> uses;  // of each result's storage while the caller has none of it
  };
  // What calls of the same shapes on the same stream share.
  struct Entry {
    std::vector<std::int64_t> key;
    std::list<Recording> recordings;     // the one replayed last comes last
    std::vector<const void*> addresses;  // of the tensors, when they were recorded
    std::vector<nb::object> copies;      // that they read in place of a tensor; null: none
    int moves = 0;                       // after which all was recorded anew
    bool is_hopeless = false;
  };

  Entry* find(TorchHost& host, bool& is_new);
  [[nodiscard]] bool has_moved(const Entry& entry, std::span<const abi::TensorView> views) const;
  bool follow(Entry& entry, const TorchHost& host);
  Recording* choose(Entry& entry, const nb::list& arguments);
  Recording* record(Entry& entry, const nb::list& arguments);
  nb::object replay(Entry& entry, const Recording& recording, const TorchHost& host);
  void give_up(Entry& entry, std::string reason);

  runtime::common::Executable& executable_;
  const HostContext& context_;
  std::vector<bool> is_parameter_;  // by tensor argument
  std::vector<bool> is_written_;
  std::list<Entry> entries_;  // the most recently used first
  std::vector<std::int64_t> key_;
  std::int64_t recorded_ = 0;
  std::int64_t replayed_ = 0;
  std::string reason_;
};

}  // namespace inkle::python
