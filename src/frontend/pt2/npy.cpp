#include "frontend/pt2/npy.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace inkle::frontend::pt2 {
namespace {

using abi::DType;

struct Description {
  std::string_view text;
  DType dtype;
};
constexpr Description kDescriptions[] = {
    {"|b1", DType::boolean}, {"|u1", DType::u8},  {"|i1", DType::i8},    {"<i2", DType::i16},
    {"<i4", DType::i32},     {"<i8", DType::i64}, {"<f2", DType::f16},   {"<V2", DType::bf16},
    {"<f4", DType::f32},     {"<f8", DType::f64}, {"<u2", DType::u16},   {"<u4", DType::u32},
    {"<u8", DType::u64},     {"<c8", DType::c64}, {"<c16", DType::c128}, {"|V2", DType::bf16},
};

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kHeaderLimit = 1 << 16;
constexpr std::size_t kRankLimit = 64;

// The header: a Python dictionary of three known keys.
class Header {
 public:
  Header(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  DType dtype = DType::f32;
  bool is_column_major = false;
  std::vector<std::int64_t> sizes;

  void read() {
    expect("{");
    bool has_dtype = false;
    bool has_sizes = false;
    while (!accept("}")) {
      const std::string_view key = quoted();
      expect(":");
      if (key == "descr") {
        has_dtype = true;
        dtype = description(quoted());
      } else if (key == "fortran_order") {
        is_column_major = accept("True");
        if (!is_column_major) expect("False");
      } else if (key == "shape") {
        has_sizes = true;
        shape();
      } else {
        fail(fmt::format("an unknown key \"{}\" in the header", key));
      }
      if (!accept(",")) {
        expect("}");
        break;
      }
    }
    if (!has_dtype || !has_sizes) fail("descr or shape is missing in the header");
    blanks();
    if (at_ != text_.size()) fail("text behind the header");
  }

 private:
  [[nodiscard]] DType description(std::string_view text) const {
    for (const Description& d : kDescriptions) {
      if (d.text == text) return d.dtype;
    }
    fail(fmt::format("arrays of type \"{}\" are not read", text.substr(0, 40)));
  }
  void shape() {
    expect("(");
    while (!accept(")")) {
      std::int64_t size = 0;
      blanks();
      const std::size_t begin = at_;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
        if (__builtin_mul_overflow(size, 10, &size) ||
            __builtin_add_overflow(size, text_[at_] - '0', &size)) {
          fail("a size is too large");
        }
      }
      if (begin == at_) fail("a size is expected in the header");
      sizes.push_back(size);
      if (sizes.size() > kRankLimit) fail("too many dimensions");
      if (!accept(",")) {
        expect(")");
        return;
      }
    }
  }
  void blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(std::string_view token) {
    blanks();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail(fmt::format("\"{}\" is expected in the header", token));
  }
  std::string_view quoted() {
    const std::string_view mark = accept("'") ? "'" : "\"";
    if (mark == "\"") expect("\"");
    const std::size_t end = text_.find(mark, at_);
    if (end == text_.npos) fail("a string without end in the header");
    const std::string_view found = text_.substr(at_, end - at_);
    at_ = end + 1;
    return found;
  }
  [[noreturn]] void fail(std::string_view reason) const { user_error("{}: {}", file_, reason); }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
};

std::vector<std::int64_t> column_major_strides(std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> strides;
  std::int64_t stride = 1;
  for (const std::int64_t s : sizes) {
    strides.push_back(stride);
    stride *= std::max<std::int64_t>(s, 1);
  }
  return strides;
}

}  // namespace

TensorData read_npy(const std::string& path) { return read_npy(MappedFile::open(path)); }

TensorData read_npy(const std::shared_ptr<MappedFile>& file) {
  const std::span<std::byte> bytes = file->bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto fail = [&](std::string_view reason) { user_error("{}: {}", file->name(), reason); };
  if (!text.starts_with(kMagic) || text.size() < 12) fail("not a .npy file");
  const auto byte = [&](std::size_t at) { return std::to_integer<std::size_t>(bytes[at]); };
  const std::size_t version = byte(6);
  if (version < 1 || version > 3) fail("an unknown version of the .npy format");
  const std::size_t begin = version == 1 ? 10 : 12;
  std::size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > kHeaderLimit || length > text.size() - begin) fail("the header is cut short");
  Header header(text.substr(begin, length), file->name());
  header.read();
  const std::optional<std::int64_t> size = dense_bytes(header.dtype, header.sizes);
  const std::size_t left = bytes.size() - begin - length;
  if (!size || static_cast<std::uint64_t>(*size) != left) {
    fail(fmt::format("the header promises {} bytes of data, the file has {}",
                     size ? std::to_string(*size) : "too many", left));
  }
  TensorData result;
  result.dtype = header.dtype;
  result.strides =
      header.is_column_major ? column_major_strides(header.sizes) : row_major_strides(header.sizes);
  result.sizes = std::move(header.sizes);
  result.data = bytes.data() + begin + length;
  result.owner = file;
  if (reinterpret_cast<std::uintptr_t>(result.data) % kAlignment != 0) {
    std::shared_ptr<void> copy = aligned_memory(left);
    std::copy_n(result.data, left, static_cast<std::byte*>(copy.get()));
    result.data = static_cast<std::byte*>(copy.get());
    result.owner = std::move(copy);
  }
  return result;
}

void write_npy(const std::string& path, const abi::TensorView& tensor) {
  std::string_view description;
  for (const Description& d : kDescriptions) {
    if (d.dtype == tensor.dtype && description.empty()) description = d.text;
  }
  if (description.empty()) {
    unsupported("{}: a .npy file cannot hold {}", path, abi::name_of(tensor.dtype));
  }
  const TensorData dense = rearranged(tensor);
  std::string shape;
  for (const std::int64_t s : dense.sizes) shape += fmt::format("{}, ", s);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", description, shape);
  // Magic, version, length and header end at a multiple of 64 bytes.
  header.append(63 - (header.size() + 10) % 64, ' ');
  header.push_back('\n');
  std::string start(kMagic);
  start += {'\x01', '\x00', static_cast<char>(header.size() & 0xff),
            static_cast<char>(header.size() >> 8)};
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << start << header;
  out.write(reinterpret_cast<const char*>(dense.data),
            static_cast<std::streamsize>(*dense_bytes(dense.dtype, dense.sizes)));
  out.close();
  if (!out) user_error("{}: cannot be written: {}", path, std::strerror(errno));
}

}  // namespace inkle::frontend::pt2
