// Runs a package on a device with inputs of NumPy files and writes the bytes of its results one
// after the other: what bench/gpu_packages.py compares with other ways to run it.
//   gpu_package model.inkle cuda results x.npy...
#include <inkle.hpp>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

namespace {

// The file's bytes, where its elements begin, and the tensor they are. Version 1 of the format,
// row-major f32 and i64.
struct Array {
  explicit Array(const char* path) {
    std::ifstream file(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
    if (bytes.size() < 10 || std::memcmp(bytes.data(), "\x93NUMPY\x01", 7) != 0) {
      throw std::runtime_error(std::string(path) + " is no NumPy file");
    }
    begin = 10 + static_cast<unsigned char>(bytes[8]) + 256 * static_cast<unsigned char>(bytes[9]);
    const std::string header(bytes.data() + 10, bytes.data() + begin);
    dtype = header.find("'<f4'") != std::string::npos ? INKLE_F32 : INKLE_I64;
    const char* at = header.c_str() + header.find('(') + 1;
    for (char* end = nullptr; *at != ')'; at = end + (*end == ',' || *end == ' ')) {
      sizes.push_back(std::strtoll(at, &end, 10));
      while (*end == ',' || *end == ' ') ++end;
      if (*end == ')') break;
    }
  }
  inkle::Tensor tensor() { return {bytes.data() + begin, dtype, sizes}; }

  std::vector<char> bytes;
  std::size_t begin = 0;
  inkle_dtype dtype = INKLE_F32;
  std::vector<std::int64_t> sizes;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) throw std::runtime_error("usage: gpu_package model.inkle cuda results x.npy...");
  const inkle::Program program(argv[1], inkle::Device{argv[2]});
  std::vector<Array> arrays(argv + 4, argv + argc);
  std::vector<inkle::Tensor> inputs;
  for (Array& array : arrays) inputs.push_back(array.tensor());
  const inkle::Results results = program.run(inputs);
  std::ofstream out(argv[3], std::ios::binary);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::vector<float> values = results[i].copy<float>();
    out.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(float)));
  }
  return out.good() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
