// Parts of the page that inspect_page puts together; each is HTML.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "driver/inspect_facts.h"

namespace inkle::driver {

// Text for HTML, also inside of a quoted attribute.
[[nodiscard]] std::string escaped(std::string_view text);

// Numbers for people, three digits: "1.23 ms", "45.6 MB", "7.89 G". Decimal units; HTML.
[[nodiscard]] std::string time_text(double microseconds);
[[nodiscard]] std::string bytes_text(double bytes);
[[nodiscard]] std::string count_text(double count);
[[nodiscard]] std::string percent_text(double fraction);

// A cell or value that is not known.
inline constexpr std::string_view kUnknown = "<span class=\"dim\">–</span>";

// What every part needs.
struct Page {
  const Inspection& in;
  const InspectFacts& facts;

  [[nodiscard]] const StepReport* step_report(std::size_t s) const {
    return s < in.report.steps.size() ? &in.report.steps[s] : nullptr;
  }
  [[nodiscard]] std::string kind(std::size_t s) const;    // "kernel", "matmul", ...
  [[nodiscard]] std::string name(std::size_t s) const;    // kernel's name, else the kind
  [[nodiscard]] std::string label(std::size_t s) const;   // ops, joined by "+"
  [[nodiscard]] std::string source(std::size_t s) const;  // lines, joined by ", "
  [[nodiscard]] std::string buffer_name(abi::PlanBuffer b) const;
};

// Parts of `text` between occurrences of `separator`, without empty ones.
[[nodiscard]] std::vector<std::string> parts_of(std::string_view text, std::string_view separator);

// A foldable text with one line for each of its own; `summary` is HTML.
[[nodiscard]] std::string folded(std::string_view summary, const std::string& body,
                                 bool is_open = false);
// Graph, loop, kernel and plan text with line numbers, source lines that can be pointed at.
[[nodiscard]] std::string code_block(std::string_view text);
// The same without either, for long listings.
[[nodiscard]] std::string plain_block(std::string_view text);
// Source lines as chips; a click marks their lines in the graph.
[[nodiscard]] std::string source_chips(std::string_view sources);

[[nodiscard]] std::string_view page_style();
[[nodiscard]] std::string_view page_script();

// inspect_charts.cpp
[[nodiscard]] std::string stage_chart(const Page& page);
[[nodiscard]] std::string share_chart(const Page& page);
[[nodiscard]] std::string memory_chart(const Page& page);

// inspect_sections.cpp
[[nodiscard]] std::string steps_section(const Page& page);
[[nodiscard]] std::string fusion_section(const Page& page);
[[nodiscard]] std::string kernels_section(const Page& page);
[[nodiscard]] std::string texts_section(const Page& page);

}  // namespace inkle::driver
