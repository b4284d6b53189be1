// Kernels to machine code of the host: LLVM's code generator makes an object file of each kernel,
// those of one call are linked to one image and loaded into memory. No optimisation pass of LLVM
// runs but those of instruction selection: the emitter writes optimised code.
#include "codegen/cpu/compiler.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/Transforms/Utils/Cloning.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <mutex>

#include "abi/targets.h"
#include "base/error.h"
#include "base/threads.h"
#include "base/unsupported.h"
#include "codegen/cpu/ir.h"
#include "codegen/cpu/kernel_code.h"
#include "image/image.h"
#include "image/processor.h"

namespace inkle::codegen::cpu {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::int32_t host_vector_bytes(const llvm::StringMap<bool>& features) {
  for (const char* name : {"avx512f", "avx512vl", "avx512bw", "avx512dq"}) {
    if (!features.lookup(name)) return features.lookup("avx2") && features.lookup("fma") ? 32 : 0;
  }
  return 64;
}

// "+avx2,+fma,-avx512f,...", sorted.
std::string feature_text(const llvm::StringMap<bool>& features, std::int32_t vector_bytes) {
  std::vector<std::string> all;
  for (const auto& feature : features) {
    const std::string name = feature.first().str();
    const bool wide =
        name.starts_with("avx512") || name.starts_with("avx10") || name.starts_with("amx");
    const bool on = feature.second && !(wide && vector_bytes < 64);
    all.push_back((on ? "+" : "-") + name);
  }
  std::sort(all.begin(), all.end());
  return fmt::format("{}", fmt::join(all, ","));
}

const image::InstructionSet* chosen_set(const std::string& name) {
  if (name.empty()) return nullptr;
  const image::InstructionSet* const set = image::instruction_set_named(name);
  if (set == nullptr) {
    std::vector<std::string_view> known;
    for (const image::InstructionSet& one : image::instruction_sets()) known.push_back(one.name);
    user_error("unknown instruction set {}: needs one of {}", name, fmt::join(known, ", "));
  }
  return set;
}

Processor processor_of(const abi::Target& row) {
  return {row, std::string(row.processor), std::string(row.features)};
}

// The last target row with such vectors whose feature the host has.
const abi::Target& host_row(const llvm::StringMap<bool>& features, std::int32_t vector_bytes) {
  const abi::Target* found = nullptr;
  for (const abi::Target& row : abi::targets()) {
    const bool is_like = !row.has_blocks && row.vector_bytes == vector_bytes;
    if (is_like && (row.own_feature.empty() || features.lookup(row.own_feature))) found = &row;
  }
  if (found == nullptr) user_error("no vectors of {} bytes: needs 32 or 64", vector_bytes);
  return *found;
}

// The host processor with vectors of so many bytes; 0: its widest.
Processor host_processor(std::int32_t vector_bytes) {
  auto features = llvm::sys::getHostCPUFeatures();
  if (!image::has_tiles()) {
    for (auto& feature : features) {
      if (feature.first().starts_with("amx")) feature.second = false;
    }
  }
  const std::int32_t widest = host_vector_bytes(features);
  if (widest == 0) unsupported("this processor has no AVX2 with FMA");
  const std::int32_t width = vector_bytes == 0 ? widest : vector_bytes;
  const abi::Target& row = host_row(features, width);
  if (width > widest) user_error("this processor has no vectors of {} bytes", width);
  return {row, llvm::sys::getHostCPUName().str(), feature_text(features, width)};
}

std::int64_t cache_bytes(int name, std::int64_t otherwise) {
  const std::int64_t bytes = ::sysconf(name);
  return bytes > 0 ? bytes : otherwise;
}

}  // namespace

TargetOptions TargetOptions::from_environment() {
  TargetOptions options;
  options.vector_bytes = image::vectors_allowed();
  return options;
}

struct CpuCompiler::Impl {
  Processor processor;
  const llvm::Target* machine = nullptr;
  llvm::Triple triple;
  llvm::CodeGenOptLevel level = llvm::CodeGenOptLevel::Default;
  std::mutex mutex;
  std::vector<std::unique_ptr<llvm::TargetMachine>> idle;  // making one takes a millisecond

  std::unique_ptr<llvm::TargetMachine> take_machine() {
    {
      const std::lock_guard lock(mutex);
      if (!idle.empty()) {
        auto machine_now = std::move(idle.back());
        idle.pop_back();
        return machine_now;
      }
    }
    llvm::TargetOptions options;
    options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
    std::unique_ptr<llvm::TargetMachine> made(machine->createTargetMachine(
#if LLVM_VERSION_MAJOR >= 21
        triple,
#else
        triple.str(),
#endif
        processor.cpu, processor.features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small,
        level));
    INKLE_CHECK(made != nullptr, "LLVM makes no machine for {}", processor.cpu);
    return made;
  }
  void give_back(std::unique_ptr<llvm::TargetMachine> used) {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(used));
  }

  static llvm::SmallVector<char, 0> generate(llvm::TargetMachine& target_machine,
                                             llvm::Module& module, llvm::CodeGenFileType type) {
    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream stream(bytes);
    llvm::legacy::PassManager passes;
    const bool failed = target_machine.addPassesToEmitFile(passes, stream, nullptr, type, true);
    INKLE_CHECK(!failed, "LLVM emits no such file for {}", module.getName().str());
    passes.run(module);
    return bytes;
  }

  void finish(Ir& ir, const CompileOptions& options, CompiledKernel& out) {
    const auto start = Clock::now();
    auto target_machine = take_machine();
    llvm::Module& module = ir.module();
    module.setDataLayout(target_machine->createDataLayout());
#if LLVM_VERSION_MAJOR >= 21
    module.setTargetTriple(triple);
#else
    module.setTargetTriple(triple.str());
#endif
    if (options.keep_assembly) {
      auto copy = llvm::CloneModule(module);
      const auto text = generate(*target_machine, *copy, llvm::CodeGenFileType::AssemblyFile);
      out.assembly.assign(text.begin(), text.end());
    }
    const auto object = generate(*target_machine, module, llvm::CodeGenFileType::ObjectFile);
    const auto* first = reinterpret_cast<const std::byte*>(object.data());
    out.object = std::make_shared<const std::vector<std::byte>>(first, first + object.size());
    give_back(std::move(target_machine));
    out.compile_seconds = seconds_since(start);
  }
};

CpuCompiler::CpuCompiler(TargetOptions options) : impl_(std::make_unique<Impl>()) {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  const image::InstructionSet* const set = chosen_set(options.instruction_set);
  runs_here_ = set == nullptr || image::missing_features(image::required_bits(*set)).empty();
  Impl& impl = *impl_;
  if (options.row != nullptr) {
    impl.processor = processor_of(*options.row);
  } else if (set != nullptr) {
    impl.processor = processor_of(*abi::target_named(set->name));
    impl.processor.features = image::feature_text(*set);
  } else {
    impl.processor = host_processor(options.vector_bytes);
  }
  impl.triple = llvm::Triple(llvm::sys::getProcessTriple());
  std::string error;
#if LLVM_VERSION_MAJOR >= 22
  impl.machine = llvm::TargetRegistry::lookupTarget(impl.triple, error);
#else
  impl.machine = llvm::TargetRegistry::lookupTarget(impl.triple.str(), error);
#endif
  INKLE_CHECK(impl.machine != nullptr, "LLVM knows no target {}: {}", impl.triple.str(), error);
  if (options.optimization < 0 || options.optimization > 3) {
    user_error("unknown optimization level {}: needs 0 to 3", options.optimization);
  }
  impl.level = static_cast<llvm::CodeGenOptLevel>(options.optimization);
  target_ =
      fmt::format("{} {} O{}", impl.processor.cpu, impl.processor.features, options.optimization);
  device_ = abi::device_of(impl.processor.target);
  device_.name = impl.processor.cpu;
  device_.parallelism = num_threads();
  device_.l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, device_.l1_bytes);
  device_.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, device_.l2_bytes);
  device_.l3_bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE, device_.l3_bytes);
  // Two FMA units of the full width at 3.5 GHz.
  device_.flops_f32 = 3.5e9 * 2 * 2 * (device_.vector_bytes / 4.0) * device_.parallelism;
}

CpuCompiler::~CpuCompiler() = default;

const abi::Target& CpuCompiler::row() const { return impl_->processor.target; }

namespace {

// The function's name in every object, instead of the kernel's: equal kernels of two programs have
// equal machine code.
constexpr std::string_view kFunction = "kernel.";

// Unsupported errors carry the user's lines, by which the caller runs those nodes in eager.
EmittedKernel emit(Ir& module, const CompileUnit& unit, const Processor& processor,
                   const CompileOptions& options) {
  const schedule::Kernel& kernel = *unit.kernel;
  try {
    return emit_kernel(module, kernel, unit.schedule, processor, kFunction,
                       options.only_text ? std::string_view() : unit.name, options.passes);
  } catch (const Unsupported& error) {
    if (kernel.sources.empty()) throw;
    unsupported_at(kernel.sources, "{}: {}", fmt::join(kernel.sources, ", "), error.what());
  }
}

// Links all kernels to one image and loads it.
void load_into(std::vector<CompiledKernel>& kernels, std::span<const CompileUnit> units) {
  std::vector<image::Object> objects;
  std::vector<std::string> names;
  for (const CompiledKernel& kernel : kernels) objects.emplace_back(*kernel.object);
  for (const CompileUnit& unit : units) names.push_back(unit.name);
  const image::Image linked = image::link(objects);
  const image::LoadedImage loaded = image::load(linked.bytes, linked.layout, names);
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    kernels[i].code = loaded.memory;
    kernels[i].function = loaded.functions[i];
  }
}

}  // namespace

std::vector<CompiledKernel> CpuCompiler::compile(std::span<const CompileUnit> units,
                                                 const CompileOptions& options) {
  std::vector<CompiledKernel> out(units.size());
  std::vector<std::unique_ptr<Ir>> modules(units.size());
  UnsupportedNodes found;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const auto start = Clock::now();
    const schedule::Kernel& kernel = *units[i].kernel;
    modules[i] = std::make_unique<Ir>("");
    EmittedKernel emitted;
    const bool is_emitted =
        found.run([&] { emitted = emit(*modules[i], units[i], impl_->processor, options); });
    if (!is_emitted) continue;
    out[i].scratch_bytes = emitted.scratch_bytes;
    out[i].can_fail = emitted.can_fail;
    out[i].text = std::move(emitted.text);
    if (options.keep_ir) out[i].ir = modules[i]->text();
    // A module that LLVM would miscompile or crash on is refused here: the caller falls back.
    const std::string wrong = modules[i]->verify();
    INKLE_CHECK(wrong.empty(), "kernel {} is malformed LLVM IR: {}", kernel.name, wrong);
    out[i].emit_seconds = seconds_since(start);
  }
  found.check();
  if (options.only_text) return out;
  parallel_for(
      0, static_cast<std::int64_t>(units.size()), 1, [&](std::int64_t first, std::int64_t last) {
        for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
          impl_->finish(*modules[i], options, out[i]);
          modules[i].reset();
        }
      });
  if (runs_here_) load_into(out, units);
  return out;
}

}  // namespace inkle::codegen::cpu
