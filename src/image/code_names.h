// Tells debuggers and profilers which kernel lies where in memory.
//
//   gdb    always, by its interface for JIT compilers: `break softmax_1a2b3c4d`, names in
//   backtraces perf   if INKLE_PERF asks for it: "map" appends to /tmp/perf-PID.map, which `perf
//   report` reads;
//          "jitdump" writes jit-PID.dump into $JITDUMPDIR or /tmp, with the code, for `perf inject`
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace inkle::image {

enum class PerfOutput : std::uint8_t { none, map, jitdump };

// INKLE_PERF. Throws UserError for another value.
[[nodiscard]] PerfOutput perf_output();

struct CodeName {
  std::string name;
  std::uint64_t offset = 0;  // of the function in the code
  std::uint64_t bytes = 0;
};

// Functions of `names`, by `entries`: each reaches to the next. Names of files become those that
// debuggers and lists can hold; where there are fewer than entries the rest has none.
[[nodiscard]] std::vector<CodeName> code_names(std::span<const std::uint64_t> entries,
                                               std::span<const std::string> names,
                                               std::uint64_t code_bytes);

// An object file for x86-64 that has these functions at `address`, and no code.
[[nodiscard]] std::vector<std::byte> symbol_file(std::span<const CodeName> functions,
                                                 const void* address, std::uint64_t code_bytes);

// The names are known as long as a copy of the result lives, which keeps `memory`. Says once, as a
// warning, what it cannot write.
[[nodiscard]] std::shared_ptr<void> publish_names(std::shared_ptr<void> memory,
                                                  std::span<const std::byte> code,
                                                  std::span<const CodeName> functions);

}  // namespace inkle::image
