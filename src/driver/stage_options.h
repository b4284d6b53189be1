// What the options of a compilation mean to each of its stages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/pass_limit.h"
#include "base/unsupported.h"
#include "driver/pipeline.h"
#include "driver/target.h"
#include "passes/pipeline.h"
#include "schedule/nest_passes.h"

namespace inkle::driver {

// `limit` must outlive the result. Throws UserError for a pass to skip that does not exist.
[[nodiscard]] passes::RunOptions graph_pass_options(const CompileOptions& options,
                                                    PassLimit& limit);
// As do `report`, whose times are filled, and `found`.
[[nodiscard]] schedule::NestPassOptions nest_pass_options(const CompileOptions& options,
                                                          Report& report, UnsupportedNodes& found,
                                                          PassLimit& limit);
// `report`: of the stages before.
[[nodiscard]] CodeOptions code_options(const CompileOptions& options, const Report& report,
                                       const abi::DeviceDescription& device);

// Whether kernels that are known go through the passes, too.
[[nodiscard]] bool makes_all_kernels(const kernel::PassOptions& passes);

// Functions and quotients of a GPU that are rounded at once have few digits beyond; not eager's.
[[nodiscard]] bool keeps_functions(const CompileOptions& options,
                                   const abi::DeviceDescription& device);

}  // namespace inkle::driver
