// Why a package is refused: a code beside the words, in messages "FILE: CODE: WORDS". The names of
// the codes are stable; docs/package.md says what each means.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace inkle::package {

enum class Reason : std::uint8_t {
  // The bytes of the file.
  unreadable,
  truncated,
  wrong_magic,
  other_format,
  other_abi,
  bad_table,
  hash_mismatch,
  stray_bytes,
  other_weights,
  // Its signature.
  not_signed,
  other_key,
  bad_signature,
  // What stands behind the hashes.
  no_plan,
  bad_plan,
  bad_code,
  // A right file that does not run here.
  unsupported_plan,
  needs_framework,
  cpu_features_missing,
  only_for_gpus,
  only_for_processors,
  no_gpu,
  other_gpu,
  cannot_map,  // a BadPackage nonetheless: the C API has told it as a bad file from the start
};

// Of all reasons, in the enumeration's order.
[[nodiscard]] std::span<const std::string_view> reason_names();
[[nodiscard]] std::string_view name_of(Reason reason);

// An error of one of the kinds of base/error.h, with its reason.
template <class Kind>
class Refused : public Kind {
 public:
  Refused(Reason reason, std::string_view words)
      : Kind(fmt::format("{}: {}", name_of(reason), words)), reason_(reason) {}
  // The same, of a file whose name goes before it.
  Refused(std::string_view file, const Refused& of)
      : Kind(fmt::format("{}: {}", file, of.what())), reason_(of.reason_) {}

  [[nodiscard]] Reason reason() const { return reason_; }

 private:
  Reason reason_;
};

using BadPackage = Refused<UserError>;      // the file is wrong
using UnfitPackage = Refused<Unsupported>;  // it is right, but not for this machine or this runtime

template <class... Args>
[[noreturn]] void bad_package(Reason reason, fmt::format_string<Args...> format, Args&&... args) {
  throw BadPackage(reason, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void unfit_package(Reason reason, fmt::format_string<Args...> format, Args&&... args) {
  throw UnfitPackage(reason, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace inkle::package
