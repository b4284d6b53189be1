// Runs a fuzz program's corpus without libFuzzer: each file as it is, cut short, and with flipped
// bits, the same ones every time. Usage: <name>_replay <corpus folder>.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr int kMutations = 64;  // of each kind, for each file

int run(const std::vector<std::uint8_t>& bytes) {
  return LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

void replay(const std::vector<std::uint8_t>& bytes) {
  run(bytes);
  if (bytes.empty()) return;
  std::uint64_t state = 1;
  const auto draw = [&](std::size_t limit) {
    state = state * 6364136223846793005 + 1442695040888963407;
    return static_cast<std::size_t>((state >> 33) % limit);
  };
  for (int i = 0; i < kMutations; ++i) {
    std::vector<std::uint8_t> cut(bytes.begin(),
                                  bytes.begin() + static_cast<std::ptrdiff_t>(draw(bytes.size())));
    run(cut);
    std::vector<std::uint8_t> flipped = bytes;
    for (std::size_t flips = 1 + draw(3); flips > 0; --flips) {
      flipped[draw(flipped.size())] ^= static_cast<std::uint8_t>(1U << draw(8));
    }
    run(flipped);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s <corpus folder>\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1], error)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    replay({std::istreambuf_iterator<char>(file), {}});
  }
  std::printf("%zu files replayed\n", paths.size());
  return paths.empty() ? 1 : 0;
}
