// Charts of the page: bars as HTML, the arena over the steps as SVG.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "driver/inspect_parts.h"

namespace inkle::driver {
namespace {

constexpr int kColours = 8;  // of the style: .c0 to .c7

// A step of an axis of about `ticks` parts up to `high`: 1, 2 or 5 times a power of ten.
double tick_step(double high, double ticks) {
  const double rough = high / ticks;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

// The arena: x is the step, y the offset in bytes, upwards.
class MemoryChart {
 public:
  explicit MemoryChart(const Page& page) : page_(page), facts_(page.facts) {
    steps_ = static_cast<double>(page.in.plan->steps.size());
  }

  std::string run() {
    svg_ = fmt::format(
        "<div class=\"wide\"><svg class=\"memory\" viewBox=\"0 0 {} {}\" role=\"img\" "
        "aria-label=\"Buffers of the arena over the steps\">\n",
        kWidth, kHeight);
    axes();
    for (std::size_t i = 0; i < facts_.arena.size(); ++i) rectangle(i);
    live_line();
    svg_ += labels_ + "</svg></div>\n";
    return svg_;
  }

 private:
  static constexpr double kWidth = 1160, kHeight = 380;
  static constexpr double kLeft = 76, kRight = 12, kTop = 12, kBottom = 44;

  double x(double step) const { return kLeft + (kWidth - kLeft - kRight) * step / steps_; }
  double y(double bytes) const {
    const double whole = static_cast<double>(facts_.arena_bytes);
    return kHeight - kBottom - (kHeight - kTop - kBottom) * bytes / whole;
  }

  void axes() {
    const auto whole = static_cast<double>(facts_.arena_bytes);
    const double step = tick_step(whole, 5);
    for (double bytes = 0; bytes <= whole * 1.0001; bytes += step) {
      svg_ += fmt::format(
          "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
          "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
          x(0), x(steps_), y(bytes), y(bytes), kLeft - 8, y(bytes) + 4, bytes_text(bytes));
    }
    const double every = std::max(1.0, std::ceil(tick_step(steps_, 20)));
    for (double s = 0; s < steps_; s += every) {
      svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.0f}</text>\n",
                          x(s + 0.5), kHeight - kBottom + 18, s);
    }
    svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">step</text>\n",
                        x(steps_ / 2), kHeight - 6);
  }

  void rectangle(std::size_t i) {
    const ArenaBuffer& b = facts_.arena[i];
    if (b.bytes == 0) return;
    const double left = x(b.first);
    const double width = x(b.last + 1.0) - left;
    const double top = y(static_cast<double>(b.offset + b.bytes));
    const double height = y(static_cast<double>(b.offset)) - top;
    const std::string name = escaped(page_.buffer_name(b.buffer));
    svg_ += fmt::format(
        "<g><rect class=\"c{}\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"/>"
        "<title>{}: {} at {}, steps {} to {}</title>",
        i % kColours, left, top, std::max(width - 0.6, 0.6), std::max(height - 0.6, 0.6), name,
        bytes_text(static_cast<double>(b.bytes)), bytes_text(static_cast<double>(b.offset)),
        b.first, b.last);
    const double text_width = 7.0 * static_cast<double>(page_.buffer_name(b.buffer).size()) + 6;
    if (width > text_width && height > 15) {
      labels_ += fmt::format(
          "<text class=\"in\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
          left + width / 2, top + height / 2 + 4, name);
    }
    svg_ += "</g>\n";
  }

  // Bytes alive at each step.
  void live_line() {
    const std::size_t count = page_.in.plan->steps.size();
    std::vector<std::int64_t> live(count, 0);
    for (const ArenaBuffer& b : facts_.arena) {
      for (std::size_t s = b.first; s <= b.last && s < count; ++s) live[s] += b.bytes;
    }
    std::string points;
    for (std::size_t s = 0; s < count; ++s) {
      const double at = y(static_cast<double>(live[s]));
      const auto step = static_cast<double>(s);
      points += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", x(step), at, x(step + 1), at);
    }
    svg_ += fmt::format("<polyline class=\"live\" points=\"{}\"/>\n", points);
  }

  const Page& page_;
  const InspectFacts& facts_;
  double steps_ = 0;
  std::string svg_;
  std::string labels_;
};

std::string memory_numbers(const Page& page) {
  const InspectFacts& f = page.facts;
  std::string rows;
  const auto row = [&](std::string_view name, std::int64_t bytes, std::string_view what) {
    if (bytes == 0) return;
    rows += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"note\">{}</td></tr>\n",
                        name, bytes_text(static_cast<double>(bytes)), what);
  };
  row("arena", f.arena_bytes, "one block for all inner buffers");
  row("peak of the arena", f.peak_bytes, "most bytes alive at one step: no placing needs less");
  row("scratch", page.in.scratch_bytes, "rows of kernels of all threads, workspace of the library");
  row("outputs", f.output_bytes, "allocated by the caller");
  row("weights", f.parameter_bytes, "read in place");
  row("prepared", f.prepared_bytes, "computed from weights alone, kept from call to call");
  row("packed weights", page.in.packed_weight_bytes, "copies in the library&#39;s layout");
  row("constants", f.constant_bytes, "");
  return "<table class=\"plain\">" + rows + "</table>\n";
}

}  // namespace

std::string stage_chart(const Page& page) {
  double total = 0;
  for (const StageTime& s : page.in.report.stages) total += s.seconds;
  if (total <= 0) return {};
  std::string bar;
  std::string legend;
  int colour = 0;
  for (const StageTime& s : page.in.report.stages) {
    const std::string name = escaped(s.stage);
    const std::string time = time_text(s.seconds * 1e6);
    bar +=
        fmt::format("<span class=\"c{0}\" style=\"flex-grow:{1:.4f}\" title=\"{2}: {3}\"></span>",
                    colour % kColours, s.seconds / total, name, time);
    legend +=
        fmt::format("<li><i class=\"c{}\"></i>{} <b>{}</b> <span class=\"dim\">{}</span></li>",
                    colour % kColours, name, time, percent_text(s.seconds / total));
    ++colour;
  }
  return fmt::format(
      "<h3>Compile time by stage</h3><div class=\"stack\">{}</div><ul class=\"legend\">{}</ul>\n",
      bar, legend);
}

std::string share_chart(const Page& page) {
  if (page.facts.microseconds <= 0) return {};
  struct Share {
    std::string name;
    double microseconds = 0;
    int calls = 0;
  };
  std::map<std::string, Share> by_name;
  for (std::size_t s = 0; s < page.facts.steps.size(); ++s) {
    if (!page.facts.steps[s].microseconds) continue;
    Share& share = by_name[page.name(s)];
    share.name = page.name(s);
    share.microseconds += *page.facts.steps[s].microseconds;
    ++share.calls;
  }
  std::vector<Share> shares;
  for (const auto& [name, share] : by_name) shares.push_back(share);
  std::stable_sort(shares.begin(), shares.end(),
                   [](const Share& a, const Share& b) { return a.microseconds > b.microseconds; });
  constexpr std::size_t kShown = 10;
  if (shares.size() > kShown + 1) {
    Share rest{fmt::format("{} others", shares.size() - kShown), 0, 0};
    for (std::size_t i = kShown; i < shares.size(); ++i) {
      rest.microseconds += shares[i].microseconds;
      rest.calls += shares[i].calls;
    }
    shares.resize(kShown);
    shares.push_back(rest);
  }
  double largest = 0;
  for (const Share& share : shares) largest = std::max(largest, share.microseconds);
  std::string rows;
  for (const Share& share : shares) {
    rows += fmt::format(
        "<div class=\"share\"><span class=\"name\">{}{}</span><span class=\"track\"><i "
        "style=\"width:{:.2f}%\"></i></span><span class=\"num\">{}</span><span class=\"num dim\">{}"
        "</span></div>\n",
        escaped(share.name),
        share.calls > 1 ? fmt::format(" <span class=\"dim\">× {}</span>", share.calls) : "",
        largest > 0 ? share.microseconds / largest * 100 : 0, time_text(share.microseconds),
        percent_text(share.microseconds / page.facts.microseconds));
  }
  return "<h3>Where the time of a call goes</h3><div class=\"shares\">" + rows + "</div>\n";
}

std::string memory_chart(const Page& page) {
  std::string html = "<section id=\"memory\"><h2>Memory</h2>\n";
  if (!page.facts.has_sizes) {
    return html + "<p class=\"note\">Sizes are symbolic and no call was made.</p></section>\n";
  }
  html += memory_numbers(page);
  if (page.facts.arena_bytes == 0) {
    return html + "<p class=\"note\">No inner buffer needs memory.</p></section>\n";
  }
  html +=
      "<h3>The arena over the steps</h3><p class=\"note\">Each rectangle is a buffer at its "
      "offset, from the step that first writes it to the last that reads it; the line is the sum "
      "of bytes alive.</p>\n";
  return html + MemoryChart(page).run() + "</section>\n";
}

}  // namespace inkle::driver
