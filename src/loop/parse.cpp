// Programs from text, as print.cpp writes it.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "loop/parse_nest.h"
#include "loop/program.h"

namespace inkle::loop {
namespace {

using sym::Context;

class ProgramParser {
 public:
  ProgramParser(std::string_view text, std::string_view file) : s_(text, file) {
    program_.context = std::make_shared<Context>();
  }

  Program run() {
    s_.expect("loops");
    s_.expect("@");
    program_.name = s_.identifier();
    s_.expect("{");
    if (keyword("symbols")) symbols();
    if (keyword("arguments")) arguments();
    while (keyword("data")) data();
    while (!keyword("return")) declaration();
    if (!s_.next_is("}")) outputs();
    s_.expect("}");
    if (!s_.at_end()) s_.fail("text after the program");
    bind_arguments();
    return std::move(program_);
  }

 private:
  // The word, unless it is the name of something declared here.
  bool keyword(std::string_view word) {
    const Scanner::Mark start = s_.mark();
    if (!s_.accept(word)) return false;
    if (!s_.next_is(":")) return true;
    s_.reset(start);
    return false;
  }

  void symbols() {
    do {
      const std::string name(s_.identifier());
      sym::SymbolInfo info;
      s_.expect("in");
      if (s_.next_is_number()) info.range.low = s_.integer();
      s_.expect("..");
      if (s_.next_is_number()) info.range.high = s_.integer();
      if (s_.accept("divisor")) info.divisor = s_.integer();
      if (s_.accept("hint")) info.hint = s_.integer();
      sizes_.push_back(program_.context->symbol(name, info));
    } while (s_.accept(","));
  }

  void arguments() {
    do {
      Argument argument{.name = std::string(s_.identifier())};
      std::string buffer = argument.name;
      if (s_.accept(":")) {
        s_.expect("int");
        buffer.clear();
        if (s_.accept("=")) {
          argument.symbol = sym::parse(s_, *program_.context);
        } else {
          const auto symbol = program_.context->find_symbol(argument.name);
          if (!symbol) s_.fail(fmt::format("no symbol '{}'", argument.name));
          argument.symbol = *symbol;
        }
      } else if (s_.accept("=")) {
        buffer = s_.identifier();
      }
      program_.arguments.push_back(std::move(argument));
      argument_buffers_.push_back(std::move(buffer));
    } while (s_.accept(","));
  }

  void bind_arguments() {
    for (std::size_t i = 0; i < program_.arguments.size(); ++i) {
      if (argument_buffers_[i].empty()) continue;
      program_.arguments[i].buffer = find(argument_buffers_[i]);
    }
  }

  BufferId find(const std::string& name) const {
    const auto it = buffers_.find(name);
    if (it == buffers_.end()) s_.fail(fmt::format("no buffer '{}'", name));
    return it->second;
  }

  void data() {
    if (s_.integer() != static_cast<std::int64_t>(program_.constants.size())) {
      s_.fail("data out of order");
    }
    const std::string hex = s_.quoted();
    auto bytes = std::make_shared<std::vector<std::byte>>();
    const auto digit = [&](char c) -> unsigned {
      if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
      if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
      s_.fail("malformed data");
    };
    if (hex.size() % 2 != 0) s_.fail("malformed data");
    for (std::size_t i = 0; i < hex.size(); i += 2) {
      bytes->push_back(static_cast<std::byte>(digit(hex[i]) * 16 + digit(hex[i + 1])));
    }
    program_.constants.push_back({std::move(bytes)});
  }

  void declaration() {
    const std::string name(s_.identifier());
    s_.expect(":");
    const Scanner::Mark start = s_.mark();
    const std::string_view word = s_.identifier();
    const bool is_buffer = word == "input" || word == "output" || word == "constant" ||
                           (abi::dtype_from_name(word) && s_.next_is("["));
    s_.reset(start);
    if (is_buffer) {
      buffer(name);
    } else {
      program_.nests.push_back(parse_nest(s_, program_, buffers_, sizes_));
    }
  }

  void buffer(const std::string& name) {
    Buffer b{.name = name};
    std::string_view word = s_.identifier();
    if (!abi::dtype_from_name(word)) {
      b.role = word == "input"    ? BufferRole::input
               : word == "output" ? BufferRole::output
                                  : BufferRole::constant;
      b.index = parse_count(s_);
      word = s_.identifier();
    }
    b.dtype = dtype_named(s_, word);
    s_.expect("[");
    b.sizes = parse_expressions(s_, *program_.context, "]");
    if (s_.accept("{")) b.strides = parse_expressions(s_, *program_.context, "}");
    if (s_.accept("cuda")) {
      b.device = {abi::DeviceKind::cuda, static_cast<std::int32_t>(parse_count(s_))};
    }
    if (s_.accept("offset")) b.offset = sym::parse(s_, *program_.context);
    b.is_parameter = s_.accept("param");
    if (s_.accept("writes_into")) b.writes_into = find(std::string(s_.identifier()));
    const BufferId id = program_.add_buffer(std::move(b));
    if (!buffers_.emplace(name, id).second) s_.fail(fmt::format("two buffers '{}'", name));
  }

  void outputs() {
    do {
      ProgramOutput o;
      if (s_.accept("none")) {
        o.kind = ProgramOutput::Kind::none;
      } else if (s_.accept("int")) {
        o.kind = ProgramOutput::Kind::integer;
        o.integer = sym::parse(s_, *program_.context);
      } else {
        if (s_.accept("input")) o.kind = ProgramOutput::Kind::input;
        o.buffer = find(std::string(s_.identifier()));
        s_.expect("[");
        o.sizes = parse_expressions(s_, *program_.context, "]");
        s_.expect("{");
        o.strides = parse_expressions(s_, *program_.context, "}");
        o.offset =
            s_.accept("offset") ? sym::parse(s_, *program_.context) : program_.context->constant(0);
      }
      program_.outputs.push_back(std::move(o));
    } while (s_.accept(","));
  }

  Scanner s_;
  Program program_;
  std::vector<Expr> sizes_;
  std::map<std::string, BufferId> buffers_;
  std::vector<std::string> argument_buffers_;
};

}  // namespace

Program parse_program(std::string_view text, std::string_view file) {
  Program program = ProgramParser(text, file).run();
  try {
    verify(program);
  } catch (const InternalError& e) {
    // What a text says wrongly is its author's mistake.
    user_error("{}: {}", file, e.what());
  }
  return program;
}

}  // namespace inkle::loop
