#include "graph/literal.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "abi/half.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"

namespace inkle::graph {
namespace {

// Longer ones, and types that are only carried, print as bytes.
constexpr std::size_t kMaxListed = 64;

// The shortest decimal whose nearest double rounds to this float again.
std::string print_float(float value) {
  if (!std::isfinite(value)) return print_double(value);
  std::string text = fmt::format("{}", value);
  double back = 0;
  std::from_chars(text.data(), text.data() + text.size(), back);
  if (static_cast<float>(back) != value) return print_double(value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string print_element(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::boolean:
      return load<std::uint8_t>(at) != 0 ? "true" : "false";
    case DType::u8:
      return fmt::format("{}", load<std::uint8_t>(at));
    case DType::i8:
      return fmt::format("{}", load<std::int8_t>(at));
    case DType::i16:
      return fmt::format("{}", load<std::int16_t>(at));
    case DType::i32:
      return fmt::format("{}", load<std::int32_t>(at));
    case DType::i64:
      return fmt::format("{}", load<std::int64_t>(at));
    case DType::f16:
      return print_float(abi::f16_to_float(load<std::uint16_t>(at)));
    case DType::bf16:
      return print_float(abi::bf16_to_float(load<std::uint16_t>(at)));
    case DType::f32:
      return print_float(load<float>(at));
    case DType::f64:
      return print_double(load<double>(at));
    default:
      return {};
  }
}

template <class T>
void read_integer(Scanner& scanner, std::byte* at) {
  const std::int64_t value = scanner.integer();
  if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max()) {
    scanner.fail("a number that the dtype cannot hold stands before this");
  }
  store(at, static_cast<T>(value));
}

double read_real(Scanner& scanner) {
  if (!scanner.next_is_number()) scanner.fail("expected a number");
  bool is_integer = false;
  std::int64_t integer = 0;
  return scanner.number(is_integer, integer);
}

void read_element(Scanner& scanner, DType dtype, std::byte* at) {
  switch (dtype) {
    case DType::boolean: {
      const bool value = scanner.accept("true");
      if (!value) scanner.expect("false");
      return store(at, static_cast<std::uint8_t>(value));
    }
    case DType::u8:
      return read_integer<std::uint8_t>(scanner, at);
    case DType::i8:
      return read_integer<std::int8_t>(scanner, at);
    case DType::i16:
      return read_integer<std::int16_t>(scanner, at);
    case DType::i32:
      return read_integer<std::int32_t>(scanner, at);
    case DType::i64:
      return store(at, scanner.integer());
    case DType::f16:
      return store(at, abi::float_to_f16(static_cast<float>(read_real(scanner))));
    case DType::bf16:
      return store(at, abi::float_to_bf16(static_cast<float>(read_real(scanner))));
    case DType::f32:
      return store(at, static_cast<float>(read_real(scanner)));
    case DType::f64:
      return store(at, read_real(scanner));
    default:
      scanner.fail("a literal of this dtype is written as bytes");
  }
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The text is read first, so that a short one cannot ask for much memory.
std::vector<std::byte> read_bytes(Scanner& scanner, std::size_t size) {
  const Scanner::Mark start = scanner.mark();
  const std::string text = scanner.quoted();
  std::vector<std::byte> bytes;
  bool good = text.size() == 2 * size;
  for (std::size_t i = 0; good && i < size; ++i) {
    const int high = hex_digit(text[2 * i]);
    const int low = hex_digit(text[2 * i + 1]);
    good = high >= 0 && low >= 0;
    bytes.push_back(static_cast<std::byte>(high * 16 + low));
  }
  if (good) return bytes;
  scanner.reset(start);
  scanner.fail(fmt::format("expected {} hexadecimal digits", 2 * size));
}

// Bytes of the literal; the text must at least be able to hold them.
std::size_t byte_count(Scanner& scanner, const Type& type, std::vector<std::int64_t>& sizes) {
  std::int64_t bytes = abi::size_of(type.dtype);
  for (const Expr size : type.sizes) {
    const auto value = size.constant();
    if (!value || *value < 0) scanner.fail("a literal has constant sizes");
    sizes.push_back(*value);
    if (__builtin_mul_overflow(bytes, *value, &bytes) || bytes > (std::int64_t{1} << 40)) {
      scanner.fail("a literal of impossible size");
    }
  }
  return static_cast<std::size_t>(bytes);
}

}  // namespace

std::string print_literal(const ConstantData& data) {
  const auto width = static_cast<std::size_t>(abi::size_of(data.dtype));
  const std::size_t count = data.bytes->size() / width;
  std::string out;
  if (!abi::is_computable(data.dtype) || count > kMaxListed) {
    out.reserve(2 * data.bytes->size() + 2);
    out += '"';
    constexpr std::string_view kDigits = "0123456789abcdef";
    for (const std::byte b : *data.bytes) {
      out += kDigits[std::to_integer<std::size_t>(b >> 4)];
      out += kDigits[std::to_integer<std::size_t>(b & std::byte{15})];
    }
    return out + '"';
  }
  out = "[";
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out += ", ";
    out += print_element(data.dtype, data.bytes->data() + i * width);
  }
  return out + "]";
}

ConstantData read_literal(Scanner& scanner, const Type& type) {
  ConstantData data{.dtype = type.dtype};
  const std::size_t size = byte_count(scanner, type, data.sizes);
  const auto width = static_cast<std::size_t>(abi::size_of(type.dtype));
  std::vector<std::byte> bytes;
  if (scanner.peek() == '"') {
    bytes = read_bytes(scanner, size);
  } else {
    scanner.expect("[");
    while (bytes.size() < size) {
      if (!bytes.empty()) scanner.expect(",");
      bytes.resize(bytes.size() + width);
      read_element(scanner, type.dtype, bytes.data() + bytes.size() - width);
    }
    scanner.expect("]");
  }
  data.bytes = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return data;
}

}  // namespace inkle::graph
