#include "base/error.h"
#include "driver/target.h"
#ifdef INKLE_CPU
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "abi/targets.h"
#include "base/log.h"
#include "cache/store.h"
#include "codegen/cpu/compiler.h"
#include "driver/build_identity.h"
#include "image/image.h"
#include "runtime/cpu/executor.h"
#include "runtime/cpu/library_step.h"
#endif

namespace inkle::driver {

#ifdef INKLE_CPU
namespace {

// Of an entry of the cache. Equal kernels have one entry, whatever their names.
struct EntryStart {
  std::int64_t scratch = 0;
  std::uint64_t text = 0;
};
const std::string kTextStart = "kernel @";

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const codegen::cpu::TargetOptions& options)
      : generator_(options),
        gemm_(options.gemm.value_or(generator_.row().libraries.gemm.source)),
        is_for_this_processor_(options.instruction_set.empty() && options.row == nullptr) {}

  const abi::DeviceDescription& device() const override { return generator_.device(); }

  Identity identity() const override {
    const abi::DeviceDescription& d = device();
    return {{"processor", generator_.target()},
            {"machine",
             fmt::format("{}, {} bytes a vector, {} registers, caches of {}, {} and {} bytes, "
                         "{} threads{}",
                         generator_.row().row, d.vector_bytes, d.vector_registers, d.l1_bytes,
                         d.l2_bytes, d.l3_bytes, d.parallelism, gemm_text())}};
  }

  abi::Target describe(const loop::Program& program) const override {
    abi::Target described = abi::target_of(generator_.row(), device());
    abi::Libraries& libraries = described.libraries;
    libraries.gemm.source = gemm_;
    // Whether oneDNN computes in bf16 is asked where it matters, and where the code is to run.
    const bool has_bf16 = std::any_of(program.buffers.begin(), program.buffers.end(),
                                      [](const auto& b) { return b.dtype == abi::DType::bf16; });
    if (has_bf16 && is_for_this_processor_) {
      const bool can = runtime::cpu::has_bf16();
      for (abi::SetOf<abi::DType>* types :
           {&libraries.gemm.types, &libraries.gemm.f32_results, &libraries.convolution.types,
            &libraries.convolution.own}) {
        *types = can ? types->with(abi::DType::bf16) : types->without(abi::DType::bf16);
      }
    }
    return described;
  }

  std::vector<TargetKernel> compile(std::span<const TargetUnit> units,
                                    const CodeOptions& options) override {
    // The cache has no text of the code, so a request for it compiles.
    const std::shared_ptr<cache::Store> store =
        !options.cache || options.text || options.only_text || build_identity().empty() ||
                !generator_.runs_here()
            ? nullptr
            : cache::user_store();
    std::vector<TargetKernel> result(units.size());
    std::vector<std::size_t> cached;
    std::vector<cache::Key> keys(units.size());
    std::vector<codegen::cpu::CompileUnit> wanted;
    std::vector<std::size_t> wanted_at;
    for (std::size_t u = 0; u < units.size(); ++u) {
      if (store != nullptr) {
        keys[u] = key_of(units[u]);
        if (take(store->find(keys[u], units[u].name), units[u], result[u])) {
          cached.push_back(u);
          continue;
        }
      }
      wanted.push_back({units[u].kernel, units[u].schedule, units[u].name});
      wanted_at.push_back(u);
    }
    if (!load_cached(cached, units, result)) {
      for (const std::size_t u : cached) {
        wanted.push_back({units[u].kernel, units[u].schedule, units[u].name});
        wanted_at.push_back(u);
      }
    }
    auto all = generator_.compile(wanted, {.keep_ir = options.text,
                                           .keep_assembly = options.text,
                                           .only_text = options.only_text,
                                           .passes = options.passes});
    if (options.only_text) return result;
    for (std::size_t w = 0; w < all.size(); ++w) {
      codegen::cpu::CompiledKernel& made = all[w];
      TargetKernel& kernel = result[wanted_at[w]];
      kernel.function = made.function;
      kernel.scratch_bytes = made.scratch_bytes;
      kernel.code = std::move(made.code);
      kernel.object = std::move(made.object);
      kernel.text = std::move(made.text);
      kernel.ir = std::move(made.ir);
      kernel.assembly = std::move(made.assembly);
      kernel.seconds = made.emit_seconds + made.compile_seconds;
      if (store != nullptr) keep(*store, keys[wanted_at[w]], wanted[w].name, kernel);
    }
    if (store != nullptr) store->settle();
    return result;
  }

  std::unique_ptr<runtime::common::Executable> load(abi::PlanAndCode made) const override {
    return std::make_unique<runtime::cpu::Executable>(std::move(made));
  }

 private:
  [[nodiscard]] std::string_view gemm_text() const {
    switch (gemm_) {
      case abi::GemmSource::templates:
        return ", own GEMM";
      case abi::GemmSource::least:
        return ", own GEMM where it is faster";
      case abi::GemmSource::library:
        break;
    }
    return "";
  }

  // All that machine code depends on, the more general first.
  [[nodiscard]] cache::Key key_of(const TargetUnit& unit) const {
    cache::Key key = identity();
    key.insert(key.begin(), {"build", build_identity()});
    key.emplace_back("kernel", cache::digest_of(schedule::to_string(*unit.kernel) +
                                                schedule::to_string(unit.schedule)));
    return key;
  }

  static sym::Context* context_of(const schedule::Kernel& kernel) {
    if (!kernel.sizes.empty()) return &kernel.sizes[0].context();
    if (const auto* attention = std::get_if<schedule::AttentionKernel>(&kernel.body)) {
      return &attention->batch.context();
    }
    if (const auto* gemm = std::get_if<schedule::GemmKernel>(&kernel.body)) {
      return &gemm->rows.context();
    }
    const auto& loops = std::get<schedule::LoopKernel>(kernel.body).outer;
    return loops.empty() ? nullptr : &loops[0].extent.context();
  }

  // Bytes of scratch, those of the text, the text without its name, then the object file. Whether
  // there is such an entry.
  static bool take(std::optional<std::vector<std::byte>> entry, const TargetUnit& unit,
                   TargetKernel& kernel) {
    sym::Context* const context = context_of(*unit.kernel);
    EntryStart start;
    if (!entry || context == nullptr || entry->size() < sizeof start) return false;
    std::memcpy(&start, entry->data(), sizeof start);
    const std::span<const std::byte> rest = std::span(*entry).subspan(sizeof start);
    if (start.scratch < 0 || start.text > rest.size()) return false;
    kernel.scratch_bytes = context->constant(start.scratch);
    kernel.text = kTextStart + unit.name;
    kernel.text.append(reinterpret_cast<const char*>(rest.data()), start.text);
    kernel.object =
        std::make_shared<const std::vector<std::byte>>(rest.begin() + start.text, rest.end());
    return true;
  }

  // All at once, so that they lie in one image. False if that is refused.
  static bool load_cached(const std::vector<std::size_t>& cached, std::span<const TargetUnit> units,
                          std::vector<TargetKernel>& kernels) {
    if (cached.empty()) return true;
    std::vector<image::Object> objects;
    std::vector<std::string> names;
    for (const std::size_t k : cached) {
      objects.push_back(*kernels[k].object);
      names.push_back(units[k].name);
    }
    image::LoadedImage loaded;
    try {
      const image::Image linked = image::link(objects);
      loaded = image::load(linked.bytes, linked.layout, names);
    } catch (const UserError& error) {
      warn("cache.code", "code of the cache is made anew: {}", error.what());
      return false;
    }
    for (std::size_t i = 0; i < cached.size(); ++i) {
      kernels[cached[i]].function = loaded.functions[i];
      kernels[cached[i]].code = loaded.memory;
    }
    log(LogChannel::cache, "{} of {} kernels were made by earlier processes", cached.size(),
        kernels.size());
    return true;
  }

  // Scratch that depends on sizes is an expression of one program, and is not kept.
  static void keep(cache::Store& store, const cache::Key& key, std::string_view name,
                   const TargetKernel& kernel) {
    const auto scratch = kernel.scratch_bytes.constant();
    if (!scratch || kernel.object == nullptr) return;
    const std::size_t named = std::min(kTextStart.size() + name.size(), kernel.text.size());
    const std::string_view text = std::string_view(kernel.text).substr(named);
    const EntryStart start{*scratch, text.size()};
    std::vector<std::byte> entry;
    for (const std::span<const std::byte> part :
         {std::as_bytes(std::span(&start, 1)), std::as_bytes(std::span(text)),
          std::span<const std::byte>(*kernel.object)}) {
      entry.insert(entry.end(), part.begin(), part.end());
    }
    store.put(key, entry);
  }

  codegen::cpu::CpuCompiler generator_;
  abi::GemmSource gemm_ = abi::GemmSource::library;
  bool is_for_this_processor_ = true;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_target(std::string_view instruction_set) {
  auto options = codegen::cpu::TargetOptions::from_environment();
  options.instruction_set = instruction_set;
  options.gemm = gemm_source_from_environment();
  return std::make_unique<CpuBackend>(options);
}

std::unique_ptr<Backend> make_cpu_target(const abi::Target& row) {
  auto options = codegen::cpu::TargetOptions::from_environment();
  options.row = &row;
  options.gemm = gemm_source_from_environment();
  return std::make_unique<CpuBackend>(options);
}
#else
namespace {

[[noreturn]] void no_code_generator() {
  unsupported("built without LLVM: there is no code generator for the CPU");
}

}  // namespace

std::unique_ptr<Backend> make_cpu_target(std::string_view /*instruction_set*/) {
  no_code_generator();
}

std::unique_ptr<Backend> make_cpu_target(const abi::Target& /*row*/) { no_code_generator(); }
#endif

}  // namespace inkle::driver
