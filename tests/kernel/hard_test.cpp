// The kernels of tests/kernel/hard compute what their comments say: runs of the interpreter against
// plain loops in f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernel/interpret_inputs.h"
#include "kernel/parse.h"

namespace inkle::kernel {
namespace {

using Numbers = std::vector<double>;

// The text of a kernel among the "--- in" sections of a file.
std::string text_of(const std::string& file, const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(INKLE_TEST_DATA) / "hard" / file;
  std::ifstream in(path);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  const std::size_t begin = all.find("kernel @" + name + "(");
  return begin == std::string::npos ? "" : all.substr(begin, all.find("\n//", begin) - begin);
}

double read(DType dtype, const std::byte* at) {
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::f32:
      return as(0.0F);
    case DType::bf16:
      return std::bit_cast<float>(std::uint32_t{as(std::uint16_t{})} << 16);
    case DType::i64:
      return static_cast<double>(as(std::int64_t{}));
    case DType::i32:
      return as(std::int32_t{});
    default:
      ADD_FAILURE();
      return 0;
  }
}

// One run of a kernel; parameters by name.
class Hard {
 public:
  Hard(const std::string& file, const std::string& name, const std::vector<std::string>& sizes)
      : parsed_(parse_kernel(text_of(file, name), name)),
        k_(parsed_.kernel),
        inputs_(make_inputs(k_, choose_sizes(k_, sizes))) {}

  Numbers get(const std::string& name, std::size_t instance = 0) const {
    const MemoryId id = find(name);
    const std::span<std::byte> data = inputs_.instances.at(instance).arguments.at(id).data;
    const DType dtype = k_.memories[id].dtype;
    const std::size_t size = static_cast<std::size_t>(abi::size_of(dtype));
    Numbers out;
    for (std::size_t i = 0; i < data.size() / size; ++i) {
      out.push_back(read(dtype, &data[i * size]));
    }
    return out;
  }
  void set(const std::string& name, const Numbers& values) {
    const std::span<std::byte> data = inputs_.instances.at(0).arguments.at(find(name)).data;
    ASSERT_EQ(data.size(), values.size() * sizeof(float));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<float>(values[i]);
      std::memcpy(&data[i * sizeof value], &value, sizeof value);
    }
  }
  void run() {
    const RunResult result = interpret(k_, inputs_.instances);
    EXPECT_TRUE(result.is_complete);
    EXPECT_EQ(result.status, 0);
    for (const Finding& finding : result.findings) ADD_FAILURE() << to_string(k_, finding);
  }

 private:
  MemoryId find(const std::string& name) const {
    for (MemoryId id = 0; id < k_.memories.size(); ++id) {
      if (k_.memories[id].name == name) return id;
    }
    throw UserError("no memory " + name);
  }

  ParsedKernel parsed_;
  const Kernel& k_;
  Inputs inputs_;
};

void expect_near(const Numbers& got, const Numbers& wanted, double relative, double absolute = 0) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], wanted[i], relative * std::abs(wanted[i]) + absolute) << "element " << i;
  }
}

constexpr double kBf16 = 1.0 / 128;

TEST(HardKernels, SoftmaxOfRows) {
  Numbers results[2];
  for (int lowered = 0; lowered < 2; ++lowered) {
    Hard hard("softmax_rows.test", lowered == 0 ? "softmax_rows" : "softmax_rows_lowered", {"n=2"});
    const Numbers x = hard.get("x");
    hard.run();
    results[lowered] = hard.get("y");
    Numbers wanted(x.size());
    for (std::size_t row = 0; row < 2; ++row) {
      const auto begin = x.begin() + static_cast<std::ptrdiff_t>(8192 * row);
      const double top = *std::max_element(begin, begin + 8192);
      double sum = 0;
      for (std::size_t i = 0; i < 8192; ++i) sum += std::exp(x[8192 * row + i] - top);
      for (std::size_t i = 8192 * row; i < 8192 * (row + 1); ++i) {
        wanted[i] = std::exp(x[i] - top) / sum;
      }
    }
    expect_near(results[lowered], wanted, kBf16);
  }
}

TEST(HardKernels, LayerNormByClusters) {
  for (const char* name : {"layer_norm_cluster", "layer_norm_cluster_lowered"}) {
    Hard hard("welford_cluster.test", name, {"n=2"});
    const Numbers x = hard.get("x"), g = hard.get("g"), b = hard.get("b");
    hard.run();
    Numbers wanted(x.size());
    for (std::size_t row = 0; row < 2; ++row) {
      double mean = 0, square = 0;
      for (std::size_t i = 0; i < 8192; ++i) mean += x[8192 * row + i] / 8192;
      for (std::size_t i = 0; i < 8192; ++i) square += std::pow(x[8192 * row + i] - mean, 2) / 8192;
      for (std::size_t i = 0; i < 8192; ++i) {
        const double z = (x[8192 * row + i] - mean) / std::sqrt(square + 1e-5);
        wanted[8192 * row + i] = z * g[i] + b[i];
      }
    }
    expect_near(hard.get("y"), wanted, kBf16, 1e-4);
  }
}

TEST(HardKernels, SequentialRows) {
  Hard hard("sequential_rows.test", "column_products", {"m=37"});
  const Numbers x = hard.get("x"), g = hard.get("g");
  hard.run();
  Numbers wanted(2 * 1024);
  for (std::size_t r = 0; r < 37; ++r) {
    for (std::size_t c = 0; c < 1024; ++c) {
      wanted[1024 * (r / 32) + c] += x[1024 * r + c] * g[1024 * r + c];
    }
  }
  expect_near(hard.get("part"), wanted, 1e-5, 1e-5);
}

TEST(HardKernels, Scans) {
  Hard hard("scan_look_back.test", "running_sums", {"n=5000"});
  const Numbers x = hard.get("x");
  hard.run();
  Numbers wanted;
  for (const double v : x) wanted.push_back(v + (wanted.empty() ? 0 : wanted.back()));
  expect_near(hard.get("y"), wanted, 0);

  Hard block("scan_look_back.test", "block_scan_lowered", {"n=300"});
  const Numbers z = block.get("x");
  block.run();
  Numbers parts;
  for (std::size_t i = 0; i < z.size(); ++i) {
    parts.push_back(z[i] + (i % 128 == 0 ? 0 : parts.back()));
  }
  expect_near(block.get("y"), parts, 0);
}

TEST(HardKernels, LastBlocks) {
  for (const char* name : {"column_sums", "column_sums_fences"}) {
    Hard hard("last_block.test", name, {"m=41"});
    const Numbers x = hard.get("x");
    hard.run();
    Numbers wanted(1024);
    for (std::size_t i = 0; i < x.size(); ++i) wanted[i % 1024] += x[i];
    expect_near(hard.get("y"), wanted, 1e-5, 1e-5);
  }
}

TEST(HardKernels, Table) {
  Hard hard("table.test", "adamw", {"n=1030"});
  for (const char* name : {"first", "second"}) hard.set(name, {0.5});
  std::vector<Numbers> before;
  for (const char* name : {"g", "p", "m", "v", "rate", "first", "second"}) {
    Numbers values = hard.get(name);
    for (double& v : values) v = std::abs(v);
    if (values.size() > 1) hard.set(name, values);
    before.push_back(hard.get(name));
  }
  hard.run();
  Numbers p, m, v;
  for (std::size_t i = 0; i < 1030; ++i) {
    const double g = before[0][i], rate = before[4][0];
    m.push_back(before[2][i] + (g - before[2][i]) * 0.1);
    v.push_back(before[3][i] * 0.999 + g * g * 0.001);
    const double root = std::sqrt(v[i] / before[6][0]) + 1e-8;
    p.push_back(before[1][i] - rate * 0.01 * before[1][i] - rate * (m[i] / before[5][0]) / root);
  }
  expect_near(hard.get("m"), m, 1e-5, 1e-6);
  expect_near(hard.get("v"), v, 1e-5, 1e-6);
  expect_near(hard.get("p"), p, 1e-4, 1e-4);
}

TEST(HardKernels, Tiles) {
  for (const bool swizzled : {false, true}) {
    const std::size_t m = swizzled ? 64 : 33, n = swizzled ? 32 : 65;
    Hard hard("tile.test", swizzled ? "transpose_swizzled" : "transpose_padded",
              {"m=" + std::to_string(m), "n=" + std::to_string(n)});
    const Numbers x = hard.get("x");
    hard.run();
    Numbers wanted(m * n);
    for (std::size_t i = 0; i < m * n; ++i) wanted[i % n * m + i / n] = x[i];
    expect_near(hard.get("y"), wanted, 0);
  }
}

TEST(HardKernels, Scatter) {
  Hard hard("scatter.test", "index_add", {"m=7", "n=5"});
  const Numbers x = hard.get("x"), idx = hard.get("idx");
  Numbers wanted = hard.get("y");
  hard.run();
  for (std::size_t i = 0; i < x.size(); ++i) {
    wanted[64 * static_cast<std::size_t>(idx[i / 64]) + i % 64] += x[i];
  }
  expect_near(hard.get("y"), wanted, 1e-5, 1e-5);
}

// --- Attention
// -------------------------------------------------------------------------------------

struct Attended {
  Numbers out, statistics;
  Numbers weights;  // [head][row][column]
};

Attended attend(const Numbers& q, const Numbers& k, const Numbers& v, std::size_t heads,
                std::size_t rows, std::size_t columns) {
  Attended a{Numbers(q.size()), Numbers(2 * heads * rows), Numbers(heads * rows * columns)};
  for (std::size_t hr = 0; hr < heads * rows; ++hr) {
    const std::size_t h = hr / rows;
    double* weights = &a.weights[hr * columns];
    for (std::size_t c = 0; c < columns; ++c) {
      for (std::size_t d = 0; d < 64; ++d) {
        weights[c] += q[64 * hr + d] * k[64 * (h * columns + c) + d] / 8;
      }
    }
    const double top = *std::max_element(weights, weights + columns);
    double sum = 0;
    for (std::size_t c = 0; c < columns; ++c) sum += weights[c] = std::exp(weights[c] - top);
    a.statistics[2 * hr] = top;
    a.statistics[2 * hr + 1] = sum;
    for (std::size_t c = 0; c < columns; ++c) {
      weights[c] /= sum;
      for (std::size_t d = 0; d < 64; ++d) {
        a.out[64 * hr + d] += weights[c] * v[64 * (h * columns + c) + d];
      }
    }
  }
  return a;
}

TEST(HardKernels, Attention) {
  Hard hard("attention_cpu.test", "attention", {"h=2", "l=33", "n=67"});
  const Numbers q = hard.get("q"), k = hard.get("k"), v = hard.get("v");
  hard.run();
  expect_near(hard.get("o"), attend(q, k, v, 2, 33, 67).out, 1e-4, 1e-4);
}

TEST(HardKernels, AttentionGradient) {
  constexpr std::size_t kHeads = 2, kRows = 67;
  Hard hard("attention_cpu.test", "attention_gradient", {"h=2", "n=67"});
  const Numbers q = hard.get("q"), k = hard.get("k"), v = hard.get("v"), g = hard.get("g");
  const Attended a = attend(q, k, v, kHeads, kRows, kRows);
  hard.set("o", a.out);
  hard.set("statistics", a.statistics);
  hard.run();
  Numbers dq(q.size()), dk(q.size()), dv(q.size());
  for (std::size_t hr = 0; hr < kHeads * kRows; ++hr) {
    double level = 0;
    for (std::size_t d = 0; d < 64; ++d) level += g[64 * hr + d] * a.out[64 * hr + d];
    for (std::size_t c = 0; c < kRows; ++c) {
      const std::size_t hc = hr / kRows * kRows + c;
      const double weight = a.weights[hr * kRows + c];
      double slope = 0;
      for (std::size_t d = 0; d < 64; ++d) slope += g[64 * hr + d] * v[64 * hc + d];
      slope = weight * (slope - level) / 8;
      for (std::size_t d = 0; d < 64; ++d) {
        dq[64 * hr + d] += slope * k[64 * hc + d];
        dk[64 * hc + d] += slope * q[64 * hr + d];
        dv[64 * hc + d] += weight * g[64 * hr + d];
      }
    }
  }
  expect_near(hard.get("dq"), dq, 1e-3, 1e-2);
  expect_near(hard.get("dk"), dk, 1e-3, 1e-2);
  expect_near(hard.get("dv"), dv, 1e-3, 1e-2);
}

TEST(HardKernels, Gemm) {
  // The ring of 4 stages comes round with 5 of them; that takes a while.
  const bool is_long = std::getenv("INKLE_LONG_TESTS") != nullptr;
  const std::size_t m = 70, n = 128, depth = is_long ? 320 : 64;
  Hard hard("gemm_wgmma.test", "gemm_wgmma", {"m=70", "n=128", "k=" + std::to_string(depth)});
  const Numbers a = hard.get("a"), b = hard.get("b"), bias = hard.get("bias");
  hard.run();
  Numbers wanted(m * n);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    wanted[i] = bias[i % n];
    for (std::size_t k = 0; k < depth; ++k)
      wanted[i] += a[i / n * depth + k] * b[i % n * depth + k];
  }
  expect_near(hard.get("y"), wanted, kBf16, 1e-3);
}

}  // namespace
}  // namespace inkle::kernel
