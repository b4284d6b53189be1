#include "cache/owner.h"

#include <unistd.h>

namespace inkle::cache {

std::string objection_to(const struct stat& facts, bool is_folder) {
  if (is_folder ? !S_ISDIR(facts.st_mode) : !S_ISREG(facts.st_mode)) {
    return is_folder ? "is no folder" : "is no file";
  }
  if (facts.st_uid != ::geteuid()) return "belongs to another user";
  if ((facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "may be written by other users";
  return {};
}

}  // namespace inkle::cache
