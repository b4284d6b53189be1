#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inkle {
namespace {

TEST(Error, NotesFollowTheMessage) {
  Unsupported error("complex64 is not compiled");
  error.add_note("in op mul at model.py:3");
  error.add_note("in stage lower");
  EXPECT_STREQ(error.what(),
               "complex64 is not compiled\n  in op mul at model.py:3\n  in stage lower");
  EXPECT_EQ(error.message(), "complex64 is not compiled");
  EXPECT_EQ(error.notes().size(), 2U);
}

TEST(Error, CheckNamesConditionAndPlace) {
  const int rank = 3;
  try {
    INKLE_CHECK(rank == 2, "rank {} in matmul", rank);
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), testing::MatchesRegex("rank 3 in matmul \\(check rank == 2 failed at "
                                                    ".*error_test.cpp:[0-9]+\\)"));
  }
}

TEST(Error, KindsAreToldApart) {
  EXPECT_THROW(user_error("size {}", 1), UserError);
  EXPECT_THROW(unsupported("op {}", "x"), Unsupported);
  EXPECT_NO_THROW(INKLE_CHECK(true, "never"));
}

}  // namespace
}  // namespace inkle
