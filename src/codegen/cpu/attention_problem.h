// A scheduled kernel of attention as the problem of a template.
#pragma once

#include "schedule/kernel.h"
#include "templates/attention.h"

namespace inkle::codegen::cpu {

[[nodiscard]] templates::AttentionProblem attention_problem(
    const schedule::Kernel& kernel, const schedule::AttentionKernel& attention);

// A template's first configuration with the schedule's blocks.
[[nodiscard]] templates::AttentionConfig attention_config(
    const templates::AttentionTemplate& row, const templates::AttentionProblem& problem,
    const schedule::Schedule& schedule, const abi::Target& target);

}  // namespace inkle::codegen::cpu
