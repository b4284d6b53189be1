// Packages of GPUs by the C API, on the null device, which does all but run kernels: what lies
// where, what is copied and when, and what is refused and how.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "capi/inkle.h"
#include "capi/program.h"
#include "capi/sample.h"
#include "codegen/cuda/compiler.h"
#include "runtime/cuda/library_choices.h"
#include "runtime/cuda/named_device.h"

namespace inkle::capi {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kScale =
    R"(graph @scale(%x: f32[s0,3], %w: f32[3] param) -> f32[s0,3], int where s0 in 2..64 hint 4 {
  %0: f32[s0,3] = mul(%x, %w)
  return %0, s0*2
}
)";
constexpr const char* kCount =
    R"(graph @count(%count: f32[2], %x: f32[2]) -> f32[2] {
  %0: f32[2] = add(%count, %x)
  %1: f32[2]{1} = copy_(%count, %0)
  return %0
}
)";
struct Free {
  void operator()(inkle_program* p) const { inkle_program_release(p); }
  void operator()(inkle_results* r) const { inkle_results_release(r); }
};
using OwnedProgram = std::unique_ptr<inkle_program, Free>;
using OwnedResults = std::unique_ptr<inkle_results, Free>;

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    std::string why_not;
    if (!codegen::cuda::find_nvrtc(why_not)) GTEST_SKIP() << why_not;
    inkle_results* made = nullptr;
    ASSERT_EQ(inkle_results_new(&made), INKLE_OK);
    results_.reset(made);
  }

  inkle_status load(const std::vector<std::byte>& bytes, const char* device) {
    inkle_program* made = nullptr;
    const inkle_status status =
        inkle_load_bytes_on("p", bytes.data(), bytes.size(), device, nullptr, nullptr, &made);
    program_.reset(made);
    return status;
  }
  void load(const char* graph, const std::map<std::string, std::vector<float>>& weights = {}) {
    ASSERT_EQ(load(package_of(graph, weights, "sm_90a"), "null:sm_90a"), INKLE_OK)
        << inkle_last_error();
  }
  inkle_status run(const std::vector<inkle_value>& inputs) {
    return inkle_run(program_.get(), inputs.data(), inputs.size(), results_.get());
  }
  inkle_status run_on(const std::vector<inkle_value>& inputs, void* stream = nullptr) {
    return inkle_run_on(program_.get(), stream, inputs.data(), inputs.size(), results_.get());
  }
  // The null device's memory is the host's.
  static inkle_value tensor(inkle_kind kind, std::vector<float>& data,
                            const std::vector<std::int64_t>& sizes,
                            const std::int64_t* strides = nullptr) {
    return {
        kind,
        0,
        {data.data(), INKLE_F32, static_cast<std::int32_t>(sizes.size()), sizes.data(), strides}};
  }
  inkle_value result(std::size_t number) {
    inkle_value value{};
    EXPECT_EQ(inkle_result(results_.get(), number, &value), INKLE_OK) << inkle_last_error();
    return value;
  }

  std::vector<float> x_{1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> sizes_{2, 3};
  const std::map<std::string, std::vector<float>> weights_{{"w", {1, 10, 100}}};
  OwnedProgram program_;
  OwnedResults results_;
};

TEST_F(Gpu, IsDescribed) {
  load(kScale, weights_);
  EXPECT_STREQ(inkle_program_device(program_.get()), "null:sm_90a");
  EXPECT_STREQ(inkle_program_target(program_.get()), "sm_90a");
  inkle_info info;
  ASSERT_EQ(inkle_input_info(program_.get(), 0, &info), INKLE_OK);
  EXPECT_EQ(info.kind, INKLE_TENSOR);
  EXPECT_THAT(std::vector(info.most, info.most + info.rank), ElementsAre(64, 3));
}

TEST_F(Gpu, TakesMemoryOfTheHostAndGivesSuch) {
  load(kScale, weights_);
  ASSERT_EQ(run({tensor(INKLE_TENSOR, x_, sizes_)}), INKLE_OK) << inkle_last_error();
  ASSERT_EQ(inkle_result_count(results_.get()), 2U);
  const inkle_value y = result(0);
  EXPECT_EQ(y.kind, INKLE_TENSOR);
  EXPECT_EQ(y.tensor.sizes[0], 2);
  EXPECT_EQ(result(1).integer, 4);
  ASSERT_EQ(run({tensor(INKLE_TENSOR, x_, sizes_)}), INKLE_OK);
  EXPECT_EQ(result(0).tensor.data, y.tensor.data) << "memory of results is used again";
}

TEST_F(Gpu, ResultsLieOnTheDeviceUntilTheyAreFetched) {
  load(kScale, weights_);
  ASSERT_EQ(run_on({tensor(INKLE_DEVICE_TENSOR, x_, sizes_)}), INKLE_OK) << inkle_last_error();
  const inkle_value there = result(0);
  EXPECT_EQ(there.kind, INKLE_DEVICE_TENSOR);
  EXPECT_EQ(result(1).kind, INKLE_INTEGER);
  ASSERT_EQ(inkle_results_wait(results_.get()), INKLE_OK);
  EXPECT_EQ(result(0).kind, INKLE_DEVICE_TENSOR);
  static_cast<float*>(there.tensor.data)[4] = 42;
  ASSERT_EQ(inkle_results_fetch(results_.get()), INKLE_OK) << inkle_last_error();
  const inkle_value here = result(0);
  EXPECT_EQ(here.kind, INKLE_TENSOR);
  EXPECT_NE(here.tensor.data, there.tensor.data);
  EXPECT_EQ(static_cast<const float*>(here.tensor.data)[4], 42);
  ASSERT_EQ(run_on({tensor(INKLE_TENSOR, x_, sizes_)}), INKLE_OK) << "memory of the host, too";
  EXPECT_EQ(result(0).kind, INKLE_DEVICE_TENSOR);
}

TEST_F(Gpu, WritesIntoTheCallersTensor) {
  load(kCount);
  std::vector<float> count{5, 6}, x{1, 2};
  const std::vector<std::int64_t> two{2};
  // The kernel does not run: the tensor comes back as it went over.
  ASSERT_EQ(run({tensor(INKLE_TENSOR, count, two), tensor(INKLE_TENSOR, x, two)}), INKLE_OK)
      << inkle_last_error();
  EXPECT_THAT(count, ElementsAre(5, 6));
}

TEST_F(Gpu, CopiesWhatLiesOtherwise) {
  load(kScale, weights_);
  const std::vector<std::int64_t> columns{1, 2};
  ASSERT_EQ(run({tensor(INKLE_TENSOR, x_, sizes_, columns.data())}), INKLE_OK)
      << inkle_last_error();
}

TEST_F(Gpu, RefusesWrongInputs) {
  load(kScale, weights_);
  std::vector<float> more(65 * 3);
  const std::vector<std::int64_t> too_many{65, 3};
  EXPECT_EQ(run({tensor(INKLE_DEVICE_TENSOR, more, too_many)}), INKLE_WRONG_ARGUMENT);
  EXPECT_EQ(inkle_result_count(results_.get()), 0U);
  EXPECT_EQ(run_on({tensor(INKLE_NONE, x_, sizes_)}), INKLE_WRONG_ARGUMENT);
  EXPECT_EQ(run_on({}), INKLE_WRONG_ARGUMENT);
}

TEST_F(Gpu, ReplacesWeights) {
  load(kScale);
  EXPECT_EQ(run({tensor(INKLE_TENSOR, x_, sizes_)}), INKLE_WRONG_ARGUMENT);
  EXPECT_THAT(inkle_last_error(), HasSubstr("no weights yet"));
  std::vector<float> w{1, 2, 3};
  const std::vector<std::int64_t> three{3};
  const inkle_named_tensor named{"w", tensor(INKLE_TENSOR, w, three).tensor};
  inkle_weights* set = nullptr;
  ASSERT_EQ(inkle_weights_new(&named, 1, &set), INKLE_OK);
  ASSERT_EQ(inkle_set_weights(program_.get(), set), INKLE_OK) << inkle_last_error();
  inkle_weights_release(set);
  EXPECT_EQ(run({tensor(INKLE_TENSOR, x_, sizes_)}), INKLE_OK) << inkle_last_error();
}

TEST_F(Gpu, ProgramsGoBeforeTheirResults) {
  load(kScale, weights_);
  ASSERT_EQ(run_on({tensor(INKLE_TENSOR, x_, sizes_)}), INKLE_OK) << inkle_last_error();
  program_.reset();
  EXPECT_EQ(inkle_results_fetch(results_.get()), INKLE_OK) << inkle_last_error();
  EXPECT_EQ(result(0).kind, INKLE_TENSOR);
}

TEST_F(Gpu, RefusesOtherDevices) {
  const std::vector<std::byte> of_gpu = package_of(kScale, weights_, "sm_90a");
  EXPECT_EQ(load(of_gpu, "null:sm_80"), INKLE_UNSUPPORTED);
  EXPECT_THAT(inkle_last_error(),
              HasSubstr("other_gpu: a GPU of sm_80 runs none of its targets: sm_90a"));
  EXPECT_EQ(load(of_gpu, "cpu"), INKLE_UNSUPPORTED);
  EXPECT_THAT(inkle_last_error(),
              HasSubstr("only_for_gpus: this processor runs none of its targets: sm_90a"));
  EXPECT_EQ(load(of_gpu, "gpu"), INKLE_WRONG_ARGUMENT);
  EXPECT_THAT(inkle_last_error(), HasSubstr("device 'gpu': expected cpu, cuda or cuda:NUMBER"));
  EXPECT_EQ(load(of_gpu, nullptr), INKLE_WRONG_ARGUMENT);
  const std::vector<std::byte> of_cpu = package_of(kScale, weights_);
  EXPECT_EQ(load(of_cpu, "null:sm_90a"), INKLE_UNSUPPORTED);
  ASSERT_EQ(load(of_cpu, "cpu"), INKLE_OK) << inkle_last_error();
  EXPECT_STREQ(inkle_program_device(program_.get()), "cpu");
  EXPECT_EQ(run({tensor(INKLE_DEVICE_TENSOR, x_, sizes_)}), INKLE_WRONG_ARGUMENT);
  EXPECT_THAT(inkle_last_error(), HasSubstr("input x: expected memory of the host"));
  EXPECT_EQ(run_on({tensor(INKLE_TENSOR, x_, sizes_)}), INKLE_WRONG_ARGUMENT);
  EXPECT_THAT(inkle_last_error(), HasSubstr("no streams"));
}

TEST_F(Gpu, PtxRunsOnLaterOnes) {
  const std::vector<std::byte> bytes = package_of(kScale, weights_, "compute_80");
  for (const char* device : {"null:sm_80", "null:sm_90a", "null:sm_100"}) {
    ASSERT_EQ(load(bytes, device), INKLE_OK) << inkle_last_error();
    EXPECT_STREQ(inkle_program_target(program_.get()), "compute_80");
    EXPECT_EQ(run({tensor(INKLE_TENSOR, x_, sizes_)}), INKLE_OK) << inkle_last_error();
  }
}

// Which torch would do in its own precision.
TEST_F(Gpu, RunsConvolutionsOfF32) {
  load(R"(graph @c(%x: f32[2,4,8,8], %w: f32[6,4,3,3] param, %b: f32[6] param) -> f32[2,6,8,8] {
  %0: f32[2,6,8,8] = convolution(%x, %w, %b, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
  %1: f32[2,6,8,8] = relu(%0)
  return %1
}
)",
       {{"w", std::vector<float>(6 * 4 * 9)}, {"b", std::vector<float>(6)}});
  std::vector<float> x(2 * 4 * 8 * 8);
  const std::vector<std::int64_t> sizes{2, 4, 8, 8};
  ASSERT_EQ(run({tensor(INKLE_TENSOR, x, sizes)}), INKLE_OK) << inkle_last_error();
  EXPECT_EQ(result(0).tensor.sizes[1], 6);
}

TEST_F(Gpu, DamagedWeightsAreRefusedWhenTheyGoOver) {
  std::vector<std::byte> bytes = package_of(kScale, weights_, "sm_90a");
  const auto sections =
      package::Package::from_bytes("p", bytes, package::Package::Use::read)->sections();
  for (const package::Section& s : sections) {
    if (s.kind == package::SectionKind::weights) bytes[s.offset] ^= std::byte{1};
  }
  EXPECT_EQ(load(bytes, "null:sm_90a"), INKLE_BAD_FILE);
  EXPECT_THAT(inkle_last_error(), HasSubstr("weights are damaged"));
}

// Blocks are used again on their stream alone.
TEST(DeviceMemory, ByStream) {
  const auto memory = std::make_shared<DeviceMemory>(runtime::cuda::open_named("null:sm_90a"));
  int streams[2];
  void* first = nullptr;
  {
    const DeviceBlock block = memory->take(1000, &streams[0], "a test");
    first = block.data();
  }
  EXPECT_EQ(memory->idle_bytes(), 1024);
  const DeviceBlock other = memory->take(1000, &streams[1], "a test");
  EXPECT_NE(other.data(), first);
  const DeviceBlock again = memory->take(900, &streams[0], "a test");
  EXPECT_EQ(again.data(), first);
  EXPECT_EQ(memory->idle_bytes(), 0);
}

TEST_F(Gpu, AProgramBringsTheChoicesOfLibraries) {
  const package::LibraryChoice choice{"cuDNN 91000", "a card, sm_90a", "x [1, 2] w [3]",
                                      "engine 7"};
  const auto package = package::Package::from_bytes("p", package_of(kScale, {}, "sm_90a", {choice}),
                                                    package::Package::Use::run, {}, "sm_90a");
  const ProgramDevice device = ProgramDevice::named("null:sm_90a");
  EXPECT_EQ(device.gpu->library_choices(), nullptr);
  const Program program(package, device);
  const auto choices = device.gpu->library_choices();
  ASSERT_NE(choices, nullptr);
  EXPECT_EQ(choices->find({choice.library, choice.device, choice.problem}), "engine 7");
  EXPECT_EQ(choices->find({"cuDNN 91001", choice.device, choice.problem}), std::nullopt);
}

}  // namespace
}  // namespace inkle::capi
