// Text to HTML: escaping, numbers, listings.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "driver/inspect_parts.h"

namespace inkle::driver {
namespace {

// `value` with the largest of the units (a factor of 1000 each) that keeps it at one or more.
std::string scaled(double value, std::span<const std::string_view> units) {
  std::size_t unit = 0;
  while (unit + 1 < units.size() && std::abs(value) >= 999.5) {
    value /= 1000;
    ++unit;
  }
  const int digits = std::abs(value) >= 99.95 ? 0 : std::abs(value) >= 9.995 ? 1 : 2;
  const bool is_whole = unit == 0 && value == std::floor(value);
  return fmt::format("{:.{}f}{}", value, is_whole ? 0 : digits, units[unit]);
}

// Length of the well-formed UTF-8 sequence at the start of `text`, 0 if there is none.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  }
  const bool is_overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool is_surrogate = first == 0xED && byte(1) >= 0xA0;
  const bool is_too_large = first == 0xF4 && byte(1) >= 0x90;
  return is_overlong || is_surrogate || is_too_large ? 0 : length;
}

// Where the comment of a line with its two leading blanks starts, or npos.
std::size_t comment_at(std::string_view line) {
  const std::size_t at = line.rfind("  # ");
  if (at != line.npos) return at;
  return line.starts_with("# ") ? 0 : line.npos;
}

std::string code_line(std::string_view line) {
  const std::size_t comment = comment_at(line);
  std::string_view code = line.substr(0, comment);
  std::string attribute;
  std::string tail;
  if (comment != line.npos) {
    const std::string_view text = line.substr(comment);
    std::string_view source = text.substr(text.find('#') + 1);
    source.remove_prefix(std::min(source.find_first_not_of(' '), source.size()));
    attribute = fmt::format(" data-s=\"{}\"", escaped(source));
    tail = fmt::format("<i>{}</i>", escaped(text));
  }
  // The op: what stands between "= " and "(".
  std::string body;
  const std::size_t equals = code.find(" = ");
  const std::size_t open = equals == code.npos ? code.npos : code.find('(', equals);
  if (open != code.npos) {
    body = fmt::format("{}<b>{}</b>{}", escaped(code.substr(0, equals + 3)),
                       escaped(code.substr(equals + 3, open - equals - 3)),
                       escaped(code.substr(open)));
  } else {
    body = escaped(code);
  }
  return fmt::format("<span{}>{}{}\n</span>", attribute, body, tail);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = sequence_length(text.substr(i));
    const char c = text[i];
    if (length == 0 ||
        (length == 1 && static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t')) {
      result += "\xEF\xBF\xBD";  // the replacement character
    } else if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '"') {
      result += "&quot;";
    } else if (c == '\'') {
      result += "&#39;";
    } else {
      result += text.substr(i, length);
    }
    i += length == 0 ? 1 : length;
  }
  return result;
}

std::string time_text(double microseconds) {
  static constexpr std::array<std::string_view, 3> kUnits = {" µs", " ms", " s"};
  return scaled(microseconds, kUnits);
}

std::string bytes_text(double bytes) {
  static constexpr std::array<std::string_view, 5> kUnits = {" B", " KB", " MB", " GB", " TB"};
  return scaled(bytes, kUnits);
}

std::string count_text(double count) {
  static constexpr std::array<std::string_view, 5> kUnits = {"", " K", " M", " G", " T"};
  return scaled(count, kUnits);
}

std::string percent_text(double fraction) {
  if (fraction > 0 && fraction < 0.0005) return "&lt; 0.1 %";
  return fmt::format("{:.{}f} %", fraction * 100, fraction < 0.0995 ? 1 : 0);
}

std::vector<std::string> parts_of(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t at = text.find(separator);
    if (at != 0) parts.emplace_back(text.substr(0, at));
    if (at == text.npos) break;
    text.remove_prefix(at + separator.size());
  }
  return parts;
}

std::string folded(std::string_view summary, const std::string& body, bool is_open) {
  return fmt::format("<details{}><summary>{}</summary>{}</details>\n", is_open ? " open" : "",
                     summary, body);
}

std::string code_block(std::string_view text) {
  std::string lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines += code_line(text.substr(0, end));
    if (end == text.npos) break;
    text.remove_prefix(end + 1);
  }
  return fmt::format("<pre class=\"code\" tabindex=\"0\">{}</pre>\n", lines);
}

std::string plain_block(std::string_view text) {
  return fmt::format("<pre tabindex=\"0\">{}</pre>\n", escaped(text));
}

std::string source_chips(std::string_view sources) {
  std::string chips;
  for (const std::string& line : parts_of(sources, ", ")) {
    chips += fmt::format("<button type=\"button\" class=\"chip src\" data-go=\"{0}\">{0}</button>",
                         escaped(line));
  }
  return chips;
}

std::string Page::kind(std::size_t s) const {
  if (const StepReport* report = step_report(s); report != nullptr && !report->kind.empty()) {
    return report->kind;
  }
  const auto& action = in.plan->steps[s].action;
  if (std::holds_alternative<abi::Launch>(action)) return "kernel";
  if (std::holds_alternative<abi::EagerCall>(action)) return "eager";
  if (std::holds_alternative<abi::CopyStep>(action)) return "copy";
  if (abi::is_nested(in.plan->steps[s])) return "region";
  const auto& call = std::get<abi::LibraryCall>(action);
  return std::holds_alternative<abi::MatmulCall>(call) ? "matmul" : "convolution";
}

std::string Page::name(std::size_t s) const {
  if (const auto* launch = std::get_if<abi::Launch>(&in.plan->steps[s].action)) {
    return in.plan->kernels[launch->kernel].name;
  }
  return kind(s);
}

std::string Page::label(std::size_t s) const {
  const StepReport* report = step_report(s);
  return report == nullptr ? std::string() : report->label;
}

std::string Page::source(std::size_t s) const {
  const StepReport* report = step_report(s);
  return report == nullptr || report->source.empty() ? in.plan->steps[s].source : report->source;
}

std::string Page::buffer_name(abi::PlanBuffer b) const {
  const abi::BufferDecl& decl = in.plan->buffers[b];
  if (decl.kind == abi::BufferDecl::Kind::argument) return in.plan->arguments[decl.index].name;
  return decl.name.empty() ? fmt::format("b{}", b) : decl.name;
}

}  // namespace inkle::driver
