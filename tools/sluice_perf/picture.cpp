#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/sluice_perf/report.h"

namespace sluice::perf {

namespace {

constexpr double kWidth = 720, kHeight = 440, kLeft = 76, kRight = 30, kTop = 52, kBottom = 56;

struct Curve {
  const char* name;
  const char* color;
  double Summary::*value;
};
constexpr std::array<Curve, 3> kCurves = {
    {{"p50", "#1b7837", &Summary::p50}, {"p90", "#b8860b", &Summary::p90}, {"p99", "#b2182b", &Summary::p99}}};

// 1, 2 or 5 times a power of ten, so that an axis of `span` has about `parts` steps.
double nice_step(double span, int parts) {
  const double raw = span / parts, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power) return factor * power;
  return 10 * power;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::string label(double x, double y, const char* anchor, const std::string& text, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y, anchor, more,
                     escaped(text));
}

std::string head_of(const std::string& title) {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
             "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
             kWidth, kHeight) +
         label(kLeft, 24, "start", title, "font-size=\"15\" font-weight=\"bold\"");
}

double rows_per_step(const LevelResult& result) {
  const ServerTimes& times = result.server;
  return times.executions == 0 ? 0 : static_cast<double>(times.inferences) / static_cast<double>(times.executions);
}

// The axes on which values lie: throughput linear from 0; latency logarithmic, since p99 may be a hundred times p50.
struct Axes {
  double most_x = 1, least_y = 1, most_y = 10;

  explicit Axes(const std::vector<LevelResult>& results) {
    double least = 1e300, most = 0;
    for (const LevelResult& result : results) {
      if (result.ok.count == 0) continue;
      most_x = std::max(most_x, result.throughput);
      for (const Curve& curve : kCurves) {
        least = std::min(least, result.ok.*curve.value);
        most = std::max(most, result.ok.*curve.value);
      }
    }
    if (most > 0) {
      least_y = std::pow(10, std::floor(std::log10(std::max(least, 1.0))));
      most_y = nice_step(most * 1.05, 1);
    }
    if (most_y <= least_y) most_y = least_y * 10;
    const double step = nice_step(most_x, 6);
    most_x = std::ceil(most_x / step) * step;
  }
  double x(double rate) const { return kLeft + rate / most_x * (kWidth - kLeft - kRight); }
  double y(double us) const {
    const double share = std::log10(std::max(us, least_y) / least_y) / std::log10(most_y / least_y);
    return kHeight - kBottom - share * (kHeight - kTop - kBottom);
  }
};

std::string time_name(double us) {
  return us < 1e3   ? fmt::format("{:g} us", us)
         : us < 1e6 ? fmt::format("{:g} ms", us / 1e3)
                    : fmt::format("{:g} s", us / 1e6);
}

std::string grid(const Axes& axes) {
  std::string svg;
  const double step = nice_step(axes.most_x, 6);
  for (double value = 0; value <= axes.most_x * 1.0001; value += step) {
    const double x = axes.x(value);
    svg += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#e4e4e4\"/>\n", x, kTop,
                       kHeight - kBottom);
    svg += label(x, kHeight - kBottom + 18, "middle", fmt::format("{:g}", value));
  }
  for (double decade = axes.least_y; decade <= axes.most_y * 1.0001; decade *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = decade * factor;
      if (value > axes.most_y * 1.0001) break;
      const double y = axes.y(value);
      svg += fmt::format("<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"{3}\"/>\n", kLeft, y,
                         kWidth - kRight, factor == 1.0 ? "#cccccc" : "#eeeeee");
      svg += label(kLeft - 8, y + 4, "end", time_name(value), factor == 1.0 ? "" : "fill=\"#999999\"");
    }
  }
  svg += label((kLeft + kWidth - kRight) / 2, kHeight - 14, "middle", "requests answered well, per second");
  svg += fmt::format("<text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">latency</text>\n",
                     (kTop + kHeight - kBottom) / 2);
  return svg;
}

std::string curve_of(const Curve& curve, const Axes& axes, const std::vector<LevelResult>& results) {
  std::string points, dots;
  for (const LevelResult& result : results) {
    if (result.ok.count == 0) continue;
    const double x = axes.x(result.throughput), y = axes.y(result.ok.*curve.value);
    points += fmt::format("{:.1f},{:.1f} ", x, y);
    // A hollow point: some requests of the level failed.
    dots += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" stroke=\"{}\" stroke-width=\"1.5\" fill=\"{}\">"
        "<title>{}: {:.1f} requests/s, {} {:.0f} us, {} errors</title></circle>\n",
        x, y, curve.color, result.failed.count > 0 ? "white" : curve.color, escaped(result.level.name()),
        result.throughput, curve.name, result.ok.*curve.value, result.failed.count);
  }
  return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n{}", points,
                     curve.color, dots);
}

// Names of levels, above their p99; those that would stand on another are left out.
std::string level_names(const Axes& axes, const std::vector<LevelResult>& results) {
  std::string svg;
  std::vector<std::pair<double, double>> taken;
  for (const LevelResult& result : results) {
    if (result.ok.count == 0) continue;
    const double x = axes.x(result.throughput), y = axes.y(result.ok.p99) - 9;
    const bool free = std::none_of(taken.begin(), taken.end(), [&](const auto& other) {
      return std::abs(other.first - x) < 34 && std::abs(other.second - y) < 13;
    });
    if (!free) continue;
    taken.emplace_back(x, y);
    svg += label(x, y, x > kWidth - 70 ? "end" : "middle", result.level.name(), "fill=\"#555555\" font-size=\"11\"");
  }
  return svg;
}

}  // namespace

std::string picture(const std::string& title, const std::vector<LevelResult>& results) {
  const Axes axes(results);
  std::string svg = head_of(title);
  const bool closed = !results.empty() && results[0].level.concurrency > 0;
  svg += label(kLeft, 42, "start", closed ? "points: requests at a time" : "points: requests offered per second",
               "fill=\"#555555\"");
  svg += grid(axes);
  double x = kWidth - kRight - 150;
  for (const Curve& curve : kCurves) {
    svg += curve_of(curve, axes, results);
    svg += fmt::format("<line x1=\"{0}\" y1=\"20\" x2=\"{1}\" y2=\"20\" stroke=\"{2}\" stroke-width=\"2\"/>\n", x,
                       x + 16, curve.color);
    svg += label(x + 20, 24, "start", curve.name);
    x += 54;
  }
  return svg + level_names(axes, results) + "</svg>\n";
}

std::string batch_picture(const std::string& title, const std::vector<LevelResult>& results) {
  double most_x = 1, most_y = 1;
  for (const LevelResult& result : results) {
    most_x = std::max(most_x, result.level.request_rate);
    most_y = std::max({most_y, result.forecast_rows, rows_per_step(result)});
  }
  const double step_x = nice_step(most_x, 6), step_y = nice_step(most_y, 6);
  most_x = std::ceil(most_x / step_x) * step_x;
  most_y = std::ceil(most_y / step_y) * step_y;
  const auto at_x = [&](double rate) { return kLeft + rate / most_x * (kWidth - kLeft - kRight); };
  const auto at_y = [&](double rows) { return kHeight - kBottom - rows / most_y * (kHeight - kTop - kBottom); };
  std::string svg = head_of(title);
  for (double value = 0; value <= most_x * 1.0001; value += step_x)
    svg += label(at_x(value), kHeight - kBottom + 18, "middle", fmt::format("{:g}", value));
  for (double value = 0; value <= most_y * 1.0001; value += step_y) {
    svg += fmt::format("<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"#e4e4e4\"/>\n", kLeft,
                       at_y(value), kWidth - kRight);
    svg += label(kLeft - 8, at_y(value) + 4, "end", fmt::format("{:g}", value));
  }
  svg += label((kLeft + kWidth - kRight) / 2, kHeight - 14, "middle", "requests offered per second");
  svg += fmt::format("<text transform=\"translate(24 {}) rotate(-90)\" text-anchor=\"middle\">rows of a step</text>\n",
                     (kTop + kHeight - kBottom) / 2);
  std::string line;
  for (const LevelResult& result : results)
    if (result.forecast_rows > 0)
      line += fmt::format("{:.1f},{:.1f} ", at_x(result.level.request_rate), at_y(result.forecast_rows));
  svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"#1b7837\" stroke-width=\"2\"/>\n", line);
  for (const LevelResult& result : results)
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#b2182b\"><title>{:g}/s: {:.2f} measured, {:.2f} "
        "forecast</title></circle>\n",
        at_x(result.level.request_rate), at_y(rows_per_step(result)), result.level.request_rate, rows_per_step(result),
        result.forecast_rows);
  return svg +
         label(kLeft, 42, "start", "line: forecast from the times of steps; points: measured", "fill=\"#555555\"") +
         "</svg>\n";
}

}  // namespace sluice::perf
