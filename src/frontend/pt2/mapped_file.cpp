#include "frontend/pt2/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace inkle::frontend::pt2 {

std::shared_ptr<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) user_error("{}: {}", path, std::strerror(errno));
  struct stat status {};
  std::string reason;
  void* address = nullptr;
  if (fstat(descriptor, &status) != 0) {
    reason = std::strerror(errno);
  } else if (!S_ISREG(status.st_mode)) {
    reason = "not a regular file";
  } else if (status.st_size > 0) {
    address = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) reason = std::strerror(errno);
  }
  ::close(descriptor);
  if (!reason.empty()) user_error("{}: {}", path, reason);
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->name_ = path;
  if (address != nullptr) {
    file->bytes_ = {static_cast<std::byte*>(address), static_cast<std::size_t>(status.st_size)};
    file->is_mapped_ = true;
  }
  return file;
}

std::shared_ptr<MappedFile> MappedFile::from_bytes(std::string name,
                                                   std::span<const std::byte> bytes) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->name_ = std::move(name);
  file->copy_.assign(bytes.begin(), bytes.end());
  file->bytes_ = file->copy_;
  return file;
}

MappedFile::~MappedFile() {
  if (is_mapped_) munmap(bytes_.data(), bytes_.size());
}

}  // namespace inkle::frontend::pt2
