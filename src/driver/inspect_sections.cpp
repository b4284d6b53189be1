// Sections of the page that list: steps, what was fused, kernels, texts of the stages.
#include <fmt/format.h>

#include <algorithm>

#include "driver/inspect_parts.h"

namespace inkle::driver {
namespace {

// "a+b+b+c" -> "a + b × 2 + c", HTML.
std::string ops_text(std::string_view label) {
  std::string text;
  const std::vector<std::string> ops = parts_of(label, "+");
  for (std::size_t i = 0; i < ops.size();) {
    std::size_t end = i;
    while (end < ops.size() && ops[end] == ops[i]) ++end;
    if (!text.empty()) text += " + ";
    text += escaped(ops[i]);
    if (end - i > 1) text += fmt::format(" × {}", end - i);
    i = end;
  }
  return text;
}

std::string sources_text(std::string_view sources) {
  constexpr std::size_t kShown = 4;
  const std::vector<std::string> lines = parts_of(sources, ", ");
  std::string text;
  for (std::size_t i = 0; i < std::min(lines.size(), kShown); ++i) {
    text += (text.empty() ? "" : ", ") + escaped(lines[i]);
  }
  if (lines.size() > kShown) text += fmt::format(" and {} more", lines.size() - kShown);
  return text;
}

template <class T, class Format>
std::string cell(const std::optional<T>& value, Format&& format) {
  if (!value) return fmt::format("<td data-v=\"\">{}</td>", kUnknown);
  return fmt::format("<td data-v=\"{}\">{}</td>", *value, format(static_cast<double>(*value)));
}

std::optional<double> rate(std::optional<std::int64_t> amount, std::optional<double> microseconds) {
  if (!amount || *amount == 0 || !microseconds || *microseconds <= 0) return std::nullopt;
  return static_cast<double>(*amount) / *microseconds * 1e6;
}

std::optional<double> limit_share(const StepFacts& f) {
  if (!f.limit_microseconds || !f.microseconds || *f.microseconds <= 0) return std::nullopt;
  return *f.limit_microseconds / *f.microseconds;
}

std::string meter(double share, std::string_view style) {
  return fmt::format("<span class=\"meter {}\"><i style=\"width:{:.1f}%\"></i></span>", style,
                     std::clamp(share, 0.0, 1.0) * 100);
}

std::string implementation(const Page& page, std::size_t s) {
  return s < page.in.implementations.size() ? page.in.implementations[s] : std::string();
}

std::string header(std::string_view name, std::string_view key, std::string_view style = {}) {
  return fmt::format(
      "<th scope=\"col\" class=\"{}\" data-key=\"{}\"><button type=\"button\">{}"
      "</button></th>",
      style, key, name);
}

std::string step_row(const Page& page, std::size_t s) {
  const StepFacts& f = page.facts.steps[s];
  const std::string kind = page.kind(s);
  const std::string name = page.name(s);
  const std::string library = implementation(page, s);
  std::string row = fmt::format(
      "<tr data-text=\"{} {} {} {} {}\"><td data-v=\"{}\">{}</td><td class=\"what\" "
      "data-v=\"{}\"><a href=\"#s{}\">{}</a>",
      escaped(name), escaped(kind), escaped(page.label(s)), escaped(page.source(s)),
      escaped(library), s, s, escaped(name), s, escaped(name));
  if (kind != name) row += fmt::format(" <span class=\"kind\">{}</span>", escaped(kind));
  if (!library.empty()) row += fmt::format(" <span class=\"kind\">{}</span>", escaped(library));
  if (f.prepare) row += " <span class=\"kind\">prepared once</span>";
  row += fmt::format("<span class=\"ops\">{}</span><span class=\"at\">{}</span></td>",
                     ops_text(page.label(s)), sources_text(page.source(s)));
  row += cell(f.microseconds, time_text);
  std::optional<double> share;
  if (f.microseconds && page.facts.microseconds > 0) {
    share = *f.microseconds / page.facts.microseconds;
  }
  row += cell(share, [](double v) { return percent_text(v) + meter(v, "share-bar"); });
  row += cell(f.bytes, bytes_text);
  row += cell(rate(f.bytes, f.microseconds), [](double v) { return bytes_text(v) + "/s"; });
  std::optional<double> flops = rate(f.flops, f.microseconds);
  row += cell(flops, [](double v) { return count_text(v) + "FLOP/s"; });
  row += cell(limit_share(f), [&](double v) {
    return fmt::format("{}{}<br><span class=\"dim\">{}</span>", percent_text(v),
                       meter(v, v < 0.5 ? "low" : ""), escaped(f.limit));
  });
  return row + "</tr>\n";
}

// The plan prints its steps one a line, after all declarations and before the results.
std::vector<std::string> plan_lines(const abi::Plan& plan) {
  std::vector<std::string> lines = parts_of(abi::to_string(plan), "\n");
  const std::size_t tail = 2;  // "return ...", "}"
  if (lines.size() < plan.steps.size() + tail) return {};
  lines.resize(lines.size() - tail);
  lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(plan.steps.size()));
  for (std::string& line : lines) {
    const std::size_t comment = line.rfind("  # ");
    if (comment != line.npos) line.resize(comment);
    line.erase(0, std::min(line.find_first_not_of(' '), line.size()));
  }
  return lines;
}

std::string_view place(abi::BufferDecl::Kind kind) {
  using Kind = abi::BufferDecl::Kind;
  switch (kind) {
    case Kind::argument:
      return "argument";
    case Kind::output:
      return "output";
    case Kind::arena:
      return "arena";
    case Kind::constant:
      return "constant";
    case Kind::external:
      return "eager";
    case Kind::alias:
      return "part of another";
    case Kind::formal:
      return "of a call";
    case Kind::prepared:
      return "prepared";
  }
  return "";
}

std::string buffer_chips(const Page& page, const abi::PlanStep& step) {
  std::string chips;
  for (const abi::PlanBuffer b : buffers_of(step)) {
    const abi::BufferDecl& decl = page.in.plan->buffers[b];
    const bool is_weight = decl.kind == abi::BufferDecl::Kind::argument &&
                           page.in.plan->arguments[decl.index].is_parameter;
    std::string text = escaped(page.buffer_name(b));
    text += fmt::format(" <span class=\"dim\">{}", is_weight ? "weight" : place(decl.kind));
    if (page.facts.has_sizes) {
      text += ", " + bytes_text(static_cast<double>(page.in.slots[decl.bytes]));
    }
    chips += fmt::format("<span class=\"chip\">{}</span></span>", text);
  }
  return chips;
}

std::string fact(std::string_view name, const std::string& html) {
  return html.empty() ? std::string() : fmt::format("<dt>{}</dt><dd>{}</dd>", name, html);
}

std::string step_card(const Page& page, std::size_t s, const std::vector<std::string>& lines) {
  const StepFacts& f = page.facts.steps[s];
  const abi::PlanStep& step = page.in.plan->steps[s];
  std::string ops;
  for (const std::string& op : parts_of(page.label(s), "+")) {
    ops += fmt::format("<span class=\"chip\">{}</span>", escaped(op));
  }
  std::string body = fact("ops", ops) + fact("from", source_chips(page.source(s)));
  if (const auto* launch = std::get_if<abi::Launch>(&step.action)) {
    const std::string name = escaped(page.in.plan->kernels[launch->kernel].name);
    body += fact("kernel", fmt::format("<a href=\"#k{}\">{}</a>", launch->kernel, name));
  }
  body += fact("library", escaped(implementation(page, s)));
  if (s < lines.size()) body += fact("runs as", "<code>" + escaped(lines[s]) + "</code>");
  body += fact("buffers", buffer_chips(page, step));
  std::string right = f.microseconds ? time_text(*f.microseconds) : std::string();
  if (f.prepare) right = "prepared once";
  return fmt::format(
      "<details class=\"step\" id=\"s{}\" data-text=\"{} {} {}\"><summary><span class=\"dim\">{}"
      "</span>&ensp;<b>{}</b>&ensp;{}<span class=\"right\">{}</span></summary><div "
      "class=\"body\"><dl class=\"facts\">{}</dl></div></details>\n",
      s, escaped(page.name(s)), escaped(page.label(s)), escaped(page.source(s)), s,
      escaped(page.name(s)), ops_text(page.label(s)), right, body);
}

// "fuse a + b  yes   reason" -> a row; what does not look so is a row of its own.
std::string decision_row(std::string_view line) {
  const std::size_t start = line.find("fuse ");
  const std::size_t yes = line.find("  yes  ");
  const std::size_t at = std::min(yes, line.find("  no  "));
  if (start == line.npos || at == line.npos || at < start) {
    return fmt::format("<tr><td class=\"left\" colspan=\"3\">{}</td></tr>\n", escaped(line));
  }
  std::string_view reason = line.substr(at + (at == yes ? 7 : 6));
  reason.remove_prefix(std::min(reason.find_first_not_of(' '), reason.size()));
  return fmt::format(
      "<tr><td class=\"left\">{}</td><td class=\"left {}\">{}</td><td "
      "class=\"what\">{}</td></tr>\n",
      escaped(line.substr(start + 5, at - start - 5)), at == yes ? "yes" : "no",
      at == yes ? "fused" : "apart", escaped(reason));
}

std::string decisions(const Page& page) {
  constexpr std::size_t kShown = 3000;
  const std::vector<std::string>& lines = page.in.fusion;
  if (lines.empty()) return {};
  std::size_t fused = 0;
  for (const std::string& line : lines) fused += line.find("  yes  ") != line.npos ? 1 : 0;
  std::string rows;
  for (std::size_t i = 0; i < std::min(lines.size(), kShown); ++i) rows += decision_row(lines[i]);
  std::string html =
      "<div class=\"body\"><div class=\"tools\"><input type=\"search\" placeholder=\"Search "
      "decisions\" aria-label=\"Search decisions\" data-filter=\"#decisions tbody tr\" "
      "data-count=\"decisions-count\"><span class=\"dim\" id=\"decisions-count\"></span></div>"
      "<div class=\"wide\"><table id=\"decisions\"><thead><tr><th class=\"left\">pair</th><th "
      "class=\"left\">decision</th><th class=\"what\">reason</th></tr></thead><tbody>" +
      rows + "</tbody></table></div>";
  if (lines.size() > kShown) {
    html +=
        fmt::format("<p class=\"note\">The first {} of {} decisions.</p>", kShown, lines.size());
  }
  return folded(fmt::format("Every decision: <b>{}</b> pairs fused, {} kept apart", fused,
                            lines.size() - fused),
                html + "</div>");
}

std::string kernel_card(const Page& page, std::size_t k) {
  const abi::KernelDecl& kernel = page.in.plan->kernels[k];
  const KernelFacts& f = page.facts.kernels[k];
  std::string launches;
  std::string ops;
  for (const std::size_t s : f.steps) {
    launches += fmt::format("<a class=\"chip\" href=\"#s{0}\">step {0}</a>", s);
    if (ops.empty()) ops = ops_text(page.label(s));
  }
  std::string right = fmt::format("{} launch{}", f.steps.size(), f.steps.size() == 1 ? "" : "es");
  if (f.microseconds > 0 && page.facts.microseconds > 0) {
    right += fmt::format(" · {} · {}", time_text(f.microseconds),
                         percent_text(f.microseconds / page.facts.microseconds));
  }
  const auto& schedules = page.in.report.schedules;
  std::string text;
  std::string schedule;
  for (const std::string& line : parts_of(k < schedules.size() ? schedules[k] : "", "\n")) {
    if (line.starts_with("schedule ")) {
      schedule = line.substr(9);
    } else {
      text += line + "\n";
    }
  }
  const KernelCodeText* code = k < page.in.report.code.size() ? &page.in.report.code[k] : nullptr;
  std::string body = fact("launched by", launches);
  if (!schedule.empty()) body += fact("schedule", "<code>" + escaped(schedule) + "</code>");
  if (code != nullptr && code->seconds > 0)
    body += fact("compiled in", time_text(code->seconds * 1e6));
  body = "<dl class=\"facts\">" + body + "</dl>" + code_block(text);
  if (!kernel.text.empty()) body += folded("Kernel IR", plain_block(kernel.text));
  const std::string* const source = page.in.code == nullptr || k >= page.in.code->sources.size()
                                        ? nullptr
                                        : page.in.code->sources[k].get();
  if (source != nullptr) body += folded("CUDA C++", plain_block(*source));
  if (source == nullptr && code != nullptr && !code->ir.empty())
    body += folded("LLVM IR", plain_block(code->ir));
  if (code != nullptr && !code->assembly.empty()) {
    body += folded("Assembly", plain_block(code->assembly));
  }
  return fmt::format(
      "<details class=\"kernel\" id=\"k{}\" data-text=\"{} {}\"><summary><b>{}</b>&ensp;{}<span "
      "class=\"right\">{}</span></summary><div class=\"body\">{}</div></details>\n",
      k, escaped(kernel.name), ops, escaped(kernel.name), ops, right, body);
}

std::string tools(std::string_view what, std::string_view filter, std::string_view id,
                  std::string_view fold) {
  std::string html = fmt::format(
      "<div class=\"tools\"><input type=\"search\" placeholder=\"Search {0}\" aria-label=\"Search "
      "{0}\" data-filter=\"{1}\" data-count=\"{2}\">",
      what, filter, id);
  if (!fold.empty()) {
    html +=
        fmt::format("<button type=\"button\" data-fold=\"{}\">Unfold or fold all</button>", fold);
  }
  return html + fmt::format("<span class=\"dim\" id=\"{}\"></span></div>\n", id);
}

std::string_view stage_title(std::string_view stage) {
  if (stage == "graph") return "Graph, as imported";
  if (stage == "passes") return "Graph, after the passes";
  if (stage == "loops") return "Loop nests";
  if (stage == "kernels") return "Fused kernels, with their schedules";
  if (stage == "plan") return "Plan";
  return stage;
}

}  // namespace

std::string steps_section(const Page& page) {
  std::string html = "<section id=\"steps\"><h2>Steps of a call</h2>\n";
  if (page.in.limits) {
    html +=
        "<p class=\"note\">Bytes count each element that a step reads or writes once. The limit is "
        "the longer of two times: bytes over the bandwidth of the level of memory that holds them, "
        "operations over the peak. The machine&#39;s limits are measured; a step may pass "
        "100&nbsp;% when its data lie nearer than assumed.</p>\n";
  }
  html += tools("steps", "#step-table tbody tr", "step-count", "");
  html += "<div class=\"wide\"><table id=\"step-table\"><thead><tr>" + header("#", "number") +
          header("step", "text", "what") + header("time", "number") + header("share", "number") +
          header("bytes", "number") + header("bandwidth", "number") + header("compute", "number") +
          header("of the limit", "number") + "</tr></thead><tbody>\n";
  for (const bool prepare : {false, true}) {  // what runs in every call comes first
    for (std::size_t s = 0; s < page.facts.steps.size(); ++s) {
      if (page.facts.steps[s].prepare == prepare) html += step_row(page, s);
    }
  }
  return html + "</tbody></table></div></section>\n";
}

std::string fusion_section(const Page& page) {
  std::string html =
      "<section id=\"fusion\"><h2>What was fused into what</h2>\n<p class=\"note\">Each step with "
      "the ops it came from. A source line, when pressed, marks its ops in the graph.</p>\n";
  html += tools("fused steps", "#fusion details.step", "fusion-count", "#fusion details.step");
  const std::vector<std::string> lines = plan_lines(*page.in.plan);
  for (std::size_t s = 0; s < page.facts.steps.size(); ++s) html += step_card(page, s, lines);
  return html + decisions(page) + "</section>\n";
}

std::string kernels_section(const Page& page) {
  if (page.in.plan->kernels.empty()) return {};
  std::vector<std::size_t> order;
  for (std::size_t k = 0; k < page.in.plan->kernels.size(); ++k) order.push_back(k);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return page.facts.kernels[a].microseconds > page.facts.kernels[b].microseconds;
  });
  std::string html = "<section id=\"kernels\"><h2>Kernels</h2>\n";
  html += tools("kernels", "#kernels details.kernel", "kernel-count", "#kernels details.kernel");
  for (const std::size_t k : order) html += kernel_card(page, k);
  return html + "</section>\n";
}

std::string texts_section(const Page& page) {
  if (page.in.texts.empty()) return {};
  std::string html =
      "<section id=\"graph\"><h2>The program, stage by stage</h2>\n<p class=\"note\">Comments are "
      "the lines of the model&#39;s source.</p>\n";
  bool is_first = true;
  for (const auto& [stage, text] : page.in.texts) {
    const auto lines = std::count(text.begin(), text.end(), '\n');
    html += folded(fmt::format("<b>{}</b> <span class=\"right\">{} lines</span>",
                               escaped(stage_title(stage)), lines),
                   code_block(text), is_first);
    is_first = false;
  }
  return html + "</section>\n";
}

}  // namespace inkle::driver
