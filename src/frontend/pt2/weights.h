// The weights and constants of a torch.export file by their names, read in place.
#pragma once

#include <map>
#include <string>

#include "frontend/pt2/tensor_data.h"
#include "frontend/pt2/zip.h"

namespace inkle::frontend::pt2 {

struct Payload {
  TensorData tensor;
  std::string member;  // of the archive; several tensors may share one
};

using PayloadMap = std::map<std::string, Payload, std::less<>>;

// Reads the member `config` (a payload config) and what it names in `folder`. UserError for damaged
// or pickled entries; tensors that lie outside their member are refused.
[[nodiscard]] PayloadMap read_payloads(const ZipArchive& archive, const std::string& folder,
                                       const std::string& config);

// Largest JSON member that is accepted, in bytes.
inline constexpr std::uint64_t kJsonLimit = std::uint64_t{256} << 20;

}  // namespace inkle::frontend::pt2
