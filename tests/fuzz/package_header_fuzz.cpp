// .inkle files: header and table, as they are and then with hashes made right, which would keep a
// fuzzer from what lies behind them. What is accepted can be read to its last byte.
#include <algorithm>
#include <cstring>

#include "fuzz.h"
#include "package/package.h"

namespace {

using namespace inkle;

void read(std::vector<std::byte> bytes) {
  fuzz::accept_refusal([&] {
    const auto package =
        package::Package::from_bytes("fuzz", std::move(bytes), package::Package::Use::read);
    (void)package->check_all();
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using package::FileHeader, package::SectionEntry;
  const std::span<const std::byte> given = fuzz::bytes_of(data, size);
  std::vector<std::byte> bytes(given.begin(), given.end());
  read(bytes);
  FileHeader header;
  if (bytes.size() < sizeof header) return 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::copy(std::begin(package::kMagic), std::end(package::kMagic), header.magic);
  header.format_version = package::kFormatVersion;
  header.abi_version = package::kAbiVersion;
  header.file_bytes = bytes.size();
  header.hash = {};
  const std::size_t most = (bytes.size() - sizeof header) / sizeof(SectionEntry);
  const std::size_t count = std::min<std::size_t>(header.section_count, most);
  for (std::size_t i = 0; i < count; ++i) {
    SectionEntry entry;
    std::byte* const at = bytes.data() + sizeof header + i * sizeof entry;
    std::memcpy(&entry, at, sizeof entry);
    if (entry.offset > bytes.size() || bytes.size() - entry.offset < entry.bytes) continue;
    entry.hash = package::hash_of_section(std::span(bytes).subspan(entry.offset, entry.bytes));
    std::memcpy(at, &entry, sizeof entry);
  }
  std::memcpy(bytes.data(), &header, sizeof header);
  header.hash =
      package::hash_of_header(std::span(bytes).first(sizeof header + count * sizeof(SectionEntry)));
  std::memcpy(bytes.data(), &header, sizeof header);
  read(std::move(bytes));
  return 0;
}
