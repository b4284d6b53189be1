// `inkle doctor`.
#pragma once

#include <CLI/CLI.hpp>

namespace inkle::cli {

void add_doctor(CLI::App& app);

}  // namespace inkle::cli
