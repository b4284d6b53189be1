#include "package/writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "image/image.h"
#include "package/contents.h"
#include "package/format.h"
#include "package/output_file.h"
#include "package/package.h"

namespace inkle::package {
namespace {

// Of each tensor in its section: a cache line and the widest vector.
constexpr std::uint64_t kTensorAlignment = 64;

std::uint64_t span_bytes(const abi::TensorView& t) {
  std::int64_t last = 0;
  for (std::int32_t d = 0; d < t.rank; ++d) {
    if (t.sizes[d] == 0) return 0;
    last += (t.sizes[d] - 1) * t.strides[d];
  }
  return static_cast<std::uint64_t>((last + 1) * abi::size_of(t.dtype));
}

// Tensors one after the other; equal ones are one.
class TensorSection {
 public:
  Range add(std::span<const std::byte> data) {
    const Hash hash = hash_of_section(data);
    const auto [at, is_new] = known_.try_emplace({data.size(), hash});
    if (is_new) {
      bytes_.resize((bytes_.size() + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment);
      at->second = {bytes_.size(), data.size()};
      bytes_.insert(bytes_.end(), data.begin(), data.end());
    }
    return at->second;
  }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::map<std::pair<std::uint64_t, Hash>, Range> known_;
  std::vector<std::byte> bytes_;
};

void refuse_eager(const PackageInput& input) {
  std::set<std::string> names;
  for (const TargetProgram& target : input.targets) {
    for (const abi::PlanStep& step : target.made.plan->steps) {
      const auto* eager = std::get_if<abi::EagerCall>(&step.action);
      if (eager == nullptr) continue;
      names.insert(step.source.empty() ? eager->name
                                       : fmt::format("{} ({})", eager->name, step.source));
    }
  }
  if (names.empty()) return;
  unsupported("a package runs without a framework, and these ops need one: {}",
              fmt::join(names, ", "));
}

image::Image link_code(const TargetProgram& target) {
  std::vector<image::Object> objects;
  for (const abi::SharedBytes& object : target.made.code->objects) {
    INKLE_CHECK(!object.data.empty(), "a kernel of {} has no object code", target.made.plan->name);
    objects.push_back(object.data);
  }
  return image::link(objects);
}

// Sections with their hashes, as one file.
class Sections {
 public:
  void add(SectionKind kind, std::string target, std::span<const std::byte> data) {
    sections_.push_back({.kind = kind, .target = std::move(target), .bytes = data.size()});
    hashes_.push_back(hash_of_section(data));
    data_.push_back(data);
  }
  void add_owned(SectionKind kind, std::string target, std::vector<std::byte> data) {
    owned_.push_back(std::move(data));
    add(kind, std::move(target), owned_.back());
  }
  [[nodiscard]] std::vector<std::byte> bytes() {
    std::vector<std::byte> all = write_header(sections_, hashes_);
    if (!sections_.empty()) all.reserve(sections_.back().offset + sections_.back().bytes);
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      all.resize(sections_[i].offset);
      all.insert(all.end(), data_[i].begin(), data_[i].end());
    }
    return all;
  }
  HeaderBytes write(const std::filesystem::path& path) {
    const std::vector<std::byte> header = write_header(sections_, hashes_);
    OutputFile file(path);
    file.write(0, header);
    for (std::size_t i = 0; i < sections_.size(); ++i) file.write(sections_[i].offset, data_[i]);
    file.finish();
    return header_of(header);
  }

 private:
  std::vector<Section> sections_;
  std::vector<Hash> hashes_;
  std::vector<std::span<const std::byte>> data_;
  std::deque<std::vector<std::byte>> owned_;
};

class Writer {
 public:
  explicit Writer(const PackageInput& input) : input_(input) {
    if (input.separate_weights) collect_weights();
    for (const TargetProgram& target : input.targets) add_target(target);
    if (!input.weights.empty()) add_weights(input.separate_weights ? other_ : file_);
    if (!constants_.bytes().empty()) file_.add(SectionKind::constants, "", constants_.bytes());
    if (!input.graph.empty()) {
      file_.add(SectionKind::graph, "", std::as_bytes(std::span(input.graph)));
    }
  }

  [[nodiscard]] std::vector<std::byte> bytes() { return file_.bytes(); }

  HeaderBytes write(const std::filesystem::path& path) {
    // The weights first: a package is never visible without its weights.
    if (weights_hash_) (void)other_.write(weights_path(path));
    return file_.write(path);
  }

 private:
  static std::span<const std::byte> bytes_of(const GivenWeight& weight) {
    return {static_cast<const std::byte*>(weight.tensor.data), span_bytes(weight.tensor)};
  }

  // The plans name the hash of their weights.
  void collect_weights() {
    for (const GivenWeight& w : input_.weights) (void)weights_.add(bytes_of(w));
    if (!weights_.bytes().empty()) weights_hash_ = hash_of_section(weights_.bytes());
  }

  void add_target(const TargetProgram& target) {
    const abi::Plan& plan = *target.made.plan;
    Contents contents;
    contents.plan = plan;
    contents.output_names = input_.output_names;
    contents.choices = target.choices;
    for (const abi::SharedBytes& c : target.made.code->constants) {
      contents.constants.push_back(constants_.add(c.data));
    }
    for (const GivenWeight& w : input_.weights) {
      INKLE_CHECK(w.argument < plan.arguments.size(), "no argument {}", w.argument);
      contents.weights.push_back({w.argument, weights_.add(bytes_of(w))});
    }
    contents.parameters = input_.parameters;
    contents.weights_hash = weights_hash_;
    if (target.instruction_set == nullptr) {
      add_images(target, contents);
      return;
    }
    image::Image linked = link_code(target);
    contents.layout = std::move(linked.layout);
    contents.processor = image::required_bits(*target.instruction_set);
    const std::string name(target.instruction_set->name);
    file_.add_owned(SectionKind::plan, name, pack(contents));
    file_.add_owned(SectionKind::code, name, std::move(linked.bytes));
    add_facts(target, name);
  }

  void add_facts(const TargetProgram& target, const std::string& name) {
    if (target.facts.empty()) return;
    file_.add(SectionKind::facts, name, std::as_bytes(std::span(target.facts)));
  }

  void add_images(const TargetProgram& target, Contents& contents) {
    TensorSection modules;
    for (const abi::DeviceImage& image : target.made.code->images) {
      INKLE_CHECK(!image.data->empty(), "a module of {} was not compiled", contents.plan.name);
      contents.images.push_back({image.architecture, modules.add(*image.data)});
    }
    const auto bytes = modules.bytes();
    file_.add_owned(SectionKind::plan, target.architecture, pack(contents));
    file_.add_owned(SectionKind::images, target.architecture, {bytes.begin(), bytes.end()});
    add_facts(target, target.architecture);
  }

  void add_weights(Sections& to) {
    const std::vector<Hash> leaves = leaves_of(weights_.bytes());
    const auto bytes = std::as_bytes(std::span(leaves));
    to.add_owned(SectionKind::leaves, "", {bytes.begin(), bytes.end()});
    to.add(SectionKind::weights, "", weights_.bytes());
  }

  const PackageInput& input_;
  TensorSection constants_, weights_;
  std::optional<Hash> weights_hash_;  // where they are in the other file
  Sections file_, other_;
};

}  // namespace

HeaderBytes write_package(const std::filesystem::path& path, const PackageInput& input) {
  INKLE_CHECK(!input.targets.empty(), "a package of no target");
  refuse_eager(input);
  return Writer(input).write(path);
}

std::vector<std::byte> package_bytes(const PackageInput& input) {
  INKLE_CHECK(!input.targets.empty() && !input.separate_weights, "a package of no target");
  return Writer(input).bytes();
}

}  // namespace inkle::package
