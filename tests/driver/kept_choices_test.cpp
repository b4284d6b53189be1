// Choices of libraries in a cache: kept, and damaged or foreign entries.
#include "driver/kept_choices.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cache/store.h"

namespace inkle::driver {
namespace {

namespace fs = std::filesystem;
using runtime::cuda::ChoiceKey;

const ChoiceKey kKey{"cuDNN 91000", "a card, sm_90a, driver 13000", "x [1, 2] w [3]"};

class KeptChoices : public testing::Test {
 protected:
  KeptChoices() {
    std::string name = testing::TempDir() + "/choices-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    open();
  }
  ~KeptChoices() override { fs::remove_all(folder_); }

  // As another process does.
  void open() {
    choices_ = choices_in([store = cache::Store::open(folder_ / "kernels")] { return store; });
  }
  std::vector<fs::path> entries() const {
    std::vector<fs::path> found;
    for (const auto& file : fs::recursive_directory_iterator(folder_)) {
      if (file.path().extension() == ".entry") found.push_back(file.path());
    }
    return found;
  }

  fs::path folder_;
  std::shared_ptr<runtime::cuda::LibraryChoices> choices_;
};

TEST_F(KeptChoices, AreFoundByALaterProcess) {
  EXPECT_EQ(choices_->find(kKey), std::nullopt);
  choices_->keep(kKey, "engine 7 1=2");
  choices_->settle();
  open();
  EXPECT_EQ(choices_->find(kKey), "engine 7 1=2");
  choices_->keep(kKey, "engine 8");
  EXPECT_EQ(choices_->find(kKey), "engine 8");
}

TEST_F(KeptChoices, AnotherVersionCardOrProblemIsAnotherKey) {
  choices_->keep(kKey, "engine 7");
  for (const auto field : {&ChoiceKey::library, &ChoiceKey::device, &ChoiceKey::problem}) {
    ChoiceKey other = kKey;
    other.*field += "1";
    EXPECT_EQ(choices_->find(other), std::nullopt);
  }
}

TEST_F(KeptChoices, DamagedEntriesAreNotThere) {
  choices_->keep(kKey, "engine 7");
  ASSERT_EQ(entries().size(), 1U);
  const auto bytes = fs::file_size(entries()[0]);
  for (const std::uintmax_t at :
       {std::uintmax_t{0}, std::uintmax_t{100}, bytes - 1}) {  // magic, table, name
    {
      std::fstream file(entries()[0], std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(at));
      const char damaged = static_cast<char>(file.peek() ^ 4);
      file.seekp(static_cast<std::streamoff>(at));
      file.put(damaged);
    }
    open();
    EXPECT_EQ(choices_->find(kKey), std::nullopt) << at;
    EXPECT_TRUE(entries().empty());
    choices_->keep(kKey, "engine 7");
  }
  // The entry of another problem under this one's name.
  ChoiceKey other = kKey;
  other.problem = "another";
  const fs::path name = entries()[0];
  choices_->keep(other, "engine 9");
  for (const fs::path& file : entries()) {
    if (file != name) fs::rename(file, name);
  }
  open();
  EXPECT_EQ(choices_->find(kKey), std::nullopt);
}

TEST_F(KeptChoices, WhatIsNoNameIsNotThere) {
  for (const std::string& name : {std::string(), std::string("a\nb"), std::string(2000, 'a')}) {
    choices_->keep(kKey, name);
    EXPECT_EQ(choices_->find(kKey), std::nullopt);
  }
}

TEST(KeptChoicesWithoutFolder, NothingIsKept) {
  const auto choices = choices_in([] { return nullptr; });
  choices->keep(kKey, "engine 7");
  EXPECT_EQ(choices->find(kKey), std::nullopt);
  choices->settle();
}

}  // namespace
}  // namespace inkle::driver
