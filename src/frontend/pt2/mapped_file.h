// A file's bytes in memory: mapped privately (pages are read when touched, writes stay in this
// process), never longer than the file was when it was opened.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace inkle::frontend::pt2 {

class MappedFile {
 public:
  // UserError "path: reason" for what cannot be opened and for what is not a regular file.
  [[nodiscard]] static std::shared_ptr<MappedFile> open(const std::string& path);
  [[nodiscard]] static std::shared_ptr<MappedFile> from_bytes(std::string name,
                                                              std::span<const std::byte> bytes);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  MappedFile() = default;
  std::string name_;
  std::span<std::byte> bytes_;
  std::vector<std::byte> copy_;  // of from_bytes
  bool is_mapped_ = false;
};

}  // namespace inkle::frontend::pt2
