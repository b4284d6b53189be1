// Sample programs of torch.export become the graphs that are stored beside them; damaged archives
// are refused with file, place and reason. INKLE_UPDATE=1 rewrites the stored graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "frontend/pt2/importer.h"
#include "graph/text.h"
#include "ops/table.h"

namespace inkle::frontend::pt2 {
namespace {

using testing::HasSubstr;

const std::string kData = std::string(INKLE_SOURCE) + "/tests/pt2/data/";

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Program import_bytes(const std::string& bytes, const ImportOptions& options = {}) {
  return import_pt2(
      MappedFile::from_bytes("m.pt2", std::as_bytes(std::span(bytes.data(), bytes.size()))),
      options);
}

// The message of the UserError or Unsupported; "" if none is thrown.
std::string refusal(const std::string& bytes) {
  try {
    (void)import_bytes(bytes);
    return "";
  } catch (const UserError& e) {
    return e.message();
  } catch (const Unsupported& e) {
    return e.message();
  }
}

// One stored member and its name; the archive around it is right.
struct Member {
  std::string name, content;
};

void put(std::string& to, std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) to.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

std::string zip(const std::vector<Member>& members) {
  std::string bytes;
  std::string directory;
  for (const Member& m : members) {
    const std::size_t header = bytes.size();
    std::string common;
    put(common, 20, 2);
    put(common, 0, 8);
    put(common,
        crc32(0, reinterpret_cast<const Bytef*>(m.content.data()),
              static_cast<uInt>(m.content.size())),
        4);
    put(common, m.content.size(), 4);
    put(common, m.content.size(), 4);
    put(common, m.name.size(), 2);
    put(common, 0, 2);
    bytes += "PK\x03\x04" + common + m.name + m.content;
    directory += "PK\x01\x02";
    put(directory, 20, 2);
    directory += common;
    put(directory, 0, 8);
    put(directory, 0, 2);
    put(directory, header, 4);
    directory += m.name;
  }
  std::string end = "PK\x05\x06";
  put(end, 0, 4);
  put(end, members.size(), 2);
  put(end, members.size(), 2);
  put(end, directory.size(), 4);
  put(end, bytes.size(), 4);
  put(end, 0, 2);
  return bytes + directory + end;
}

// A program of one weight and one input; `graph` is the JSON of nodes, tensor_values and outputs.
std::string program(const std::string& nodes, const std::string& values, const std::string& output,
                    const std::string& constraints = "{}") {
  const auto meta = [](const std::string& sizes, const std::string& strides) {
    return R"({"dtype":7,"sizes":)" + sizes +
           R"(,"requires_grad":false,"device":{"type":"cpu","index":null},"strides":)" + strides +
           R"(,"storage_offset":{"as_int":0},"layout":7})";
  };
  const std::string square =
      meta(R"([{"as_int":4},{"as_int":4}])", R"([{"as_int":4},{"as_int":1}])");
  const std::string json =
      R"({"graph_module":{"graph":{"inputs":[],"outputs":[],"nodes":[)" + nodes +
      R"(],"tensor_values":{"p_w":)" + square + R"(,"x":)" + square + values +
      R"(},"sym_int_values":{},"sym_bool_values":{}},"signature":{"input_specs":[)"
      R"({"parameter":{"arg":{"name":"p_w"},"parameter_name":"w"}},)"
      R"({"user_input":{"arg":{"as_tensor":{"name":"x"}}}}],"output_specs":[)"
      R"({"user_output":{"arg":{"as_tensor":{"name":")" +
      output +
      R"("}}}}]},"module_call_graph":[]},"opset_version":{"aten":10},"range_constraints":)" +
      constraints + R"(,"schema_version":{"major":8,"minor":20}})";
  return zip({{"m/archive_format", "pt2"},
              {"m/models/model.json", json},
              {"m/data/weights/model_weights_config.json",
               R"({"config":{"w":{"path_name":"weight_0","is_param":true,"use_pickle":false,)"
               R"("tensor_meta":)" +
                   square + "}}}"},
              {"m/data/weights/weight_0", std::string(64, '\1')},
              {"m/data/constants/model_constants_config.json", R"({"config":{}})"}});
}

std::string node(const std::string& target, const std::string& arguments,
                 const std::string& result) {
  return R"({"target":"torch.ops.aten.)" + target + R"(","inputs":[)" + arguments +
         R"(],"outputs":[{"as_tensor":{"name":")" + result + R"("}}],"metadata":{}})";
}

std::string tensor(const std::string& name) {
  return R"({"name":"self","arg":{"as_tensor":{"name":")" + name + R"("}},"kind":1})";
}

// --- Golden
// ---------------------------------------------------------------------------------------

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, SampleBecomesItsGraph) {
  const std::string path = kData + GetParam();
  const Program p = import_pt2(path + ".pt2");
  std::string text = graph::to_string(p.graph);
  EXPECT_EQ(graph::to_string(graph::parse(text, "printed", ops::op_table())), text);
  for (const std::string& name : p.outputs) text += "# output " + name + "\n";
  if (std::getenv("INKLE_UPDATE") != nullptr) std::ofstream(path + ".ir") << text;
  EXPECT_EQ(text, contents(path + ".ir"));
}

INSTANTIATE_TEST_SUITE_P(Pt2, Golden,
                         testing::Values("decoder", "encoder", "integers", "mutations", "residual",
                                         "tables", "tiny"));

// --- Weights
// --------------------------------------------------------------------------------------

TEST(Weights, AreReadByName) {
  const Program p = import_pt2(kData + "mutations.pt2");
  ASSERT_EQ(p.inputs.size(), p.graph.inputs.size());
  EXPECT_EQ(p.inputs[0].name, "linear.weight");
  EXPECT_EQ(p.inputs[0].tensor.sizes, (std::vector<std::int64_t>{4, 4}));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p.inputs[0].tensor.data) % kAlignment, 0U);
  EXPECT_EQ(p.inputs[2].name, "count");
  float zero = 1;
  std::memcpy(&zero, p.inputs[2].tensor.data, sizeof zero);
  EXPECT_EQ(zero, 0.0F);
  EXPECT_EQ(p.inputs[3].kind, ProgramInput::Kind::user);
}

TEST(Weights, FreezeMakesLiterals) {
  const Program p = import_pt2(kData + "residual.pt2", {.freeze = true});
  EXPECT_EQ(p.inputs.size(), 1U);
  EXPECT_EQ(p.graph.inputs.size(), 1U);
  EXPECT_EQ(p.graph.constants.size(), 20U);
}

TEST(Weights, FreezeRefusesWritesToWeights) {
  EXPECT_THROW((void)import_pt2(kData + "mutations.pt2", {.freeze = true}), Unsupported);
}

// --- Bad files
// ------------------------------------------------------------------------------------

TEST(Refusals, AreNotTriggeredByARightProgram) {
  const std::string values = R"(,"y":{"dtype":7,"sizes":[{"as_int":4},{"as_int":4}],"device":)"
                             R"({"type":"cpu","index":null},"strides":[{"as_int":4},{"as_int":1}],)"
                             R"("storage_offset":{"as_int":0},"layout":7})";
  EXPECT_EQ(refusal(program(node("relu.default", tensor("x"), "y"), values, "y")), "");
}

TEST(Refusals, NameFilePlaceAndReason) {
  EXPECT_THAT(
      refusal(program(node("relu.default", tensor("z"), "y"), "", "y")),
      HasSubstr("m.pt2: node 0 torch.ops.aten.relu.default: \"z\" of tensors is used before"));
  EXPECT_THAT(refusal(program(node("frobnicate.default", tensor("x"), "y"), "", "y")),
              HasSubstr("m.pt2: there is no code for torch.ops.aten.frobnicate.default (1 use)"));
  EXPECT_THAT(refusal(program("", "", "q")), HasSubstr("m.pt2: output 0: \"q\""));
  EXPECT_THAT(refusal(program("", "", "x", R"({"s0":{"min_val":5,"max_val":4}})")),
              HasSubstr("the range of s0 is empty"));
  EXPECT_THAT(refusal(program(node("relu.default", tensor("x"), "x"), "", "x")),
              HasSubstr("\"x\" is defined twice"));
}

TEST(Refusals, StatedTypesMustAgree) {
  const std::string values = R"(,"y":{"dtype":6,"sizes":[{"as_int":4},{"as_int":4}],"device":)"
                             R"({"type":"cpu","index":null},"strides":[{"as_int":4},{"as_int":1}],)"
                             R"("storage_offset":{"as_int":0},"layout":7})";
  EXPECT_THAT(refusal(program(node("relu.default", tensor("x"), "y"), values, "y")),
              HasSubstr("\"y\" is stated to be f16[4,4]"));
}

TEST(Refusals, DataDependentSizes) {
  const std::string sizes = R"x([{"as_expr":{"expr_str":"Symbol('u0', integer=True)"}}])x";
  const std::string values = R"(,"y":{"dtype":7,"sizes":)" + sizes +
                             R"(,"device":{"type":"cpu","index":null},"strides":[{"as_int":1}],)"
                             R"("storage_offset":{"as_int":0},"layout":7})";
  EXPECT_THAT(refusal(program(node("relu.default", tensor("x"), "y"), values, "y")),
              HasSubstr("the size u0 depends on data"));
}

TEST(Refusals, Archives) {
  EXPECT_THAT(refusal(""), HasSubstr("m.pt2: not a zip archive"));
  EXPECT_THAT(refusal(std::string(100, 'x')), HasSubstr("not a zip archive"));
  EXPECT_THAT(refusal(zip({{"a/x", "y"}})), HasSubstr("no archive_format"));
  EXPECT_THAT(refusal(zip({{"../x", "y"}})), HasSubstr("unsafe name"));
  EXPECT_THAT(refusal(zip({{"/x", "y"}})), HasSubstr("unsafe name"));
  EXPECT_THAT(refusal(zip({{"a\\x", "y"}})), HasSubstr("unsafe name"));
  EXPECT_THAT(refusal(zip({{"a", "y"}, {"a", "z"}})), HasSubstr("two members are named a"));
  EXPECT_THAT(refusal(zip({{"m/archive_format", "pt3"}})), HasSubstr("archive_format is not"));
  EXPECT_THAT(refusal(zip({{"m/archive_format", "pt2"}, {"m/models/m.json", "{\"a\":"}})),
              HasSubstr("m.pt2: m/models/m.json: "));
  EXPECT_THAT(refusal(zip({{"m/archive_format", "pt2"},
                           {"m/models/m.json", std::string(200, '[') + std::string(200, ']')}})),
              HasSubstr("nested deeper"));
}

TEST(Refusals, OverlappingMembers) {
  std::string bytes = zip({{"m/a", "first"}, {"m/b", "second"}});
  // The second directory entry is made to start where the first member does.
  const std::size_t entry = bytes.rfind("PK\x01\x02");
  const std::string b_name = bytes.substr(entry + 46, 3);
  ASSERT_EQ(b_name, "m/b");
  std::memset(bytes.data() + entry + 42, 0, 4);
  EXPECT_THAT(refusal(bytes), HasSubstr("has another name"));
}

TEST(Refusals, WeightsOutsideTheirMember) {
  std::string bytes = program("", "", "x");
  const std::size_t at = bytes.find(R"("config":{"w")");
  const std::size_t offset = bytes.find(R"("storage_offset":{"as_int":0})", at);
  ASSERT_NE(offset, bytes.npos);
  bytes[offset + 27] = '9';  // breaks the checksum as well: the member is not even parsed
  EXPECT_THAT(refusal(bytes), HasSubstr("wrong checksum"));
}

// Every cut and a few thousand flipped bits: an answer each time, and never a wrong program. A flip
// may hit bytes that nobody reads (dates, say); then the program is the same.
TEST(Refusals, CutAndFlippedFiles) {
  for (const char* name : {"mutations", "tiny"}) {
    const std::string bytes = contents(kData + name + ".pt2");
    const std::string right = graph::to_string(import_bytes(bytes).graph);
    for (std::size_t size = 0; size < bytes.size(); size += 7) {
      EXPECT_NE(refusal(bytes.substr(0, size)), "") << size;
    }
    std::uint64_t state = 7;
    for (int i = 0; i < 2000; ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      std::string flipped = bytes;
      const std::size_t at = (state >> 20) % bytes.size();
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (state >> 60 & 7)));
      try {
        EXPECT_EQ(graph::to_string(import_bytes(flipped).graph), right) << "byte " << at;
      } catch (const UserError&) {
      } catch (const Unsupported&) {
      }
    }
  }
}

}  // namespace
}  // namespace inkle::frontend::pt2
