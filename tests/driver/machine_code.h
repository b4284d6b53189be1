// What stands in the machine code of a GPU, of sm_90: its instructions have 16 bytes, of which the
// lowest 12 bits say what they do.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace inkle::driver {

// Kernels of a cubin that access global memory before they have waited for earlier launches, or
// that do not wait.
inline std::vector<std::string> kernels_ahead_of_wait(std::span<const std::byte> cubin) {
  constexpr std::uint64_t kOperation = 0xfff;
  constexpr std::uint64_t kWait = 0x82e;                               // ACQBULK
  constexpr std::uint64_t kAccesses[] = {0x980, 0x981, 0x985, 0x986};  // LD, LDG, ST, STG
  constexpr std::size_t kInstruction = 16;
  const auto read = [&](auto& to, std::size_t at) {
    std::memcpy(&to, cubin.subspan(at, sizeof to).data(), sizeof to);
  };
  Elf64_Ehdr header;
  read(header, 0);
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  for (std::size_t s = 0; s < sections.size(); ++s) {
    read(sections[s], header.e_shoff + s * header.e_shentsize);
  }
  constexpr std::string_view kText = ".text.";
  std::vector<std::string> found;
  for (const Elf64_Shdr& section : sections) {
    const std::size_t at = sections[header.e_shstrndx].sh_offset + section.sh_name;
    const std::string name = reinterpret_cast<const char*>(cubin.subspan(at).data());
    if (!name.starts_with(kText)) continue;
    bool has_waited = false, is_ahead = false;
    for (std::size_t i = 0; i < section.sh_size && !has_waited; i += kInstruction) {
      std::uint64_t word = 0;
      read(word, section.sh_offset + i);
      has_waited = (word & kOperation) == kWait;
      for (const std::uint64_t access : kAccesses) {
        is_ahead = is_ahead || (word & kOperation) == access;
      }
    }
    if (is_ahead || !has_waited) found.push_back(name.substr(kText.size()));
  }
  return found;
}

}  // namespace inkle::driver
