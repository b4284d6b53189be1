// Packages of graphs as text, for tests of what runs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "package/package.h"
#include "package/writer.h"

namespace inkle::capi {

// Compiles the graph for a processor, or for GPUs ("sm_90a"), and packs it with these weights, by
// name; all other parameters are left for the caller to set. `forge` changes the plan before.
[[nodiscard]] std::vector<std::byte> package_of(
    const std::string& graph, const std::map<std::string, std::vector<float>>& weights,
    const std::string& target = "x86-64-v3",
    const std::vector<package::LibraryChoice>& choices = {},
    const std::function<void(abi::Plan&)>& forge = {});

}  // namespace inkle::capi
