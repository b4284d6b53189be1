// Kernels with asynchronous copies, roles and wgmma through NVRTC for sm_90a: the assembler keeps
// products asynchronous and spills nothing.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "codegen/cuda/compiler.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/cuda/prelude.h"
#include "codegen/cuda/print_kernel.h"
#include "kernel/parse.h"

namespace inkle::codegen::cuda {
namespace {

std::string kernel_in(const std::string& file) {
  std::ifstream in(std::filesystem::path(INKLE_TEST_DATA) / file);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  const std::size_t begin = all.find("\nkernel @") + 1;
  return all.substr(begin, all.find("\n//", begin) - begin);
}

std::string program(const std::string& text) {
  kernel::ParsedKernel parsed = kernel::parse_kernel(text, "in");
  const KernelSource source = print_kernel(parsed.kernel, "k", "", *parsed.context);
  std::string all = prelude();
  for (const std::string& helper : source.helpers) all += helper;
  return all + source.text;
}

TEST(AsynchronousTest, ProductsStayAsynchronous) {
  std::string why_not, notes;
  if (!find_nvrtc(why_not)) GTEST_SKIP() << why_not;
  const std::string text = program(kernel_in("wgmma.test"));
  EXPECT_FALSE(compile_program(text, "wgmma.cu", "sm_90a", &notes).empty());
  EXPECT_EQ(notes, "");
}

TEST(AsynchronousTest, ProductsOneAfterTheOtherAreRefused) {
  std::string why_not;
  if (!find_nvrtc(why_not)) GTEST_SKIP() << why_not;
  std::string text = program(kernel_in("wgmma.test"));
  const std::string wait = "wait_for_multiplications<1>();";
  text.insert(text.rfind(wait) + wait.size(), " v13[0] += 1.0f;");
  EXPECT_THROW(static_cast<void>(compile_program(text, "wgmma.cu", "sm_90a")), InternalError);
}

}  // namespace
}  // namespace inkle::codegen::cuda
