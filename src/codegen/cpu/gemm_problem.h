// A scheduled kernel of matrix products as the problem of a template.
#pragma once

#include "schedule/kernel.h"
#include "templates/gemm.h"

namespace inkle::codegen::cpu {

[[nodiscard]] templates::GemmProblem gemm_problem(const schedule::Kernel& kernel,
                                                  const schedule::GemmKernel& gemm);

// A template's first configuration with the schedule's blocks.
[[nodiscard]] templates::GemmConfig gemm_config(const templates::GemmTemplate& row,
                                                const templates::GemmProblem& problem,
                                                const schedule::Schedule& schedule,
                                                const abi::Target& target);

}  // namespace inkle::codegen::cpu
