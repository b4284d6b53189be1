// What both runtimes share, under the names that this folder uses.
#pragma once

#include "runtime/common/arguments.h"
#include "runtime/common/errors.h"
#include "runtime/common/executable.h"
#include "runtime/common/frame_pool.h"
#include "runtime/common/kernel_status.h"
#include "runtime/common/plan_bounds.h"
#include "runtime/common/plan_check.h"
#include "runtime/common/plan_facts.h"
#include "runtime/common/prepared_plan.h"
#include "runtime/common/prepared_sets.h"
#include "runtime/common/results.h"
#include "runtime/common/size_program.h"
#include "runtime/common/weight_identity.h"

namespace inkle::runtime::cpu {

using common::Call;
using common::Check;
using common::check_geometry;
using common::check_references;
using common::check_type;
using common::EagerOperand;
using common::Handle;
using common::Host;
using common::HostTensor;
using common::is_aligned;
using common::MemoryReport;
using common::OutOfMemory;
using common::OutOfRange;
using common::Output;
using common::PreparedGroup;
using common::PreparedSet;
using common::PreparedSets;
using common::SizeProgram;
using common::WeightIdentity;
using common::WeightStamp;
using common::WrongArgument;

}  // namespace inkle::runtime::cpu
