// Loads an object file made by the compiler (ELF, x86-64, position independent, no writable data)
// into memory: all that a process needs to run a kernel from bytes. Needs no LLVM.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace inkle::codegen::cpu {

// The functions of an object; the memory lives as long as a copy of `memory` does.
struct LoadedObject {
  std::shared_ptr<void> memory;
  void* entry = nullptr;  // the one global function that the object defines
};

// Throws UserError naming what is wrong with the bytes (truncated, another machine, an unknown
// relocation or function), and with the reason when memory cannot be had.
[[nodiscard]] LoadedObject load_object(std::span<const std::byte> object);

// Address of a C function that generated code may call (support.cpp), or null.
[[nodiscard]] void* support_function(std::string_view name);

}  // namespace inkle::codegen::cpu
