// The C API: what it says of a program, what calls give, what it refuses and how it says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "capi/inkle.h"
#include "capi/sample.h"
#include "package/built.h"
#include "package/signature.h"

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

struct Free {
  void operator()(inkle_program* p) const { inkle_program_release(p); }
  void operator()(inkle_results* r) const { inkle_results_release(r); }
  void operator()(inkle_weights* w) const { inkle_weights_release(w); }
};
using Program = std::unique_ptr<inkle_program, Free>;
using Results = std::unique_ptr<inkle_results, Free>;
using Weights = std::unique_ptr<inkle_weights, Free>;

Program load(const std::vector<std::byte>& bytes) {
  inkle_program* made = nullptr;
  EXPECT_EQ(inkle_load_bytes("p", bytes.data(), bytes.size(), &made), INKLE_OK)
      << inkle_last_error();
  return Program(made);
}

Results new_results() {
  inkle_results* made = nullptr;
  EXPECT_EQ(inkle_results_new(&made), INKLE_OK);
  return Results(made);
}

// Row-major f32; the vectors outlive it.
inkle_value tensor(const std::vector<float>& data, const std::vector<std::int64_t>& sizes) {
  return {INKLE_TENSOR,
          0,
          {const_cast<float*>(data.data()), INKLE_F32, static_cast<std::int32_t>(sizes.size()),
           sizes.data(), nullptr}};
}

inkle_named_tensor named(const char* name, const std::vector<float>& data,
                         const std::vector<std::int64_t>& sizes) {
  return {name, tensor(data, sizes).tensor};
}

Weights weights_of(const std::vector<inkle_named_tensor>& tensors) {
  inkle_weights* made = nullptr;
  EXPECT_EQ(inkle_weights_new(tensors.data(), tensors.size(), &made), INKLE_OK);
  return Weights(made);
}

std::vector<float> floats(const inkle_results* results, std::size_t number) {
  inkle_value value;
  EXPECT_EQ(inkle_result(results, number, &value), INKLE_OK);
  EXPECT_EQ(value.tensor.dtype, INKLE_F32);
  std::size_t count = 1;
  for (std::int32_t d = 0; d < value.tensor.rank; ++d) {
    count *= static_cast<std::size_t>(value.tensor.sizes[d]);
  }
  std::vector<float> made(count);
  inkle_tensor to = value.tensor;
  to.data = made.data();
  to.strides = nullptr;
  EXPECT_EQ(inkle_copy(&value.tensor, &to), INKLE_OK);
  return made;
}

class Scale : public testing::Test {
 protected:
  inkle_status run(const std::vector<inkle_value>& inputs) {
    return inkle_run(program_.get(), inputs.data(), inputs.size(), results_.get());
  }
  std::string refusal(const std::vector<inkle_value>& inputs,
                      inkle_status status = INKLE_WRONG_ARGUMENT) {
    EXPECT_EQ(run(inputs), status);
    EXPECT_EQ(inkle_result_count(results_.get()), 0U);
    return inkle_last_error();
  }

  const std::vector<float> w_{1, 10, 100};
  const std::vector<float> x_{1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> sizes_{2, 3};
  Program program_ = load(package_of(kScale, {{"w", w_}}));
  Results results_ = new_results();
};

TEST_F(Scale, IsDescribed) {
  EXPECT_STREQ(inkle_program_target(program_.get()), "x86-64-v3");
  ASSERT_EQ(inkle_input_count(program_.get()), 1U);
  ASSERT_EQ(inkle_output_count(program_.get()), 2U);
  ASSERT_EQ(inkle_weight_count(program_.get()), 1U);
  inkle_info info;
  ASSERT_EQ(inkle_input_info(program_.get(), 0, &info), INKLE_OK);
  EXPECT_STREQ(info.name, "x");
  EXPECT_EQ(info.kind, INKLE_TENSOR);
  EXPECT_EQ(info.dtype, INKLE_F32);
  EXPECT_EQ(info.is_written, 0);
  EXPECT_THAT(std::vector(info.least, info.least + info.rank), ElementsAre(2, 3));
  EXPECT_THAT(std::vector(info.most, info.most + info.rank), ElementsAre(64, 3));
  ASSERT_EQ(inkle_output_info(program_.get(), 1, &info), INKLE_OK);
  EXPECT_EQ(info.kind, INKLE_INTEGER);
  ASSERT_EQ(inkle_weight_info(program_.get(), 0, &info), INKLE_OK);
  EXPECT_STREQ(info.name, "w");
  EXPECT_EQ(inkle_output_info(program_.get(), 2, &info), INKLE_WRONG_ARGUMENT);
  EXPECT_STREQ(inkle_last_error(), "output 2 of 2");
}

TEST_F(Scale, Runs) {
  ASSERT_EQ(run({tensor(x_, sizes_)}), INKLE_OK) << inkle_last_error();
  ASSERT_EQ(inkle_result_count(results_.get()), 2U);
  EXPECT_THAT(floats(results_.get(), 0), ElementsAre(1, 20, 300, 4, 50, 600));
  inkle_value value;
  ASSERT_EQ(inkle_result(results_.get(), 1, &value), INKLE_OK);
  EXPECT_EQ(value.kind, INKLE_INTEGER);
  EXPECT_EQ(value.integer, 4);
  ASSERT_EQ(inkle_result(results_.get(), 0, &value), INKLE_OK);
  const void* const before = value.tensor.data;
  ASSERT_EQ(run({tensor(x_, sizes_)}), INKLE_OK);
  ASSERT_EQ(inkle_result(results_.get(), 0, &value), INKLE_OK);
  EXPECT_EQ(value.tensor.data, before) << "memory of results is used again";
}

TEST_F(Scale, TakesAnyStrides) {
  const std::vector<float> columns{1, 4, 2, 5, 3, 6};
  const std::vector<std::int64_t> strides{1, 2};
  inkle_value value = tensor(columns, sizes_);
  value.tensor.strides = strides.data();
  ASSERT_EQ(run({value}), INKLE_OK) << inkle_last_error();
  EXPECT_THAT(floats(results_.get(), 0), ElementsAre(1, 20, 300, 4, 50, 600));
}

TEST_F(Scale, RefusesOtherInputs) {
  EXPECT_EQ(refusal({}), "scale takes 1 inputs (x), 0 were given");
  EXPECT_EQ(refusal({tensor(x_, sizes_), tensor(x_, sizes_)}),
            "scale takes 1 inputs (x), 2 were given");
  EXPECT_EQ(refusal({{INKLE_INTEGER, 3, {}}}), "input x: expected a tensor");
  EXPECT_EQ(refusal({{static_cast<inkle_kind>(9), 3, {}}}), "input x: 9 is no kind of input");
  EXPECT_THAT(refusal({tensor(x_, {6})}), HasSubstr("argument x: expected f32 of rank 2"));
  EXPECT_THAT(refusal({tensor(x_, {3, 2})}), HasSubstr("argument x: expected f32[3,3]"));
  EXPECT_THAT(refusal({tensor(x_, {1, 3})}), HasSubstr("2 <= 1 does not hold"));
  EXPECT_THAT(refusal({tensor(x_, {65, 3})}), HasSubstr("65 <= 64 does not hold"));
  EXPECT_THAT(refusal({tensor(x_, {-2, 3})}), HasSubstr("a size below zero"));
  inkle_value value = tensor(x_, sizes_);
  value.tensor.dtype = INKLE_F64;
  EXPECT_THAT(refusal({value}),
              HasSubstr("argument x: expected f32 of rank 2 on cpu, got f64[2,3]"));
  value.tensor.dtype = static_cast<inkle_dtype>(99);
  EXPECT_EQ(refusal({value}), "x: 99 is no dtype");
  value = tensor(x_, sizes_);
  value.tensor.data = nullptr;
  EXPECT_THAT(refusal({value}), HasSubstr("has no memory"));
  value.tensor.sizes = nullptr;
  EXPECT_EQ(refusal({value}), "x: its sizes are null");
  value.tensor.rank = -1;
  EXPECT_EQ(refusal({value}), "x: rank -1");
  ASSERT_EQ(run({tensor(x_, sizes_)}), INKLE_OK) << "and goes on";
  EXPECT_EQ(inkle_run(program_.get(), nullptr, 1, results_.get()), INKLE_WRONG_ARGUMENT);
  EXPECT_STREQ(inkle_last_error(), "inputs is null");
  EXPECT_EQ(inkle_run(nullptr, nullptr, 0, results_.get()), INKLE_WRONG_ARGUMENT);
}

TEST_F(Scale, WeightsAreReplacedAsASet) {
  const Weights doubled = weights_of({named("w", {2, 20, 200}, {3}), named("other", {1}, {1})});
  inkle_weights* first = nullptr;
  ASSERT_EQ(inkle_program_weights(program_.get(), &first), INKLE_OK);
  const Weights before(first);
  ASSERT_EQ(inkle_set_weights(program_.get(), doubled.get()), INKLE_OK) << inkle_last_error();
  ASSERT_EQ(run({tensor(x_, sizes_)}), INKLE_OK);
  EXPECT_THAT(floats(results_.get(), 0), ElementsAre(2, 40, 600, 8, 100, 1200));
  const Weights wrong = weights_of({named("w", {1, 2}, {2})});
  EXPECT_EQ(inkle_set_weights(program_.get(), wrong.get()), INKLE_WRONG_ARGUMENT);
  EXPECT_STREQ(inkle_last_error(), "weight w: expected f32[3], got f32[2]");
  const Weights none = weights_of({});
  EXPECT_EQ(inkle_set_weights(program_.get(), none.get()), INKLE_WRONG_ARGUMENT);
  EXPECT_STREQ(inkle_last_error(), "weights are missing: w");
  ASSERT_EQ(run({tensor(x_, sizes_)}), INKLE_OK);
  EXPECT_THAT(floats(results_.get(), 0), ElementsAre(2, 40, 600, 8, 100, 1200));
  ASSERT_EQ(inkle_set_weights(program_.get(), before.get()), INKLE_OK);
  ASSERT_EQ(run({tensor(x_, sizes_)}), INKLE_OK);
  EXPECT_THAT(floats(results_.get(), 0), ElementsAre(1, 20, 300, 4, 50, 600));
}

TEST_F(Scale, AnotherProgramSharesItsWeights) {
  const Program bare = load(package_of(kScale, {}));
  ASSERT_EQ(inkle_weight_count(bare.get()), 1U);
  const std::vector<inkle_value> inputs{tensor(x_, sizes_)};
  EXPECT_EQ(inkle_run(bare.get(), inputs.data(), 1, results_.get()), INKLE_WRONG_ARGUMENT);
  EXPECT_STREQ(inkle_last_error(), "scale has no weights yet: it needs w");
  inkle_weights* shared = nullptr;
  EXPECT_EQ(inkle_program_weights(bare.get(), &shared), INKLE_WRONG_ARGUMENT);
  ASSERT_EQ(inkle_program_weights(program_.get(), &shared), INKLE_OK);
  const Weights kept(shared);
  ASSERT_EQ(inkle_set_weights(bare.get(), shared), INKLE_OK) << inkle_last_error();
  program_.reset();  // the set lives on
  ASSERT_EQ(inkle_run(bare.get(), inputs.data(), 1, results_.get()), INKLE_OK);
  EXPECT_THAT(floats(results_.get(), 0), ElementsAre(1, 20, 300, 4, 50, 600));
}

// A product, so that weights are packed: what was packed of one set must not serve another.
constexpr const char* kProduct =
    R"(graph @product(%x: f32[s0,32], %w: f32[32,32] param, %b: f32[32] param) -> f32[s0,32] where s0 in 2..64 hint 4 {
  %0: f32[s0,32] = mm(%x, %w)
  %1: f32[s0,32] = add(%0, %b)
  return %1
}
)";

TEST(Threads, ACallSeesOneSetOfWeights) {
  const auto set = [](float value) {
    static const std::vector<std::int64_t> matrix{32, 32}, vector{32};
    return weights_of({named("w", std::vector<float>(1024, value), matrix),
                       named("b", std::vector<float>(32, 1000 * value), vector)});
  };
  const Program program = load(package_of(kProduct, {}));
  const std::array<Weights, 2> sets = {set(1), set(2)};
  ASSERT_EQ(inkle_set_weights(program.get(), sets[0].get()), INKLE_OK) << inkle_last_error();
  std::atomic<int> wrong = 0, calls = 0;
  std::atomic<bool> is_over = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const Results results = new_results();
      const std::vector<float> x(4 * 32, 1);
      const std::vector<std::int64_t> sizes{4, 32};
      const inkle_value input = tensor(x, sizes);
      while (!is_over) {
        if (inkle_run(program.get(), &input, 1, results.get()) != INKLE_OK) ++wrong;
        const std::vector<float> y = floats(results.get(), 0);
        const bool is_first = y == std::vector<float>(4 * 32, 1032);
        if (!is_first && y != std::vector<float>(4 * 32, 2064)) ++wrong;
        ++calls;
      }
    });
  }
  for (int i = 0; i < 200 || calls < 300; ++i) {
    ASSERT_EQ(inkle_set_weights(program.get(), sets[static_cast<std::size_t>(i % 2)].get()),
              INKLE_OK);
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Programs that write their weights: state of the program's own, one call after another.
constexpr const char* kCount = R"(graph @count(%count: f32[2], %x: f32[2]) -> f32[2] {
  %0: f32[2] = add(%count, %x)
  %1: f32[2]{1} = copy_(%count, %0)
  return %0
}
)";

TEST(Threads, WrittenWeightsLoseNoCall) {
  const std::vector<std::byte> bytes = package_of(kCount, {{"count", {0, 5}}});
  const Program program = load(bytes);
  const std::vector<float> one{1, 1};
  const std::vector<std::int64_t> sizes{2};
  const inkle_value input = tensor(one, sizes);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const Results results = new_results();
      for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(inkle_run(program.get(), &input, 1, results.get()), INKLE_OK);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Results results = new_results();
  ASSERT_EQ(inkle_run(program.get(), &input, 1, results.get()), INKLE_OK);
  EXPECT_THAT(floats(results.get(), 0), ElementsAre(301, 306));
  const Program other = load(bytes);
  ASSERT_EQ(inkle_run(other.get(), &input, 1, results.get()), INKLE_OK);
  EXPECT_THAT(floats(results.get(), 0), ElementsAre(1, 6)) << "each program has its own";
}

TEST(Inputs, ThatAreWritten) {
  const Program program = load(package_of(kCount, {}));
  inkle_info info;
  ASSERT_EQ(inkle_input_info(program.get(), 0, &info), INKLE_OK);
  EXPECT_STREQ(info.name, "count");
  EXPECT_EQ(info.is_written, 1);
  std::vector<float> state{1, 2, 3};
  const std::vector<float> x{10, 20};
  const std::vector<std::int64_t> sizes{2}, strides{2};
  std::array<inkle_value, 2> inputs{tensor(state, sizes), tensor(x, sizes)};
  const Results results = new_results();
  ASSERT_EQ(inkle_run(program.get(), inputs.data(), 2, results.get()), INKLE_OK);
  EXPECT_THAT(state, ElementsAre(11, 22, 3));
  inputs[0].tensor.strides = strides.data();
  EXPECT_EQ(inkle_run(program.get(), inputs.data(), 2, results.get()), INKLE_WRONG_ARGUMENT);
  EXPECT_THAT(inkle_last_error(), HasSubstr("argument count: expected f32[2] with strides (1)"));
}

TEST(Failures, HaveStatuses) {
  const Results results = new_results();
  const Program table = load(package_of(R"(graph @table(%t: f32[3,2], %i: i64[2]) -> f32[2,2] {
  %0: f32[2,2] = embedding(%t, %i)
  return %0
}
)",
                                        {}));
  const std::vector<float> t(6, 1);
  const std::vector<std::int64_t> t_sizes{3, 2}, i_sizes{2};
  std::vector<std::int64_t> i{0, 7};
  const std::array<inkle_value, 2> inputs{
      tensor(t, t_sizes),
      inkle_value{INKLE_TENSOR, 0, {i.data(), INKLE_I64, 1, i_sizes.data(), {}}}};
  EXPECT_EQ(inkle_run(table.get(), inputs.data(), 2, results.get()), INKLE_OUT_OF_RANGE);
  EXPECT_THAT(inkle_last_error(), HasSubstr("index out of range"));
  EXPECT_EQ(inkle_result_count(results.get()), 0U);
  i[1] = 2;
  EXPECT_EQ(inkle_run(table.get(), inputs.data(), 2, results.get()), INKLE_OK);

  inkle_program* none = nullptr;
  EXPECT_EQ(inkle_load("no/such/file", &none), INKLE_BAD_FILE);
  EXPECT_THAT(inkle_last_error(), HasSubstr("no/such/file: unreadable: cannot be read"));
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(inkle_load(nullptr, &none), INKLE_WRONG_ARGUMENT);
  std::vector<std::byte> bytes = package_of(kScale, {{"w", {1, 2, 3}}});
  bytes[4096 + 40] ^= std::byte{1};
  EXPECT_EQ(inkle_load_bytes("p", bytes.data(), bytes.size(), &none), INKLE_BAD_FILE);
  EXPECT_THAT(inkle_last_error(), HasSubstr("p: hash_mismatch: section plan is damaged"));
}

// Hashes are right and all numbers are of things that are there: what is refused is where they lie.
TEST(Failures, PlansThatLeaveTheirMemoryHaveAReason) {
  constexpr const char* kText = R"(graph @scale(%x: f32[2,3]) -> f32[2,3] {
  %0: f32[2,3] = exp(%x)
  return %0
}
)";
  inkle_program* made = nullptr;
  const auto load_forged = [&](const std::function<void(abi::Plan&)>& forge) {
    const std::vector<std::byte> bytes = package_of(kText, {}, "x86-64-v3", {}, forge);
    inkle_program_release(std::exchange(made, nullptr));
    return inkle_load_bytes("p", bytes.data(), bytes.size(), &made);
  };
  const auto slot_of = [](abi::Plan& plan, std::int64_t value) {
    plan.size_program.push_back({.result = plan.slot_count, .immediate = value});
    return plan.slot_count++;
  };
  EXPECT_EQ(load_forged({}), INKLE_OK) << inkle_last_error();
  EXPECT_NE(made, nullptr);
  EXPECT_EQ(load_forged([&](abi::Plan& p) { p.outputs[0].offset = slot_of(p, 4); }),
            INKLE_BAD_FILE);
  EXPECT_THAT(inkle_last_error(), HasSubstr("bad_plan: plan scale, output 0: bytes 16 to 40 of"));
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(load_forged([&](abi::Plan& p) { p.buffers[0].bytes = slot_of(p, 28); }),
            INKLE_BAD_FILE);
  EXPECT_THAT(inkle_last_error(), HasSubstr("bad_plan: plan scale, buffer x: 28 bytes in 24"));
  // A right plan of a kind that this runtime does not run.
  EXPECT_EQ(load_forged([](abi::Plan& p) {
              p.regions.emplace_back();
              p.steps.push_back({.action = abi::Branch{}});
            }),
            INKLE_UNSUPPORTED);
  EXPECT_THAT(inkle_last_error(), HasSubstr("unsupported_plan: plan scale: a branch, loop or"));
}

TEST(Signatures, OnlyWhatTheKeySignedIsLoaded) {
  namespace package = inkle::package;
  const std::vector<std::byte> bytes = package_of(kScale, {{"w", {1, 2, 3}}});
  const auto key = package::SecretKey::generate();
  const std::string text = to_string(package::sign(package::header_of(bytes), key));
  const std::string right = to_string(key.public_key());
  const std::string other = to_string(package::SecretKey::generate().public_key());
  inkle_program* made = nullptr;
  const auto load_with = [&](const char* signature, const char* public_key) {
    inkle_program_release(std::exchange(made, nullptr));
    return inkle_load_bytes_signed("p", bytes.data(), bytes.size(), signature, public_key, &made);
  };
  ::unsetenv("INKLE_PACKAGE_KEY");
  EXPECT_EQ(load_with(text.c_str(), right.c_str()), INKLE_OK) << inkle_last_error();
  EXPECT_NE(made, nullptr);
  EXPECT_EQ(load_with(text.c_str(), other.c_str()), INKLE_BAD_FILE);
  EXPECT_THAT(inkle_last_error(), HasSubstr("p: other_key: is signed by key"));
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(load_with(nullptr, right.c_str()), INKLE_BAD_FILE);
  EXPECT_THAT(inkle_last_error(), HasSubstr("p: not_signed: is not signed"));
  EXPECT_EQ(load_with("inkle-signature-1", right.c_str()), INKLE_BAD_FILE);
  EXPECT_THAT(inkle_last_error(), HasSubstr("is damaged"));
  EXPECT_EQ(load_with(text.c_str(), "no/such/key"), INKLE_BAD_FILE);
  EXPECT_THAT(inkle_last_error(), HasSubstr("no/such/key: cannot be read"));
  EXPECT_EQ(load_with(text.c_str(), nullptr), INKLE_WRONG_ARGUMENT);
  EXPECT_THAT(inkle_last_error(), HasSubstr("INKLE_PACKAGE_KEY is not set"));
  EXPECT_EQ(inkle_load_signed("no/such/file", nullptr, &made), INKLE_WRONG_ARGUMENT);

  ::setenv("INKLE_PACKAGE_KEY", right.c_str(), 1);
  EXPECT_EQ(load_with(text.c_str(), nullptr), INKLE_OK) << inkle_last_error();
  EXPECT_EQ(load_with(text.c_str(), other.c_str()), INKLE_BAD_FILE);
  inkle_program_release(std::exchange(made, nullptr));
  EXPECT_EQ(inkle_load_bytes("p", bytes.data(), bytes.size(), &made), INKLE_BAD_FILE);
  EXPECT_THAT(inkle_last_error(), HasSubstr("p: not_signed: is not signed"));
  ::unsetenv("INKLE_PACKAGE_KEY");
}

TEST(Failures, DamagedWeightsShowBeforeTheFirstResult) {
  std::vector<std::byte> bytes = package_of(kScale, {{"w", {1.25F, 2, 3}}});
  const float first = 1.25F;
  std::array<std::byte, 4> pattern;
  std::memcpy(pattern.data(), &first, sizeof first);
  const auto at = std::find_end(bytes.begin(), bytes.end(), pattern.begin(), pattern.end());
  ASSERT_NE(at, bytes.end());
  *at ^= std::byte{1};
  const Program program = load(bytes);
  const std::vector<float> x(6, 1);
  const std::vector<std::int64_t> sizes{2, 3};
  const inkle_value input = tensor(x, sizes);
  const Results results = new_results();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(inkle_run(program.get(), &input, 1, results.get()), INKLE_BAD_FILE);
    EXPECT_THAT(inkle_last_error(), HasSubstr("the weights are damaged"));
  }
  EXPECT_EQ(inkle_program_check(program.get()), INKLE_BAD_FILE);
}

TEST(Failures, MessagesAreOfTheThread) {
  inkle_info info;
  const Program program = load(package_of(kScale, {}));
  EXPECT_EQ(inkle_input_info(program.get(), 5, &info), INKLE_WRONG_ARGUMENT);
  std::thread([&] {
    EXPECT_STREQ(inkle_last_error(), "");
    EXPECT_EQ(inkle_input_info(program.get(), 6, &info), INKLE_WRONG_ARGUMENT);
    EXPECT_STREQ(inkle_last_error(), "input 6 of 1");
  }).join();
  EXPECT_STREQ(inkle_last_error(), "input 5 of 1");
}

TEST(Names, OfDTypesAndStatuses) {
  EXPECT_STREQ(inkle_dtype_name(INKLE_BF16), "bf16");
  EXPECT_EQ(inkle_dtype_bytes(INKLE_C128), 16U);
  EXPECT_STREQ(inkle_dtype_name(INKLE_F8_E5M2FNUZ), "f8e5m2fnuz");
  EXPECT_STREQ(inkle_dtype_name(static_cast<inkle_dtype>(0)), "?");
  EXPECT_EQ(inkle_dtype_bytes(static_cast<inkle_dtype>(21)), 0U);
  EXPECT_STREQ(inkle_status_name(INKLE_OUT_OF_RANGE), "out of range");
  EXPECT_EQ(inkle_set_threads(0), INKLE_WRONG_ARGUMENT);
}

}  // namespace
}  // namespace inkle::capi
