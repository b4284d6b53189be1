#include "driver/kept_modules.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/log.h"
#include "sym/expr.h"

namespace inkle::driver {
namespace {

using nlohmann::json;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Throws json::exception for what is not there or of another type.
struct KernelRecord {
  std::string module;
  abi::DeviceKernel kernel;
  std::int64_t workspace_bytes = 0;
  std::string text;  // of the kernel IR
};

std::string to_text(const KernelRecord& record) {
  const abi::DeviceKernel& k = record.kernel;
  return json{{"module", record.module},      {"entry", k.entry},
              {"threads", k.block_threads},   {"shared", k.shared_bytes},
              {"cluster", k.cluster_blocks},  {"has_workspace", k.has_workspace},
              {"can_fail", k.can_fail},       {"waits", k.waits},
              {"co_resident", k.co_resident}, {"workspace", record.workspace_bytes},
              {"text", record.text}}
      .dump();
}

std::optional<KernelRecord> record_of(std::string_view text) {
  try {
    const json from = json::parse(text);
    KernelRecord record{.module = from.at("module").get<std::string>()};
    abi::DeviceKernel& k = record.kernel;
    k.entry = from.at("entry").get<std::string>();
    k.block_threads = from.at("threads").get<std::int32_t>();
    k.shared_bytes = from.at("shared").get<std::int64_t>();
    k.cluster_blocks = from.at("cluster").get<std::int32_t>();
    k.has_workspace = from.at("has_workspace").get<bool>();
    k.can_fail = from.at("can_fail").get<bool>();
    k.waits = from.at("waits").get<bool>();
    k.co_resident = from.at("co_resident").get<bool>();
    record.workspace_bytes = from.at("workspace").get<std::int64_t>();
    record.text = from.at("text").get<std::string>();
    const bool makes_sense = !k.entry.empty() && k.block_threads > 0 && k.shared_bytes >= 0 &&
                             k.cluster_blocks > 0 && record.workspace_bytes >= 0;
    if (makes_sense) return record;
  } catch (const json::exception& error) {
    log(LogChannel::cache, "a kernel of the cache is compiled anew: {}", error.what());
  }
  return {};
}

sym::Context* context_of(const schedule::Kernel& kernel) {
  if (!kernel.sizes.empty()) return &kernel.sizes[0].context();
  if (const auto* loops = std::get_if<schedule::LoopKernel>(&kernel.body)) {
    return loops->outer.empty() ? nullptr : &loops->outer[0].extent.context();
  }
  if (const auto* attention = std::get_if<schedule::AttentionKernel>(&kernel.body)) {
    return &attention->batch.context();
  }
  return nullptr;
}

}  // namespace

// The name is in the code.
cache::Key KeptModules::key_of(const TargetUnit& unit) const {
  cache::Key key = made_with_;
  key.emplace_back("name", unit.name);
  key.emplace_back("kernel", cache::digest_of(schedule::to_string(*unit.kernel) +
                                              schedule::to_string(unit.schedule)));
  return key;
}

cache::Key KeptModules::key_of_module(const std::string& digest) const {
  return {{"kind", "module of a GPU"}, {"processor", architecture_}, {"module", digest}};
}

std::shared_ptr<const abi::DeviceImage> KeptModules::module(const std::string& digest) {
  const auto [at, is_new] = found_.try_emplace(digest);
  if (!is_new) return at->second;
  auto bytes = store_->find(key_of_module(digest));
  if (bytes && !bytes->empty() && cache::digest_of(text_of(*bytes)) == digest) {
    at->second = std::make_shared<const abi::DeviceImage>(abi::DeviceImage{
        architecture_, std::make_shared<const std::vector<std::byte>>(std::move(*bytes))});
    kept_[at->second.get()] = digest;
  }
  return at->second;
}

std::optional<TargetKernel> KeptModules::find(const TargetUnit& unit) {
  sym::Context* const context = context_of(*unit.kernel);
  if (store_ == nullptr || context == nullptr) return {};
  const auto entry = store_->find(key_of(unit), unit.name);
  if (!entry) return {};
  std::optional<KernelRecord> record = record_of(text_of(*entry));
  if (!record) return {};
  TargetKernel found;
  found.image = module(record->module);
  if (found.image == nullptr) return {};
  found.device = std::move(record->kernel);
  found.scratch_bytes = context->constant(record->workspace_bytes);
  found.text = std::move(record->text);
  return found;
}

void KeptModules::keep(const TargetUnit& unit, const TargetKernel& made) {
  const auto bytes = made.scratch_bytes.constant();
  if (store_ == nullptr || !bytes || made.image->data->empty()) return;
  std::string& digest = kept_[made.image.get()];
  if (digest.empty()) {
    digest = cache::digest_of(text_of(*made.image->data));
    store_->put(key_of_module(digest), *made.image->data);
  }
  const std::string text = to_text({digest, *made.device, *bytes, made.text});
  store_->put(key_of(unit), std::as_bytes(std::span(text)));
}

}  // namespace inkle::driver
