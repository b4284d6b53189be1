// Programs of packages for Python: `inkle.load`, with NumPy and DLPack, without torch.
#pragma once

#include <nanobind/nanobind.h>

namespace inkle::python {

// Adds `Program`, `Declared`, `WeightSet`, `DeviceArray` and `load`.
void bind_program(nanobind::module_& m);

}  // namespace inkle::python
