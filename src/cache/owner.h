// Whether a file or folder of the cache is its user's alone.
#pragma once

#include <sys/stat.h>

#include <string>

namespace inkle::cache {

// Ours alone to write, and no link (facts of lstat(), or of fstat() behind O_NOFOLLOW). Why not, if
// so.
[[nodiscard]] std::string objection_to(const struct stat& facts, bool is_folder);

}  // namespace inkle::cache
