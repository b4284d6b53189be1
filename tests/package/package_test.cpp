// Packages as files: what runs out of one, and what is refused of a damaged one.
#include "package/package.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "abi/plan_text.h"
#include "base/error_of.h"
#include "package/built.h"

namespace inkle::package {
namespace {

using testing::HasSubstr;

const Built& built() {
  static const Built made = build();
  return made;
}

std::string refusal_of(std::vector<std::byte> bytes) {
  return error_of([&] { (void)Package::from_bytes("f", std::move(bytes))->weights(); });
}

TEST(Package, RunsToTheSameBits) {
  const auto package = Package::from_bytes("f", built().bytes);
  EXPECT_EQ(package->target(), "x86-64-v3");
  EXPECT_EQ(package->output_names(), (std::vector<std::string>{"y", "sums"}));
  EXPECT_EQ(package->graph_text(), built().input.graph);
  EXPECT_EQ(abi::to_string(*package->made().plan), abi::to_string(*built().compiled.plan));
  for (const std::int64_t rows : {2, 17, 300}) {
    const auto direct =
        run({built().compiled.plan, built().compiled.code}, built().weights.data(), rows);
    ASSERT_EQ(direct.size(), static_cast<std::size_t>(rows) * 41);
    EXPECT_EQ(run(*package, rows), direct) << rows;
  }
}

// A plan of a GPU with modules that nobody looks into.
TEST(Package, ModulesOfAGpuAreForItsArchitecture) {
  const auto module = [](std::size_t bytes) {
    return std::make_shared<const std::vector<std::byte>>(bytes, std::byte{7});
  };
  abi::Plan plan;
  plan.name = "gpu";
  plan.kernels.resize(2);
  for (std::uint32_t k = 0; k < 2; ++k) plan.kernels[k].device = abi::DeviceKernel{.image = k};
  abi::Code code;
  code.images = {{"sm_80", module(100)}, {"sm_80", module(3000)}};
  PackageInput input;
  input.targets.push_back(
      {nullptr,
       {std::make_shared<const abi::Plan>(plan), std::make_shared<const abi::Code>(code)},
       "sm_80",
       "{}"});
  const auto bytes = package_bytes(input);
  const auto open = [&](std::string_view architecture) {
    return Package::from_bytes("f", bytes, Package::Use::run, {}, architecture);
  };
  for (const char* const here : {"sm_80", "sm_86", "sm_89"}) {
    const auto package = open(here);
    ASSERT_EQ(package->made().code->images.size(), 2U) << here;
    EXPECT_EQ(*package->made().code->images[1].data, *code.images[1].data);
    EXPECT_EQ(package->facts(), "{}");
  }
  for (const char* const here : {"", "sm_75", "sm_90", "sm_90a", "sm_8", "gpu"}) {
    EXPECT_THAT(error_of([&] { (void)open(here); }), HasSubstr("sm_80 needs a GPU of sm_80"))
        << here;
  }
  EXPECT_EQ(open("sm_80")->check_all().size(), 1U);
}

TEST(Package, MachineCodeComesBeforePtx) {
  const auto target = [](std::string name, const std::string& code) {
    const auto* first = reinterpret_cast<const std::byte*>(code.data());
    abi::Code made;
    made.images = {
        {name, std::make_shared<const std::vector<std::byte>>(first, first + code.size())}};
    return TargetProgram{
        nullptr,
        {std::make_shared<const abi::Plan>(), std::make_shared<const abi::Code>(made)},
        std::move(name)};
  };
  PackageInput input;
  input.targets = {target("compute_80", ".version"), target("sm_90a", "code"),
                   target("compute_90", ".version")};
  const auto bytes = package_bytes(input);
  const auto target_on = [&](std::string_view architecture) {
    return Package::from_bytes("f", bytes, Package::Use::run, {}, architecture)->target();
  };
  EXPECT_EQ(target_on("sm_90a"), "sm_90a");
  EXPECT_EQ(target_on("sm_80"), "compute_80");
  EXPECT_EQ(target_on("sm_89"), "compute_80");
  EXPECT_EQ(target_on("sm_120"), "compute_80") << "the first that fits";
  EXPECT_THAT(error_of([&] { (void)target_on("sm_75"); }),
              HasSubstr("other_gpu: a GPU of sm_75 runs none of its targets: sm_90a needs a GPU of "
                        "sm_90a; compute_80 needs a GPU of sm_80 or later"));
  const auto text =
      *Package::from_bytes("f", bytes, Package::Use::run, {}, "sm_80")->made().code->images[0].data;
  EXPECT_EQ(text.back(), std::byte{0}) << "a driver reads text up to the zero behind it";
}

TEST(Package, OutlivesWhatMadeIt) {
  abi::PlanAndCode made;
  {
    const auto package = Package::from_bytes("f", build().bytes);
    made = package->made();
  }
  EXPECT_EQ(run(made, built().weights.data(), 5), run(*Package::from_bytes("f", built().bytes), 5));
}

TEST(Package, BuildingTwiceGivesTheSameBytes) { EXPECT_EQ(build().bytes, built().bytes); }

// The wide code is made here whether or not this processor can run it.
TEST(Package, TheBestTargetThatRunsIsTaken) {
  Built wide = build("x86-64-v4");
  const auto alone = wide.bytes;
  wide.input.targets.push_back(built().input.targets[0]);
  const auto package = Package::from_bytes("f", bytes_of(wide.input));
  const std::string_view here = image::instruction_set_here()->name;
  EXPECT_EQ(package->target(), here);
  EXPECT_EQ(run(*package, 17).size(), 17U * 41U);
  EXPECT_EQ(package->check_all().size(), 2U);
  std::swap(wide.input.targets[0], wide.input.targets[1]);
  EXPECT_EQ(Package::from_bytes("f", bytes_of(wide.input))->target(), "x86-64-v3");

  std::swap(wide.input.targets[0], wide.input.targets[1]);
  const Narrowed narrowed("avx2");
  EXPECT_EQ(image::instruction_set_here()->name, "x86-64-v3");
  const auto narrow = Package::from_bytes("f", bytes_of(wide.input));
  EXPECT_EQ(narrow->target(), "x86-64-v3");
  EXPECT_EQ(run(*narrow, 17), run(*Package::from_bytes("f", built().bytes), 17));
  const std::string why = here == "x86-64-v4" ? "avx512f, which INKLE_ISA rules out" : "avx512f";
  EXPECT_THAT(refusal_of(alone), HasSubstr(why));
}

TEST(Package, OpsOfAFrameworkAreRefusedByName) {
  PackageInput input = built().input;
  abi::Plan plan = *input.targets[0].made.plan;
  plan.steps.push_back(
      {.action = abi::EagerCall{.target = 0, .name = "aten::sort"}, .source = "model.py:3"});
  plan.steps.push_back({.action = abi::EagerCall{.target = 1, .name = "aten::eig"}});
  input.targets[0].made.plan = std::make_shared<const abi::Plan>(plan);
  EXPECT_EQ(error_of([&] { (void)bytes_of(input); }),
            "unsupported: a package runs without a framework, and these ops need one: aten::eig, "
            "aten::sort (model.py:3)");
}

TEST(Package, OtherFilesAndVersionsAreRefused) {
  std::vector<std::byte> bytes = built().bytes;
  bytes[1] = std::byte{'X'};
  EXPECT_THAT(refusal_of(bytes), HasSubstr("f: wrong_magic: this is no .inkle file"));
  bytes = built().bytes;
  bytes[offsetof(FileHeader, format_version)] = std::byte{9};
  EXPECT_THAT(refusal_of(bytes), HasSubstr("version 9, this runtime reads version 1"));
  bytes = built().bytes;
  bytes[offsetof(FileHeader, abi_version)] = std::byte{7};
  EXPECT_THAT(refusal_of(bytes), HasSubstr("built for ABI 7"));
  bytes = built().bytes;
  bytes.pop_back();
  EXPECT_THAT(refusal_of(bytes), HasSubstr("its header says"));
  EXPECT_THAT(refusal_of({}), HasSubstr("0 bytes are too few"));
  EXPECT_THAT(error_of([] { (void)Package::open("no/such/file"); }), HasSubstr("cannot be read"));
}

TEST(Package, EachSectionIsCheckedByItsHash) {
  const auto package = Package::from_bytes("f", built().bytes);
  for (const Section& section : package->sections()) {
    std::vector<std::byte> bytes = built().bytes;
    bytes[section.offset + section.bytes / 2] ^= std::byte{4};
    const std::string message = refusal_of(bytes);
    EXPECT_THAT(message, HasSubstr("damaged")) << name_of(section.kind);
    const auto read = Package::from_bytes("f", bytes, Package::Use::read);
    EXPECT_THAT(
        error_of([&] { (void)read->check_all(); }),
        HasSubstr(fmt::format("section {} {} is damaged", name_of(section.kind), section.target)));
  }
}

TEST(Package, WhatLiesBetweenSectionsIsZeros) {
  std::vector<std::byte> bytes = built().bytes;
  bytes[kSectionAlignment - 1] = std::byte{1};
  EXPECT_EQ(refusal_of(bytes), "no error");  // nobody reads it
  const auto read = Package::from_bytes("f", bytes, Package::Use::read);
  EXPECT_THAT(error_of([&] { (void)read->check_all(); }), HasSubstr("are not zeros"));
}

TEST(Package, ProcessorsWithoutAFeatureAreToldItsName) {
  const Contents contents =
      Package::from_bytes("f", built().bytes, Package::Use::read)->check_all().at(0);
  EXPECT_EQ(contents.processor, image::required_bits(*image::instruction_set_named("x86-64-v3")));
  const image::CpuidBits none{0x4fffffff, 0, 2, 1U << 3};
  EXPECT_THAT(image::missing_features({&none, 1}),
              testing::ElementsAre("bit 3 of register 2 of CPUID leaf 0x4fffffff.0"));
}

class Separate : public testing::Test {
 protected:
  Separate() {
    PackageInput input = built().input;
    input.separate_weights = true;
    write_package(path_, input);
  }
  ~Separate() override { std::filesystem::remove_all(folder_); }

  static std::vector<std::byte> read(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  static void write(const std::filesystem::path& path, const std::vector<std::byte>& bytes) {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

  std::filesystem::path folder_ = [] {
    auto made = std::filesystem::temp_directory_path() /
                ("inkle_separate_test_" + std::to_string(::getpid()));
    std::filesystem::create_directories(made);
    return made;
  }();
  std::filesystem::path path_ = folder_ / "m.inkle", weights_ = folder_ / "m.weights";
};

TEST_F(Separate, WeightsLieInAFileOfTheirOwn) {
  const auto package = Package::open(path_);
  EXPECT_EQ(package->weights_name(), "m.weights");
  EXPECT_LT(std::filesystem::file_size(path_), built().bytes.size());
  EXPECT_EQ(run(*package, 17), run(*Package::from_bytes("f", built().bytes), 17));
  EXPECT_EQ(Package::open(path_, Package::Use::read)->check_all().size(), 1U);
  EXPECT_TRUE(Package::open(weights_, Package::Use::read)->check_all().empty());
  EXPECT_THAT(error_of([&] { (void)Package::open(weights_); }), HasSubstr("the file has no plan"));
  const auto of_bytes = Package::from_bytes("f", read(path_), Package::Use::run, read(weights_));
  EXPECT_EQ(run(*of_bytes, 17), run(*package, 17));
}

TEST_F(Separate, WithoutTheFileThereAreNoWeights) {
  std::filesystem::remove(weights_);
  const auto package = Package::open(path_);
  EXPECT_TRUE(package->weights().empty());
  EXPECT_EQ(package->weights_name(), "m.weights");
  EXPECT_EQ(Package::open(path_, Package::Use::read)->check_all().size(), 1U);
}

TEST_F(Separate, OtherWeightsAreRefused) {
  std::vector<std::byte> bytes = read(weights_);
  bytes.back() ^= std::byte{1};
  write(weights_, bytes);
  const auto package = Package::open(path_);  // which has not looked at them yet
  EXPECT_THAT(error_of([&] { (void)package->weights(); }),
              HasSubstr("m.weights: hash_mismatch: the weights are damaged"));
  EXPECT_THAT(error_of([&] { (void)Package::open(path_, Package::Use::read)->check_all(); }),
              HasSubstr("m.weights: hash_mismatch: section weights  is damaged"));
  std::vector<float> others = built().weights;
  others[3] += 1;
  PackageInput input = built().input;
  input.weights[0].tensor.data = others.data();
  input.separate_weights = true;
  write_package(folder_ / "other.inkle", input);
  std::filesystem::rename(folder_ / "other.weights", weights_);
  EXPECT_THAT(error_of([&] { (void)Package::open(path_); }),
              HasSubstr("holds other weights than those it was built with"));
  write(weights_, {std::byte{1}, std::byte{2}});
  EXPECT_THAT(error_of([&] { (void)Package::open(path_); }),
              HasSubstr("m.weights: truncated: 2 bytes"));
}

TEST(Contents, UnpackingIsTheInverseOfPacking) {
  const Contents contents =
      Package::from_bytes("f", built().bytes, Package::Use::read)->check_all().at(0);
  const std::vector<std::byte> packed = pack(contents);
  EXPECT_EQ(pack(unpack(packed)), packed);
  EXPECT_EQ(abi::print_plan(unpack(packed).plan), abi::print_plan(*built().compiled.plan));
}

TEST(Contents, TextHoldsAllThatTheBinaryFormDoes) {
  Contents contents =
      Package::from_bytes("f", built().bytes, Package::Use::read)->check_all().at(0);
  const std::vector<std::byte> packed = pack(contents);
  contents.plan = abi::parse_plan(abi::print_plan(contents.plan), "f");
  EXPECT_EQ(pack(contents), packed);
}

// The plan has every kind of step and sets every field.
TEST(Contents, NoFieldIsLost) {
  std::ifstream file(std::string(INKLE_SOURCE) + "/tests/fuzz/corpus/plan_text_fuzz/every.plan");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Contents contents;
  contents.plan = abi::parse_plan(text, "every.plan");
  contents.output_names = {"a", "b"};
  contents.constants = {{64, 48}};
  contents.weights = {{2, {128, 4}}};
  contents.layout = {4096, {"sin", "cos"}, {0, 64}};
  contents.processor = {{1, 2, 3, 4}};
  contents.parameters = {1, 2};
  contents.weights_hash = hash_of_chunk({});
  contents.images = {{"sm_90a", {64, 1000}}, {"sm_80", {1088, 8}}};
  contents.choices = {{"cuDNN 91000", "a card", "x [1, 2]", "engine 7"}, {"", "", "", "8"}};
  const Contents back = unpack(pack(contents));
  EXPECT_EQ(back.choices, contents.choices);
  EXPECT_EQ(abi::print_plan(back.plan), text);
  EXPECT_EQ(back.output_names, contents.output_names);
  EXPECT_EQ(back.constants.at(0).offset, 64U);
  EXPECT_EQ(back.constants.at(0).bytes, 48U);
  EXPECT_EQ(back.weights.at(0).argument, 2U);
  EXPECT_EQ(back.weights.at(0).data.offset, 128U);
  EXPECT_EQ(back.layout.code_bytes, 4096U);
  EXPECT_EQ(back.layout.imports, contents.layout.imports);
  EXPECT_EQ(back.layout.entries, contents.layout.entries);
  EXPECT_EQ(back.processor, contents.processor);
  EXPECT_EQ(back.parameters, contents.parameters);
  EXPECT_EQ(back.weights_hash, contents.weights_hash);
}

TEST(Contents, AChoiceIsAPrintableName) {
  Contents contents =
      Package::from_bytes("f", built().bytes, Package::Use::read)->check_all().at(0);
  for (const std::string& name : {std::string(), std::string("a\nb"), std::string(1025, 'a')}) {
    contents.choices = {{"cuDNN 91000", "a card", "x [1, 2]", name}};
    EXPECT_THAT(error_of([&] { (void)unpack(pack(contents)); }),
                HasSubstr("is no name of an algorithm"));
  }
}

}  // namespace
}  // namespace inkle::package
