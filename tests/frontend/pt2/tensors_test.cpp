// .npy and safetensors files, size expressions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "frontend/pt2/expression.h"
#include "frontend/pt2/npy.h"
#include "frontend/pt2/safetensors.h"

namespace inkle::frontend::pt2 {
namespace {

using testing::HasSubstr;

std::shared_ptr<MappedFile> file_of(const std::string& bytes) {
  return MappedFile::from_bytes("f", std::as_bytes(std::span(bytes.data(), bytes.size())));
}

template <class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

template <class T>
std::vector<T> values(const TensorData& t) {
  const TensorData dense = rearranged(t.view());
  std::vector<T> result(static_cast<std::size_t>(dense.element_count()));
  std::memcpy(result.data(), dense.data, result.size() * sizeof(T));
  return result;
}

// --- npy
// ------------------------------------------------------------------------------------------

std::string npy(const std::string& header, const std::string& data) {
  std::string bytes = std::string("\x93NUMPY\x01") + '\0';
  bytes += static_cast<char>(header.size());
  bytes += '\0';
  return bytes + header + data;
}

TEST(Npy, WritesWhatItReads) {
  const std::string path = testing::TempDir() + "inkle_npy_test.npy";
  TensorData t = make_tensor(abi::DType::i32, {2, 3}, {1, 2});
  for (std::int32_t i = 0; i < 6; ++i) std::memcpy(t.data + 4 * i, &i, 4);
  write_npy(path, t.view());
  const TensorData back = read_npy(path);
  std::filesystem::remove(path);
  EXPECT_EQ(back.sizes, t.sizes);
  EXPECT_EQ(values<std::int32_t>(back), (std::vector<std::int32_t>{0, 2, 4, 1, 3, 5}));
}

TEST(Npy, ReadsColumnMajorAndScalars) {
  const TensorData t = read_npy(file_of(
      npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 2), }", "\x01\x02\x03\x04")));
  EXPECT_EQ(values<std::uint8_t>(t), (std::vector<std::uint8_t>{1, 3, 2, 4}));
  EXPECT_EQ(read_npy(file_of(npy("{'descr':'|b1','fortran_order':False,'shape':()}", "\x01")))
                .sizes.size(),
            0U);
}

TEST(Npy, Refuses) {
  const auto refuse = [](const std::string& bytes) {
    return message([&] { (void)read_npy(file_of(bytes)); });
  };
  EXPECT_THAT(refuse("hello"), HasSubstr("f: not a .npy file"));
  EXPECT_THAT(refuse(npy("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "1234")),
              HasSubstr("arrays of type \">f4\""));
  EXPECT_THAT(refuse(npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "1234")),
              HasSubstr("arrays of type \"|O\""));
  EXPECT_THAT(refuse(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "1234")),
              HasSubstr("promises 8 bytes of data, the file has 4"));
  EXPECT_THAT(refuse(npy("{'descr': '<f4', 'fortran_order': False, "
                         "'shape': (4611686018427387904, 4), }",
                         "")),
              HasSubstr("promises too many bytes"));
  EXPECT_THAT(refuse(npy("{'descr': '<f4', 'shape': (99999999999999999999,), }", "")),
              HasSubstr("a size is too large"));
  EXPECT_THAT(refuse(npy("{'descr': '<f4', 'oh': 1}", "")), HasSubstr("an unknown key"));
}

// --- safetensors
// ----------------------------------------------------------------------------------

std::string safetensors(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  return bytes + header + data;
}

TEST(SafetensorsFile, ReadsByName) {
  const Safetensors s = read_safetensors(file_of(safetensors(
      R"({"__metadata__":{"a":"b"},"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
      R"("y":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
      "\x05\x06\x07")));
  EXPECT_EQ(s.metadata.at("a"), "b");
  EXPECT_EQ(values<std::uint8_t>(s.tensors.at("x")), (std::vector<std::uint8_t>{5, 6}));
  EXPECT_EQ(values<std::uint8_t>(s.tensors.at("y")), (std::vector<std::uint8_t>{7}));
}

TEST(SafetensorsFile, Refuses) {
  const auto refuse = [](const std::string& header, const std::string& data) {
    return message([&] { (void)read_safetensors(file_of(safetensors(header, data))); });
  };
  EXPECT_THAT(message([] { (void)read_safetensors(file_of("abc")); }), HasSubstr("too short"));
  EXPECT_THAT(message([] { (void)read_safetensors(file_of(std::string(16, '\x7f'))); }),
              HasSubstr("longer than the file"));
  EXPECT_THAT(refuse(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,3]}})", "123"),
              HasSubstr("tensor \"x\": its sizes do not agree"));
  EXPECT_THAT(refuse(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "123"),
              HasSubstr("bytes 0 to 4 of 3"));
  EXPECT_THAT(refuse(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                     R"("y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                     "123"),
              HasSubstr("overlap"));
  EXPECT_THAT(refuse(R"({"x":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "1"),
              HasSubstr("do not agree"));
  EXPECT_THAT(refuse(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"z":1}})", "1"),
              HasSubstr("an unknown key \"z\""));
  EXPECT_THAT(refuse(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "12"),
              HasSubstr("behind the last"));
}

// --- Expressions
// ----------------------------------------------------------------------------------

class Expressions : public testing::Test {
 protected:
  std::string parsed(std::string_view text) {
    return sym::to_string(parse_expression(text, context_, [this](std::string_view name) {
      const auto known = context_.find_symbol(name);
      return known ? *known : context_.symbol(name, {.range = {0, 100}});
    }));
  }
  sym::Context context_;
};

TEST_F(Expressions, ReadBothForms) {
  EXPECT_EQ(parsed("Symbol('s0', positive=True, integer=True)"), "s0");
  EXPECT_EQ(parsed("Add(Mul(Integer(2), Symbol('s0', integer=True)), Integer(-1))"),
            parsed("2*s0 - 1"));
  EXPECT_EQ(parsed("FloorDiv(Symbol('s0'), Integer(2))"), parsed("s0//2"));
  EXPECT_EQ(parsed("Pow(Symbol('s0'), Integer(2))"), parsed("s0**2"));
  EXPECT_EQ(parsed("Max(Integer(3), Integer(5))"), "5");
  EXPECT_EQ(parsed("-(3 + 4)*2 % 5"), "1");
}

TEST_F(Expressions, Refuse) {
  EXPECT_THROW((void)parsed(""), UserError);
  EXPECT_THROW((void)parsed("s0 +"), UserError);
  EXPECT_THROW((void)parsed("Symbol('s0"), UserError);
  EXPECT_THROW((void)parsed("99999999999999999999"), UserError);
  EXPECT_THROW((void)parsed(std::string(1000, '(')), UserError);
  EXPECT_THROW((void)parsed("sin(s0)"), Unsupported);
  EXPECT_THROW((void)parsed("s0**99"), Unsupported);
}

}  // namespace
}  // namespace inkle::frontend::pt2
