#include "package/reason.h"

#include <array>
#include <cstddef>

namespace inkle::package {
namespace {

constexpr std::array<std::string_view, 23> kNames = {
    "unreadable",      "truncated",
    "wrong_magic",     "other_format",
    "other_abi",       "bad_table",
    "hash_mismatch",   "stray_bytes",
    "other_weights",   "not_signed",
    "other_key",       "bad_signature",
    "no_plan",         "bad_plan",
    "bad_code",        "unsupported_plan",
    "needs_framework", "cpu_features_missing",
    "only_for_gpus",   "only_for_processors",
    "no_gpu",          "other_gpu",
    "cannot_map",
};
static_assert(kNames.size() == static_cast<std::size_t>(Reason::cannot_map) + 1);

}  // namespace

std::span<const std::string_view> reason_names() { return kNames; }
std::string_view name_of(Reason reason) { return kNames[static_cast<std::size_t>(reason)]; }

}  // namespace inkle::package
