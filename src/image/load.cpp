#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "image/code_names.h"
#include "image/image.h"

namespace inkle::image {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

void protect(std::byte* at, std::size_t bytes, int protection) {
  if (bytes == 0 || ::mprotect(at, bytes, protection) == 0) return;
  user_error("cannot protect {} bytes of machine code: {}", bytes, std::strerror(errno));
}

}  // namespace

void check(std::span<const std::byte> bytes, const Layout& layout) {
  if (bytes.size() > kMostBytes || layout.imports.size() > kPageBytes) {
    user_error("machine code of {} bytes with {} imports is too large", bytes.size(),
               layout.imports.size());
  }
  if (layout.code_bytes > bytes.size() || layout.code_bytes % kPageBytes != 0 ||
      bytes.size() % kPageBytes != 0) {
    user_error("machine code of {} bytes, {} with its constants, is not in whole pages",
               layout.code_bytes, bytes.size());
  }
  for (const std::uint64_t entry : layout.entries) {
    if (entry >= layout.code_bytes) user_error("machine code has a kernel at byte {}", entry);
  }
  for (const std::string& name : layout.imports) {
    if (import_named(name) == nullptr) {
      user_error("machine code calls the unknown function '{}'", name);
    }
  }
}

LoadedImage load(std::span<const std::byte> bytes, const Layout& layout,
                 std::span<const std::string> names) {
  check(bytes, layout);
  const std::size_t table_bytes = whole_pages(layout.imports.size() * sizeof(void*));
  const std::size_t size = bytes.size() + table_bytes;
  if (size == 0) return {};
  void* const mapped =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    user_error("no memory for {} bytes of machine code: {}", size, std::strerror(errno));
  }
  LoadedImage loaded;
  loaded.memory = std::shared_ptr<void>(mapped, [size](void* p) { ::munmap(p, size); });
  auto* const base = static_cast<std::byte*>(mapped);
  if (!bytes.empty()) std::memcpy(base, bytes.data(), bytes.size());
  for (std::size_t i = 0; i < layout.imports.size(); ++i) {
    void* const address = import_named(layout.imports[i]);
    std::memcpy(base + bytes.size() + i * sizeof address, &address, sizeof address);
  }
  protect(base, layout.code_bytes, PROT_READ | PROT_EXEC);
  protect(base + layout.code_bytes, size - layout.code_bytes, PROT_READ);
  for (const std::uint64_t entry : layout.entries) {
    loaded.functions.push_back(reinterpret_cast<abi::KernelFunction>(base + entry));
  }
  if (!names.empty()) {
    loaded.memory = publish_names(std::move(loaded.memory), {base, layout.code_bytes},
                                  code_names(layout.entries, names, layout.code_bytes));
  }
  return loaded;
}

}  // namespace inkle::image
