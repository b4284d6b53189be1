#include "driver/build_identity.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace inkle::driver {
namespace {

struct Search {
  std::uintptr_t address;
  std::string found;
};

// Notes lie one after the other: sizes, then name and content, each filled up to four bytes.
std::string hash_in(const std::byte* at, std::size_t size) {
  const auto filled = [](std::size_t n) { return (n + 3) / 4 * 4; };
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const std::size_t all = sizeof note + filled(note.n_namesz) + filled(note.n_descsz);
    if (all > size) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::memcmp(at + sizeof note, "GNU", 4) == 0) {
      std::string text;
      for (std::size_t i = 0; i < note.n_descsz; ++i) {
        text += fmt::format("{:02x}", static_cast<unsigned>(at[sizeof note + 4 + i]));
      }
      return text;
    }
    at += all;
    size -= all;
  }
  return {};
}

int look(dl_phdr_info* info, std::size_t /*size*/, void* context) {
  Search& search = *static_cast<Search*>(context);
  bool is_here = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    is_here |=
        part.p_type == PT_LOAD && search.address >= begin && search.address < begin + part.p_memsz;
  }
  if (!is_here) return 0;
  for (int i = 0; i < info->dlpi_phnum && search.found.empty(); ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    search.found =
        hash_in(reinterpret_cast<const std::byte*>(info->dlpi_addr + part.p_vaddr), part.p_memsz);
  }
  return 1;
}

}  // namespace

const std::string& build_identity() {
  static const std::string identity = [] {
    Search search{reinterpret_cast<std::uintptr_t>(&build_identity), {}};
    dl_iterate_phdr(look, &search);
    return search.found;
  }();
  return identity;
}

}  // namespace inkle::driver
