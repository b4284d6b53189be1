// Actions of `inkle corpus` that have a file of their own.
#pragma once

#include "cli/cases.h"
#include "cli/session.h"

namespace inkle::cli {

// Runs the kernels of a file of cases under the interpreter; UserError where any is wrong.
void interpret_kernels(const CompileArguments& arguments);

}  // namespace inkle::cli
