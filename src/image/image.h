// Linked machine code of one or more kernels: position independent, relocated through its import
// table alone. The same image serves the process that compiled it and a package on disk.
//
//   bytes: | code ............ | constants ...... |   then, in memory only: | import table |
//          0                   code_bytes         bytes.size()
//
// Each part is whole pages, so that each has protections of its own: code is executable, constants
// and the table are read-only once it is filled, and nothing is ever writable and executable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/code.h"

namespace inkle::image {

inline constexpr std::size_t kPageBytes = 4096;

struct Layout {
  std::uint64_t code_bytes = 0;
  std::vector<std::string> imports;    // C functions, by slot of 8 bytes of the import table
  std::vector<std::uint64_t> entries;  // offset of each kernel in the code
};

struct Image {
  std::vector<std::byte> bytes;
  Layout layout;
};

using Object = std::span<const std::byte>;

// Links relocatable ELF files for x86-64 that define one global function each, in order. A function
// of its input alone. Throws UserError naming what is wrong with an object: truncated, another
// machine, writable data, an absolute address, an unknown relocation or function.
[[nodiscard]] Image link(std::span<const Object> objects);

// The functions work as long as a copy of `memory` lives.
struct LoadedImage {
  std::shared_ptr<void> memory;
  std::vector<abi::KernelFunction> functions;  // by entry
};

// All that can be told of an image without a page of it being mapped. Nothing but the import table
// is relocated, so that layout and imports are all there is. Throws UserError for a layout that
// makes no sense, and for an import that import_named() lacks.
void check(std::span<const std::byte> bytes, const Layout& layout);

// Copies the bytes into memory of this process, fills the import table, and makes the code
// executable. Throws UserError as check() does, and with the reason when memory cannot be had.
// `names` are of the entries, and what debuggers and profilers show (image/code_names.h).
[[nodiscard]] LoadedImage load(std::span<const std::byte> bytes, const Layout& layout,
                               std::span<const std::string> names = {});

// Address of a C function that generated code may call, or null.
[[nodiscard]] void* import_named(std::string_view name);

}  // namespace inkle::image
