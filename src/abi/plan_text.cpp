#include "abi/plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <concepts>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "abi/plan_fields.h"
#include "abi/plan_names.h"
#include "base/error.h"
#include "base/text.h"

namespace inkle::abi {
namespace {

using Action = decltype(PlanStep::action);

template <class T>
concept Number = std::integral<T> && !std::same_as<T, bool>;
template <class T>
concept Named = std::is_enum_v<T>;

template <Named E>
std::string_view text_of(E value) {
  if constexpr (std::same_as<E, DType> || std::same_as<E, PostOpKind>) {
    return name_of(value);
  } else {
    return names_of(E())[static_cast<std::size_t>(value)];
  }
}

template <Named E>
std::optional<E> value_of(std::string_view text) {
  if constexpr (std::same_as<E, DType>) {
    return dtype_from_name(text);
  } else if constexpr (std::same_as<E, PostOpKind>) {
    for (int k = 0; k <= static_cast<int>(PostOpKind::mul); ++k) {
      if (name_of(static_cast<PostOpKind>(k)) == text) return static_cast<PostOpKind>(k);
    }
  } else {
    const auto names = names_of(E());
    const auto at = std::find(names.begin(), names.end(), text);
    if (at != names.end()) return static_cast<E>(at - names.begin());
  }
  return {};
}

class Writer {
 public:
  std::string text;

  // Fields of a record, those alone that are not as in a new one.
  template <class T>
  void record(T& value) {
    visit_fields(*this, value);
  }

  template <Number T>
  void field(std::string_view name, T& value) {
    if (value != default_of<T>(name)) put(name, fmt::format("{}", value));
  }
  void field(std::string_view name, bool& value) {
    if (value) put(name);
  }
  void field(std::string_view name, double& value) {
    const double usual = name == "scale" ? 1 : 0;
    if (std::bit_cast<std::uint64_t>(value) != std::bit_cast<std::uint64_t>(usual)) {
      put(name, print_double(value));
    }
  }
  void field(std::string_view name, std::string& value) {
    if (!value.empty()) put(name, quote(value));
  }
  template <Named E>
  void field(std::string_view name, E& value) {
    if (value != default_of<E>(name)) put(name, text_of(value));
  }
  template <class T>
  void field(std::string_view name, std::optional<T>& value) {
    if (!value) return;
    if constexpr (Number<T>) {
      put(name, fmt::format("{}", *value));
    } else {
      put(name, nested(*value));
    }
  }
  template <class T>
  void field(std::string_view name, std::vector<T>& list) {
    if (list.empty()) return;
    std::string items;
    for (T& one : list) {
      if (!items.empty()) items += ",";
      if constexpr (Number<T>) {
        items += fmt::format("{}", one);
      } else {
        items += nested(one);
      }
    }
    put(name, "[" + items + "]");
  }
  void field(std::string_view /*name*/, Action& action) {
    std::visit([this](auto& a) { alternative(a); }, action);
  }
  template <class T>
  void field(std::string_view name, T& value) {
    if (std::string inner = nested(value); inner != "()") put(name, inner);
  }

  template <class T>
  void lines(std::string_view name, std::vector<T>& list) {
    for (T& one : list) {
      text += "\n";
      text += name;
      record(one);
    }
  }

  // What a field of this name and type is in a new record.
  template <class T>
  static T default_of(std::string_view name) {
    if constexpr (Number<T>) {
      const bool is_one =
          name == "alignment" || name == "threads" || name == "cluster" || name == "groups";
      return is_one ? T{1} : T{0};
    } else if constexpr (std::same_as<T, DType>) {
      return DType::f32;
    } else if constexpr (std::same_as<T, BufferDecl::Kind>) {
      return BufferDecl::Kind::arena;
    } else {
      return T{};
    }
  }

 private:
  void put(std::string_view name) {
    if (!text.empty() && text.back() != '(') text += " ";
    text += name;
  }
  void put(std::string_view name, std::string_view value) {
    put(name);
    text += "=";
    text += value;
  }
  template <class T>
  static std::string nested(T& value) {
    Writer inner;
    inner.record(value);
    return "(" + inner.text + ")";
  }
  void alternative(LibraryCall& call) {
    std::visit([this](auto& c) { alternative(c); }, call);
  }
  template <class T>
  void alternative(T& action) {
    put(name_of_action(static_cast<const T*>(nullptr)), nested(action));
  }
};

// Reads one record: asks each field whether it has the name that comes next.
class Reader {
 public:
  explicit Reader(Scanner& scanner) : scanner_(scanner) {}

  Plan plan() {
    Plan made;
    scanner_.expect("plan");
    header(made);
    while (!scanner_.at_end()) {
      line_ = scanner_.identifier();
      name_ = {};
      is_known_ = false;
      visit_fields(*this, made);
      if (!is_known_) scanner_.fail(fmt::format("no plan has a line '{}'", line_));
    }
    return made;
  }

  template <Number T>
  void field(std::string_view name, T& value) {
    if (takes(name)) value = number<T>();
  }
  void field(std::string_view name, bool& value) {
    if (takes(name, false)) value = true;
  }
  void field(std::string_view name, double& value) {
    if (!takes(name)) return;
    bool is_integer = false;
    std::int64_t integer = 0;
    value = scanner_.number(is_integer, integer);
    if (is_integer) value = static_cast<double>(integer);
  }
  void field(std::string_view name, std::string& value) {
    if (takes(name)) value = scanner_.quoted();
  }
  template <Named E>
  void field(std::string_view name, E& value) {
    if (!takes(name)) return;
    const std::string_view text = scanner_.identifier();
    const std::optional<E> read = value_of<E>(text);
    if (!read) scanner_.fail(fmt::format("{} is no {}", text, name));
    value = *read;
  }
  template <class T>
  void field(std::string_view name, std::optional<T>& value) {
    if (takes(name)) value = one<T>();
  }
  template <class T>
  void field(std::string_view name, std::vector<T>& list) {
    if (!takes(name)) return;
    scanner_.expect("[");
    while (!scanner_.accept("]")) {
      if (!list.empty()) scanner_.expect(",");
      list.push_back(one<T>());
    }
  }
  void field(std::string_view /*name*/, Action& action) {
    alternative<Launch>(action);
    alternative<MatmulCall>(action);
    alternative<ConvolutionCall>(action);
    alternative<AttentionCall>(action);
    alternative<EagerCall>(action);
    alternative<CopyStep>(action);
    alternative<Branch>(action);
    alternative<Loop>(action);
    alternative<RegionCall>(action);
  }
  template <class T>
  void field(std::string_view name, T& value) {
    if (takes(name)) value = one<T>();
  }

  // Of a line of the plan that has been begun.
  template <class T>
  void lines(std::string_view name, std::vector<T>& list) {
    if (name != line_ || is_known_) return;
    list.push_back(fields<T>());
    is_known_ = true;
  }

 private:
  void header(Plan& made) {
    while (next_field()) {
      is_known_ = false;
      visit_fields(*this, made);
      if (!is_known_) scanner_.fail(fmt::format("no plan has a field '{}'", name_));
    }
  }

  // `name=` or, of what is true, `name`; not the word that begins the next line.
  bool next_field() {
    static constexpr std::string_view kLines[] = {
        "argument", "size", "guard", "constant", "kernel", "buffer", "step", "region", "output"};
    const Scanner::Mark before = scanner_.mark();
    const auto word = scanner_.accept_identifier();
    if (!word) return false;
    name_ = *word;
    has_value_ = scanner_.accept("=");
    if (!has_value_ && std::find(std::begin(kLines), std::end(kLines), name_) != std::end(kLines)) {
      scanner_.reset(before);
      return false;
    }
    return true;
  }
  bool takes(std::string_view name, bool with_value = true) {
    if (is_known_ || name != name_ || with_value != has_value_) return false;
    return is_known_ = true;
  }

  template <class T>
  T fields() {
    T made{};
    const std::string_view line = std::exchange(line_, {});
    while (next_field()) {
      is_known_ = false;
      visit_fields(*this, made);
      if (!is_known_) scanner_.fail(fmt::format("there is no field '{}' here", name_));
    }
    line_ = line;
    return made;
  }
  template <class T>
  T one() {
    if constexpr (Number<T>) {
      return number<T>();
    } else {
      if (++depth_ > kMostDepth) scanner_.fail("records in records in records");
      scanner_.expect("(");
      T made = fields<T>();
      scanner_.expect(")");
      --depth_;
      is_known_ = true;  // the field that it is the value of
      return made;
    }
  }
  template <Number T>
  T number() {
    const std::int64_t value = scanner_.integer();
    if (!std::in_range<T>(value)) scanner_.fail(fmt::format("{} is out of range", value));
    return static_cast<T>(value);
  }
  template <class T>
  void alternative(Action& action) {
    if (!takes(name_of_action(static_cast<const T*>(nullptr)))) return;
    if constexpr (std::is_constructible_v<LibraryCall, T>) {
      action = LibraryCall(one<T>());
    } else {
      action = one<T>();
    }
  }

  static constexpr int kMostDepth = 16;
  Scanner& scanner_;
  std::string_view line_;  // that is being read, while its record has not begun
  std::string_view name_;  // of the field that is being read
  bool has_value_ = false;
  bool is_known_ = false;
  int depth_ = 0;
};

}  // namespace

std::string print_plan(const Plan& plan) {
  Plan copy = plan;  // visitors may write
  Writer writer;
  writer.text = "plan";
  writer.record(copy);
  return writer.text + "\n";
}

Plan parse_plan(std::string_view text, std::string_view file) {
  Scanner scanner(text, file);
  return Reader(scanner).plan();
}

}  // namespace inkle::abi
