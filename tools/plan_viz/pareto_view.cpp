// pareto: what speed costs in bytes of slots.
#include <cmath>

#include "plan/json/json.h"
#include "plan/time/cores.h"
#include "plan/time/fast_quotas.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

struct Curve {
  std::vector<QuotaChoice> points;
  QuotaChoice now;  // the plan as it is: bytes and period
};

// Registers of inputs and outputs keep their slots, which are for steps in flight.
Curve curve_of(const Plan& plan) {
  std::vector<bool> fixed(plan.registers.size());
  for (size_t r = 0; r < fixed.size(); ++r) fixed[r] = plan.actors[plan.registers[r].producer].role == ActorRole::kFeed;
  for (const Edge& e : plan.edges) fixed[e.reg] = fixed[e.reg] || plan.actors[e.consumer].role == ActorRole::kSink;
  const int cores = cores_of_target(plan.target);
  Curve curve;
  curve.points = quota_curve(plan, {.fixed = fixed, .cores = cores});
  for (const Register& reg : plan.registers) curve.now.quotas.push_back(reg.quota);
  curve.now.bytes = slot_bytes(plan, slot_groups(plan), curve.now.quotas);
  curve.now.period_ns = simulate(plan, {.steps = 128, .cores = cores}).period_ns;
  return curve;
}

double per_second(const QuotaChoice& choice) { return choice.period_ns > 0 ? 1e9 / choice.period_ns : 0; }

// "images 2, labels 3": registers with more than in the choice before it.
std::string more_slots(const Plan& plan, const QuotaChoice& from, const QuotaChoice& to) {
  std::string s;
  for (size_t r = 0; r < to.quotas.size(); ++r) {
    if (to.quotas[r] != from.quotas[r])
      s += fmt::format("{}{} {}", s.empty() ? "" : ", ", plan.registers[r].name, to.quotas[r]);
  }
  return s;
}

}  // namespace

std::string pareto_text(const Plan& plan, const TextOptions& options) {
  const Curve curve = curve_of(plan);
  std::string s =
      paint(fmt::format("plan '{}', bytes of slots against steps per second", plan.name), Color::kBold, options) + "\n";
  if (curve.now.period_ns <= 0)
    return s + "  the plan's kernels have no predicted costs: nothing says how fast it is\n";
  const QuotaChoice& fastest = curve.points.back();
  std::vector<std::vector<std::string>> rows = {{"", "slots", "period", "steps/s", "of the fastest", "slots of"}};
  const auto row = [&](const char* what, const QuotaChoice& c, const std::string& slots) {
    rows.push_back({what, short_bytes(c.bytes), time_str(c.period_ns), fmt::format("{:.4g}", per_second(c)),
                    fmt::format("{:.1f}%", 100 * fastest.period_ns / c.period_ns), slots});
  };
  for (size_t i = 0; i < curve.points.size(); ++i)
    row("", curve.points[i], i == 0 ? "the fewest" : more_slots(plan, curve.points[i - 1], curve.points[i]));
  row("as it is", curve.now, "");
  return s + table(rows, {false, true, true, true, true, false}, options.width);
}

std::string pareto_json(const Plan& plan) {
  const Curve curve = curve_of(plan);
  const auto point = [&](const QuotaChoice& c) {
    std::string quotas;
    for (size_t r = 0; r < c.quotas.size(); ++r)
      quotas += fmt::format("{}{}: {}", r ? ", " : "", quoted_json(plan.registers[r].name), c.quotas[r]);
    return fmt::format("{{\"bytes\": {}, \"period_ns\": {}, \"steps_per_s\": {}, \"quotas\": {{{}}}}}", c.bytes,
                       c.period_ns, per_second(c), quotas);
  };
  std::string points;
  for (const QuotaChoice& c : curve.points) points += (points.empty() ? "\n  " : ",\n  ") + point(c);
  return fmt::format("{{\"name\": {}, \"plan\": {},\n\"points\": [{}]}}\n", quoted_json(plan.name), point(curve.now),
                     points);
}

std::string pareto_svg(const Plan& plan) {
  constexpr double kWidth = 720, kHeight = 400, kLeft = 80, kRight = 40, kTop = 48, kBottom = 56;
  const Curve curve = curve_of(plan);
  std::vector<QuotaChoice> all = curve.points;
  all.push_back(curve.now);
  double most_bytes = 1, most_steps = 1e-9;
  for (const QuotaChoice& c : all) {
    most_bytes = std::max(most_bytes, static_cast<double>(c.bytes));
    most_steps = std::max(most_steps, per_second(c));
  }
  most_bytes *= 1.05, most_steps *= 1.1;
  const auto x = [&](double bytes) { return kLeft + bytes / most_bytes * (kWidth - kLeft - kRight); };
  const auto y = [&](double steps) { return kHeight - kBottom - steps / most_steps * (kHeight - kTop - kBottom); };
  std::string s = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
      kWidth, kHeight);
  const auto text = [&](double at_x, double at_y, const char* anchor, const std::string& what) {
    s += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", at_x, at_y, anchor,
                     escaped(what));
  };
  const auto line = [&](double x1, double y1, double x2, double y2, const char* color) {
    s += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2, y2,
                     color);
  };
  text(kLeft, 24, "start", fmt::format("{}: what speed costs", plan.name));
  constexpr int kTicks = 4;
  for (int i = 0; i <= kTicks; ++i) {
    const double bytes = most_bytes * i / kTicks, steps = most_steps * i / kTicks;
    line(kLeft, y(steps), kWidth - kRight, y(steps), i == 0 ? "#444" : "#ddd");
    text(kLeft - 8, y(steps) + 4, "end", fmt::format("{:.3g}", steps));
    text(x(bytes), kHeight - kBottom + 20, "middle", short_bytes(static_cast<uint64_t>(bytes)));
  }
  text(kLeft - 8, kTop - 8, "end", "steps/s");
  text(kWidth - kRight, kHeight - 12, "end", "bytes of slots");
  std::string path;  // in stairs: more bytes gain nothing until the next point
  for (const QuotaChoice& c : curve.points) {
    const double at_x = x(static_cast<double>(c.bytes)), at_y = y(per_second(c));
    path += path.empty() ? fmt::format("M{:.1f} {:.1f}", at_x, at_y) : fmt::format(" H{:.1f} V{:.1f}", at_x, at_y);
  }
  s += fmt::format("<path d=\"{} H{:.1f}\" fill=\"none\" stroke=\"#2a6fbb\" stroke-width=\"2\"/>\n", path,
                   kWidth - kRight);
  const auto dot = [&](const QuotaChoice& c, const char* color, const std::string& what) {
    s +=
        fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\"><title>{}, {} a step{}</title></circle>\n",
                    x(static_cast<double>(c.bytes)), y(per_second(c)), color, short_bytes(c.bytes),
                    time_str(c.period_ns), escaped(what.empty() ? what : ": " + what));
  };
  for (size_t i = 0; i < curve.points.size(); ++i)
    dot(curve.points[i], "#2a6fbb", i == 0 ? "" : more_slots(plan, curve.points[i - 1], curve.points[i]));
  dot(curve.now, "#d1495b", "the plan as it is");
  const double at_x = x(static_cast<double>(curve.now.bytes));
  text(at_x, y(per_second(curve.now)) + 20, at_x > kWidth * 0.8 ? "end" : "start", "as it is");
  return s + "</svg>\n";
}

}  // namespace sluice::plan_viz
