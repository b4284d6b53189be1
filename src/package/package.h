// A .inkle file, mapped. Opening checks the header, the plan and the code of the best target that
// this processor runs, which takes milliseconds; weights are checked when they are first used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/code.h"
#include "package/contents.h"
#include "package/format.h"
#include "package/signature.h"

namespace inkle::package {

// Where the weights of a package lie that keeps them in a file of their own: of "m.inkle",
// "m.weights".
[[nodiscard]] std::filesystem::path weights_path(const std::filesystem::path& package);

// An argument that comes with the program; its bytes live as long as the package.
struct PackageWeight {
  std::uint32_t argument = 0;  // of the plan
  std::span<const std::byte> data;
};

class Package {
 public:
  // A file that starts as packages do, whatever follows.
  [[nodiscard]] static bool is_package(std::span<const std::byte> start);

  enum class Use : std::uint8_t {
    run,   // load the best target that this processor runs
    read,  // load none: for check_all(), on any processor
  };
  // Throws BadPackage naming the file and what is wrong with it: damaged, of another version;
  // UnfitPackage if nothing of it runs here, with what its targets need and what there is. Nothing
  // is mapped executable before.
  // `architecture`: of the GPU that it is to run on ("sm_90a"); else the processor.
  // `trust`: the required signature; it is checked before anything else in the file.
  [[nodiscard]] static std::shared_ptr<const Package> open(
      const std::filesystem::path& path, Use use = Use::run, std::string_view architecture = {},
      const Trust& trust = Trust::of_environment());
  // Of a file's bytes in memory; `name` is for messages. `weights` are those of its other file, if
  // they are at hand. No signature is asked for: Trust::check() comes before, where one is needed.
  [[nodiscard]] static std::shared_ptr<const Package> from_bytes(
      std::string name, std::vector<std::byte> bytes, Use use = Use::run,
      std::vector<std::byte> weights = {}, std::string_view architecture = {});

  [[nodiscard]] const std::string& target() const { return target_; }
  [[nodiscard]] const std::vector<Section>& sections() const { return sections_; }
  [[nodiscard]] const std::vector<std::string>& output_names() const { return output_names_; }
  // Arguments of the plan that are weights, whether the file holds them or not.
  [[nodiscard]] const std::vector<std::uint32_t>& parameters() const { return parameters_; }
  // The constants are read from the mapped file for as long as the code lives.
  [[nodiscard]] const abi::PlanAndCode& made() const { return made_; }
  // The file that the weights are in, if it is another one. It is opened where it lies beside the
  // package; a caller with weights of its own does not need it.
  [[nodiscard]] const std::string& weights_name() const { return weights_name_; }
  // Empty if the file has none.
  [[nodiscard]] std::string_view graph_text() const { return graph_; }
  // All bytes of it.
  [[nodiscard]] const abi::SharedBytes& file() const { return file_; }
  // What libraries of the GPU were measured to do best when it was built.
  [[nodiscard]] const std::vector<LibraryChoice>& choices() const { return choices_; }
  // TargetProgram::facts.
  [[nodiscard]] std::string_view facts() const { return facts_; }

  // Those that are at hand. Their hashes are checked first. Throws UserError if a chunk is damaged.
  [[nodiscard]] std::vector<PackageWeight> weights() const;
  // Where they lie, in a moment: check_weights() comes before anything reads them.
  [[nodiscard]] std::vector<PackageWeight> unchecked_weights() const;
  // The chunks that the weights lie in, once; on several threads. Throws likewise.
  void check_weights() const;

  // Checks every byte: all sections of all targets, and the zeros between them; of the other file
  // likewise, where it is at hand. The contents of all targets, whose plans a runtime checks
  // further; none of a file of weights. Maps nothing executable, and runs nothing.
  [[nodiscard]] std::vector<Contents> check_all() const;

 private:
  // Opens the file of weights; null if there is none.
  using OpenWeights = std::function<std::shared_ptr<const Package>()>;
  Package(std::string name, abi::SharedBytes file, OpenWeights open_weights);
  [[nodiscard]] static std::shared_ptr<const Package> make(std::string name, abi::SharedBytes file,
                                                           Use use, OpenWeights open_weights,
                                                           std::string_view architecture = {});
  void load(std::string_view architecture);
  void load_processor_code(const Contents& contents, abi::Code& code) const;
  void load_images(const Contents& contents, abi::Code& code) const;
  void load_target(Contents contents);
  [[nodiscard]] std::string_view text_of(SectionKind kind, std::string_view target) const;
  // The file of the weights that the plan names; null if it is not at hand.
  [[nodiscard]] std::shared_ptr<const Package> other_of(const Contents& contents) const;
  [[nodiscard]] const Package* weights_file() const;
  void check_bytes() const;
  void check_chunks(const std::vector<Weight>& weights) const;
  [[nodiscard]] const Section* find(SectionKind kind, std::string_view target) const;
  [[nodiscard]] std::span<const std::byte> bytes_of(const Section& section) const;
  // Those of a section whose hash has been checked.
  [[nodiscard]] std::span<const std::byte> checked(SectionKind kind, std::string_view target) const;
  [[nodiscard]] Contents contents_of(const Section& plan) const;
  [[nodiscard]] Contents check_target(const Section& plan) const;
  void read_leaves() const;
  void check_leaves(const std::vector<std::uint64_t>& wanted) const;

  std::string name_;
  abi::SharedBytes file_;
  std::vector<Section> sections_;
  std::string target_;
  std::vector<std::string> output_names_;
  abi::PlanAndCode made_;
  std::vector<Weight> weights_;
  std::vector<LibraryChoice> choices_;
  std::vector<std::uint32_t> parameters_;
  OpenWeights open_weights_;
  std::string weights_name_;
  std::shared_ptr<const Package> other_;  // the file of weights
  std::string_view graph_, facts_;

  mutable std::mutex mutex_;
  mutable std::vector<Hash> leaves_;      // of the weights
  mutable std::vector<bool> is_checked_;  // by leaf
};

}  // namespace inkle::package
