// The warpgroup of a kernel of gemm_wgmma that copies. For gemm_wgmma*.cpp only.
#pragma once

#include "templates/gemm_wgmma_block.h"

namespace inkle::templates::wgmma {

// One thread of the warpgroup, for all tiles of the block. Stages are counted through all of them,
// so that copies for the next tile go on while the sums of this one are stored.
void write_producer(Block& block);

}  // namespace inkle::templates::wgmma
