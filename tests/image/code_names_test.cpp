// Names of kernels for debuggers and profilers: the object file that gdb gets, perf's two files.
#include "image/code_names.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "base/error.h"
#include "image/image.h"

extern "C" {
struct JitCodeEntry {
  JitCodeEntry* next;
  JitCodeEntry* previous;
  const char* symbol_file;
  std::uint64_t bytes;
};
struct JitDescriptor {
  std::uint32_t version, action;
  JitCodeEntry *relevant, *first;
};
extern JitDescriptor __jit_debug_descriptor;
}

namespace inkle::image {
namespace {

// Two functions of a page that do nothing.
struct Nothing {
  std::vector<std::byte> bytes = std::vector<std::byte>(kPageBytes, std::byte{0xc3});
  Layout layout{.code_bytes = kPageBytes, .imports = {}, .entries = {32, 0}};
  std::vector<std::string> names = {"softmax_0a1b2c3d", "gelu add\n"};
};

class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

template <class T>
T read_at(std::string_view bytes, std::size_t at) {
  T value{};
  EXPECT_LE(at + sizeof value, bytes.size());
  if (at + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// Name and address of each function.
std::vector<std::pair<std::string, std::uint64_t>> symbols_of(std::string_view file) {
  const auto header = read_at<Elf64_Ehdr>(file, 0);
  EXPECT_EQ(std::memcmp(header.e_ident, ELFMAG, SELFMAG), 0);
  EXPECT_EQ(header.e_machine, EM_X86_64);
  const auto section = [&](std::size_t n) {
    return read_at<Elf64_Shdr>(file, header.e_shoff + n * sizeof(Elf64_Shdr));
  };
  std::vector<std::pair<std::string, std::uint64_t>> result;
  for (std::size_t s = 0; s < header.e_shnum; ++s) {
    const Elf64_Shdr table = section(s);
    if (table.sh_type != SHT_SYMTAB) continue;
    for (std::size_t at = 0; at < table.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read_at<Elf64_Sym>(file, table.sh_offset + at);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
      const std::size_t name = section(table.sh_link).sh_offset + symbol.st_name;
      result.emplace_back(file.data() + name, section(symbol.st_shndx).sh_addr + symbol.st_value);
    }
  }
  return result;
}

std::uint64_t address(abi::KernelFunction function) {
  return reinterpret_cast<std::uint64_t>(function);
}

TEST(CodeNames, EachFunctionReachesToTheNext) {
  const Nothing code;
  const auto names = code_names(code.layout.entries, code.names, kPageBytes);
  ASSERT_EQ(names.size(), 2U);
  EXPECT_EQ(names[0].name, "softmax_0a1b2c3d");
  EXPECT_EQ(names[0].offset, 32U);
  EXPECT_EQ(names[0].bytes, kPageBytes - 32);
  EXPECT_EQ(names[1].name, "gelu_add_");
  EXPECT_EQ(names[1].bytes, 32U);
}

TEST(CodeNames, DebuggersSeeCodeAsLongAsItIsThere) {
  const Nothing code;
  const JitCodeEntry* const before = __jit_debug_descriptor.first;
  LoadedImage loaded = load(code.bytes, code.layout, code.names);
  const JitCodeEntry* const entry = __jit_debug_descriptor.first;
  ASSERT_NE(entry, before);
  EXPECT_EQ(entry->next, before);
  const std::vector<std::pair<std::string, std::uint64_t>> expected = {
      {"softmax_0a1b2c3d", address(loaded.functions[0])},
      {"gelu_add_", address(loaded.functions[1])}};
  EXPECT_EQ(symbols_of({entry->symbol_file, entry->bytes}), expected);
  // In the middle of the list.
  const LoadedImage other = load(code.bytes, code.layout, code.names);
  loaded = {};
  EXPECT_EQ(__jit_debug_descriptor.first->next, before);
  EXPECT_EQ(__jit_debug_descriptor.first->previous, nullptr);
}

TEST(CodeNames, CodeWithoutNamesIsNotTold) {
  const Nothing code;
  const JitCodeEntry* const before = __jit_debug_descriptor.first;
  const LoadedImage loaded = load(code.bytes, code.layout);
  EXPECT_EQ(__jit_debug_descriptor.first, before);
}

TEST(CodeNames, PerfsMapHasALineAFunction) {
  const Nothing code;
  const Variable perf("INKLE_PERF", "map");
  EXPECT_EXIT(
      {
        const LoadedImage loaded = load(code.bytes, code.layout, code.names);
        const std::filesystem::path map = fmt::format("/tmp/perf-{}.map", ::getpid());
        const std::string text = read_file(map);
        std::filesystem::remove(map);
        const std::string expected = fmt::format("{:x} {:x} softmax_0a1b2c3d\n{:x} 20 gelu_add_\n",
                                                 address(loaded.functions[0]), kPageBytes - 32,
                                                 address(loaded.functions[1]));
        std::fputs(text == expected ? "as expected" : text.c_str(), stderr);
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^as expected$");
}

struct Load {
  std::string name;
  std::uint64_t address, number;
  std::string code;
};

// All of a dump, whose header is as it should be.
std::vector<Load> loads_of(const std::string& dump) {
  std::vector<Load> result;
  EXPECT_EQ(dump.substr(0, 4), "DTiJ");  // the magic number as this machine writes it
  EXPECT_EQ(read_at<std::uint32_t>(dump, 4), 1U);
  EXPECT_EQ(read_at<std::uint32_t>(dump, 12), std::uint32_t{EM_X86_64});
  EXPECT_EQ(read_at<std::uint32_t>(dump, 20), static_cast<std::uint32_t>(::getpid()));
  std::size_t at = read_at<std::uint32_t>(dump, 8);
  std::uint64_t time = read_at<std::uint64_t>(dump, 24);
  while (at + 56 < dump.size()) {
    EXPECT_EQ(read_at<std::uint32_t>(dump, at), 0U);
    EXPECT_LE(time, read_at<std::uint64_t>(dump, at + 8));
    time = read_at<std::uint64_t>(dump, at + 8);
    const auto size = read_at<std::uint32_t>(dump, at + 4);
    const auto bytes = read_at<std::uint64_t>(dump, at + 40);
    Load load{dump.c_str() + at + 56,
              read_at<std::uint64_t>(dump, at + 32),
              read_at<std::uint64_t>(dump, at + 48),
              {}};
    EXPECT_EQ(read_at<std::uint64_t>(dump, at + 24), load.address);
    EXPECT_EQ(size, 56 + load.name.size() + 1 + bytes);
    load.code = dump.substr(at + 56 + load.name.size() + 1, bytes);
    result.push_back(std::move(load));
    at += size;
    if (size == 0) break;
  }
  EXPECT_EQ(at, dump.size());
  return result;
}

// In a process of its own, which has the file for itself.
void check_dump(const std::filesystem::path& folder) {
  const Nothing code;
  const LoadedImage loaded = load(code.bytes, code.layout, code.names);
  const LoadedImage again = load(code.bytes, code.layout, code.names);
  const auto loads = loads_of(read_file(folder / fmt::format("jit-{}.dump", ::getpid())));
  ASSERT_EQ(loads.size(), 4U);
  for (std::size_t i = 0; i < loads.size(); ++i) {
    const LoadedImage& image = i < 2 ? loaded : again;
    EXPECT_EQ(loads[i].number, i);
    EXPECT_EQ(loads[i].name, i % 2 == 0 ? "softmax_0a1b2c3d" : "gelu_add_");
    EXPECT_EQ(loads[i].address, address(image.functions[i % 2]));
    EXPECT_EQ(loads[i].code, std::string(i % 2 == 0 ? kPageBytes - 32 : 32, '\xc3'));
  }
}

TEST(CodeNames, DumpsHaveTheCode) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("inkle_jit_{}", ::getpid());
  std::filesystem::create_directories(folder);
  const Variable perf("INKLE_PERF", "jitdump");
  const Variable where("JITDUMPDIR", folder.string());
  EXPECT_EXIT(
      {
        check_dump(folder);
        std::exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
  std::filesystem::remove_all(folder);
}

TEST(CodeNames, AFileThatCannotBeWrittenIsSaidOnce) {
  const Nothing code;
  const Variable perf("INKLE_PERF", "jitdump");
  const Variable where("JITDUMPDIR", "/nowhere");
  EXPECT_EXIT(
      {
        (void)load(code.bytes, code.layout, code.names);
        (void)load(code.bytes, code.layout, code.names);
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "INKLE_PERF: cannot write /nowhere/jit-[0-9]+.dump: No such");
}

TEST(CodeNames, AnotherOutputIsRefused) {
  const Variable perf("INKLE_PERF", "everything");
  try {
    (void)perf_output();
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.message(), "INKLE_PERF is 'everything', expected map or jitdump");
  }
}

}  // namespace
}  // namespace inkle::image
