#include "driver/stored.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "cache/store.h"
#include "driver/build_identity.h"
#include "graph/text.h"
#include "image/processor.h"
#include "package/package.h"
#include "package/writer.h"

namespace inkle::driver {
namespace {

using nlohmann::json;

// More constants than this are weights in disguise: reading them takes as long as compiling.
constexpr std::uint64_t kMostConstantBytes = std::uint64_t{64} << 20;

// Constants as text take longer to write than to hash.
constexpr std::uint64_t kMostLiteralBytes = std::uint64_t{256} << 10;

constexpr const char* kReport = "report";
constexpr const char* kName = "a stored program";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

json to_json(const Report& report) {
  json steps = json::array();
  for (const StepReport& s : report.steps) {
    steps.push_back({s.kind, s.label, s.source, s.kernel});
  }
  json not_held = json::array();
  for (const Report::NotHeld& op : report.not_held) {
    not_held.push_back({op.op, op.source, op.reason});
  }
  return {{"steps", std::move(steps)},
          {"not_held", std::move(not_held)},
          {"schedules", report.schedules},
          {"kernels", report.kernels},
          {"launches", report.launches},
          {"library_calls", report.library_calls},
          {"bytes_moved", report.bytes_moved},
          {"bytes_lower_bound", report.bytes_lower_bound},
          {"eager", report.eager}};
}

Report from_json(const json& from) {
  Report report;
  for (const json& s : from.at("steps")) {
    report.steps.push_back({.kind = s.at(0).get<std::string>(),
                            .label = s.at(1).get<std::string>(),
                            .source = s.at(2).get<std::string>(),
                            .kernel = s.at(3).get<std::string>()});
  }
  for (const json& op : from.at("not_held")) {
    report.not_held.push_back(
        {op.at(0).get<std::string>(), op.at(1).get<std::string>(), op.at(2).get<std::string>()});
  }
  if (const auto at = from.find("schedules"); at != from.end()) {  // older packages have none
    report.schedules = at->get<std::vector<std::string>>();
  }
  report.kernels = report.kernels_reused = from.at("kernels").get<std::uint32_t>();
  report.launches = from.at("launches").get<std::uint32_t>();
  report.library_calls = from.at("library_calls").get<std::uint32_t>();
  report.bytes_moved = from.at("bytes_moved").get<std::int64_t>();
  report.bytes_lower_bound = from.at("bytes_lower_bound").get<std::int64_t>();
  report.eager = from.at("eager").get<std::vector<std::string>>();
  return report;
}

Identity machine_of(const Backend& target) {
  Identity identity = target.identity();
  identity.insert(identity.begin(), {"build", build_identity()});
  return identity;
}

// Throws UserError naming the first field that differs. Caches and threads of a processor decide
// how fast its code is, and no more; a GPU's grids may wait for all their blocks.
void check_machine(const json& facts, const Backend& target) {
  const auto made_for = facts.at("machine").get<Identity>();
  const Identity here = machine_of(target);
  for (std::size_t i = 0; i < here.size(); ++i) {
    if (here[i].first == "machine" && target.device().kind == abi::DeviceKind::cpu) continue;
    if (i < made_for.size() && made_for[i] == here[i]) continue;
    user_error("{} was made for another {}: {}, not {}", kName, here[i].first,
               i < made_for.size() ? made_for[i].second : "none", here[i].second);
  }
}

constexpr abi::Device kFirstGpu{abi::DeviceKind::cuda, 0};

// The text of a graph that is on one GPU, for another.
std::string with_device(std::string text, abi::Device from, abi::Device to) {
  if (from.kind != abi::DeviceKind::cuda || from == to) return text;
  const std::string old = fmt::format("cuda:{}", from.index),
                    made = fmt::format("cuda:{}", to.index);
  for (std::size_t at = text.find(old); at != text.npos; at = text.find(old, at)) {
    const std::size_t end = at + old.size();
    const bool is_whole = end == text.size() || text[end] < '0' || text[end] > '9';
    if (is_whole) text.replace(at, old.size(), made);
    at += made.size();
  }
  return text;
}

}  // namespace

std::shared_ptr<const abi::Plan> on_device(std::shared_ptr<const abi::Plan> plan,
                                           abi::Device device) {
  const auto is_elsewhere = [&](const auto& of) {
    return of.device.kind == device.kind && of.device.index != device.index;
  };
  if (std::none_of(plan->arguments.begin(), plan->arguments.end(), is_elsewhere) &&
      std::none_of(plan->buffers.begin(), plan->buffers.end(), is_elsewhere)) {
    return plan;
  }
  auto moved = std::make_shared<abi::Plan>(*plan);
  for (abi::PlanArgument& a : moved->arguments) {
    if (is_elsewhere(a)) a.device = device;
  }
  for (abi::BufferDecl& b : moved->buffers) {
    if (is_elsewhere(b)) b.device = device;
  }
  return moved;
}

Identity identity_of(const Backend& target, const CompileOptions& options) {
  if (build_identity().empty()) return {};
  Identity identity = machine_of(target);
  const auto flag = [](bool value, std::string_view name) {
    return value ? fmt::format(" {}", name) : std::string();
  };
  identity.emplace_back(
      "options",
      "with" + flag(options.training, "training") +
          fmt::format(" {} numerics", abi::name_of(options.numerics)) +
          flag(options.deterministic, "determinism") + flag(options.tune, "measured schedules") +
          flag(options.passes.freeze, "frozen weights") +
          flag(options.passes.split_attention, "attention split") +
          fmt::format(" without passes '{}', {} passes over nests, oneDNN '{}{}'",
                      fmt::join(options.skip_passes, ","), options.stop_after_nest_passes,
                      variable("ONEDNN_MAX_CPU_ISA"), variable("DNNL_MAX_CPU_ISA")));
  return identity;
}

GraphText text_of(const graph::Graph& graph, abi::Device here) {
  std::uint64_t constants = 0;
  for (const auto& [value, data] : graph.constants) constants += data.bytes->size();
  if (constants <= kMostLiteralBytes) {
    std::string text = with_device(graph::to_string(graph), here, kFirstGpu);
    std::string digest = cache::digest_of(text);
    return {std::move(text), std::move(digest)};
  }
  graph::Graph rest = graph;
  rest.constants.clear();
  std::string text = with_device(graph::to_string(rest), here, kFirstGpu);
  for (const auto& [value, data] : graph.constants) {
    text += fmt::format(
        "\n%{} {} {} {}", value.index, abi::name_of(data.dtype), fmt::join(data.sizes, ","),
        cache::digest_of({reinterpret_cast<const char*>(data.bytes->data()), data.bytes->size()}));
  }
  return {{}, cache::digest_of(text)};
}

bool has_few_constants(const Compiled& compiled) {
  std::uint64_t constants = 0;
  for (const abi::SharedBytes& c : compiled.code->constants) constants += c.data.size();
  return constants <= kMostConstantBytes;
}

bool can_store(const Compiled& compiled) {
  if (!compiled.stored.data.empty()) return true;
  if (build_identity().empty()) return false;
  const auto& kernels = compiled.plan->kernels;
  const auto& code = *compiled.code;
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    const bool has_code = kernels[k].device
                              ? kernels[k].device->image < code.images.size() &&
                                    !code.images[kernels[k].device->image].data->empty()
                              : k < code.objects.size() && !code.objects[k].data.empty();
    if (!has_code) return false;
  }
  return true;
}

std::string facts_of(const Report& report) { return json{{kReport, to_json(report)}}.dump(); }

Report report_of(std::string_view facts) {
  try {
    return from_json(json::parse(facts).at(kReport));
  } catch (const json::exception& error) {
    user_error("the facts of a program are damaged: {}", error.what());
  }
}

Maker maker_of(const Backend& target) { return {machine_of(target), target.device().architecture}; }

std::vector<std::byte> store(const Compiled& compiled, const Maker& maker) {
  if (!compiled.stored.data.empty()) {
    return {compiled.stored.data.begin(), compiled.stored.data.end()};
  }
  package::PackageInput input;
  const bool on_gpu = !maker.architecture.empty();
  input.targets.push_back(
      {on_gpu ? nullptr : image::instruction_set_here(),
       {on_gpu ? on_device(compiled.plan, kFirstGpu) : compiled.plan, compiled.code},
       maker.architecture,
       json{{"machine", maker.machine}, {kReport, to_json(compiled.report)}}.dump()});
  input.graph = compiled.graph;
  return package::package_bytes(input);
}

Compiled restore(std::vector<std::byte> bytes, const Backend& target) {
  const auto package = package::Package::from_bytes(
      kName, std::move(bytes), package::Package::Use::run, {}, target.device().architecture);
  Compiled compiled;
  try {
    const json facts = json::parse(package->facts());
    check_machine(facts, target);
    compiled.report = from_json(facts.at(kReport));
  } catch (const json::exception& error) {
    user_error("{}: its facts are damaged: {}", kName, error.what());
  }
  compiled.plan = on_device(package->made().plan, target.location());
  compiled.code = package->made().code;
  compiled.stored = package->file();
  compiled.graph = with_device(std::string(package->graph_text()), kFirstGpu, target.location());
  return compiled;
}

}  // namespace inkle::driver
