#include "package/package.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "image/image.h"
#include "package/reason.h"
#include "package/target.h"

namespace inkle::package {
namespace {

abi::SharedBytes map_file(const std::filesystem::path& path) {
  const auto fail = [&](std::string_view words) {
    throw BadPackage(path.string(), BadPackage(Reason::unreadable, words));
  };
  const auto fail_to_read = [&](int error) {
    fail(fmt::format("cannot be read: {}", std::strerror(error)));
  };
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail_to_read(errno);
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size == 0) {
    ::close(descriptor);
    fail("is no file, or empty");
  }
  const auto size = static_cast<std::size_t>(facts.st_size);
  void* const at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int error = errno;
  ::close(descriptor);
  if (at == MAP_FAILED) fail_to_read(error);
  return {std::span(static_cast<const std::byte*>(at), size),
          std::shared_ptr<const void>(
              at, [size](const void* p) { ::munmap(const_cast<void*>(p), size); })};
}

bool is_inside(std::span<const std::byte> section, const Range& range) {
  return range.offset <= section.size() && section.size() - range.offset >= range.bytes;
}

std::span<const std::byte> part_of(std::span<const std::byte> section, const Range& range,
                                   std::string_view what) {
  if (!is_inside(section, range)) {
    bad_package(Reason::bad_plan, "{} lies outside of its section", what);
  }
  return section.subspan(range.offset, range.bytes);
}

// What stands in a code section, before any of it is mapped.
void check_code(std::span<const std::byte> bytes, const Contents& contents) {
  try {
    image::check(bytes, contents.layout);
  } catch (const UserError& error) {
    bad_package(Reason::bad_code, "{}", error.what());
  }
  if (contents.layout.entries.size() != contents.plan.kernels.size()) {
    bad_package(Reason::bad_code, "code of {} kernels, {} are needed",
                contents.layout.entries.size(), contents.plan.kernels.size());
  }
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

bool Package::is_package(std::span<const std::byte> start) {
  return start.size() >= sizeof kMagic && std::memcmp(start.data(), kMagic, sizeof kMagic) == 0;
}

std::filesystem::path weights_path(const std::filesystem::path& package) {
  std::filesystem::path path = package;
  return path.replace_extension(".weights");
}

std::shared_ptr<const Package> Package::open(const std::filesystem::path& path, Use use,
                                             std::string_view architecture, const Trust& trust) {
  abi::SharedBytes file = map_file(path);
  trust.check_file(path, file.data);
  const std::filesystem::path other = weights_path(path);
  const auto open_other = [other]() -> std::shared_ptr<const Package> {
    std::error_code error;
    if (!std::filesystem::exists(other, error)) return nullptr;
    return make(other.string(), map_file(other), Use::read, nullptr);
  };
  return make(path.string(), std::move(file), use, open_other, architecture);
}

std::shared_ptr<const Package> Package::from_bytes(std::string name, std::vector<std::byte> bytes,
                                                   Use use, std::vector<std::byte> weights,
                                                   std::string_view architecture) {
  const auto shared = [](std::vector<std::byte> from) {
    return abi::SharedBytes(std::make_shared<const std::vector<std::byte>>(std::move(from)));
  };
  OpenWeights open;
  if (!weights.empty()) {
    open = [name, other = shared(std::move(weights))] {
      return make(weights_path(name).string(), other, Use::read, nullptr);
    };
  }
  return make(std::move(name), shared(std::move(bytes)), use, std::move(open), architecture);
}

std::shared_ptr<const Package> Package::make(std::string name, abi::SharedBytes file, Use use,
                                             OpenWeights open_weights,
                                             std::string_view architecture) {
  const std::shared_ptr<Package> package(
      new Package(std::move(name), std::move(file), std::move(open_weights)));
  try {
    package->sections_ = read_header(package->file_.data);
    if (use == Use::run) package->load(architecture);
  } catch (const BadPackage& error) {
    throw BadPackage(package->name_, error);
  } catch (const UnfitPackage& error) {
    throw UnfitPackage(package->name_, error);
  }
  return package;
}

Package::Package(std::string name, abi::SharedBytes file, OpenWeights open_weights)
    : name_(std::move(name)), file_(std::move(file)), open_weights_(std::move(open_weights)) {}

std::shared_ptr<const Package> Package::other_of(const Contents& contents) const {
  if (!contents.weights_hash || !open_weights_) return nullptr;
  std::shared_ptr<const Package> other = open_weights_();
  if (other == nullptr) return nullptr;
  const Section* const section = other->find(SectionKind::weights, "");
  if (section == nullptr || section->hash != *contents.weights_hash) {
    bad_package(Reason::other_weights, "{} holds other weights than those it was built with",
                other->name_);
  }
  return other;
}

const Package* Package::weights_file() const {
  if (find(SectionKind::weights, "") != nullptr) return this;
  return other_.get();
}

const Section* Package::find(SectionKind kind, std::string_view target) const {
  const auto found = std::find_if(sections_.begin(), sections_.end(), [&](const Section& s) {
    return s.kind == kind && s.target == target;
  });
  return found == sections_.end() ? nullptr : &*found;
}

std::span<const std::byte> Package::bytes_of(const Section& section) const {
  return file_.data.subspan(section.offset, section.bytes);
}

std::span<const std::byte> Package::checked(SectionKind kind, std::string_view target) const {
  const Section* const section = find(kind, target);
  if (section == nullptr) return {};
  const std::span<const std::byte> bytes = bytes_of(*section);
  if (hash_of_section(bytes) != section->hash) {
    bad_package(Reason::hash_mismatch, "section {} is damaged: its hash is another", name_of(kind));
  }
  return bytes;
}

Contents Package::contents_of(const Section& plan) const {
  Contents contents = unpack(checked(SectionKind::plan, plan.target));
  for (const Weight& w : contents.weights) {
    if (w.argument >= contents.plan.arguments.size() ||
        contents.plan.arguments[w.argument].is_integer) {
      bad_package(Reason::bad_plan, "a weight is of argument {}, which takes none", w.argument);
    }
  }
  for (const std::uint32_t argument : contents.parameters) {
    if (argument >= contents.plan.arguments.size() ||
        contents.plan.arguments[argument].is_integer) {
      bad_package(Reason::bad_plan, "argument {} is no weight", argument);
    }
  }
  if (contents.constants.size() != contents.plan.constants.size()) {
    bad_package(Reason::bad_plan, "{} constants, {} are needed", contents.constants.size(),
                contents.plan.constants.size());
  }
  return contents;
}

namespace {

// On the processor, or on a GPU of that architecture.
Fit fit_of(const Contents& contents, std::string_view target, std::string_view architecture) {
  const bool is_gpu = !architecture.empty();
  if (!is_gpu && !is_of_gpu(target)) return fit_on_processor(contents.processor);
  if (is_gpu && !is_of_gpu(target)) {
    return {.needs = {},
            .reason = Reason::only_for_processors,
            .lacks = "to be run by the processor",
            .here = {}};
  }
  if (is_gpu) return fit_on_gpus(target, std::array{std::string(architecture)});
  std::string needs = machines_of(target);
  return {.needs = needs, .reason = Reason::only_for_gpus, .lacks = std::move(needs), .here = {}};
}

// Of targets none of which runs: the reason of one that is for such a machine, if there is one.
[[noreturn]] void refuse_all(std::span<const std::pair<std::string, Fit>> refused,
                             std::string_view architecture) {
  std::string list, here;
  Reason reason = *refused.front().second.reason;
  for (const auto& [target, fit] : refused) {
    list += fmt::format("{}{} needs {}", list.empty() ? "" : "; ", target, fit.lacks);
    if (fit.here.empty()) continue;
    reason = *fit.reason;
    here = fit.here;
  }
  if (architecture.empty()) {
    if (!here.empty()) here.insert(0, "; ");
    unfit_package(reason, "this processor runs none of its targets: {}{}", list, here);
  }
  unfit_package(reason, "a GPU of {} runs none of its targets: {}", architecture, list);
}

}  // namespace

// The first that runs here; machine code before PTX.
void Package::load(std::string_view architecture) {
  std::vector<std::pair<std::string, Fit>> refused;
  for (const bool is_ptx_turn : {false, true}) {
    for (const Section& section : sections_) {
      if (section.kind != SectionKind::plan || is_ptx(section.target) != is_ptx_turn) continue;
      Contents contents = contents_of(section);
      Fit fit = fit_of(contents, section.target, architecture);
      if (!fit.reason) {
        target_ = section.target;
        load_target(std::move(contents));
        graph_ = text_of(SectionKind::graph, "");
        facts_ = text_of(SectionKind::facts, target_);
        return;
      }
      refused.emplace_back(section.target, std::move(fit));
    }
  }
  if (refused.empty()) bad_package(Reason::no_plan, "the file has no plan");
  refuse_all(refused, architecture);
}

std::string_view Package::text_of(SectionKind kind, std::string_view target) const {
  const auto text = checked(kind, target);
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

void Package::load_target(Contents contents) {
  output_names_ = std::move(contents.output_names);
  weights_ = std::move(contents.weights);
  choices_ = std::move(contents.choices);
  parameters_ = std::move(contents.parameters);
  if (contents.weights_hash) {
    weights_name_ = weights_path(name_).filename().string();
    other_ = other_of(contents);
  }
  abi::Code code;
  if (is_of_gpu(target_)) {
    load_images(contents, code);
  } else {
    load_processor_code(contents, code);
  }
  const std::span<const std::byte> constants = checked(SectionKind::constants, "");
  for (const Range& range : contents.constants) {
    code.constants.emplace_back(part_of(constants, range, "a constant"), file_.owner);
  }
  made_ = {std::make_shared<const abi::Plan>(std::move(contents.plan)),
           std::make_shared<const abi::Code>(std::move(code))};
}

void Package::load_processor_code(const Contents& contents, abi::Code& code) const {
  std::vector<std::string> names;
  for (const abi::KernelDecl& kernel : contents.plan.kernels) names.push_back(kernel.name);
  const std::span<const std::byte> bytes = checked(SectionKind::code, target_);
  check_code(bytes, contents);
  try {
    image::LoadedImage loaded = image::load(bytes, contents.layout, names);
    code.functions = std::move(loaded.functions);
    code.owners.push_back(std::move(loaded.memory));
  } catch (const UserError& error) {
    bad_package(Reason::cannot_map, "{}", error.what());
  }
}

void Package::load_images(const Contents& contents, abi::Code& code) const {
  const std::span<const std::byte> modules = checked(SectionKind::images, target_);
  for (const DeviceImageRange& image : contents.images) {
    const auto data = part_of(modules, image.data, "a module");
    auto copy = std::make_shared<std::vector<std::byte>>(data.begin(), data.end());
    // A driver reads text up to the zero behind it.
    if (is_ptx(target_)) copy->push_back(std::byte{0});
    code.images.push_back({image.architecture, std::move(copy)});
  }
  code.functions.resize(contents.plan.kernels.size());
}

std::vector<PackageWeight> Package::weights() const {
  check_weights();
  return unchecked_weights();
}

std::vector<PackageWeight> Package::unchecked_weights() const {
  std::vector<PackageWeight> result;
  const Package* const file = weights_file();
  if (weights_.empty() || (file == nullptr && !weights_name_.empty())) return result;
  const auto fail = [&](std::string_view words) {
    throw BadPackage(name_, BadPackage(Reason::bad_plan, words));
  };
  if (file == nullptr) fail("its weights are not in the file");
  const std::span<const std::byte> section = file->bytes_of(*file->find(SectionKind::weights, ""));
  for (const Weight& w : weights_) {
    if (!is_inside(section, w.data)) fail("a weight lies outside of its section");
    result.push_back({w.argument, section.subspan(w.data.offset, w.data.bytes)});
  }
  return result;
}

void Package::check_weights() const {
  if (!unchecked_weights().empty()) weights_file()->check_chunks(weights_);
}

// The weights lie in the section.
void Package::check_chunks(const std::vector<Weight>& weights) const {
  const std::lock_guard lock(mutex_);
  try {
    read_leaves();
    std::vector<std::uint64_t> wanted;
    for (const Weight& w : weights) {
      if (w.data.bytes == 0) continue;
      const std::uint64_t last = (w.data.offset + w.data.bytes - 1) / kChunkBytes;
      for (std::uint64_t i = w.data.offset / kChunkBytes; i <= last; ++i) {
        if (is_checked_[i]) continue;
        is_checked_[i] = true;
        wanted.push_back(i);
      }
    }
    check_leaves(wanted);
  } catch (const BadPackage& error) {
    leaves_.clear();  // so that later calls fail, too
    throw BadPackage(name_, error);
  }
}

void Package::read_leaves() const {
  if (!leaves_.empty()) return;
  const Section& section = *find(SectionKind::weights, "");
  const auto list = checked(SectionKind::leaves, "");
  const std::uint64_t count = (section.bytes + kChunkBytes - 1) / kChunkBytes;
  if (list.size() != count * sizeof(Hash)) {
    bad_package(Reason::hash_mismatch, "the list of leaf hashes is too short");
  }
  std::vector<Hash> leaves(count);
  if (count != 0) std::memcpy(leaves.data(), list.data(), list.size());
  if (hash_of_leaves(leaves) != section.hash) {
    bad_package(Reason::hash_mismatch, "the list of leaf hashes is not that of the weights");
  }
  leaves_ = std::move(leaves);
  is_checked_.assign(count, false);
}

void Package::check_leaves(const std::vector<std::uint64_t>& wanted) const {
  const Section& section = *find(SectionKind::weights, "");
  const std::span<const std::byte> bytes = bytes_of(section);
  const std::vector<Hash> found = leaves_of(bytes, wanted);
  for (std::size_t n = 0; n < wanted.size(); ++n) {
    if (found[n] == leaves_[wanted[n]]) continue;
    const std::uint64_t at = wanted[n] * kChunkBytes;
    bad_package(Reason::hash_mismatch, "the weights are damaged in bytes {} to {} of the file",
                section.offset + at,
                section.offset + std::min<std::uint64_t>(at + kChunkBytes, bytes.size()));
  }
}

void Package::check_bytes() const {
  std::uint64_t end = sizeof(FileHeader) + sections_.size() * sizeof(SectionEntry);
  for (const Section& section : sections_) {
    if (!is_zero(file_.data.subspan(end, section.offset - end))) {
      bad_package(Reason::stray_bytes, "bytes {} to {} of the file are not zeros", end,
                  section.offset);
    }
    end = section.offset + section.bytes;
    if (hash_of_section(bytes_of(section)) != section.hash) {
      bad_package(Reason::hash_mismatch, "section {} {} is damaged: its hash is another",
                  name_of(section.kind), section.target);
    }
  }
  const std::lock_guard lock(mutex_);
  if (find(SectionKind::weights, "") != nullptr) read_leaves();
}

std::vector<Contents> Package::check_all() const {
  std::vector<Contents> all;
  try {
    check_bytes();
    for (const Section& section : sections_) {
      if (section.kind == SectionKind::plan) all.push_back(check_target(section));
    }
    if (all.empty() && find(SectionKind::weights, "") == nullptr) {
      bad_package(Reason::no_plan, "the file has no plan");
    }
  } catch (const BadPackage& error) {
    throw BadPackage(name_, error);
  }
  return all;
}

// All but the hashes of its sections.
Contents Package::check_target(const Section& plan) const {
  Contents contents = contents_of(plan);
  const bool on_gpu = is_of_gpu(plan.target);
  const Section* const code = find(on_gpu ? SectionKind::images : SectionKind::code, plan.target);
  if (code == nullptr) bad_package(Reason::bad_code, "there is no code for {}", plan.target);
  if (!on_gpu) check_code(bytes_of(*code), contents);
  for (const DeviceImageRange& image : contents.images) {
    (void)part_of(bytes_of(*code), image.data, "a module");
  }
  const auto part = [&](const Package& file, SectionKind kind, const Range& range,
                        std::string_view what) {
    const Section* const section = file.find(kind, "");
    if (section == nullptr) {
      bad_package(Reason::bad_plan, "{} of {} is not in the file", what, plan.target);
    }
    (void)part_of(file.bytes_of(*section), range, what);
  };
  for (const Range& r : contents.constants) part(*this, SectionKind::constants, r, "a constant");
  const std::shared_ptr<const Package> other = other_of(contents);
  if (other != nullptr) (void)other->check_all();
  if (contents.weights_hash && other == nullptr) return contents;  // elsewhere
  for (const Weight& w : contents.weights) {
    part(other ? *other : *this, SectionKind::weights, w.data, "a weight");
  }
  return contents;
}

}  // namespace inkle::package
