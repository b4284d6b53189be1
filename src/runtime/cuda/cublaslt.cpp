#include "runtime/cuda/cublaslt.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/recent_map.h"
#include "runtime/cuda/cublaslt_api.h"

namespace inkle::runtime::cuda {
namespace {

using cublaslt::Api;
using cublaslt::Candidate;
using cublaslt::Description;
using cublaslt::Layout;

// Candidates of the library's own model that are measured, and runs of each after a first one. Its
// favourite is the fastest for about half of the shapes of transformers.
constexpr int kCandidates = 8;
// That are kept; a network has up to a few hundred, more come from sizes that change.
constexpr std::size_t kMostShapes = 1024;
constexpr int kRuns = 4;

int type_of(abi::DType dtype) {
  switch (dtype) {
    case abi::DType::f16:
      return cublaslt::kF16;
    case abi::DType::bf16:
      return cublaslt::kBf16;
    case abi::DType::f64:
      return cublaslt::kF64;
    default:
      return cublaslt::kF32;
  }
}

void check(cublaslt::Status status, const char* doing) {
  if (status != cublaslt::kSuccess) [[unlikely]]
    throw InternalError(fmt::format("cuBLASLt, {}: status {}", doing, status));
}

// The library's matrices have contiguous columns, ours contiguous rows: what it computes is
// d^T [n, m] = b^T [n, k] * a^T [k, m], where a bias runs along its rows.
struct Problem {
  Description description;
  Layout a, b, c, d;  // the library's first operand is our b
};

Layout make_layout(const Api& api, abi::DType dtype, std::int64_t rows, std::int64_t columns,
                   std::int64_t leading, std::int64_t batch, std::int64_t batch_stride) {
  Layout layout;
  check(api.layout_init(&layout, sizeof layout, type_of(dtype), static_cast<std::uint64_t>(rows),
                        static_cast<std::uint64_t>(columns), leading),
        "describing a matrix");
  if (batch > 1) {
    const auto count = static_cast<std::int32_t>(batch);
    check(api.layout_set(&layout, cublaslt::kLayoutBatchCount, &count, sizeof count),
          "describing a batch");
    check(api.layout_set(&layout, cublaslt::kLayoutBatchStride, &batch_stride, sizeof batch_stride),
          "describing a batch");
  }
  return layout;
}

std::uint32_t epilogue_of(const GemmShape& s) {
  std::uint32_t epilogue = 0;
  if (s.has_bias) epilogue |= cublaslt::kEpilogueBias;
  if (s.activation == GemmShape::Activation::relu) epilogue |= cublaslt::kEpilogueRelu;
  if (s.activation == GemmShape::Activation::gelu_tanh) epilogue |= cublaslt::kEpilogueGelu;
  return epilogue == 0 ? cublaslt::kEpilogueNone : epilogue;
}

Problem make_problem(const Api& api, const GemmShape& s) {
  Problem p;
  const bool wide = s.out == abi::DType::f64;
  check(api.description_init(&p.description, sizeof p.description,
                             wide ? cublaslt::kComputeF64 : cublaslt::kComputeF32,
                             wide ? cublaslt::kF64 : cublaslt::kF32),
        "describing a product");
  const auto transpose = [&](int which) {
    check(api.description_set(&p.description, which, &cublaslt::kTransposed,
                              sizeof cublaslt::kTransposed),
          "describing a product");
  };
  if (s.b_column == 1) {
    p.b = make_layout(api, s.in, s.n, s.k, s.b_depth, s.batch, s.b_batch);
  } else {
    transpose(cublaslt::kTransposeA);
    p.b = make_layout(api, s.in, s.k, s.n, s.b_column, s.batch, s.b_batch);
  }
  if (s.a_depth == 1) {
    p.a = make_layout(api, s.in, s.k, s.m, s.a_row, s.batch, s.a_batch);
  } else {
    transpose(cublaslt::kTransposeB);
    p.a = make_layout(api, s.in, s.m, s.k, s.a_depth, s.batch, s.a_batch);
  }
  p.d = make_layout(api, s.out, s.n, s.m, s.d_row, s.batch, s.d_batch);
  p.c = s.has_residual ? make_layout(api, s.out, s.n, s.m, s.c_row, s.batch, s.c_batch) : p.d;
  const std::uint32_t epilogue = epilogue_of(s);
  check(api.description_set(&p.description, cublaslt::kEpilogue, &epilogue, sizeof epilogue),
        "describing an epilogue");
  return p;
}

class LtGemm final : public Gemm {
 public:
  LtGemm(const Api& api, cublaslt::Handle handle, const GemmShape& shape, const Problem& problem,
         const Candidate& candidate)
      : api_(api), handle_(handle), shape_(shape), problem_(problem), candidate_(candidate) {}

  void run(const GemmPointers& p, void* workspace, Stream stream) const override {
    check(try_run(p, workspace, stream), "running a product");
  }

  [[nodiscard]] cublaslt::Status try_run(const GemmPointers& p, void* workspace,
                                         Stream stream) const {
    Problem problem = problem_;  // the library takes pointers to what it does not change
    if (shape_.has_bias) {
      check(api_.description_set(&problem.description, cublaslt::kBiasPointer, &p.bias,
                                 sizeof p.bias),
            "passing a bias");
    }
    const void* c = shape_.has_residual ? p.c : p.d;
    if (shape_.out == abi::DType::f64) {
      const double one = 1, beta = shape_.has_residual ? 1 : 0;
      return matmul(problem, p, &one, &beta, c, workspace, stream);
    }
    const float one = 1, beta = shape_.has_residual ? 1 : 0;
    return matmul(problem, p, &one, &beta, c, workspace, stream);
  }

  std::string name() const override {
    const auto get = [&](int attribute) {
      std::int32_t value = 0;
      std::size_t written = 0;
      api_.algorithm_get(&candidate_.algorithm, attribute, &value, sizeof value, &written);
      return value;
    };
    return fmt::format("cublaslt algorithm {} tile {} split {}", get(cublaslt::kAlgorithmId),
                       get(cublaslt::kAlgorithmTile), get(cublaslt::kAlgorithmSplit));
  }

 private:
  cublaslt::Status matmul(Problem& problem, const GemmPointers& p, const void* one,
                          const void* beta, const void* c, void* workspace, Stream stream) const {
    return api_.matmul(
        handle_, &problem.description, one, p.b, &problem.b, p.a, &problem.a, beta, c, &problem.c,
        p.d, &problem.d, &candidate_.algorithm, shape_.has_workspace ? workspace : nullptr,
        shape_.has_workspace ? static_cast<std::size_t>(Gemms::kWorkspaceBytes) : 0, stream);
  }

  const Api& api_;
  cublaslt::Handle handle_;
  GemmShape shape_;
  Problem problem_;
  Candidate candidate_;
};

class LtGemms final : public Gemms {
 public:
  LtGemms(const Api& api, Device& device) : api_(api), device_(device) {
    check(api_.create(&handle_), "starting");
  }

  std::shared_ptr<const Gemm> find(const GemmShape& shape, const GemmPointers& pointers,
                                   void* workspace, Stream stream) override {
    const std::lock_guard lock(mutex_);
    if (const auto* known = known_.find(shape); known != nullptr) return *known;
    std::vector<std::shared_ptr<LtGemm>> all = candidates(shape, pointers);
    // A result that is added to what it replaces must be computed once.
    const bool is_in_place = shape.has_residual && pointers.c == pointers.d;
    if (is_in_place || device_.is_capturing(stream)) return all.front();
    std::shared_ptr<const Gemm> found = fastest(shape, all, pointers, workspace, stream);
    known_.set(shape, found);
    return found;
  }

 private:
  std::vector<std::shared_ptr<LtGemm>> candidates(const GemmShape& s, const GemmPointers& p) {
    const Problem problem = make_problem(api_, s);
    Problem query = problem;
    if (s.has_bias) {
      check(
          api_.description_set(&query.description, cublaslt::kBiasPointer, &p.bias, sizeof p.bias),
          "passing a bias");
    }
    cublaslt::Preference preference;
    check(api_.preference_init(&preference, sizeof preference), "asking for algorithms");
    const auto most = static_cast<std::uint64_t>(s.has_workspace ? kWorkspaceBytes : 0);
    check(api_.preference_set(&preference, cublaslt::kPreferWorkspace, &most, sizeof most),
          "asking for algorithms");
    const auto alignment = static_cast<std::uint32_t>(s.alignment);
    for (int operand = 0; operand < 4; ++operand) {
      check(api_.preference_set(&preference, cublaslt::kPreferAlignmentA + operand, &alignment,
                                sizeof alignment),
            "asking for algorithms");
    }
    std::array<Candidate, kCandidates> found{};
    int count = 0;
    const cublaslt::Status status =
        api_.heuristic(handle_, &query.description, &query.b, &query.a, &query.c, &query.d,
                       &preference, kCandidates, found.data(), &count);
    std::vector<std::shared_ptr<LtGemm>> result;
    for (const Candidate& c : std::span(found).first(static_cast<std::size_t>(count))) {
      if (c.state != cublaslt::kSuccess) continue;
      result.push_back(std::make_shared<LtGemm>(api_, handle_, s, problem, c));
    }
    if (result.empty()) {
      unsupported("cuBLASLt knows no way for a product of [{}, {}] and [{}, {}] (status {})", s.m,
                  s.k, s.k, s.n, status);
    }
    return result;
  }

  std::shared_ptr<const Gemm> fastest(const GemmShape& s,
                                      const std::vector<std::shared_ptr<LtGemm>>& all,
                                      const GemmPointers& pointers, void* workspace,
                                      Stream stream) {
    const OwnedEvent start(device_);
    const OwnedEvent end(device_);
    std::shared_ptr<const LtGemm> best;
    double least = 0;
    double first = 0;
    for (const auto& candidate : all) {
      if (candidate->try_run(pointers, workspace, stream) != cublaslt::kSuccess) continue;
      device_.record(start.get(), stream);
      for (int r = 0; r < kRuns; ++r) candidate->run(pointers, workspace, stream);
      device_.record(end.get(), stream);
      const double time = device_.microseconds(start.get(), end.get()) / kRuns;
      if (first == 0) first = time;
      if (!best || time < least) {
        best = candidate;
        least = time;
      }
    }
    if (!best) unsupported("cuBLASLt runs none of its own ways for [{}, {}] x {}", s.m, s.n, s.k);
    log(LogChannel::runtime, "product [{}, {}] k {} batch {}: {} in {:.1f} us, first {:.1f} us",
        s.m, s.n, s.k, s.batch, best->name(), least, first);
    return best;
  }

  const Api& api_;
  Device& device_;
  cublaslt::Handle handle_ = nullptr;
  std::mutex mutex_;
  RecentMap<GemmShape, std::shared_ptr<const Gemm>> known_{kMostShapes};
};

}  // namespace

std::unique_ptr<Gemms> make_cublaslt(Device& device) {
  std::string why_not;
  const Api* api = cublaslt::find(why_not);
  if (api == nullptr) unsupported("{}", why_not);
  return std::make_unique<LtGemms>(*api, device);
}

bool can_multiply(abi::DType a, abi::DType b, abi::DType result) {
  using abi::DType;
  if (a != b) return false;
  if (a == DType::f16 || a == DType::bf16) return result == a || result == DType::f32;
  return (a == DType::f32 || a == DType::f64) && result == a;
}

}  // namespace inkle::runtime::cuda
