// Reads and writes .npy files (format 1.0 to 3.0) of the dtypes that NumPy has.
#pragma once

#include <memory>
#include <string>

#include "frontend/pt2/mapped_file.h"
#include "frontend/pt2/tensor_data.h"

namespace inkle::frontend::pt2 {

// The array with its strides (column-major ones too), in the file's memory where it is aligned.
// UserError "file: reason" for what is no little-endian array of numbers. bf16 has no NumPy type:
// such an array is written and read as '<V2'.
[[nodiscard]] TensorData read_npy(const std::string& path);
[[nodiscard]] TensorData read_npy(const std::shared_ptr<MappedFile>& file);

// Writes row-major; UserError "path: reason" when it cannot be written. Unsupported for dtypes that
// NumPy lacks.
void write_npy(const std::string& path, const abi::TensorView& tensor);

}  // namespace inkle::frontend::pt2
