#include "image/code_names.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"

// What gdb looks for in a process, by these names and in this form ("JIT Compilation Interface" of
// its manual): it stops in the function and reads the list.
extern "C" {

struct JitCodeEntry {
  JitCodeEntry* next;
  JitCodeEntry* previous;
  const char* symbol_file;
  std::uint64_t bytes;
};

enum JitAction : std::uint32_t { kNoAction, kRegister, kUnregister };

struct JitDescriptor {
  std::uint32_t version;
  std::uint32_t action;
  JitCodeEntry* relevant;
  JitCodeEntry* first;
};

// NOLINTBEGIN(bugprone-reserved-identifier,cppcoreguidelines-avoid-non-const-global-variables)
__attribute__((visibility("protected")))
JitDescriptor __jit_debug_descriptor = {1, kNoAction, nullptr, nullptr};
__attribute__((visibility("protected"), noinline)) void __jit_debug_register_code() {
  asm volatile("" ::: "memory");
}
// NOLINTEND(bugprone-reserved-identifier,cppcoreguidelines-avoid-non-const-global-variables)

}  // extern "C"

namespace inkle::image {
namespace {

// Others' code generators may register in another copy of the list, so ours is ours alone.
std::mutex& list_mutex() {
  static auto* const mutex = new std::mutex;  // code is unloaded while a process ends
  return *mutex;
}

void notify_debugger(JitCodeEntry* entry, JitAction action) {
  __jit_debug_descriptor.relevant = entry;
  __jit_debug_descriptor.action = action;
  __jit_debug_register_code();
  __jit_debug_descriptor.action = kNoAction;
  __jit_debug_descriptor.relevant = nullptr;
}

// An entry of gdb's list, and the code that it is of.
class Registered {
 public:
  Registered(std::vector<std::byte> symbols, std::shared_ptr<void> memory)
      : symbols_(std::move(symbols)), memory_(std::move(memory)) {
    entry_.symbol_file = reinterpret_cast<const char*>(symbols_.data());
    entry_.bytes = symbols_.size();
    const std::lock_guard lock(list_mutex());
    entry_.next = __jit_debug_descriptor.first;
    if (entry_.next != nullptr) entry_.next->previous = &entry_;
    __jit_debug_descriptor.first = &entry_;
    notify_debugger(&entry_, kRegister);
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  ~Registered() {
    const std::lock_guard lock(list_mutex());
    if (entry_.previous != nullptr) {
      entry_.previous->next = entry_.next;
    } else {
      __jit_debug_descriptor.first = entry_.next;
    }
    if (entry_.next != nullptr) entry_.next->previous = entry_.previous;
    notify_debugger(&entry_, kUnregister);
  }

  [[nodiscard]] void* memory() const { return memory_.get(); }

 private:
  JitCodeEntry entry_{};
  std::vector<std::byte> symbols_;
  std::shared_ptr<void> memory_;
};

// A file of this process that perf reads; another one in a child that was forked.
class PerfFile {
 public:
  static PerfFile& instance() {
    static auto* const file = new PerfFile;  // see list_mutex
    return *file;
  }

  void write(PerfOutput output, std::span<const std::byte> code,
             std::span<const CodeName> functions) {
    const std::lock_guard lock(mutex_);
    if (!open(output)) return;
    for (const CodeName& f : functions) {
      if (output == PerfOutput::map) {
        put(fmt::format("{:x} {:x} {}\n", address_of(code, f), f.bytes, f.name));
      } else {
        put(load_record(code, f));
      }
    }
  }

 private:
  // Of the format "jitdump", which is described in Linux's tools/perf/Documentation.
  static constexpr std::uint32_t kMagic = 0x4a695444;
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::uint32_t kHeaderBytes = 40;
  static constexpr std::uint32_t kCodeLoad = 0;
  static constexpr std::uint32_t kLoadBytes = 56;

  static std::uint64_t address_of(std::span<const std::byte> code, const CodeName& f) {
    return reinterpret_cast<std::uint64_t>(code.data()) + f.offset;
  }

  // By the clock of `perf record -k mono`.
  static std::uint64_t now() {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(t.tv_nsec);
  }

  template <class T>
  static void append(std::string& to, T value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  bool open(PerfOutput output) {
    const auto process = static_cast<std::uint32_t>(::getpid());
    if (process == process_) return file_ >= 0;
    if (file_ >= 0) ::close(file_);
    process_ = process;
    // Others of this process, as Python's interpreter, write to the same map.
    const bool is_map = output == PerfOutput::map;
    const char* const folder = is_map ? nullptr : std::getenv("JITDUMPDIR");
    const std::string path =
        is_map ? fmt::format("/tmp/perf-{}.map", process)
               : fmt::format("{}/jit-{}.dump", folder == nullptr ? "/tmp" : folder, process);
    const int flags = O_CREAT | O_CLOEXEC | O_NOFOLLOW | (is_map ? O_WRONLY | O_APPEND : O_RDWR);
    file_ = ::open(path.c_str(), is_map ? flags : flags | O_TRUNC, 0600);
    if (file_ < 0) {
      warn("perf.open", "INKLE_PERF: cannot write {}: {}", path, std::strerror(errno));
      return false;
    }
    if (is_map) return true;
    // `perf record` finds the file by seeing it mapped, executable.
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    if (::mmap(nullptr, page, PROT_READ | PROT_EXEC, MAP_PRIVATE, file_, 0) == MAP_FAILED) {
      warn("perf.map", "INKLE_PERF: cannot map {}: {}", path, std::strerror(errno));
    }
    put(header(process));
    return file_ >= 0;
  }

  static std::string header(std::uint32_t process) {
    std::string text;
    for (const std::uint32_t v :
         {kMagic, kVersion, kHeaderBytes, std::uint32_t{EM_X86_64}, std::uint32_t{0}, process}) {
      append(text, v);
    }
    append(text, now());
    append(text, std::uint64_t{0});
    return text;
  }

  std::string load_record(std::span<const std::byte> code, const CodeName& f) {
    std::string text;
    append(text, kCodeLoad);
    append(text, static_cast<std::uint32_t>(kLoadBytes + f.name.size() + 1 + f.bytes));
    append(text, now());
    append(text, process_);
    append(text, static_cast<std::uint32_t>(::syscall(SYS_gettid)));
    append(text, address_of(code, f));  // where it is linked to, and where it lies
    append(text, address_of(code, f));
    append(text, f.bytes);
    append(text, next_++);
    text.append(f.name.c_str(), f.name.size() + 1);
    text.append(reinterpret_cast<const char*>(code.data() + f.offset), f.bytes);
    return text;
  }

  void put(std::string_view text) {
    while (!text.empty() && file_ >= 0) {
      const ssize_t written = ::write(file_, text.data(), text.size());
      if (written > 0) {
        text.remove_prefix(static_cast<std::size_t>(written));
      } else if (written == 0 || errno != EINTR) {
        warn("perf.write", "INKLE_PERF: cannot write: {}", std::strerror(errno));
        ::close(file_);
        file_ = -1;
      }
    }
  }

  std::mutex mutex_;
  int file_ = -1;
  std::uint32_t process_ = 0;
  std::uint64_t next_ = 0;  // number of the function in the dump
};

std::string printable(std::string_view name) {
  constexpr std::size_t kMostBytes = 200;
  std::string result(name.substr(0, kMostBytes));
  for (char& c : result) {
    if (c <= ' ' || c > '~') c = '_';
  }
  return result.empty() ? "kernel" : result;
}

}  // namespace

PerfOutput perf_output() {
  const char* const given = std::getenv("INKLE_PERF");
  if (given == nullptr || *given == '\0') return PerfOutput::none;
  const std::string_view output = given;
  if (output == "map") return PerfOutput::map;
  if (output == "jitdump") return PerfOutput::jitdump;
  user_error("INKLE_PERF is '{}', expected map or jitdump", output);
}

std::vector<CodeName> code_names(std::span<const std::uint64_t> entries,
                                 std::span<const std::string> names, std::uint64_t code_bytes) {
  std::vector<std::uint64_t> ends(entries.begin(), entries.end());
  ends.push_back(code_bytes);
  std::sort(ends.begin(), ends.end());
  std::vector<CodeName> functions;
  for (std::size_t i = 0; i < std::min(entries.size(), names.size()); ++i) {
    const auto end = std::upper_bound(ends.begin(), ends.end(), entries[i]);
    if (end == ends.end()) continue;
    functions.push_back({printable(names[i]), entries[i], *end - entries[i]});
  }
  return functions;
}

std::vector<std::byte> symbol_file(std::span<const CodeName> functions, const void* address,
                                   std::uint64_t code_bytes) {
  // A name's place in a table is where it starts; place 0 is the empty name.
  const auto add = [](std::string& table, std::string_view name) {
    const auto at = static_cast<Elf64_Word>(table.size());
    table.append(name).push_back('\0');
    return at;
  };
  std::string section_names(1, '\0'), symbol_names(1, '\0');
  std::vector<Elf64_Sym> symbols(1);
  constexpr Elf64_Half kText = 1, kSymbols = 2, kSymbolNames = 3, kSectionNames = 4, kSections = 5;
  for (const CodeName& f : functions) {
    symbols.push_back({.st_name = add(symbol_names, f.name),
                       .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                       .st_other = STV_DEFAULT,
                       .st_shndx = kText,
                       .st_value = f.offset,
                       .st_size = f.bytes});
  }
  Elf64_Shdr sections[kSections] = {};
  sections[kText] = {.sh_name = add(section_names, ".text"),
                     .sh_type = SHT_NOBITS,
                     .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                     .sh_addr = reinterpret_cast<Elf64_Addr>(address),
                     .sh_size = code_bytes,
                     .sh_addralign = 16};
  sections[kSymbols] = {.sh_name = add(section_names, ".symtab"),
                        .sh_type = SHT_SYMTAB,
                        .sh_link = kSymbolNames,
                        .sh_info = 1,  // the first global symbol
                        .sh_addralign = alignof(Elf64_Sym),
                        .sh_entsize = sizeof(Elf64_Sym)};
  sections[kSymbolNames] = {
      .sh_name = add(section_names, ".strtab"), .sh_type = SHT_STRTAB, .sh_addralign = 1};
  sections[kSectionNames] = {
      .sh_name = add(section_names, ".shstrtab"), .sh_type = SHT_STRTAB, .sh_addralign = 1};
  std::vector<std::byte> file(sizeof(Elf64_Ehdr) + sizeof sections);
  const auto place = [&](Elf64_Half section, const void* data, std::size_t bytes) {
    sections[section].sh_offset = file.size();
    sections[section].sh_size = bytes;
    const auto* const first = static_cast<const std::byte*>(data);
    file.insert(file.end(), first, first + bytes);
  };
  place(kSymbols, symbols.data(), symbols.size() * sizeof(Elf64_Sym));
  place(kSymbolNames, symbol_names.data(), symbol_names.size());
  place(kSectionNames, section_names.data(), section_names.size());
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_REL;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_shoff = sizeof header;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = kSections;
  header.e_shstrndx = kSectionNames;
  std::memcpy(file.data(), &header, sizeof header);
  std::memcpy(file.data() + sizeof header, sections, sizeof sections);
  return file;
}

std::shared_ptr<void> publish_names(std::shared_ptr<void> memory, std::span<const std::byte> code,
                                    std::span<const CodeName> functions) {
  if (const PerfOutput output = perf_output(); output != PerfOutput::none) {
    PerfFile::instance().write(output, code, functions);
  }
  auto registered = std::make_shared<Registered>(symbol_file(functions, code.data(), code.size()),
                                                 std::move(memory));
  void* const base = registered->memory();
  return {std::move(registered), base};
}

}  // namespace inkle::image
