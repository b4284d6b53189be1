#include "frontend/pt2/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "frontend/pt2/json.h"

namespace inkle::frontend::pt2 {
namespace {

constexpr std::uint64_t kHeaderLimit = 100'000'000;  // the format's own limit

struct Name {
  std::string_view text;
  abi::DType dtype;
};
constexpr Name kNames[] = {
    {"BOOL", abi::DType::boolean},   {"U8", abi::DType::u8},     {"I8", abi::DType::i8},
    {"I16", abi::DType::i16},        {"I32", abi::DType::i32},   {"I64", abi::DType::i64},
    {"F16", abi::DType::f16},        {"BF16", abi::DType::bf16}, {"F32", abi::DType::f32},
    {"F64", abi::DType::f64},        {"U16", abi::DType::u16},   {"U32", abi::DType::u32},
    {"U64", abi::DType::u64},        {"C64", abi::DType::c64},   {"F8_E4M3", abi::DType::f8e4m3fn},
    {"F8_E5M2", abi::DType::f8e5m2},
};

abi::DType dtype(const SourceLocation& place, const std::string& text) {
  for (const Name& n : kNames) {
    if (n.text == text) return n.dtype;
  }
  place.fail(fmt::format("the dtype {} is not known", text.substr(0, 40)));
}

using Extent = std::pair<std::uint64_t, std::uint64_t>;

TensorData tensor(const SourceLocation& place, const Json& entry, std::span<std::byte> data,
                  const std::shared_ptr<MappedFile>& file, std::vector<Extent>& extents) {
  for (const auto& [key, value] : entry.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      place.fail(fmt::format("an unknown key \"{}\"", key));
    }
  }
  TensorData result;
  result.dtype = dtype(place, text(place, member(place, entry, "dtype")));
  for (const Json& s : array(place, entry, "shape")) result.sizes.push_back(integer(place, s));
  const Json& offsets = array(place, entry, "data_offsets");
  if (offsets.size() != 2) place.fail("expected two data_offsets");
  const std::int64_t begin = integer(place, offsets[0]);
  const std::int64_t end = integer(place, offsets[1]);
  if (begin < 0 || end < begin || static_cast<std::uint64_t>(end) > data.size()) {
    place.fail(fmt::format("bytes {} to {} of {}", begin, end, data.size()));
  }
  const std::optional<std::int64_t> bytes = dense_bytes(result.dtype, result.sizes);
  if (!bytes || *bytes != end - begin) place.fail("its sizes do not agree with its bytes");
  result.strides = row_major_strides(result.sizes);
  result.data = data.data() + begin;
  result.owner = file;
  if (*bytes > 0) extents.emplace_back(begin, end);
  if (*bytes == 0 || reinterpret_cast<std::uintptr_t>(result.data) % kAlignment != 0) {
    std::shared_ptr<void> copy = aligned_memory(static_cast<std::size_t>(*bytes));
    std::copy_n(result.data, *bytes, static_cast<std::byte*>(copy.get()));
    result.data = static_cast<std::byte*>(copy.get());
    result.owner = std::move(copy);
  }
  return result;
}

}  // namespace

Safetensors read_safetensors(const std::string& path) {
  return read_safetensors(MappedFile::open(path));
}

Safetensors read_safetensors(const std::shared_ptr<MappedFile>& file) {
  const SourceLocation place{file->name(), ""};
  const std::span<std::byte> bytes = file->bytes();
  if (bytes.size() < 8) place.fail("not a safetensors file (too short)");
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  if (length > kHeaderLimit || length > bytes.size() - 8) {
    place.fail("the header is longer than the file: not a safetensors file, or cut short");
  }
  const SourceLocation header_place{file->name(), "header"};
  const Json header = parse_json(header_place, bytes.subspan(8, length), 8);
  if (!header.is_object()) header_place.fail("an object is expected");
  const std::span<std::byte> data = bytes.subspan(8 + length);
  Safetensors result;
  std::vector<Extent> extents;
  for (const auto& [name, entry] : header.items()) {
    const SourceLocation at{file->name(), fmt::format("tensor \"{}\"", name)};
    if (!entry.is_object()) at.fail("an object is expected");
    if (name == "__metadata__") {
      for (const auto& [key, value] : entry.items()) result.metadata[key] = text(at, value);
      continue;
    }
    result.tensors.emplace(name, tensor(at, entry, data, file, extents));
  }
  std::sort(extents.begin(), extents.end());
  std::uint64_t expected = 0;
  for (const auto& [begin, end] : extents) {
    if (begin != expected) place.fail("tensors overlap or leave a gap");
    expected = end;
  }
  if (expected != data.size()) place.fail("there are bytes behind the last tensor");
  return result;
}

}  // namespace inkle::frontend::pt2
