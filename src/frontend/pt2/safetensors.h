// Reads .safetensors files: a JSON header and raw tensors, by name.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "frontend/pt2/mapped_file.h"
#include "frontend/pt2/tensor_data.h"

namespace inkle::frontend::pt2 {

struct Safetensors {
  std::map<std::string, TensorData, std::less<>> tensors;
  std::map<std::string, std::string, std::less<>> metadata;
};

// Tensors lie in the file's memory where they are aligned to kAlignment, else they are copied.
// UserError "file: place: reason" for headers that are damaged, tensors outside the file, overlaps
// and gaps.
[[nodiscard]] Safetensors read_safetensors(const std::string& path);
[[nodiscard]] Safetensors read_safetensors(const std::shared_ptr<MappedFile>& file);

}  // namespace inkle::frontend::pt2
