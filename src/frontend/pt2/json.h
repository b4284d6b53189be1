// Checked access to the JSON of a file: every wrong kind or missing key is a UserError with its
// location. For this folder's sources only.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/device.h"
#include "abi/dtype.h"

namespace inkle::frontend::pt2 {

using Json = nlohmann::json;

// Where a file is being read; `detail` changes as reading goes on ("node 12 aten.linear").
struct SourceLocation {
  std::string file;
  std::string detail;
  // UserError "file: detail: reason".
  [[noreturn]] void fail(std::string_view reason) const;
};

// Refuses text nested deeper than `depth` or of more than four million values before parsing it.
[[nodiscard]] Json parse_json(const SourceLocation& place, std::span<const std::byte> text,
                              int depth = 100);

[[nodiscard]] const Json& member(const SourceLocation& place, const Json& object, const char* key);
[[nodiscard]] const Json* find_member(const Json& object, const char* key);  // null if none or null
[[nodiscard]] const Json& array(const SourceLocation& place, const Json& object, const char* key);
[[nodiscard]] const Json& object(const SourceLocation& place, const Json& object, const char* key);
[[nodiscard]] const std::string& text(const SourceLocation& place, const Json& value);
[[nodiscard]] std::int64_t integer(const SourceLocation& place, const Json& value);
[[nodiscard]] double real(const SourceLocation& place,
                          const Json& value);  // also "Infinity", "NaN"
[[nodiscard]] bool boolean(const SourceLocation& place, const Json& value);
// The one key and value of {"as_int": 3}.
[[nodiscard]] std::pair<std::string_view, const Json*> union_value(const SourceLocation& place,
                                                                   const Json& value);

// torch.export's numbers and records.
[[nodiscard]] abi::DType scalar_type(const SourceLocation& place, const Json& value);
[[nodiscard]] abi::Device device(const SourceLocation& place, const Json& value);
// TensorMeta with constant sizes only.
struct ConstantMeta {
  abi::DType dtype = abi::DType::f32;
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;
};
[[nodiscard]] ConstantMeta constant_meta(const SourceLocation& place, const Json& value);

}  // namespace inkle::frontend::pt2
