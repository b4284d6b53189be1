#include "package/built.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>

#include "graph/text.h"
#include "ops/table.h"
#include "runtime/cpu/executor.h"

namespace inkle::package {
namespace {

constexpr std::string_view kGraph =
    R"(graph @layer(%x: f32[s0,24], %w: f32[40,24] param, %s0: int) -> f32[s0,40], f32[s0] where s0 in 2..4096 hint 32 {
  %c0: f32[40] = literal [0.5, -0.25, 1.0, 2.0, 0.125, 0.5, -0.25, 1.0, 2.0, 0.125, 0.5, -0.25, 1.0, 2.0, 0.125, 0.5, -0.25, 1.0, 2.0, 0.125, 0.5, -0.25, 1.0, 2.0, 0.125, 0.5, -0.25, 1.0, 2.0, 0.125, 0.5, -0.25, 1.0, 2.0, 0.125, 0.5, -0.25, 1.0, 2.0, 0.125]
  %0: f32[24,40] = permute(%w, [1, 0])
  %1: f32[s0,40] = mm(%x, %0)
  %2: f32[s0,40] = add(%1, %c0)
  %3: f32[s0,40] = tan(%2)
  %4: f32[s0] = sum_dim(%3, [1], false)
  return %3, %4
}
)";

class Host final : public runtime::common::Host {
 public:
  runtime::common::HostTensor make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
                                          std::span<const std::int64_t> strides) override {
    std::size_t bytes = static_cast<std::size_t>(abi::size_of(dtype));
    for (const std::int64_t s : sizes) bytes *= static_cast<std::size_t>(s);
    auto& made = memory_.emplace_back(bytes + 64);
    kept_.emplace_back(sizes.begin(), sizes.end());
    const std::int64_t* kept_sizes = kept_.back().data();
    kept_.emplace_back(strides.begin(), strides.end());
    auto at = reinterpret_cast<std::uintptr_t>(made.data());
    at = (at + 63) / 64 * 64;
    return {&made, abi::TensorView{reinterpret_cast<void*>(at),
                                   dtype,
                                   {},
                                   static_cast<std::int32_t>(sizes.size()),
                                   kept_sizes,
                                   kept_.back().data()}};
  }
  void call(std::uint32_t, std::span<const runtime::common::EagerOperand>,
            std::span<runtime::common::HostTensor>) override {}
  void give(std::uint32_t, const runtime::common::Output& output) override {
    std::size_t elements = 1;
    for (std::int32_t d = 0; d < output.view.rank; ++d) {
      elements *= static_cast<std::size_t>(output.view.sizes[d]);
    }
    const std::size_t before = bits.size();
    bits.resize(before + elements);
    std::memcpy(bits.data() + before, output.view.data, elements * sizeof bits[0]);
  }

  std::vector<std::uint32_t> bits;

 private:
  std::deque<std::vector<std::byte>> memory_;
  std::deque<std::vector<std::int64_t>> kept_;
};

std::vector<float> numbers(std::size_t count, std::uint64_t state) {
  std::vector<float> made(count);
  for (float& value : made) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    value = static_cast<float>(static_cast<std::int32_t>(state >> 33)) / 1073741824.0F - 1.0F;
  }
  return made;
}

constexpr std::int64_t kWeightSizes[] = {40, 24};
constexpr std::int64_t kWeightStrides[] = {24, 1};

abi::TensorView weight_view(const float* weights) {
  return {const_cast<float*>(weights), abi::DType::f32, {}, 2, kWeightSizes, kWeightStrides};
}

}  // namespace

Narrowed::Narrowed(const char* value) {
  if (const char* const before = std::getenv("INKLE_ISA"); before != nullptr) before_ = before;
  ::setenv("INKLE_ISA", value, 1);
}
Narrowed::~Narrowed() { ::setenv("INKLE_ISA", before_.c_str(), 1); }

Built build(const std::string& instruction_set) {
  Built built;
  driver::Compiler compiler(driver::make_cpu_target(instruction_set));
  graph::Graph graph = graph::parse(kGraph, "layer.ir", ops::op_table());
  built.input.graph = graph::to_string(graph);
  built.compiled = compiler.compile(std::move(graph), {.keep_objects = true});
  built.weights = numbers(40 * 24, 1);
  built.input.targets.push_back(
      {image::instruction_set_named(instruction_set), {built.compiled.plan, built.compiled.code}});
  built.input.weights.push_back({1, weight_view(built.weights.data())});
  built.input.output_names = {"y", "sums"};
  built.bytes = bytes_of(built.input);
  return built;
}

std::vector<std::byte> build_for_gpus() {
  PackageInput input;
  for (const char* const target : {"sm_90a", "compute_80"}) {
    driver::Compiler compiler(driver::make_null_target(target));
    graph::Graph graph = graph::parse(kGraph, "layer.ir", ops::op_table());
    const abi::Device gpu{abi::DeviceKind::cuda, 0};
    for (std::uint32_t v = 0; v < graph.value_count(); ++v) {
      graph.type(graph::ValueId{v}).device = gpu;
    }
    for (graph::Output& output : graph.outputs) output.view.device = gpu;
    const driver::Compiled compiled = compiler.compile(std::move(graph), {});
    input.targets.push_back({nullptr, {compiled.plan, compiled.code}, target});
  }
  const std::vector<float> weights = numbers(40 * 24, 1);
  input.weights.push_back({1, weight_view(weights.data())});
  return bytes_of(input);
}

std::vector<std::byte> bytes_of(const PackageInput& input) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("inkle_package_test_" + std::to_string(::getpid()) + ".inkle");
  write_package(path, input);
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove(path);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void make_hashes_right(std::vector<std::byte>& bytes) {
  FileHeader header;
  if (bytes.size() < sizeof header) return;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.file_bytes = bytes.size();
  header.hash = {};
  const std::size_t most = (bytes.size() - sizeof header) / sizeof(SectionEntry);
  const std::size_t count = std::min<std::size_t>(header.section_count, most);
  for (std::size_t i = 0; i < count; ++i) {
    SectionEntry e;
    std::byte* const at = bytes.data() + sizeof header + i * sizeof e;
    std::memcpy(&e, at, sizeof e);
    if (e.offset > bytes.size() || bytes.size() - e.offset < e.bytes) continue;
    e.hash = hash_of_section(std::span(bytes).subspan(e.offset, e.bytes));
    std::memcpy(at, &e, sizeof e);
  }
  std::memcpy(bytes.data(), &header, sizeof header);
  header.hash =
      hash_of_header(std::span(bytes).first(sizeof header + count * sizeof(SectionEntry)));
  std::memcpy(bytes.data(), &header, sizeof header);
}

std::vector<std::uint32_t> run(const abi::PlanAndCode& made, const float* weights,
                               std::int64_t rows) {
  const std::vector<float> x = numbers(static_cast<std::size_t>(rows) * 24, 7);
  const std::int64_t sizes[] = {rows, 24};
  const std::int64_t strides[] = {24, 1};
  const abi::TensorView views[] = {
      {const_cast<float*>(x.data()), abi::DType::f32, {}, 2, sizes, strides}, weight_view(weights)};
  runtime::cpu::Executable executable(made);
  Host host;
  executable.run({.tensors = views, .integers = {&rows, 1}, .host = &host});
  return host.bits;
}

std::vector<std::uint32_t> run(const Package& package, std::int64_t rows) {
  const std::vector<PackageWeight> weights = package.weights();
  return run(package.made(), reinterpret_cast<const float*>(weights.at(0).data.data()), rows);
}

}  // namespace inkle::package
