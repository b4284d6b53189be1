// A model on a GPU: calls it many times without waiting for each, and prints what the last one gave.
//   gpu model.inkle [device [calls]]
// The package has a target for that GPU (inkle build --target sm_90a). Its inputs are filled with
// numbers; sizes that vary are as small as they may be. Nothing of CUDA is needed to compile this.
#include <inkle.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>

// Memory of an input, and the tensor that it is.
struct Filled {
  explicit Filled(const inkle::Info& info) : dtype(info.dtype), sizes(info.least) {
    std::size_t count = 1;
    for (const std::int64_t s : sizes) count *= static_cast<std::size_t>(s);
    bytes.resize(count * inkle_dtype_bytes(dtype));
    if (dtype != INKLE_F32) return;  // zeros
    auto* numbers = reinterpret_cast<float*>(bytes.data());
    for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<float>(i % 17) / 17;
  }
  inkle::Tensor tensor() { return {bytes.data(), dtype, sizes}; }

  inkle_dtype dtype;
  std::vector<std::int64_t> sizes;
  std::vector<char> bytes;
};

int main(int argc, char** argv) try {
  if (argc < 2) throw std::runtime_error("usage: gpu model.inkle [device [calls]]");
  const inkle::Program program(argv[1], inkle::Device{argc > 2 ? argv[2] : "cuda"});
  const int calls = argc > 3 ? std::atoi(argv[3]) : 100;
  std::vector<Filled> memory;
  for (const inkle::Info& info : program.inputs()) memory.emplace_back(info);
  std::vector<inkle::Tensor> inputs;
  for (Filled& one : memory) inputs.push_back(one.tensor());

  inkle::Results results;
  program.run_on(nullptr, inputs, results);  // on the default stream; the first one prepares
  results.wait();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) program.run_on(nullptr, inputs, results);
  results.fetch();  // waits, and copies from the GPU
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;

  std::printf("%s for %s: %.1f us a call\n", program.device().c_str(), program.target().c_str(),
              took.count() / calls);
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::printf("%s:", program.outputs()[i].name.c_str());
    for (const std::int64_t s : results[i].sizes()) std::printf(" %lld", static_cast<long long>(s));
    if (results[i].tensor().dtype == INKLE_F32 && results[i].element_count() > 0) {
      std::printf(", first %g", results[i].copy<float>()[0]);
    }
    std::printf("\n");
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
