// What templates ask of a processor.
#pragma once

#include <cstdint>

namespace inkle::templates {

struct CpuTarget {
  std::int32_t vector_bytes = 32;
  std::int32_t vector_registers = 16;
};

}  // namespace inkle::templates
