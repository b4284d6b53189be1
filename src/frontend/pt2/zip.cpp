#include "frontend/pt2/zip.h"

#include <zlib.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "frontend/pt2/tensor_data.h"

namespace inkle::frontend::pt2 {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kDirectoryEntry = 0x02014b50;
constexpr std::uint32_t kDirectoryEnd = 0x06054b50;
constexpr std::uint32_t kDirectoryEnd64 = 0x06064b50;
constexpr std::uint32_t kLocator64 = 0x07064b50;
constexpr std::uint64_t kMemberLimit = 65535;
constexpr std::uint64_t kRatioLimit = 100;

// Little-endian numbers at positions of the file; a read beyond the end fails.
class Bytes {
 public:
  explicit Bytes(const MappedFile& file) : file_(file), bytes_(file.bytes()) {}

  [[nodiscard]] std::uint64_t size() const { return bytes_.size(); }
  [[nodiscard]] std::uint64_t number(std::uint64_t at, unsigned width) const {
    need(at, width);
    std::uint64_t value = 0;
    for (unsigned i = width; i-- > 0;) {
      value = value << 8 | std::to_integer<std::uint64_t>(bytes_[at + i]);
    }
    return value;
  }
  [[nodiscard]] std::string text(std::uint64_t at, std::uint64_t length) const {
    need(at, length);
    return {reinterpret_cast<const char*>(bytes_.data()) + at, length};
  }
  void need(std::uint64_t at, std::uint64_t length) const {
    if (at > size() || length > size() - at) fail("a zip record reaches beyond the end");
  }
  [[noreturn]] void fail(std::string_view reason) const {
    user_error("{}: {}", file_.name(), reason);
  }

 private:
  const MappedFile& file_;
  std::span<const std::byte> bytes_;
};

struct Directory {
  std::uint64_t begin = 0, size = 0, count = 0;
};

Directory find_directory(const Bytes& b) {
  constexpr std::uint64_t kEndSize = 22;
  if (b.size() < kEndSize) b.fail("not a zip archive (too short)");
  const std::uint64_t lowest = b.size() > kEndSize + 65535 ? b.size() - kEndSize - 65535 : 0;
  std::uint64_t end = b.size() - kEndSize;
  while (b.number(end, 4) != kDirectoryEnd || b.number(end + 20, 2) != b.size() - end - kEndSize) {
    if (end == lowest) b.fail("not a zip archive (no directory; the file may be cut short)");
    --end;
  }
  Directory d{b.number(end + 16, 4), b.number(end + 12, 4), b.number(end + 10, 2)};
  std::uint64_t limit = end;
  if (end >= 20 && b.number(end - 20, 4) == kLocator64) {
    const std::uint64_t at = b.number(end - 12, 8);
    if (at > end || b.number(at, 4) != kDirectoryEnd64) b.fail("damaged zip64 directory");
    d = {b.number(at + 48, 8), b.number(at + 40, 8), b.number(at + 32, 8)};
    limit = at;
  }
  if (d.begin > limit || d.size > limit - d.begin) b.fail("the zip directory lies outside");
  if (d.count > kMemberLimit) b.fail("more than 65535 members");
  return d;
}

// Replaces what the 32-bit fields could not hold.
void read_extra(const Bytes& b, std::uint64_t at, std::uint64_t length, ZipMember& m,
                std::uint64_t& header) {
  constexpr std::uint64_t kFull = 0xffffffff;
  const std::uint64_t end = at + length;
  while (at + 4 <= end) {
    const std::uint64_t id = b.number(at, 2);
    std::uint64_t left = b.number(at + 2, 2);
    at += 4;
    if (left > end - at) b.fail("a damaged extra field in the zip directory");
    if (id != 1) {
      at += left;
      continue;
    }
    for (std::uint64_t* field : {&m.size, &m.packed_size, &header}) {
      if (*field != kFull) continue;
      if (left < 8) b.fail("a damaged extra field in the zip directory");
      *field = b.number(at, 8);
      at += 8;
      left -= 8;
    }
    at += left;
  }
}

bool is_safe(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\\') != name.npos ||
      name.find('\0') != name.npos || name.find(':') != name.npos) {
    return false;
  }
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t slash = std::min(name.find('/', at), name.size());
    if (name.substr(at, slash - at) == "..") return false;
    at = slash + 1;
  }
  return true;
}

// Checks the local header against the directory and sets m.begin.
void locate(const Bytes& b, std::uint64_t header, ZipMember& m) {
  if (b.number(header, 4) != kLocalHeader) b.fail("no local header for member " + m.name);
  const std::uint64_t name_length = b.number(header + 26, 2);
  if (b.text(header + 30, name_length) != m.name) {
    b.fail("the local header of member " + m.name + " has another name");
  }
  if ((b.number(header + 8, 2) == 8) != m.is_deflated) {
    b.fail("the local header of member " + m.name + " has another method");
  }
  m.begin = header + 30 + name_length + b.number(header + 28, 2);
  b.need(m.begin, m.packed_size);
}

}  // namespace

ZipArchive::ZipArchive(std::shared_ptr<MappedFile> file) : file_(std::move(file)) {
  const Bytes b(*file_);
  const Directory directory = find_directory(b);
  std::uint64_t at = directory.begin;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;
  for (std::uint64_t i = 0; i < directory.count; ++i) {
    if (at >= directory.begin + directory.size || b.number(at, 4) != kDirectoryEntry) {
      b.fail(fmt::format("member {} of {} is missing in the zip directory", i, directory.count));
    }
    ZipMember m;
    const std::uint64_t flags = b.number(at + 8, 2);
    const std::uint64_t method = b.number(at + 10, 2);
    m.crc = static_cast<std::uint32_t>(b.number(at + 16, 4));
    m.packed_size = b.number(at + 20, 4);
    m.size = b.number(at + 24, 4);
    const std::uint64_t name_length = b.number(at + 28, 2);
    const std::uint64_t extra_length = b.number(at + 30, 2);
    std::uint64_t header = b.number(at + 42, 4);
    m.name = b.text(at + 46, name_length);
    b.need(at + 46 + name_length, extra_length);
    read_extra(b, at + 46 + name_length, extra_length, m, header);
    at += 46 + name_length + extra_length + b.number(at + 32, 2);
    if (!is_safe(m.name)) b.fail("a member has an unsafe name");
    if ((flags & 1) != 0) b.fail("member " + m.name + " is encrypted");
    if (method != 0 && method != 8) b.fail("member " + m.name + " has an unknown compression");
    m.is_deflated = method == 8;
    if (!m.is_deflated && m.size != m.packed_size) {
      b.fail("stored member " + m.name + " has two sizes");
    }
    locate(b, header, m);
    if (m.begin + m.packed_size > directory.begin) b.fail("member " + m.name + " lies outside");
    taken.emplace_back(header, m.begin + m.packed_size);
    if (!by_name_.emplace(m.name, members_.size()).second) {
      b.fail("two members are named " + m.name);
    }
    members_.push_back(std::move(m));
  }
  std::sort(taken.begin(), taken.end());
  for (std::size_t i = 1; i < taken.size(); ++i) {
    if (taken[i].first < taken[i - 1].second) b.fail("members of the zip archive overlap");
  }
}

const ZipMember* ZipArchive::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &members_[at->second];
}

namespace {

// Raw deflate into exactly `to`; false if the data are damaged or of another length.
bool inflate_all(std::span<std::byte> from, std::span<std::byte> to) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
  int status = Z_OK;
  std::size_t taken = 0;
  std::size_t made = 0;
  constexpr std::size_t kChunk = std::size_t{1} << 30;  // zlib counts in 32 bits
  Bytef none = 0;
  while (status == Z_OK) {
    const std::size_t in = std::min(kChunk, from.size() - taken);
    const std::size_t out = std::min(kChunk, to.size() - made);
    stream.next_in = reinterpret_cast<Bytef*>(from.data() + taken);
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = to.empty() ? &none : reinterpret_cast<Bytef*>(to.data() + made);
    stream.avail_out = static_cast<uInt>(out);
    status = inflate(&stream, Z_NO_FLUSH);
    taken += in - stream.avail_in;
    made += out - stream.avail_out;
    if (status == Z_OK && stream.avail_in == in && stream.avail_out == out) status = Z_BUF_ERROR;
  }
  inflateEnd(&stream);
  return status == Z_STREAM_END && made == to.size() && taken == from.size();
}

std::uint32_t checksum(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

MemberBytes ZipArchive::read(const ZipMember& member, std::uint64_t limit) const {
  if (member.size > limit) {
    user_error("{}: {}: {} bytes, at most {} are accepted", name(), member.name, member.size,
               limit);
  }
  const std::span<std::byte> packed = file_->bytes().subspan(member.begin, member.packed_size);
  MemberBytes result{packed, file_};
  if (member.is_deflated) {
    if (member.size / kRatioLimit > member.packed_size) {
      user_error("{}: {}: packed more than {} times smaller", name(), member.name, kRatioLimit);
    }
    result.owner = aligned_memory(member.size);
    result.bytes = {static_cast<std::byte*>(result.owner.get()), member.size};
    if (!inflate_all(packed, result.bytes)) {
      user_error("{}: {}: damaged deflate data", name(), member.name);
    }
  }
  if (checksum(result.bytes) != member.crc) {
    user_error("{}: {}: wrong checksum, the file is damaged", name(), member.name);
  }
  return result;
}

}  // namespace inkle::frontend::pt2
