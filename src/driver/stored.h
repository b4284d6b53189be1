// Compiled programs as bytes, and back: what the cache keeps of whole graphs, and what hosts keep
// that have caches of their own. In the format of packages, without weights.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "driver/pipeline.h"

namespace inkle::driver {

// All that a program depends on beside its graph: the build, the machine, the options. Empty if the
// build cannot be told from others.
[[nodiscard]] Identity identity_of(const Backend& target, const CompileOptions& options);

// A graph's text, empty if it is long for its constants, and a hash of all of it, in hexadecimal.
// It is that of the first GPU, so that the ranks of a job share programs.
struct GraphText {
  std::string text, digest;
};
[[nodiscard]] GraphText text_of(const graph::Graph& graph, abi::Device here);

// Whether all that a program is can be kept: its object files are at hand.
[[nodiscard]] bool can_store(const Compiled& compiled);
// Whether caches should keep it: more constants than a limit are weights in disguise.
[[nodiscard]] bool has_few_constants(const Compiled& compiled);
// A report as JSON, without times: what packages and caches keep beside a program.
[[nodiscard]] std::string facts_of(const Report& report);
// Throws UserError.
[[nodiscard]] Report report_of(std::string_view facts);

// Programs are stored for the first GPU; this is the plan for another.
[[nodiscard]] std::shared_ptr<const abi::Plan> on_device(std::shared_ptr<const abi::Plan> plan,
                                                         abi::Device device);

// What made a program: the build and the machine, and the architecture of a GPU.
struct Maker {
  Identity machine;
  std::string architecture;
};
[[nodiscard]] Maker maker_of(const Backend& target);
// A function of the program alone: no times.
[[nodiscard]] std::vector<std::byte> store(const Compiled& compiled, const Maker& maker);
// The report says that nothing was compiled. Throws UserError for bytes that are damaged or of
// another build or machine, Unsupported for code that does not run here.
[[nodiscard]] Compiled restore(std::vector<std::byte> bytes, const Backend& target);

}  // namespace inkle::driver
