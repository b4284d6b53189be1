// What loads and stores of a kernel on a GPU tell the cache that all multiprocessors share.
//
// `recent`: a kernel of one pass over what the step before it has just written, part of which still
// lies there. It is read past the first cache, and results are the first to leave the second, so
// that they do not take the place of what is still to be read (gelu after a product of 50 MB: 29.8
// us instead of 31.6; from its end on: 31.1).
//
// `lasting`: rows that are kept on the chip, of which the cache holds the lesser part. On an H200,
// bf16, with the cache full of other results before: norms and softmax of 8192x8192 take 0.96 to
// 0.97 of the time, layer norm of two 16384x768 0.96, with a product after them 0.98 to 0.99. What
// the step before wrote is not meant, unless it is more than two caches (134 MB: 0.98): there it
// takes 1.01. Nor are rows of which little is written (argmax: 1.14).
#pragma once

#include <vector>

#include "abi/target.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// For steps in their final order, their bytes counted, whose schedules are those of a GPU.
void set_cache_hints(std::vector<Step>& steps, const loop::Program& program,
                     const abi::Target& device);

}  // namespace inkle::schedule
