#include "driver/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "driver/inspect_facts.h"

namespace inkle::driver {
namespace {

std::string scaled(std::optional<std::int64_t> value) {
  if (!value) return "-";
  const auto v = static_cast<double>(*value);
  if (v >= 1e12) return fmt::format("{:.2f} T", v * 1e-12);
  if (v >= 1e9) return fmt::format("{:.2f} G", v * 1e-9);
  if (v >= 1e6) return fmt::format("{:.2f} M", v * 1e-6);
  return fmt::format("{:.1f} k", v * 1e-3);
}

// Per second, in the unit of the limit that binds.
std::string achieved(const ProfileRow& row, double microseconds) {
  if (!row.limit_microseconds || microseconds <= 0) return "-";
  const bool computes = row.limit == "compute";
  const auto work = static_cast<double>(computes ? row.flops.value_or(0) : row.bytes.value_or(0));
  const double rate = work / microseconds * 1e6;
  if (computes) {
    return rate >= 1e12 ? fmt::format("{:.1f} TFLOP/s", rate * 1e-12)
                        : fmt::format("{:.1f} GFLOP/s", rate * 1e-9);
  }
  return rate >= 1e12 ? fmt::format("{:.2f} TB/s", rate * 1e-12)
                      : fmt::format("{:.1f} GB/s", rate * 1e-9);
}

constexpr const char* kLine = "{:>10} {:>5} {:>9} {:>9} {:>14} {:>14} {:>6} {:<8} {:<11} {}\n";

std::string line_of(const ProfileRow& row) {
  const bool is_known = row.limit_microseconds.has_value() && row.microseconds > 0;
  const std::string name =
      row.name.empty() ? row.label : fmt::format("{}: {}", row.name, row.label);
  return fmt::format(
      kLine, fmt::format("{:.1f}", row.microseconds), row.calls, scaled(row.bytes),
      scaled(row.flops), achieved(row, row.microseconds),
      is_known ? achieved(row, *row.limit_microseconds) : "-",
      is_known ? fmt::format("{:.0f} %", 100 * *row.limit_microseconds / row.microseconds) : "-",
      row.limit, row.kind, row.source.empty() ? name : fmt::format("{}  # {}", name, row.source));
}

}  // namespace

std::vector<ProfileRow> profile_rows(const Inspection& inspection) {
  const InspectFacts facts = inspect_facts(inspection);
  const abi::Plan& plan = *inspection.plan;
  using Key = std::tuple<std::string, std::string, std::optional<std::int64_t>,
                         std::optional<std::int64_t>>;
  std::map<Key, std::size_t> known;
  std::vector<ProfileRow> rows;
  const auto sum = [](auto& total, const auto& one) {
    if (one) total = total.value_or(0) + *one;
  };
  for (std::size_t s = 0; s < facts.steps.size(); ++s) {
    const StepFacts& f = facts.steps[s];
    if (f.prepare) continue;
    ProfileRow row;
    if (s < inspection.report.steps.size()) {
      const StepReport& report = inspection.report.steps[s];
      row.kind = report.kind;
      row.label = report.label;
    }
    if (const auto* launch = std::get_if<abi::Launch>(&plan.steps[s].action)) {
      row.kind = "kernel";
      row.name = plan.kernels[launch->kernel].name;
    } else if (s < inspection.implementations.size()) {
      row.name = inspection.implementations[s];
    }
    row.source = plan.steps[s].source;
    const auto [at, is_new] =
        known.try_emplace({row.kind, row.name + row.label, f.bytes, f.flops}, rows.size());
    if (is_new) rows.push_back(std::move(row));
    ProfileRow& into = rows[at->second];
    ++into.calls;
    into.microseconds += f.microseconds.value_or(0);
    sum(into.bytes, f.bytes);
    sum(into.flops, f.flops);
    sum(into.limit_microseconds, f.limit_microseconds);
    if (!f.limit.empty()) into.limit = f.limit;
  }
  std::stable_sort(rows.begin(), rows.end(), [](const ProfileRow& a, const ProfileRow& b) {
    return a.microseconds > b.microseconds;
  });
  return rows;
}

std::string profile_text(const std::vector<ProfileRow>& rows, std::size_t most) {
  std::string text = fmt::format(kLine, "us", "calls", "bytes", "FLOP", "achieved", "limit", "",
                                 "bound by", "kind", "what");
  double total = 0;
  double limit = 0;
  double rest = 0;
  std::uint32_t calls = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    total += rows[i].microseconds;
    limit += rows[i].limit_microseconds.value_or(0);
    calls += rows[i].calls;
    if (i < most) {
      text += line_of(rows[i]);
    } else {
      rest += rows[i].microseconds;
    }
  }
  if (rows.size() > most) {
    text += fmt::format("{:>10.1f} in {} more\n", rest, rows.size() - most);
  }
  text += fmt::format("{:>10.1f} us in {} steps; the machine's limits allow {:.1f} us", total,
                      calls, limit);
  if (total > 0) text += fmt::format(", {:.0f} %", 100 * limit / total);
  return text + "\n";
}

}  // namespace inkle::driver
