// Pages about compiled programs, for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace inkle::python {

// Adds `plan_arguments` and `inspect_page`.
void bind_inspect(nanobind::module_& m);

}  // namespace inkle::python
