// Loader of ELF objects. The sections that occupy memory are laid out in one mapping, first the
// code, then stubs for calls to functions out of the reach of 32 bits, then constants.
#include "codegen/cpu/object_code.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"

namespace inkle::codegen::cpu {

namespace {

constexpr std::size_t kStubBytes = 16;  // jmp *[rip+2]; padding; address

class Loader {
 public:
  explicit Loader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  LoadedObject load() {
    read_headers();
    lay_out();
    map();
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      if (sections_[i].sh_type == SHT_RELA && is_loaded(sections_[i].sh_info)) relocate(i);
    }
    if (::mprotect(base_, size_, PROT_READ | PROT_EXEC) != 0) {
      user_error("cannot make {} bytes of code executable: {}", size_, std::strerror(errno));
    }
    return {memory_, entry()};
  }

 private:
  template <class T>
  T read(std::size_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) {
      user_error("object code is truncated at byte {}", offset);
    }
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

  void read_headers() {
    const auto header = read<Elf64_Ehdr>(0);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != EM_X86_64 ||
        header.e_type != ET_REL || header.e_ident[EI_CLASS] != ELFCLASS64) {
      user_error("object code is no relocatable ELF file for x86-64");
    }
    for (std::size_t i = 0; i < header.e_shnum; ++i) {
      sections_.push_back(read<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr)));
      if (sections_.back().sh_type == SHT_SYMTAB) symbol_table_ = i;
    }
    if (symbol_table_ == 0) user_error("object code has no symbols");
    const Elf64_Shdr& table = sections_[symbol_table_];
    for (std::size_t i = 0; i < table.sh_size / sizeof(Elf64_Sym); ++i) {
      symbols_.push_back(read<Elf64_Sym>(table.sh_offset + i * sizeof(Elf64_Sym)));
    }
  }

  [[nodiscard]] bool is_loaded(std::size_t section) const {
    return section < sections_.size() && (sections_[section].sh_flags & SHF_ALLOC) != 0 &&
           sections_[section].sh_type == SHT_PROGBITS;
  }

  void lay_out() {
    places_.assign(sections_.size(), 0);
    const auto place = [&](bool code) {
      for (std::size_t i = 0; i < sections_.size(); ++i) {
        const Elf64_Shdr& s = sections_[i];
        if (!is_loaded(i) || ((s.sh_flags & SHF_EXECINSTR) != 0) != code) continue;
        if ((s.sh_flags & SHF_WRITE) != 0) user_error("object code has writable data");
        if (s.sh_offset > bytes_.size() || bytes_.size() - s.sh_offset < s.sh_size ||
            s.sh_addralign > 4096) {
          user_error("object code is truncated in section {}", i);
        }
        const std::size_t alignment = s.sh_addralign == 0 ? 1 : s.sh_addralign;
        size_ = (size_ + alignment - 1) / alignment * alignment;
        places_[i] = size_;
        size_ += s.sh_size;
      }
    };
    place(true);
    size_ = (size_ + kStubBytes - 1) / kStubBytes * kStubBytes;
    stubs_ = size_;
    size_ += symbols_.size() * kStubBytes;
    place(false);
    if (size_ > (std::size_t{1} << 30)) user_error("object code of {} bytes is too large", size_);
  }

  void map() {
    void* p = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
      user_error("no memory for {} bytes of code: {}", size_, std::strerror(errno));
    memory_ = std::shared_ptr<void>(p, [size = size_](void* q) { ::munmap(q, size); });
    base_ = static_cast<std::byte*>(p);
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      if (!is_loaded(i)) continue;
      std::memcpy(base_ + places_[i], bytes_.data() + sections_[i].sh_offset, sections_[i].sh_size);
    }
  }

  [[nodiscard]] std::string name_of(const Elf64_Sym& symbol) const {
    const std::size_t strings = sections_[symbol_table_].sh_link;
    if (strings >= sections_.size()) user_error("object code has no names");
    std::string name;
    for (std::size_t at = sections_[strings].sh_offset + symbol.st_name;; ++at) {
      const char c = read<char>(at);
      if (c == '\0') return name;
      name += c;
    }
  }

  // Where a symbol lies; functions outside the object are reached through a stub.
  std::byte* address_of(std::size_t number) {
    if (number >= symbols_.size()) user_error("object code names symbol {} of none", number);
    const Elf64_Sym& symbol = symbols_[number];
    if (symbol.st_shndx != SHN_UNDEF) {
      if (!is_loaded(symbol.st_shndx) || symbol.st_value > sections_[symbol.st_shndx].sh_size) {
        user_error("object code has a symbol in section {}", symbol.st_shndx);
      }
      return base_ + places_[symbol.st_shndx] + symbol.st_value;
    }
    const std::string name = name_of(symbol);
    void* target = support_function(name);
    if (target == nullptr) user_error("object code calls the unknown function '{}'", name);
    std::byte* stub = base_ + stubs_ + number * kStubBytes;
    const unsigned char jump[8] = {0xff, 0x25, 0x02, 0, 0, 0, 0x90, 0x90};
    std::memcpy(stub, jump, sizeof jump);
    std::memcpy(stub + 8, &target, sizeof target);
    return stub;
  }

  void relocate(std::size_t section) {
    const Elf64_Shdr& table = sections_[section];
    const Elf64_Shdr& target = sections_[table.sh_info];
    for (std::size_t i = 0; i < table.sh_size / sizeof(Elf64_Rela); ++i) {
      const auto r = read<Elf64_Rela>(table.sh_offset + i * sizeof(Elf64_Rela));
      const auto type = ELF64_R_TYPE(r.r_info);
      const std::size_t width = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
      if (r.r_offset > target.sh_size || target.sh_size - r.r_offset < width) {
        user_error("object code has a relocation outside its section");
      }
      std::byte* place = base_ + places_[table.sh_info] + r.r_offset;
      const auto value = reinterpret_cast<std::intptr_t>(address_of(ELF64_R_SYM(r.r_info))) +
                         static_cast<std::intptr_t>(r.r_addend);
      const std::intptr_t relative = value - reinterpret_cast<std::intptr_t>(place);
      switch (type) {
        case R_X86_64_64:
          std::memcpy(place, &value, 8);
          break;
        case R_X86_64_PC64:
          std::memcpy(place, &relative, 8);
          break;
        case R_X86_64_PC32:
        case R_X86_64_PLT32: {
          const auto low = static_cast<std::int32_t>(relative);
          if (low != relative) user_error("object code has a relocation out of reach");
          std::memcpy(place, &low, 4);
          break;
        }
        default:
          user_error("object code has a relocation of type {}", type);
      }
    }
  }

  [[nodiscard]] void* entry() {
    for (std::size_t i = 0; i < symbols_.size(); ++i) {
      if (ELF64_ST_BIND(symbols_[i].st_info) == STB_GLOBAL &&
          ELF64_ST_TYPE(symbols_[i].st_info) == STT_FUNC && symbols_[i].st_shndx != SHN_UNDEF) {
        return address_of(i);
      }
    }
    user_error("object code defines no function");
  }

  std::span<const std::byte> bytes_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<Elf64_Sym> symbols_;
  std::vector<std::size_t> places_;  // offset of each section in the mapping
  std::size_t symbol_table_ = 0;
  std::size_t stubs_ = 0;
  std::size_t size_ = 0;
  std::shared_ptr<void> memory_;
  std::byte* base_ = nullptr;
};

}  // namespace

LoadedObject load_object(std::span<const std::byte> object) { return Loader(object).load(); }

}  // namespace inkle::codegen::cpu
