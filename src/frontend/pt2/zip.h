// Reads zip archives in place: stored members are parts of the mapped file, deflated ones are
// inflated to memory; nothing is ever written to disk. The whole directory is checked when the
// archive is opened, a member's checksum when it is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/pt2/mapped_file.h"

namespace inkle::frontend::pt2 {

struct ZipMember {
  std::string name;
  bool is_deflated = false;
  std::uint32_t crc = 0;
  std::uint64_t begin = 0;  // of the data in the file
  std::uint64_t packed_size = 0;
  std::uint64_t size = 0;
};

// Bytes of a member and what keeps them.
struct MemberBytes {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};

class ZipArchive {
 public:
  // UserError "file: reason" unless it is a zip archive of at most 65535 members with names that
  // are unique, relative and free of "..", whose data lie inside the file and do not overlap.
  explicit ZipArchive(std::shared_ptr<MappedFile> file);

  [[nodiscard]] const std::string& name() const { return file_->name(); }
  [[nodiscard]] const std::vector<ZipMember>& members() const { return members_; }
  // Null if there is none.
  [[nodiscard]] const ZipMember* find(std::string_view name) const;
  // UserError "file: member: reason" on a wrong checksum, a size above `limit`, or deflated data
  // that are damaged or more than 100 times smaller than what they hold.
  [[nodiscard]] MemberBytes read(const ZipMember& member, std::uint64_t limit) const;

 private:
  std::shared_ptr<MappedFile> file_;
  std::vector<ZipMember> members_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

}  // namespace inkle::frontend::pt2
