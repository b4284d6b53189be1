#include "driver/inspect.h"

#include <fmt/format.h>

#include "driver/inspect_parts.h"

namespace inkle::driver {
namespace {

std::string tile(std::string_view name, const std::string& value, const std::string& note) {
  return fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b><small>{}</small></div>\n", name,
                     value, note);
}

double compile_seconds(const Page& page) {
  double total = 0;
  for (const StageTime& s : page.in.report.stages) total += s.seconds;
  return total;
}

// Of all steps with a known limit: the time the limits allow over the time taken.
std::string limit_tile(const Page& page) {
  double allowed = 0;
  double taken = 0;
  for (const StepFacts& f : page.facts.steps) {
    if (!f.limit_microseconds || !f.microseconds) continue;
    allowed += *f.limit_microseconds;
    taken += *f.microseconds;
  }
  if (taken <= 0) return {};
  return tile("of the machine&#39;s limits", percent_text(allowed / taken),
              "time the limits allow over time taken, all steps");
}

// The report knows the bound for the hints of symbolic sizes only.
std::string bound_note(const Page& page) {
  const Report& report = page.in.report;
  if (report.bytes_lower_bound <= 0) return "read and written by all steps";
  const bool is_same = report.bytes_moved == page.facts.moved_bytes;
  return fmt::format(
      "{:.2f} × the lower bound{}",
      static_cast<double>(report.bytes_moved) / static_cast<double>(report.bytes_lower_bound),
      is_same ? " of " + bytes_text(static_cast<double>(report.bytes_lower_bound))
              : " at the sizes it was compiled for");
}

std::string tiles(const Page& page) {
  const InspectFacts& f = page.facts;
  std::string html = "<div class=\"tiles\">\n";
  if (page.in.call_microseconds > 0) {
    html +=
        tile("a call", time_text(page.in.call_microseconds),
             fmt::format("best of {}; {} in its steps", page.in.runs, time_text(f.microseconds)));
  }
  html += limit_tile(page);
  if (const double seconds = compile_seconds(page); seconds > 0) {
    html += tile("compile time", time_text(seconds * 1e6),
                 fmt::format("{} kernels compiled, {} reused",
                             page.in.report.kernels - page.in.report.kernels_reused,
                             page.in.report.kernels_reused));
  }
  html += tile(
      "kernel launches", fmt::format("{}", f.launches),
      fmt::format("{} distinct kernel{}{}", f.launched, f.launched == 1 ? "" : "s",
                  f.prepared > 0 ? fmt::format("; {} more steps prepared once", f.prepared) : ""));
  html +=
      tile("library calls", fmt::format("{}", f.library_calls), "matrix products and convolutions");
  if (f.eager_calls > 0) {
    html += tile("ops in eager", fmt::format("{}", f.eager_calls), "left to the framework");
  }
  if (f.has_sizes) {
    html += tile("arena", bytes_text(static_cast<double>(f.arena_bytes)),
                 fmt::format("peak alive {}; {} buffers",
                             bytes_text(static_cast<double>(f.peak_bytes)), f.arena.size()));
  }
  if (f.moved_bytes) {
    html += tile("bytes moved", bytes_text(static_cast<double>(*f.moved_bytes)), bound_note(page));
  }
  return html + "</div>\n";
}

std::string limits_table(const Page& page) {
  if (!page.in.limits) return {};
  const MachineLimits& limits = *page.in.limits;
  std::string rows;
  for (const MachineLimits::Level& l : limits.levels) {
    const bool is_last = &l == &limits.levels.back();
    rows += fmt::format(
        "<tr><th scope=\"row\">{}</th><td>{}/s</td><td class=\"note\">triad over {}</td></tr>",
        escaped(l.name), bytes_text(l.bytes_per_second),
        is_last ? std::string("more than the caches hold")
                : "at most " + bytes_text(static_cast<double>(l.capacity)));
  }
  rows += fmt::format(
      "<tr><th scope=\"row\">compute, f32</th><td>{}FLOP/s</td><td class=\"note\">independent "
      "fused "
      "multiply-adds</td></tr>",
      count_text(limits.flops_f32));
  return fmt::format(
      "<h3>The machine&#39;s limits, measured on {} thread{}</h3><table "
      "class=\"plain\">{}</table>\n",
      limits.threads, limits.threads == 1 ? "" : "s", rows);
}

std::string summary_section(const Page& page) {
  std::string html = "<section id=\"summary\"><h2>Summary</h2>\n";
  if (!page.in.not_run.empty()) {
    html += fmt::format("<p class=\"warning\">No times: {}</p>\n", escaped(page.in.not_run));
  }
  html += tiles(page) + share_chart(page) + stage_chart(page) + limits_table(page);
  if (!page.in.report.eager.empty()) {
    std::string ops;
    for (const std::string& op : page.in.report.eager) {
      ops += fmt::format("<span class=\"chip\">{}</span>", escaped(op));
    }
    html += "<h3>Left to eager</h3><p>" + ops + "</p>\n";
  }
  return html + "</section>\n";
}

std::string head(const std::string& title) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src &#39;none&#39;; "
      "style-src "
      "&#39;unsafe-inline&#39;; script-src &#39;unsafe-inline&#39;\">\n"
      "<title>{} · Inkle</title>\n<style>{}</style></head>\n<body>\n",
      title, page_style());
}

}  // namespace

std::string inspect_page(const Inspection& inspection) {
  const InspectFacts facts = inspect_facts(inspection);
  const Page page{inspection, facts};
  const std::string title = escaped(inspection.title);
  std::string html = head(title);
  html += fmt::format(
      "<header><div><div class=\"brand\">Inkle · inspection of a compiled program</div><h1>{}</h1>"
      "<div class=\"dim\">plan {}{}</div></div></header>\n",
      title, escaped(inspection.plan->name),
      inspection.device.empty() ? "" : " on " + escaped(inspection.device));
  html +=
      "<nav aria-label=\"Sections\"><div><a href=\"#summary\">Summary</a><a href=\"#steps\">Steps"
      "</a><a href=\"#memory\">Memory</a><a href=\"#fusion\">Fusion</a>";
  if (!inspection.plan->kernels.empty()) html += "<a href=\"#kernels\">Kernels</a>";
  if (!inspection.texts.empty()) html += "<a href=\"#graph\">Program</a>";
  html += "</div></nav>\n<main>\n";
  html += summary_section(page) + steps_section(page) + memory_chart(page) + fusion_section(page) +
          kernels_section(page) + texts_section(page);
  html += "<footer>Written by inkle. This page is complete in itself: it loads nothing.</footer>\n";
  return html + fmt::format("</main>\n<script>{}</script>\n</body></html>\n", page_script());
}

}  // namespace inkle::driver
