// The linker. Sections of all objects that occupy memory are laid out one after the other, first
// code, then jumps through the import table, then constants. What refers to another part of the
// image is relocated here, as its distance is fixed; the loader relocates nothing.
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.h"
#include "image/image.h"

namespace inkle::image {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;
constexpr std::size_t kJumpBytes = 16;  // jmp *[rip + distance], padding

std::size_t round_up(std::size_t value, std::size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// An ELF file whose parts are read with bounds checks.
class ObjectFile {
 public:
  explicit ObjectFile(Object bytes) : bytes_(bytes) {
    const auto header = read<Elf64_Ehdr>(0);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != EM_X86_64 ||
        header.e_type != ET_REL || header.e_ident[EI_CLASS] != ELFCLASS64) {
      user_error("object code is no relocatable ELF file for x86-64");
    }
    for (std::size_t i = 0; i < header.e_shnum; ++i) {
      sections.push_back(read<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr)));
      if (sections.back().sh_type == SHT_SYMTAB) symbol_table_ = i;
    }
    if (symbol_table_ == 0) user_error("object code has no symbols");
    const Elf64_Shdr& table = sections[symbol_table_];
    for (std::size_t i = 0; i < table.sh_size / sizeof(Elf64_Sym); ++i) {
      symbols.push_back(read<Elf64_Sym>(table.sh_offset + i * sizeof(Elf64_Sym)));
    }
    places.assign(sections.size(), 0);
  }

  template <class T>
  [[nodiscard]] T read(std::size_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) {
      user_error("object code is truncated at byte {}", offset);
    }
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

  [[nodiscard]] bool is_loaded(std::size_t section) const {
    return section < sections.size() && (sections[section].sh_flags & SHF_ALLOC) != 0 &&
           sections[section].sh_type == SHT_PROGBITS;
  }
  [[nodiscard]] bool is_code(std::size_t section) const {
    return (sections[section].sh_flags & SHF_EXECINSTR) != 0;
  }
  [[nodiscard]] Object contents(std::size_t section) const {
    const Elf64_Shdr& s = sections[section];
    if ((s.sh_flags & SHF_WRITE) != 0) user_error("object code has writable data");
    if (s.sh_offset > bytes_.size() || bytes_.size() - s.sh_offset < s.sh_size ||
        s.sh_addralign > kPageBytes) {
      user_error("object code is truncated in section {}", section);
    }
    return bytes_.subspan(s.sh_offset, s.sh_size);
  }

  [[nodiscard]] std::string name_of(const Elf64_Sym& symbol) const {
    const std::size_t strings = sections[symbol_table_].sh_link;
    if (strings >= sections.size()) user_error("object code has no names");
    std::string name;
    for (std::size_t at = sections[strings].sh_offset + symbol.st_name;; ++at) {
      const char c = read<char>(at);
      if (c == '\0') return name;
      name += c;
    }
  }

  // The number of the one global function that the object defines.
  [[nodiscard]] std::size_t entry() const {
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      if (ELF64_ST_BIND(symbols[i].st_info) == STB_GLOBAL &&
          ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && symbols[i].st_shndx != SHN_UNDEF) {
        if (!is_loaded(symbols[i].st_shndx) || !is_code(symbols[i].st_shndx)) {
          user_error("object code has a function in section {}", symbols[i].st_shndx);
        }
        return i;
      }
    }
    user_error("object code defines no function");
  }

  std::vector<Elf64_Shdr> sections;
  std::vector<Elf64_Sym> symbols;
  std::vector<std::size_t> places;  // offset of each section in the image

 private:
  Object bytes_;
  std::size_t symbol_table_ = 0;
};

class Linker {
 public:
  explicit Linker(std::span<const Object> objects) {
    for (const Object object : objects) objects_.emplace_back(object);
  }

  Image link() {
    for (const ObjectFile& object : objects_) collect_imports(object);
    place(true);
    jumps_ = round_up(size_, kJumpBytes);
    size_ = round_up(jumps_ + image_.layout.imports.size() * kJumpBytes, kPageBytes);
    image_.layout.code_bytes = size_;
    place(false);
    image_.bytes.resize(round_up(size_, kPageBytes));
    for (const ObjectFile& object : objects_) copy(object);
    write_jumps();
    for (const ObjectFile& object : objects_) {
      for (std::size_t i = 0; i < object.sections.size(); ++i) {
        if (object.sections[i].sh_type != SHT_RELA) continue;
        if (object.is_loaded(object.sections[i].sh_info)) relocate(object, i);
      }
      const std::size_t entry = address_of(object, object.entry());
      if (entry >= image_.layout.code_bytes) user_error("object code has a function outside");
      image_.layout.entries.push_back(entry);
    }
    return std::move(image_);
  }

 private:
  void collect_imports(const ObjectFile& object) {
    for (std::size_t i = 1; i < object.symbols.size(); ++i) {
      if (object.symbols[i].st_shndx != SHN_UNDEF) continue;
      const std::string name = object.name_of(object.symbols[i]);
      if (import_named(name) == nullptr) {
        user_error("object code calls the unknown function '{}'", name);
      }
      const auto [at, is_new] = slots_.try_emplace(name, slots_.size());
      if (is_new) image_.layout.imports.push_back(name);
    }
  }

  void place(bool code) {
    for (ObjectFile& object : objects_) {
      for (std::size_t i = 0; i < object.sections.size(); ++i) {
        if (!object.is_loaded(i) || object.is_code(i) != code) continue;
        const std::size_t bytes = object.contents(i).size();  // checked
        size_ = round_up(size_, std::max<std::size_t>(object.sections[i].sh_addralign, 1));
        object.places[i] = size_;
        size_ += bytes;
        if (size_ > kMostBytes) user_error("object code of {} bytes is too large", size_);
      }
    }
  }

  void copy(const ObjectFile& object) {
    for (std::size_t i = 0; i < object.sections.size(); ++i) {
      if (!object.is_loaded(i)) continue;
      const Object contents = object.contents(i);
      if (contents.empty()) continue;
      std::memcpy(image_.bytes.data() + object.places[i], contents.data(), contents.size());
    }
  }

  // Functions outside of the image are reached through its import table, which follows it.
  void write_jumps() {
    for (std::size_t slot = 0; slot < image_.layout.imports.size(); ++slot) {
      const std::size_t at = jumps_ + slot * kJumpBytes;
      const auto distance =
          static_cast<std::int32_t>(image_.bytes.size() + slot * sizeof(void*) - (at + 6));
      constexpr unsigned char kJump[2] = {0xff, 0x25};
      std::memcpy(image_.bytes.data() + at, kJump, sizeof kJump);
      std::memcpy(image_.bytes.data() + at + sizeof kJump, &distance, sizeof distance);
    }
  }

  // Offset in the image of what a symbol stands for.
  [[nodiscard]] std::size_t address_of(const ObjectFile& object, std::size_t number) const {
    if (number >= object.symbols.size()) user_error("object code names symbol {} of none", number);
    const Elf64_Sym& symbol = object.symbols[number];
    if (symbol.st_shndx == SHN_UNDEF) {
      const auto slot = slots_.find(object.name_of(symbol));
      if (slot == slots_.end()) user_error("object code refers to nothing");
      return jumps_ + slot->second * kJumpBytes;
    }
    if (!object.is_loaded(symbol.st_shndx) ||
        symbol.st_value > object.sections[symbol.st_shndx].sh_size) {
      user_error("object code has a symbol in section {}", symbol.st_shndx);
    }
    return object.places[symbol.st_shndx] + symbol.st_value;
  }

  void relocate(const ObjectFile& object, std::size_t section) {
    const Elf64_Shdr& table = object.sections[section];
    const Elf64_Shdr& target = object.sections[table.sh_info];
    for (std::size_t i = 0; i < table.sh_size / sizeof(Elf64_Rela); ++i) {
      const auto r = object.read<Elf64_Rela>(table.sh_offset + i * sizeof(Elf64_Rela));
      const auto type = ELF64_R_TYPE(r.r_info);
      const std::size_t width = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
      if (r.r_offset > target.sh_size || target.sh_size - r.r_offset < width) {
        user_error("object code has a relocation outside its section");
      }
      const std::size_t place = object.places[table.sh_info] + r.r_offset;
      const std::size_t value = address_of(object, ELF64_R_SYM(r.r_info));
      // Wraps around as addresses do; what is out of reach is refused below.
      const auto relative =
          static_cast<std::int64_t>(value - place + static_cast<std::uint64_t>(r.r_addend));
      std::byte* const at = image_.bytes.data() + place;
      switch (type) {
        case R_X86_64_64:
          user_error("object code holds an absolute address");
        case R_X86_64_PC64:
          std::memcpy(at, &relative, 8);
          break;
        case R_X86_64_PC32:
        case R_X86_64_PLT32: {
          const auto low = static_cast<std::int32_t>(relative);
          if (low != relative) user_error("object code has a relocation out of reach");
          std::memcpy(at, &low, 4);
          break;
        }
        default:
          user_error("object code has a relocation of type {}", type);
      }
    }
  }

  std::vector<ObjectFile> objects_;
  std::map<std::string, std::size_t> slots_;  // of imports
  std::size_t jumps_ = 0;
  std::size_t size_ = 0;
  Image image_;
};

}  // namespace

Image link(std::span<const Object> objects) { return Linker(objects).link(); }

}  // namespace inkle::image
