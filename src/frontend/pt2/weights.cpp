#include "frontend/pt2/weights.h"

#include <cstdint>
#include <limits>

#include "base/error.h"
#include "frontend/pt2/json.h"

namespace inkle::frontend::pt2 {
namespace {

TensorData place_tensor(const SourceLocation& place, const ConstantMeta& meta,
                        const MemberBytes& bytes) {
  TensorData tensor;
  const std::optional<std::int64_t> span = span_bytes(meta.dtype, meta.sizes, meta.strides);
  if (!span || meta.offset < 0) place.fail("sizes or strides make no sense");
  std::int64_t begin = 0;
  std::int64_t end = 0;
  if (__builtin_mul_overflow(meta.offset, abi::size_of(meta.dtype), &begin) ||
      __builtin_add_overflow(begin, *span, &end) ||
      (*span > 0 && static_cast<std::uint64_t>(end) > bytes.bytes.size())) {
    place.fail(fmt::format("the tensor ends at byte {} of {}", end, bytes.bytes.size()));
  }
  tensor.dtype = meta.dtype;
  tensor.sizes = meta.sizes;
  tensor.strides = meta.strides;
  if (*span == 0) {
    tensor.owner = aligned_memory(0);
    tensor.data = static_cast<std::byte*>(tensor.owner.get());
    return tensor;
  }
  tensor.owner = bytes.owner;
  tensor.data = bytes.bytes.data() + begin;
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % kAlignment != 0) {
    // Compiled code wants aligned weights; copied once here rather than in every call.
    std::shared_ptr<void> copy = aligned_memory(static_cast<std::size_t>(*span));
    std::copy_n(tensor.data, *span, static_cast<std::byte*>(copy.get()));
    tensor.data = static_cast<std::byte*>(copy.get());
    tensor.owner = std::move(copy);
  }
  return tensor;
}

}  // namespace

PayloadMap read_payloads(const ZipArchive& archive, const std::string& folder,
                         const std::string& config) {
  PayloadMap result;
  SourceLocation place{archive.name(), config};
  const ZipMember* member_of_config = archive.find(config);
  if (member_of_config == nullptr) place.fail("the archive lacks this member");
  const MemberBytes config_bytes = archive.read(*member_of_config, kJsonLimit);
  const Json json = parse_json(place, config_bytes.bytes);
  std::map<std::string, MemberBytes> read;
  for (const auto& [name, entry] : object(place, json, "config").items()) {
    place.detail = fmt::format("{}: tensor \"{}\"", config, name);
    if (boolean(place, member(place, entry, "use_pickle"))) {
      place.fail("stored as a pickle, which is never read; save it as a plain tensor");
    }
    const std::string path = folder + text(place, member(place, entry, "path_name"));
    const ConstantMeta meta = constant_meta(place, object(place, entry, "tensor_meta"));
    auto at = read.find(path);
    if (at == read.end()) {
      const ZipMember* found = archive.find(path);
      if (found == nullptr) place.fail(fmt::format("member {} is missing", path));
      at =
          read.emplace(path, archive.read(*found, std::numeric_limits<std::uint64_t>::max())).first;
    }
    result.emplace(name, Payload{place_tensor(place, meta, at->second), path});
  }
  return result;
}

}  // namespace inkle::frontend::pt2
