#include "runtime/cuda/cublaslt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/cuda/cublaslt_api.h"
#include "runtime/cuda/gemm_choice.h"

namespace inkle::runtime::cuda {
namespace {

using cublaslt::Api;
using cublaslt::Candidate;
using cublaslt::Description;
using cublaslt::Layout;

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

class LtGemm final : public GemmAlgorithm {
 public:
  LtGemm(const Api& api, cublaslt::Handle handle, const GemmShape& shape, const Problem& problem,
         const Candidate& candidate)
      : api_(api), handle_(handle), shape_(shape), problem_(problem), candidate_(candidate) {
    for (int a = 0; a < cublaslt::kAlgorithmAttributes; ++a) {
      configuration_ += fmt::format("{} ", attribute(a));
    }
  }

  void run(const GemmPointers& p, void* workspace, Stream stream) const override {
    check(execute(p, workspace, stream), "running a GEMM");
  }
  bool try_run(const GemmPointers& p, void* workspace, Stream stream) const override {
    return execute(p, workspace, stream) == cublaslt::kSuccess;
  }

  std::string name() const override {
    return fmt::format("cublaslt algorithm {} tile {} split {}", attribute(cublaslt::kAlgorithmId),
                       attribute(cublaslt::kAlgorithmTile), attribute(cublaslt::kAlgorithmSplit));
  }

  // The opaque description has other bytes in another process, and the configuration does not tell
  // all: several candidates may have the same. They come in the same order in each process.
  std::string identity() const override { return fmt::format("{}#{}", configuration_, number_); }
  const std::string& configuration() const { return configuration_; }
  // Among candidates of this configuration.
  void set_number(std::ptrdiff_t number) { number_ = number; }

 private:
  // 0 where the library does not know it.
  [[nodiscard]] std::uint32_t attribute(int number) const {
    std::uint32_t value = 0;
    std::uint16_t narrow = 0;
    std::size_t written = 0;
    if (number < cublaslt::kAlgorithmWideAttributes) {
      api_.algorithm_get(&candidate_.algorithm, number, &value, sizeof value, &written);
      return value;
    }
    api_.algorithm_get(&candidate_.algorithm, number, &narrow, sizeof narrow, &written);
    return narrow;
  }

  [[nodiscard]] cublaslt::Status execute(const GemmPointers& p, void* workspace,
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
  std::string configuration_;
  std::ptrdiff_t number_ = 0;
};

class LtFinder final : public GemmFinder {
 public:
  explicit LtFinder(const Api& api) : api_(api) { check(api_.create(&handle_), "starting"); }

  std::string library() const override { return fmt::format("cuBLASLt {}", api_.version()); }

  GemmAlgorithms find_algorithms(const GemmShape& s, const GemmPointers& p, int most) override {
    const Problem problem = make_problem(api_, s);
    Problem query = problem;
    if (s.has_bias) {
      check(
          api_.description_set(&query.description, cublaslt::kBiasPointer, &p.bias, sizeof p.bias),
          "passing a bias");
    }
    cublaslt::Preference preference;
    check(api_.preference_init(&preference, sizeof preference), "asking for algorithms");
    const auto bytes = static_cast<std::uint64_t>(s.has_workspace ? Gemms::kWorkspaceBytes : 0);
    check(api_.preference_set(&preference, cublaslt::kPreferWorkspace, &bytes, sizeof bytes),
          "asking for algorithms");
    const auto alignment = static_cast<std::uint32_t>(s.alignment);
    for (int operand = 0; operand < 4; ++operand) {
      check(api_.preference_set(&preference, cublaslt::kPreferAlignmentA + operand, &alignment,
                                sizeof alignment),
            "asking for algorithms");
    }
    std::vector<Candidate> found(static_cast<std::size_t>(most));
    int count = 0;
    const cublaslt::Status status =
        api_.heuristic(handle_, &query.description, &query.b, &query.a, &query.c, &query.d,
                       &preference, most, found.data(), &count);
    GemmAlgorithms result;
    std::vector<std::string> configurations;
    for (const Candidate& c : std::span(found).first(static_cast<std::size_t>(count))) {
      if (c.state != cublaslt::kSuccess) continue;
      auto algorithm = std::make_shared<LtGemm>(api_, handle_, s, problem, c);
      algorithm->set_number(std::ranges::count(configurations, algorithm->configuration()));
      configurations.push_back(algorithm->configuration());
      result.push_back(std::move(algorithm));
    }
    if (result.empty()) {
      unsupported("cuBLASLt has no algorithm for a GEMM of [{}, {}] and [{}, {}] (status {})", s.m,
                  s.k, s.k, s.n, status);
    }
    return result;
  }

 private:
  const Api& api_;
  cublaslt::Handle handle_ = nullptr;
};

}  // namespace

std::unique_ptr<Gemms> make_cublaslt(Device& device) {
  std::string why_not;
  const Api* api = cublaslt::find(why_not);
  if (api == nullptr) unsupported("{}", why_not);
  return choose_among(std::make_unique<LtFinder>(*api), device);
}

bool can_multiply(abi::DType a, abi::DType b, abi::DType result) {
  using abi::DType;
  if (a != b) return false;
  if (a == DType::f16 || a == DType::bf16) return result == a || result == DType::f32;
  return (a == DType::f32 || a == DType::f64) && result == a;
}

}  // namespace inkle::runtime::cuda
