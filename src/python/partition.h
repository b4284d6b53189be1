// A partitioned joint graph as Python sees it: what is kept, and the nodes of both graphs, so that
// each can run in eager.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "driver/pipeline.h"

namespace inkle::python {

struct Partition {
  partition::TrainingGraphs graphs;
  std::vector<driver::StageTime> stages;
};

// (dtype, sizes, strides or None, (device, number)).
[[nodiscard]] nanobind::object type_object(const graph::Type& type);

void bind_cut(nanobind::module_& m);

}  // namespace inkle::python
