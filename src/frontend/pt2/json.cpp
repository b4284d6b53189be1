#include "frontend/pt2/json.h"

#include <cmath>
#include <limits>

#include "base/error.h"

namespace inkle::frontend::pt2 {
namespace {

constexpr std::size_t kValueLimit = 4'000'000;

// Depth and an upper bound of the number of values, without building anything.
void measure(const SourceLocation& place, std::span<const std::byte> bytes, int limit) {
  int depth = 0;
  std::size_t values = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char c = static_cast<char>(bytes[i]);
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') {
      ++values;
      if (++depth > limit) place.fail(fmt::format("JSON nested deeper than {}", limit));
    }
    if (c == '}' || c == ']') --depth;
    if (c == ',') ++values;
  }
  if (values > kValueLimit) place.fail("JSON of too many values");
}

}  // namespace

void SourceLocation::fail(std::string_view reason) const {
  user_error("{}: {}{}{}", file, detail, detail.empty() ? "" : ": ", reason);
}

Json parse_json(const SourceLocation& place, std::span<const std::byte> bytes, int depth) {
  measure(place, bytes, depth);
  const auto* begin = reinterpret_cast<const char*>(bytes.data());
  try {
    return Json::parse(begin, begin + bytes.size());
  } catch (const Json::exception& e) {
    place.fail(e.what());
  }
}

const Json& member(const SourceLocation& place, const Json& object, const char* key) {
  const Json* found = object.is_object() && object.contains(key) ? &object[key] : nullptr;
  if (found == nullptr) place.fail(fmt::format("\"{}\" is missing", key));
  return *found;
}

const Json* find_member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(key);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

const Json& array(const SourceLocation& place, const Json& object, const char* key) {
  const Json& value = member(place, object, key);
  if (!value.is_array()) place.fail(fmt::format("\"{}\" is not a list", key));
  return value;
}

const Json& object(const SourceLocation& place, const Json& object, const char* key) {
  const Json& value = member(place, object, key);
  if (!value.is_object()) place.fail(fmt::format("\"{}\" is not an object", key));
  return value;
}

const std::string& text(const SourceLocation& place, const Json& value) {
  if (!value.is_string()) place.fail("a string is expected");
  return value.get_ref<const std::string&>();
}

std::int64_t integer(const SourceLocation& place, const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return static_cast<std::int64_t>(number);
    }
    place.fail(fmt::format("the integer {} does not fit 64 bits", number));
  }
  if (!value.is_number_integer()) place.fail("an integer is expected");
  return value.get<std::int64_t>();
}

double real(const SourceLocation& place, const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) {
    const std::string& s = text(place, value);
    if (s == "Infinity") return std::numeric_limits<double>::infinity();
    if (s == "-Infinity") return -std::numeric_limits<double>::infinity();
    if (s == "NaN") return std::numeric_limits<double>::quiet_NaN();
  }
  place.fail("a number is expected");
}

bool boolean(const SourceLocation& place, const Json& value) {
  if (!value.is_boolean()) place.fail("true or false is expected");
  return value.get<bool>();
}

std::pair<std::string_view, const Json*> union_value(const SourceLocation& place,
                                                     const Json& value) {
  if (!value.is_object() || value.size() != 1) place.fail("an object of one key is expected");
  return {value.begin().key(), &*value.begin()};
}

abi::DType scalar_type(const SourceLocation& place, const Json& value) {
  using abi::DType;
  switch (integer(place, value)) {
    case 1:
      return DType::u8;
    case 2:
      return DType::i8;
    case 3:
      return DType::i16;
    case 4:
      return DType::i32;
    case 5:
      return DType::i64;
    case 6:
      return DType::f16;
    case 7:
      return DType::f32;
    case 8:
      return DType::f64;
    case 9:
      return DType::c32;
    case 10:
      return DType::c64;
    case 11:
      return DType::c128;
    case 12:
      return DType::boolean;
    case 13:
      return DType::bf16;
    case 28:
      return DType::u16;
    case 29:
      return DType::f8e4m3fn;
    case 30:
      return DType::f8e5m2;
    case 31:
      return DType::f8e4m3fnuz;
    case 32:
      return DType::f8e5m2fnuz;
    case 34:
      return DType::u32;
    case 35:
      return DType::u64;
    default:
      place.fail("an unknown scalar type");
  }
}

abi::Device device(const SourceLocation& place, const Json& value) {
  const std::string& kind = text(place, member(place, value, "type"));
  abi::Device result;
  if (kind != "cpu" && kind != "cuda") place.fail(fmt::format("a tensor on device \"{}\"", kind));
  result.kind = kind == "cpu" ? abi::DeviceKind::cpu : abi::DeviceKind::cuda;
  if (const Json* index = find_member(value, "index")) {
    const std::int64_t number = integer(place, *index);
    if (number < 0 || number > 1024) place.fail("a wrong device number");
    result.index = static_cast<std::int32_t>(number);
  }
  return result;
}

ConstantMeta constant_meta(const SourceLocation& place, const Json& value) {
  ConstantMeta meta;
  meta.dtype = scalar_type(place, member(place, value, "dtype"));
  const auto list = [&](const char* key) {
    std::vector<std::int64_t> numbers;
    for (const Json& n : array(place, value, key)) {
      numbers.push_back(integer(place, member(place, n, "as_int")));
    }
    return numbers;
  };
  meta.sizes = list("sizes");
  meta.strides = list("strides");
  meta.offset = integer(place, member(place, member(place, value, "storage_offset"), "as_int"));
  if (integer(place, member(place, value, "layout")) != 7) place.fail("not a strided tensor");
  return meta;
}

}  // namespace inkle::frontend::pt2
