// `inkle cache`.
#pragma once

#include <CLI/CLI.hpp>

namespace inkle::cli {

void add_cache(CLI::App& app);

}  // namespace inkle::cli
