// NVRTC, opened when it is first needed and never linked.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace inkle::codegen::cuda {

// Machine code of a program for an architecture ("sm_90a"), or PTX ("compute_80"). `path`: the file
// that the text is, or would be, found in, for line information and messages. Throws Unsupported if
// no NVRTC is found or it does not know the architecture, InternalError with its log if the text
// does not compile, or if ptxas would serialise its wgmma instructions. `notes`: the assembler's
// warnings of register spills.
[[nodiscard]] std::vector<std::byte> compile_program(const std::string& text,
                                                     const std::string& path,
                                                     const std::string& architecture,
                                                     std::string* notes = nullptr);

}  // namespace inkle::codegen::cuda
