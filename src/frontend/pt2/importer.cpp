#include "frontend/pt2/importer.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "frontend/pt2/graph_reader.h"
#include "frontend/pt2/weights.h"
#include "frontend/pt2/zip.h"
#include "ops/sharing.h"
#include "ops/table.h"

namespace inkle::frontend::pt2 {
namespace {

// Constants of the traced program up to this size become literals, which passes can see through;
// larger ones stay in the file's memory.
constexpr std::int64_t kLiteralLimit = 64 << 10;  // bytes

struct Parts {
  std::string root;   // "model/"
  std::string model;  // "model"
  Json json;
};

Parts open_model(const ZipArchive& archive, SourceLocation& place) {
  Parts parts;
  constexpr std::string_view kFormat = "archive_format";
  const auto has_member = [&](std::string_view suffix) -> const ZipMember* {
    for (const ZipMember& m : archive.members()) {
      if (m.name.ends_with(suffix)) return &m;
    }
    return nullptr;
  };
  const ZipMember* format = has_member(kFormat);
  if (format == nullptr) {
    if (has_member("serialized_exported_program.json") != nullptr) {
      unsupported(
          "{}: saved by an old torch whose weights are a pickle; save it again with torch "
          "2.11 or later",
          archive.name());
    }
    place.fail("not a torch.export archive (no archive_format)");
  }
  parts.root = format->name.substr(0, format->name.size() - kFormat.size());
  const auto content = [&](const std::string& name) {
    const ZipMember* found = archive.find(parts.root + name);
    if (found == nullptr) return std::string();
    const MemberBytes bytes = archive.read(*found, 64);
    return std::string(reinterpret_cast<const char*>(bytes.bytes.data()), bytes.bytes.size());
  };
  if (content(std::string(kFormat)) != "pt2") place.fail("archive_format is not \"pt2\"");
  const std::string order = content("byteorder");
  if (!order.empty() && order != "little") place.fail("the byte order is not little");
  const std::string folder = parts.root + "models/";
  const ZipMember* model = nullptr;
  for (const ZipMember& m : archive.members()) {
    if (!m.name.starts_with(folder) || !m.name.ends_with(".json")) continue;
    if (model != nullptr) unsupported("{}: the archive holds several models", archive.name());
    model = &m;
  }
  if (model == nullptr) place.fail("the archive holds no model (models/*.json)");
  parts.model = model->name.substr(folder.size(), model->name.size() - folder.size() - 5);
  place.detail = model->name;
  parts.json = parse_json(place, archive.read(*model, kJsonLimit).bytes);
  return parts;
}

class ProgramReader {
 public:
  ProgramReader(std::shared_ptr<MappedFile> file, const ImportOptions& options)
      : options_(options),
        place_{file->name(), ""},
        archive_(std::move(file)),
        parts_(open_model(archive_, place_)),
        program_{
            graph::Graph(std::make_shared<sym::Context>(), ops::op_table()), {}, {}, {}, {}, {}},
        reader_(program_.graph, place_) {}

  Program run() {
    check_version();
    const Json& module = object(place_, parts_.json, "graph_module");
    const Json& graph = object(place_, module, "graph");
    const Json& signature = object(place_, module, "signature");
    if (const Json* ranges = find_member(parts_.json, "range_constraints")) {
      reader_.set_ranges(*ranges);
    }
    place_.detail = "";
    reader_.require_ops(graph);
    read_weights();
    read_trees(module);
    inputs(graph, signature);
    reader_.run(graph, std::move(values_));
    mutations();
    outputs(signature);
    ops::share_views(program_.graph);
    graph::verify(program_.graph);
    return std::move(program_);
  }

 private:
  void check_version() {
    const Json& version = object(place_, parts_.json, "schema_version");
    const std::int64_t major = integer(place_, member(place_, version, "major"));
    if (major != 8) unsupported("{}: schema version {}, only 8 is known", place_.file, major);
    if (const Json* torch = find_member(parts_.json, "torch_version")) {
      program_.torch_version = text(place_, *torch);
    }
  }

  void read_weights() {
    const std::string data = parts_.root + "data/";
    const std::string weights = data + "weights/";
    const std::string constants = data + "constants/";
    const auto read = [&](const std::string& folder, const std::string& suffix) {
      const std::string config = folder + parts_.model + suffix;
      if (archive_.find(config) == nullptr &&
          archive_.find(folder + parts_.model + ".pt") != nullptr) {
        unsupported(
            "{}: the weights are a pickle, which is never read; save the program again with "
            "torch 2.11 or later",
            place_.file);
      }
      payloads_.merge(read_payloads(archive_, folder, config));
    };
    read(weights, "_weights_config.json");
    read(constants, "_constants_config.json");
  }

  void read_trees(const Json& module) {
    const Json* calls = find_member(module, "module_call_graph");
    if (calls == nullptr || !calls->is_array() || calls->empty()) return;
    const Json* signature = find_member((*calls)[0], "signature");
    if (signature == nullptr) return;
    if (const Json* tree = find_member(*signature, "in_spec")) {
      program_.input_tree = text(place_, *tree);
    }
    if (const Json* tree = find_member(*signature, "out_spec")) {
      program_.output_tree = text(place_, *tree);
    }
  }

  // --- Inputs -----------------------------------------------------------------------------------

  void inputs(const Json& graph, const Json& signature) {
    const Json& metas = object(place_, graph, "tensor_values");
    std::size_t number = 0;
    for (const Json& spec : array(place_, signature, "input_specs")) {
      place_.detail = fmt::format("input {}", number++);
      const auto [kind, value] = union_value(place_, spec);
      if (kind == "user_input") {
        user_input(metas, object(place_, graph, "sym_int_values"), member(place_, *value, "arg"));
      } else if (kind == "parameter") {
        weight(metas, *value, "parameter_name", false);
      } else if (kind == "buffer") {
        weight(metas, *value, "buffer_name", false);
      } else if (kind == "tensor_constant") {
        weight(metas, *value, "tensor_constant_name", true);
      } else if (kind == "constant_input") {
        const std::string& name = text(place_, member(place_, *value, "name"));
        define(name, constant(member(place_, *value, "value")));
      } else {
        unsupported("{}: {}: an input of kind {}", place_.file, place_.detail, kind);
      }
    }
    place_.detail = "";
  }

  Operand constant(const Json& json) {
    const auto [kind, value] = union_value(place_, json);
    if (kind == "as_int") return program_.graph.context().constant(integer(place_, *value));
    if (kind == "as_float") return real(place_, *value);
    if (kind == "as_bool") return boolean(place_, *value);
    if (kind == "as_string") return text(place_, *value);
    return graph::None{};
  }

  void define(const std::string& name, Operand value) {
    if (!values_.emplace(name, std::move(value)).second) {
      place_.fail(fmt::format("two inputs are named \"{}\"", name));
    }
  }

  // Names of inputs are printed in graphs as text and given on command lines.
  void check_name(const std::string& name) const {
    const auto is_word = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    const bool is_name = !name.empty() && (name[0] < '0' || name[0] > '9') &&
                         std::all_of(name.begin(), name.end(), is_word);
    if (!is_name) place_.fail("an input's name is no identifier");
  }

  void add_input(const std::string& name, graph::Type type, bool is_parameter, ProgramInput input) {
    check_name(name);
    const auto at = static_cast<std::uint32_t>(program_.graph.inputs.size());
    const ValueId value = program_.graph.add_value(std::move(type));
    program_.graph.inputs.push_back({name, value, {}, is_parameter});
    program_.inputs.push_back(std::move(input));
    define(name, reader_.storages().make_input(value, at));
  }

  // An integer that varies: a symbol of the graph.
  void integer_input(const Json& sizes, const std::string& name) {
    place_.detail += fmt::format(" \"{}\"", name);
    check_name(name);
    const Expr symbol = reader_.size(member(place_, sizes, name.c_str()));
    if (symbol.kind() != sym::Kind::symbol) {
      unsupported("{}: {}: an integer that is an expression", place_.file, place_.detail);
    }
    program_.graph.inputs.push_back({name, {}, symbol, false});
    program_.inputs.push_back({ProgramInput::Kind::user, name, {}});
    define(name, symbol);
  }

  void user_input(const Json& metas, const Json& sizes, const Json& argument) {
    const auto [kind, value] = union_value(place_, argument);
    if (kind == "as_tensor") {
      const std::string& name = text(place_, member(place_, *value, "name"));
      place_.detail += fmt::format(" \"{}\"", name);
      add_input(name, reader_.type(member(place_, metas, name.c_str())), false,
                {ProgramInput::Kind::user, name, {}});
    } else if (kind == "as_sym_int") {
      integer_input(sizes, text(place_, member(place_, *value, "as_name")));
    } else if (kind != "as_none" && kind != "as_int" && kind != "as_bool" && kind != "as_float" &&
               kind != "as_string") {
      unsupported("{}: {}: an argument of kind {}", place_.file, place_.detail, kind);
    }
  }

  void weight(const Json& metas, const Json& spec, const char* key, bool is_constant) {
    const std::string& name = text(place_, member(place_, member(place_, spec, "arg"), "name"));
    const std::string& target = text(place_, member(place_, spec, key));
    place_.detail += fmt::format(" \"{}\"", target);
    const auto found = payloads_.find(target);
    if (found == payloads_.end()) place_.fail("the archive lacks its data");
    const TensorData& tensor = found->second.tensor;
    graph::Type type = reader_.type(member(place_, metas, name.c_str()));
    const auto equals = [](const std::vector<Expr>& a, const std::vector<std::int64_t>& b) {
      return a.size() == b.size() &&
             std::equal(a.begin(), a.end(), b.begin(),
                        [](Expr e, std::int64_t n) { return e.is_constant(n); });
    };
    if (type.dtype != tensor.dtype || !equals(type.sizes, tensor.sizes)) {
      place_.fail("its data have another dtype or other sizes than the graph says");
    }
    type.device = {};
    type.strides = std::vector<Expr>();
    for (const std::int64_t s : tensor.strides) {
      type.strides->push_back(program_.graph.context().constant(s));
    }
    const auto bytes = dense_bytes(tensor.dtype, tensor.sizes);
    const bool is_small = bytes && *bytes <= kLiteralLimit;
    if (options_.freeze || (is_constant && is_small)) {
      literal(name, std::move(type), tensor);
      return;
    }
    add_input(name, std::move(type), true, {ProgramInput::Kind::weight, target, tensor});
    members_.push_back(found->second.member);
    weights_.push_back(static_cast<std::uint32_t>(program_.graph.inputs.size() - 1));
  }

  void literal(const std::string& name, graph::Type type, const TensorData& tensor) {
    const TensorData dense = rearranged(tensor.view());
    const auto size = static_cast<std::size_t>(*dense_bytes(dense.dtype, dense.sizes));
    auto bytes = std::make_shared<std::vector<std::byte>>(dense.data, dense.data + size);
    type.strides = graph::contiguous_strides(program_.graph.context(), type.sizes);
    const ValueId value = program_.graph.add_value(std::move(type));
    program_.graph.constants.emplace_back(
        value, graph::ConstantData{dense.dtype, dense.sizes, std::move(bytes)});
    // Numbers beyond the inputs tell writes to literals, which have nowhere to go.
    define(name, reader_.storages().make_input(value, kLiteral));
  }

  // --- Outputs ----------------------------------------------------------------------------------

  void mutations() {
    graph::Builder builder(program_.graph);
    for (const Storages::Mutation& m : reader_.storages().mutations()) {
      if (m.input == kLiteral) unsupported("{}: the program writes to a constant", place_.file);
      const auto weight = std::find(weights_.begin(), weights_.end(), m.input);
      if (weight != weights_.end()) {
        const std::string& own = members_[static_cast<std::size_t>(weight - weights_.begin())];
        if (std::count(members_.begin(), members_.end(), own) > 1) {
          unsupported("{}: the program writes to weights that share memory", place_.file);
        }
      }
      reader_.storages().written(m.input, builder.node("copy_", {m.before, m.after}));
    }
  }

  void outputs(const Json& signature) {
    std::size_t number = 0;
    std::vector<TensorId> returned;
    for (const Json& spec : array(place_, signature, "output_specs")) {
      place_.detail = fmt::format("output {}", number++);
      const auto [kind, value] = union_value(place_, spec);
      if (kind != "user_output") continue;
      const Operand result = reader_.output(member(place_, *value, "arg"));
      if (const auto* t = std::get_if<TensorId>(&result)) returned.push_back(*t);
    }
    reader_.storages().settle(returned);
    number = 0;
    for (const Json& spec : array(place_, signature, "output_specs")) {
      place_.detail = fmt::format("output {}", number++);
      const auto [kind, value] = union_value(place_, spec);
      if (kind == "user_output") {
        user_output(member(place_, *value, "arg"));
      } else if (kind == "loss_output") {
        user_output({{"as_tensor", member(place_, *value, "arg")}});
      } else if (kind == "buffer_mutation" || kind == "parameter_mutation" ||
                 kind == "user_input_mutation") {
        written(*value, std::string(kind));
      } else {
        unsupported("{}: {}: an output of kind {}", place_.file, place_.detail, kind);
      }
    }
    place_.detail = "";
  }

  void user_output(const Json& argument) {
    const Operand result = reader_.output(argument);
    const auto [kind, value] = union_value(place_, argument);
    const Json* name = value->is_object()
                           ? find_member(*value, kind == "as_tensor" ? "name" : "as_name")
                           : nullptr;
    program_.outputs.push_back(name != nullptr ? text(place_, *name)
                                               : fmt::format("output{}", program_.outputs.size()));
    if (const auto* t = std::get_if<TensorId>(&result)) {
      const ValueId v = reader_.storages().read(*t);
      reader_.fix_strides(v, argument);
      program_.graph.outputs.push_back({v});
    } else if (const auto* e = std::get_if<Expr>(&result)) {
      program_.graph.outputs.push_back({*e});
    } else {
      program_.graph.outputs.push_back({graph::None{}});
    }
  }

  // A functional program's new contents of an input.
  void written(const Json& spec, const std::string& kind) {
    const char* key = kind == "buffer_mutation"      ? "buffer_name"
                      : kind == "parameter_mutation" ? "parameter_name"
                                                     : "user_input_name";
    const std::string& target = text(place_, member(place_, spec, key));
    const Operand result = reader_.output({{"as_tensor", member(place_, spec, "arg")}});
    const auto* t = std::get_if<TensorId>(&result);
    if (t == nullptr) place_.fail("a tensor is due");
    for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
      if (program_.inputs[i].name != target) continue;
      graph::Builder builder(program_.graph);
      (void)builder.node("copy_", {program_.graph.inputs[i].value, reader_.storages().read(*t)});
      return;
    }
    place_.fail(fmt::format("\"{}\" is no input", target));
  }

  static constexpr std::uint32_t kLiteral = ~std::uint32_t{0};

  ImportOptions options_;
  SourceLocation place_;
  ZipArchive archive_;
  Parts parts_;
  Program program_;
  GraphReader reader_;
  PayloadMap payloads_;
  std::map<std::string, Operand> values_;
  std::vector<std::uint32_t> weights_;  // numbers of inputs, and the members they lie in
  std::vector<std::string> members_;
};

}  // namespace

Program import_pt2(std::shared_ptr<MappedFile> file, const ImportOptions& options) {
  const std::string prefix = file->name() + ": ";
  try {
    return ProgramReader(std::move(file), options).run();
  } catch (const UserError& e) {
    if (e.message().starts_with(prefix)) throw;
    throw UserError(prefix + e.message());
  } catch (const Unsupported& e) {
    if (e.message().starts_with(prefix)) throw;
    throw Unsupported(prefix + e.message());
  } catch (const Json::exception& e) {
    throw UserError(prefix + e.what());
  }
}

Program import_pt2(const std::string& path, const ImportOptions& options) {
  return import_pt2(MappedFile::open(path), options);
}

}  // namespace inkle::frontend::pt2
