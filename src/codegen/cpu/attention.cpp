// Attention as one flash-style kernel.
#include "base/error.h"
#include "codegen/cpu/kernel_code.h"

namespace inkle::codegen::cpu {

EmittedKernel emit_attention(KernelCode& code, const schedule::AttentionKernel&, const Values&) {
  unsupported("kernel {}: attention", code.kernel.name);
}

}  // namespace inkle::codegen::cpu
