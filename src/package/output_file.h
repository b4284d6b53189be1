// A file that is written under another name and renamed, so that a partial file is never visible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace inkle::package {

// Throws UserError naming the file. What is not finished is deleted.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  void finish();

 private:
  [[noreturn]] void fail() const;
  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
};

}  // namespace inkle::package
