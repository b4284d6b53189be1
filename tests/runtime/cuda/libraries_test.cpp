// Libraries that are opened at run time: what is said of those that are missing or too old.
#include <gtest/gtest.h>

#include "runtime/cuda/shared_library.h"

namespace inkle::runtime::cuda {
namespace {

TEST(SharedLibrary, TheFirstThatOpensIsTaken) {
  EXPECT_EQ(open_first({"libinkle_none.so.1", "libinkle_none.so.2"}), nullptr);
  EXPECT_NE(open_first({"libinkle_none.so.1", "libm.so.6"}), nullptr);
}

TEST(SharedLibrary, TheFirstFunctionThatAnOldOneLacksIsNamed) {
  void* library = open_first({"libm.so.6"});
  ASSERT_NE(library, nullptr);
  double (*cosine)(double) = nullptr;
  double (*none)(double) = nullptr;
  double (*sine)(double) = nullptr;
  Functions functions(library);
  functions.get("cos", cosine).get("cos_of_tomorrow", none).get("sin", sine);
  EXPECT_EQ(functions.missing(), "cos_of_tomorrow");
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0), 1);
  EXPECT_EQ(sine, nullptr);
}

}  // namespace
}  // namespace inkle::runtime::cuda
