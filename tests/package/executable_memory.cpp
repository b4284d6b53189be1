#include "package/executable_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>

namespace {

std::atomic<int> times = 0;

}  // namespace

// Takes the place of the C library's.
extern "C" int mprotect(void* at, std::size_t bytes, int protection) noexcept {
  if ((protection & PROT_EXEC) != 0) ++times;
  return static_cast<int>(::syscall(SYS_mprotect, at, bytes, protection));
}

namespace inkle::package {

int times_made_executable() { return times; }

std::size_t executable_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    const std::size_t protections = line.find(' ') + 1;
    if (line.size() > protections + 2 && line[protections + 2] == 'x') ++count;
  }
  return count;
}

}  // namespace inkle::package
