// Errors that name nodes of the user's program, and what collects them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace inkle {

// A node of the user's program, by the name that its frontend gave it (graph::Node::source), and
// what is wrong with it.
struct NodeFault {
  std::string node;
  std::string why;
  friend bool operator==(const NodeFault&, const NodeFault&) = default;
};

// An error of kind Kind, with the nodes that it is about.
template <class Kind>
class ErrorAt : public Kind {
 public:
  // Those of `error`, if it names any; all else as it is.
  explicit ErrorAt(const Kind& error) : Kind(error) {
    if (const auto* at = dynamic_cast<const ErrorAt*>(&error)) nodes_ = at->nodes_;
  }

  // A node that is there already keeps its reason.
  void add(const NodeFault& fault) {
    for (const NodeFault& known : nodes_) {
      if (known.node == fault.node) return;
    }
    nodes_.push_back(fault);
  }
  // One more, for the reason that the message tells.
  void add(std::string_view node) { add(NodeFault{std::string(node), this->message()}); }

  [[nodiscard]] const std::vector<NodeFault>& nodes() const { return nodes_; }

 private:
  std::vector<NodeFault> nodes_;
};

using UnsupportedAt = ErrorAt<Unsupported>;
using UserErrorAt = ErrorAt<UserError>;

// Of these nodes; empty names are left out.
template <class... Args>
[[noreturn]] void unsupported_at(std::span<const std::string> nodes,
                                 fmt::format_string<Args...> format, Args&&... args) {
  UnsupportedAt error(Unsupported(fmt::format(format, std::forward<Args>(args)...)));
  for (const std::string& node : nodes) {
    if (!node.empty()) error.add(node);
  }
  throw error;
}

// Runs `work`; its errors get a note, and name `node` unless that is empty.
template <class Work>
auto at_node(std::string_view node, std::string_view note, Work&& work) {
  const auto with_node = [&](auto error) {
    error.add_note(note);
    if (!node.empty()) error.add(node);
    return error;
  };
  try {
    return work();
  } catch (const Unsupported& error) {
    throw with_node(UnsupportedAt(error));
  } catch (const UserError& error) {
    throw with_node(UserErrorAt(error));
  } catch (Error& error) {
    error.add_note(note);
    throw;
  }
}

// What was found to be unsupported in several places, thrown as one error that names the nodes of
// all, so that the frontend leaves them to eager in one attempt.
class UnsupportedNodes {
 public:
  // Whether it went through; if not, what it threw is kept.
  template <class Work>
  bool run(Work&& work) {
    try {
      work();
      return true;
    } catch (const Unsupported& error) {
      add(error);
      return false;
    }
  }
  void add(const Unsupported& error);
  void add_note(std::string_view note);
  [[nodiscard]] bool empty() const { return !first_.has_value(); }
  // Throws the first error with the nodes of all; one that names no node, if there is such.
  void check() const;

 private:
  std::optional<UnsupportedAt> first_;
};

}  // namespace inkle
