// The JSON of a torch.export program, put into an archive that is right: checksums keep a fuzzer
// of whole archives from getting this far.
#include <zlib.h>

#include <string>
#include <vector>

#include "frontend/pt2/importer.h"
#include "fuzz.h"
#include "graph/text.h"

namespace {

// Writes stored members and their directory.
class ZipWriter {
 public:
  void add(const std::string& name, std::string_view content) {
    const std::size_t header = bytes_.size();
    std::string common;
    number(common, 20, 2);  // version needed
    number(common, 0, 8);   // flags, method, time, date
    number(
        common,
        crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())),
        4);
    number(common, content.size(), 4);
    number(common, content.size(), 4);
    number(common, name.size(), 2);
    number(common, 0, 2);
    bytes_ += "PK\x03\x04" + common + name;
    bytes_ += content;
    directory_ += "PK\x01\x02";
    number(directory_, 20, 2);
    directory_ += common;
    number(directory_, 0, 10);
    number(directory_, header, 4);
    directory_ += name;
    ++count_;
  }
  std::string finish() {
    std::string end = "PK\x05\x06";
    number(end, 0, 4);
    number(end, count_, 2);
    number(end, count_, 2);
    number(end, directory_.size(), 4);
    number(end, bytes_.size(), 4);
    number(end, 0, 2);
    return bytes_ + directory_ + end;
  }

 private:
  static void number(std::string& to, std::size_t value, unsigned width) {
    for (unsigned i = 0; i < width; ++i) {
      to.push_back(i < 8 ? static_cast<char>(value >> (8 * i) & 0xff) : '\0');
    }
  }
  std::string bytes_, directory_;
  std::size_t count_ = 0;
};

constexpr std::string_view kWeights =
    R"({"config": {"w": {"path_name": "weight_0", "is_param": true, "use_pickle": false,
    "tensor_meta": {"dtype": 7, "sizes": [{"as_int": 4}, {"as_int": 4}], "requires_grad": true,
    "device": {"type": "cpu", "index": null}, "strides": [{"as_int": 4}, {"as_int": 1}],
    "storage_offset": {"as_int": 0}, "layout": 7}}}})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace inkle;
  ZipWriter zip;
  zip.add("m/archive_format", "pt2");
  zip.add("m/models/model.json", fuzz::text_of(data, size));
  zip.add("m/data/weights/model_weights_config.json", kWeights);
  zip.add("m/data/weights/weight_0", std::string(64, '\0'));
  zip.add("m/data/constants/model_constants_config.json", R"({"config": {}})");
  const std::string bytes = zip.finish();
  fuzz::accept_refusal([&] {
    const auto file = frontend::pt2::MappedFile::from_bytes(
        "fuzz", fuzz::bytes_of(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()));
    (void)graph::to_string(frontend::pt2::import_pt2(file).graph);
  });
  return 0;
}
