// served: a model as a server runs it: queues, batcher, instances, and the plans that they run.
#include <fmt/ranges.h>

#include "plan/json/json.h"
#include "plan/time/cores.h"
#include "plan/time/simulator.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

std::string queue_str(const ServedModel::Queue& queue) {
  std::string s = queue.priority > 0 ? fmt::format("priority {}: ", queue.priority) : "";
  s += count_str(queue.places, "place");
  return s;
}
std::string timeout_str(const ServedModel::Queue& queue) {
  if (queue.timeout_us == 0) return "";
  return fmt::format("after {} {}", time_str(static_cast<double>(queue.timeout_us) * 1e3),
                     queue.delays ? "behind the others" : "refused");
}

// The work of the batcher, in lines.
std::vector<std::string> batcher_lines(const ServedModel& model) {
  std::vector<std::string> lines;
  if (!model.merges) {
    lines.push_back("one request a step");
    if (model.most_rows > 1) lines.push_back(fmt::format("of {} at most", count_str(model.most_rows, "row")));
  } else {
    lines.push_back(fmt::format("requests share steps of {} at most", count_str(model.most_rows, "row")));
    if (!model.preferred.empty())
      lines.push_back(fmt::format("{} rows do not wait for more", fmt::join(model.preferred, ", ")));
    lines.push_back(model.delay_us == 0 ? "none waits for others while an instance is idle"
                                        : fmt::format("others wait for more, {} at most",
                                                      time_str(static_cast<double>(model.delay_us) * 1e3)));
  }
  if (!model.sequences.empty()) lines.push_back(model.sequences);
  if (model.ordered) lines.push_back("answers come in the order of requests");
  return lines;
}

// Steps that a session of the plan has slots for.
int steps_in_flight(const Plan& plan) {
  int most = 0;
  for (const Input& input : plan.inputs) {
    const int quota = plan.registers[input.reg].quota;
    most = most == 0 ? quota : std::min(most, quota);
  }
  return std::max(most, 1);
}

double period_of(const Plan& plan) {
  double cost = 0;
  for (const Kernel& kernel : plan.kernels) cost += kernel.cost_ns;
  return cost > 0 ? simulate(plan, {.steps = 32, .cores = cores_of_target(plan.target)}).period_ns : 0;
}

std::vector<std::string> member_row(const ServedModel::Member& member) {
  const double period = period_of(member.plan);
  return {member.sizes.empty() ? "every step" : member.sizes,
          count_str(member.plan.actors.size(), "actor"),
          count_str(member.plan.kernels.size(), "kernel"),
          period > 0 ? time_str(period) + " a step" : "",
          fmt::format("×{} in flight", steps_in_flight(member.plan)),
          short_bytes(ledger(member.plan).arenas) + " of slots"};
}

std::string served_text(const ServedModel& model, const TextOptions& options) {
  std::string s = paint(fmt::format("model '{}' version {}", model.name, model.version), Color::kBold, options) + "\n";
  const auto actor = [&](const std::string& name, const std::string& what) {
    s += cut("  " + paint(padded(name, 11), Color::kBlue, options) + " " + what, static_cast<size_t>(options.width)) +
         "\n";
  };
  const auto token = [&](const std::string& name, const std::string& what) {
    s += cut("    " + paint("▶ " + padded(name, 7), Color::kGreen, options) + " " + what,
             static_cast<size_t>(options.width)) +
         "\n";
  };
  actor("requests", fmt::format("{}", fmt::join(model.inputs, ", ")));
  for (const ServedModel::Queue& queue : model.queues) {
    const std::string timeout = timeout_str(queue);
    token("queue", queue_str(queue) + (timeout.empty() ? "" : ", " + timeout) + "; beyond, refused at once");
  }
  const std::vector<std::string> lines = batcher_lines(model);
  for (size_t i = 0; i < lines.size(); ++i) actor(i == 0 ? "batcher" : "", lines[i]);
  token("steps", model.members.size() > 1 ? "each to an instance that is idle, to its smallest plan that fits"
                                          : "each to an instance that is idle");
  for (int i = 0; i < model.instances; ++i) {
    actor(fmt::format("instance {}", i), !model.steps.empty() && i == 0
                                             ? fmt::format("one plan of {}", fmt::join(model.steps, ", "))
                                         : i == 0 ? model.bundle
                                                  : "the same plans and weights");
    if (i > 0) continue;
    std::vector<std::vector<std::string>> rows;
    for (const ServedModel::Member& member : model.members) rows.push_back(member_row(member));
    for (std::vector<std::string>& row : rows) row.insert(row.begin(), "           ");
    if (!rows.empty()) s += table(rows, {false, false, true, true, true, true, true}, options.width);
  }
  token("rows", "of each request its own");
  actor("answers", fmt::format("{}", fmt::join(model.outputs, ", ")));
  return s;
}

std::string strings_json(const std::vector<std::string>& texts) {
  std::string s;
  for (const std::string& text : texts) s += (s.empty() ? "" : ", ") + quoted_json(text);
  return "[" + s + "]";
}

std::string served_json(const ServedModel& model) {
  std::string queues, members;
  for (const ServedModel::Queue& q : model.queues)
    queues += fmt::format("{}{{\"priority\": {}, \"places\": {}, \"timeout_us\": {}, \"delays\": {}}}",
                          queues.empty() ? "" : ", ", q.priority, q.places, q.timeout_us, q.delays);
  for (const ServedModel::Member& m : model.members)
    members += fmt::format(
        "{}{{\"sizes\": {}, \"actors\": {}, \"kernels\": {}, \"period_ns\": {}, \"in_flight\": {}, \"bytes\": {}}}",
        members.empty() ? "\n   " : ",\n   ", quoted_json(m.sizes), m.plan.actors.size(), m.plan.kernels.size(),
        period_of(m.plan), steps_in_flight(m.plan), ledger(m.plan).arenas);
  return fmt::format(
      "{{\"name\": {}, \"version\": {}, \"inputs\": {}, \"outputs\": {}, \"queues\": [{}], \"batcher\": {}, "
      "\"instances\": {}, \"plans\": [{}]}}",
      quoted_json(model.name), quoted_json(model.version), strings_json(model.inputs), strings_json(model.outputs),
      queues, strings_json(batcher_lines(model)), model.instances, members);
}

// Boxes from left to right, with what flows between them.
class Picture {
 public:
  // Its height.
  double draw(const ServedModel& model, double top) {
    constexpr double kRow = 18, kHead = 30;
    const std::vector<std::string> lines = batcher_lines(model);
    const int shown = std::min(model.instances, kMostShown);
    std::vector<std::vector<std::string>> plans;
    for (size_t m = 0; m < std::min<size_t>(model.members.size(), kMostPlans); ++m)
      plans.push_back(member_row(model.members[m]));
    const size_t left_out = model.members.size() - plans.size();
    const size_t rows = std::max<size_t>(plans.size() + (left_out > 0 ? 1 : 0), 1);
    const double instance = kHead + kRow * static_cast<double>(rows) + 8;
    const double all = (instance + 14) * shown - 14 + (model.instances > shown ? 24 : 0);
    const double queues = kQueueRow * static_cast<double>(model.queues.size());
    const double batcher = kHead + kRow * static_cast<double>(lines.size()) + 8;
    const double height = std::max({all, queues, batcher, kHead + kRow * static_cast<double>(model.inputs.size()) + 8,
                                    kHead + kRow * static_cast<double>(model.outputs.size()) + 8});
    top += 40;
    const double middle = top + height / 2;
    text(kMargin, top - 16, "start", fmt::format("{} {}", model.name, model.version), "font-weight=\"bold\"");
    column(kRequests, middle, "requests", model.inputs, "#eef1f5");
    queue_rows(model.queues, middle);
    column(kBatcher, middle, "batcher", lines, "#fdf3dc");
    double y = middle - all / 2;
    for (int i = 0; i < shown; ++i, y += instance + 14) {
      frame(kInstances, y, instance, "#e6f0fa", fmt::format("instance {}", i));
      for (size_t m = 0; m < plans.size(); ++m) {
        const double at = y + kHead + kRow * static_cast<double>(m) + 8;
        const std::vector<std::string>& row = plans[m];
        text(kInstances.x + 12, at, "start", row[0]);
        text(kInstances.x + kInstances.width - 12, at, "end",
             fmt::format("{}{}, {}", row[3].empty() ? "" : row[3] + ", ", row[2], row[4]));
      }
      if (left_out > 0)
        text(kInstances.x + 12, y + kHead + kRow * static_cast<double>(plans.size()) + 8, "start",
             fmt::format("and {} more", count_str(left_out, "plan")));
      if (plans.empty())
        text(kInstances.x + 12, y + kHead + 8, "start", fmt::format("one plan of {}", fmt::join(model.steps, ", ")));
      arrow(kBatcher.x + kBatcher.width, middle, kInstances.x, y + instance / 2);
      arrow(kInstances.x + kInstances.width, y + instance / 2, kAnswers.x, middle);
    }
    if (model.instances > shown)
      text(kInstances.x + 12, y + 8, "start",
           fmt::format("and {} more", count_str(model.instances - shown, "instance")));
    column(kAnswers, middle, "answers", model.outputs, "#eef1f5");
    return height + 64;
  }

  std::string svg(double height) const {
    const double width = kAnswers.x + kAnswers.width + kMargin;
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
               "font-family=\"sans-serif\" font-size=\"12\">\n<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" "
               "refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" "
               "fill=\"#444\"/></marker></defs>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
               width, height) +
           body_ + "</svg>\n";
  }

 private:
  struct Place {
    double x, width;
  };
  static constexpr double kMargin = 24, kQueueRow = 58;
  static constexpr int kMostShown = 4;
  static constexpr size_t kMostPlans = 8;
  static constexpr Place kRequests{kMargin, 190}, kQueue{238, 150}, kBatcher{412, 290}, kInstances{742, 340},
      kAnswers{1122, 190};

  void text(double x, double y, const char* anchor, const std::string& what, const char* more = "") {
    body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y, anchor, more,
                         escaped(what));
  }
  void rectangle(double x, double y, double width, double height, const char* fill, double round) {
    body_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"{}\" fill=\"{}\" stroke=\"#444\"/>\n",
        x, y, width, height, round, fill);
  }
  void frame(const Place& place, double y, double height, const char* fill, const std::string& name) {
    rectangle(place.x, y, place.width, height, fill, 8);
    text(place.x + 12, y + 20, "start", name, "font-weight=\"bold\"");
  }
  void column(const Place& place, double middle, const std::string& name, const std::vector<std::string>& lines,
              const char* fill) {
    const double height = 38 + 18 * static_cast<double>(lines.size());
    frame(place, middle - height / 2, height, fill, name);
    for (size_t i = 0; i < lines.size(); ++i)
      text(place.x + 12, middle - height / 2 + 38 + 18 * static_cast<double>(i), "start",
           cut(lines[i], static_cast<size_t>(place.width / 6.4)));
  }
  void arrow(double x1, double y1, double x2, double y2) {
    body_ += fmt::format(
        "<path d=\"M{0:.1f} {1:.1f} C{2:.1f} {1:.1f} {2:.1f} {3:.1f} {4:.1f} {3:.1f}\" fill=\"none\" "
        "stroke=\"#444\" marker-end=\"url(#tip)\"/>\n",
        x1, y1, (x1 + x2) / 2, y2, x2);
  }
  // Each a register: its slots, and what becomes of those that wait.
  void queue_rows(const std::vector<ServedModel::Queue>& queues, double middle) {
    constexpr int kSlots = 6;
    double y = middle - kQueueRow / 2 * static_cast<double>(queues.size());
    for (const ServedModel::Queue& queue : queues) {
      for (int i = 0; i < kSlots; ++i) rectangle(kQueue.x + 36 + 13 * i, y + 15, 13, 14, "#fff", 0);
      text(kQueue.x + kQueue.width / 2, y + 8, "middle", queue_str(queue));
      text(kQueue.x + kQueue.width / 2, y + 44, "middle", timeout_str(queue));
      arrow(kRequests.x + kRequests.width, middle, kQueue.x + 36, y + 22);
      arrow(kQueue.x + 36 + 13 * kSlots, y + 22, kBatcher.x, middle);
      y += kQueueRow;
    }
  }
  std::string body_;
};

}  // namespace

std::string served_text(const std::vector<ServedModel>& models, const TextOptions& options) {
  std::string s;
  for (const ServedModel& model : models) s += (s.empty() ? "" : "\n") + served_text(model, options);
  return s;
}

std::string served_json(const std::vector<ServedModel>& models) {
  std::string s;
  for (const ServedModel& model : models) s += (s.empty() ? "\n " : ",\n ") + served_json(model);
  return "{\"models\": [" + s + "]}\n";
}

std::string served_svg(const std::vector<ServedModel>& models) {
  Picture picture;
  double height = 0;
  for (const ServedModel& model : models) height += picture.draw(model, height);
  return picture.svg(height);
}

}  // namespace sluice::plan_viz
