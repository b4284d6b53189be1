// A golden file with text that nobody reads is refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "golden/golden.h"

namespace inkle::golden {
namespace {

std::string refusal(const std::string& text) {
  const auto file = std::filesystem::temp_directory_path() / "inkle_golden_reader.test";
  std::ofstream(file) << text;
  try {
    (void)read_cases(file);
    return "";
  } catch (const UserError& error) {
    return error.message().substr(file.string().size());
  }
}

TEST(GoldenReader, TextInNoSectionIsRefused) {
  const std::string good = "// run: opt\n// --- in\na\n\nb\n// --- out\nc\n\n// a comment\n";
  EXPECT_EQ(refusal(good), "");
  EXPECT_EQ(refusal(good + "d\n"), ":10: text in no section");
  EXPECT_EQ(refusal("a\n" + good), ":1: text in no section");
  EXPECT_EQ(refusal("// run: opt\n// --- in\na\n// why\nb\n// --- out\nc\n"),
            ":5: text in no section");
}

TEST(GoldenReader, EachInputHasAnExpectation) {
  const std::string in = "// run: opt\n// --- in\na\n", out = "// --- out\nb\n";
  EXPECT_EQ(refusal(in + out), "");
  EXPECT_EQ(refusal(in), ":2: no expected section");
  EXPECT_EQ(refusal(in + in + out), ":2: no expected section");
  EXPECT_EQ(refusal(in + out + out), ":6: no '--- in' before it");
  EXPECT_EQ(refusal(in + "// --- outs\nb\n"), ":4: unknown section '// --- outs'");
}

}  // namespace
}  // namespace inkle::golden
