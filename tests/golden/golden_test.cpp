// Runs every tests/**/*.test file as a test of its own; with --update rewrites them instead.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "golden/golden.h"

namespace inkle::golden {
namespace {

std::vector<std::filesystem::path> all_files() {
  std::vector<std::filesystem::path> files;
  const std::filesystem::path root = std::filesystem::path(INKLE_SOURCE) / "tests";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().extension() == ".test") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

class GoldenFile : public testing::Test {
 public:
  explicit GoldenFile(std::filesystem::path file) : file_(std::move(file)) {}

  void TestBody() override {
    for (const Case& test : read_cases(file_)) {
      const Outcome outcome = run_case(test);
      EXPECT_EQ(outcome.text, test.expected) << file_.string() << ":" << test.line;
      EXPECT_EQ(outcome.is_error, test.expects_error) << file_.string() << ":" << test.line;
    }
  }

 private:
  std::filesystem::path file_;
};

std::string test_name(const std::filesystem::path& file) {
  std::string name =
      std::filesystem::relative(file, std::filesystem::path(INKLE_SOURCE) / "tests").string();
  name.resize(name.size() - std::strlen(".test"));
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

int update_all() {
  int failures = 0;
  for (const auto& file : all_files()) {
    try {
      update(file);
    } catch (const Error& error) {
      std::fprintf(stderr, "%s: %s\n", file.c_str(), error.what());
      ++failures;
    }
  }
  return failures;
}

}  // namespace
}  // namespace inkle::golden

int main(int argc, char** argv) {
  using inkle::golden::GoldenFile;
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1 && std::strcmp(argv[1], "--update") == 0) return inkle::golden::update_all();
  for (const auto& file : inkle::golden::all_files()) {
    testing::RegisterTest("Golden", inkle::golden::test_name(file).c_str(), nullptr, nullptr,
                          __FILE__, __LINE__,
                          [file]() -> testing::Test* { return new GoldenFile(file); });
  }
  return RUN_ALL_TESTS();
}
