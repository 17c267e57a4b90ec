// blame, trace: what a recorded run did, and who made whom wait.
#include <fstream>

#include "plan/json/json.h"
#include "plan/query.h"
#include "plan/record/blame.h"
#include "plan/time/costs.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

constexpr size_t kMostRows = 40, kMostWaits = 3;  // without --all

double share_of(int64_t ns, int64_t all) { return all > 0 ? static_cast<double>(ns) / static_cast<double>(all) : 0; }

std::string share_str(int64_t ns, int64_t all) {
  return ns == 0 ? "" : fmt::format("{:.1f}%", 100 * share_of(ns, all));
}

// The longest waits, of which at least a hundredth of the time went by.
std::string waits_str(const Plan& plan, const BlameRow& row, const TextOptions& options) {
  std::string text;
  size_t shown = 0;
  for (const BlameWait& wait : row.waits) {
    if (!options.all && (shown == kMostWaits || 100 * wait.ns < row.total_ns)) break;
    text += fmt::format("{}{} {}", shown++ == 0 ? "" : "; ", wait_str(plan, wait), share_str(wait.ns, row.total_ns));
  }
  return text;
}

}  // namespace

std::string lost_str(const Recording& recording) {
  if (recording.trace.lost == 0) return "";
  return fmt::format("  {} events are missing: they came too fast\n", recording.trace.lost);
}

bool is_recording(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string begin(kRecordingMagic.size(), '\0');
  return file.read(begin.data(), static_cast<std::streamsize>(begin.size())).good() && begin == kRecordingMagic;
}

Plan measured_plan(const Recording& recording) {
  Plan plan = recording.plan;
  Machine machine;
  machine.measured = measured_runs(plan, recording.trace.events);
  const CostTable costs(machine);
  const std::vector<int> streams = streams_of_kernels(plan);
  for (size_t k = 0; k < plan.kernels.size(); ++k) {
    if (streams[k] < 0) continue;
    const auto cost = costs.find(plan.kernels[k].name, query_of(plan, plan.kernels[k], plan.streams[streams[k]]));
    if (cost) plan.kernels[k].cost_ns = *cost;
  }
  return plan;
}

std::string blame_text(const Recording& recording, BlameBy by, const TextOptions& options) {
  const Plan& plan = recording.plan;
  const Timeline timeline = timeline_of(recording);
  const std::vector<BlameRow> actors = blame_of(plan, timeline, BlameBy::kActor);
  std::string s = paint(fmt::format("plan '{}'", plan.name), Color::kBold, options) + "\n" + "  " +
                  headline_str(plan, timeline, actors) + "\n" + lost_str(recording) + "\n";
  const std::vector<BlameRow> rows = by == BlameBy::kActor ? actors : blame_of(plan, timeline, by);
  std::vector<bool> used(kSpent, false);  // columns that say something
  for (const BlameRow& row : rows)
    for (int i = 0; i < kSpent; ++i) used[i] = used[i] || row.ns[i] > 0;
  std::vector<std::vector<std::string>> cells = {{kBlameBy[static_cast<int>(by)]}};
  std::vector<bool> right = {false};
  for (int i = 0; i < kSpent; ++i) {
    if (!used[i]) continue;
    cells[0].emplace_back(spent_name(static_cast<Spent>(i)));
    right.push_back(true);
  }
  cells[0].emplace_back("waited for");
  right.push_back(false);
  for (const BlameRow& row : rows) {
    if (!options.all && cells.size() > kMostRows) break;
    std::vector<std::string>& line = cells.emplace_back();
    line.push_back(row.name);
    for (int i = 0; i < kSpent; ++i)
      if (used[i]) line.push_back(share_str(row.ns[i], row.total_ns));
    line.push_back(waits_str(plan, row, options));
  }
  s += table(cells, right, options.width);
  if (rows.size() >= cells.size()) s += fmt::format("  … {} more (--all)\n", rows.size() + 1 - cells.size());
  return s;
}

std::string blame_json(const Recording& recording, BlameBy by) {
  const Plan& plan = recording.plan;
  const Timeline timeline = timeline_of(recording);
  const std::vector<BlameRow> actors = blame_of(plan, timeline, BlameBy::kActor);
  const int last = last_actor(plan, actors);
  std::string s = fmt::format("{{\"name\": {}, \"recorded_ns\": {}, \"lost\": {}, \"by\": \"{}\", \"rows\": [",
                              quoted_json(plan.name), timeline.end_ns - timeline.begin_ns, recording.trace.lost,
                              kBlameBy[static_cast<int>(by)]);
  const char* comma = "";
  for (const BlameRow& row : by == BlameBy::kActor ? actors : blame_of(plan, timeline, by)) {
    s += fmt::format("{}\n  {{\"name\": {}, \"total_ns\": {}", std::exchange(comma, ","), quoted_json(row.name),
                     row.total_ns);
    for (int i = 0; i < kSpent; ++i) s += fmt::format(", \"{}_ns\": {}", spent_name(static_cast<Spent>(i)), row.ns[i]);
    s += ", \"waits\": [";
    const char* inner = "";
    for (const BlameWait& wait : row.waits)
      s += fmt::format("{}{{\"for\": \"{}\", \"whom\": {}, \"ns\": {}}}", std::exchange(inner, ", "),
                       spent_name(wait.spent), quoted_json(wait_str(plan, wait)), wait.ns);
    s += "]}";
  }
  s += fmt::format("],\n\"last\": {}, \"roots\": [", last < 0 ? "null" : quoted_json(plan.actors[last].name));
  comma = "";
  for (const BlameRoot& root : last < 0 ? std::vector<BlameRoot>{} : roots_of(plan, timeline, last))
    s += fmt::format("{}\n  {{\"actor\": {}, \"spent\": \"{}\", \"ns\": {}}}", std::exchange(comma, ","),
                     root.actor < 0 ? "null" : quoted_json(plan.actors[root.actor].name), spent_name(root.spent),
                     root.ns);
  return s + "]}\n";
}

namespace {

struct StreamUse {
  size_t firings = 0, kernels = 0, waits = 0;
  int64_t busy_ns = 0, cores_ns = 0, device_ns = 0;
};

std::vector<StreamUse> uses_of(const Recording& recording) {
  std::vector<StreamUse> uses(recording.plan.streams.size());
  for (const TraceEvent& e : recording.trace.events) {
    StreamUse& use = uses[e.stream];
    const int64_t ns = e.end_ns - e.begin_ns;
    (e.wait ? use.waits : e.kernel >= 0 ? use.kernels : use.firings) += 1;
    if (!e.wait && e.kernel < 0) use.busy_ns += ns;
    if (e.wait && e.cause.kind == TraceCause::Kind::kCores) use.cores_ns += ns;
    if (e.wait && e.cause.kind == TraceCause::Kind::kDevice) use.device_ns += ns;
  }
  return uses;
}

}  // namespace

std::string trace_text(const Recording& recording, const TextOptions& options) {
  const Timeline timeline = timeline_of(recording);
  const int64_t all = timeline.end_ns - timeline.begin_ns;
  std::string s = paint(fmt::format("plan '{}', {} recorded, {} events{}", recording.plan.name,
                                    time_str(static_cast<double>(all)), recording.trace.events.size(),
                                    recording.rank < 0 ? "" : fmt::format(", rank {}", recording.rank)),
                        Color::kBold, options) +
                  "\n" + lost_str(recording);
  std::vector<std::vector<std::string>> rows = {
      {"stream", "firings", "kernels", "in firings", "for cores", "for devices"}};
  const std::vector<StreamUse> uses = uses_of(recording);
  for (size_t i = 0; i < uses.size(); ++i) {
    const StreamUse& use = uses[i];
    rows.push_back({recording.plan.streams[i].name, std::to_string(use.firings), std::to_string(use.kernels),
                    share_str(use.busy_ns, all), share_str(use.cores_ns, all), share_str(use.device_ns, all)});
  }
  return s + table(rows, {false, true, true, true, true, true}, options.width);
}

std::string trace_json(const Recording& recording) {
  const Timeline timeline = timeline_of(recording);
  std::string s = fmt::format(
      "{{\"name\": {}, \"recorded_ns\": {}, \"events\": {}, \"lost\": {}, \"rank\": {}, \"tokens\": {}, "
      "\"streams\": [",
      quoted_json(recording.plan.name), timeline.end_ns - timeline.begin_ns, recording.trace.events.size(),
      recording.trace.lost, recording.rank, ways_of(recording.plan, timeline).size());
  const std::vector<StreamUse> uses = uses_of(recording);
  for (size_t i = 0; i < uses.size(); ++i)
    s += fmt::format(
        "{}\n  {{\"name\": {}, \"firings\": {}, \"kernels\": {}, \"waits\": {}, \"firings_ns\": {}, "
        "\"cores_ns\": {}, \"device_ns\": {}}}",
        i > 0 ? "," : "", quoted_json(recording.plan.streams[i].name), uses[i].firings, uses[i].kernels, uses[i].waits,
        uses[i].busy_ns, uses[i].cores_ns, uses[i].device_ns);
  return s + "]}\n";
}

std::string chrome_text(const Recording& recording) {
  TraceNames names = trace_names_of(recording.plan);
  names.rank = recording.rank;
  return chrome_trace_json(recording.trace, names);
}

std::string csv_text(const Recording& recording) {
  const Plan& plan = recording.plan;
  const auto cell = [](const std::string& text) {  // RFC 4180
    if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
    std::string s = "\"";
    for (const char c : text) s += c == '"' ? std::string("\"\"") : std::string(1, c);
    return s + "\"";
  };
  std::string s = "kind,stream,actor,kernel,kernels,step,begin_ns,end_ns\n";
  for (const TraceEvent& e : recording.trace.events)
    s += fmt::format("{},{},{},{},{},{},{},{}\n",
                     e.wait          ? "wait"
                     : e.left_out    ? "left out"
                     : e.kernel >= 0 ? "kernel"
                                     : "firing",
                     cell(plan.streams[e.stream].name), e.actor < 0 ? "" : cell(plan.actors[e.actor].name),
                     e.kernel < 0 ? "" : cell(plan.kernels[e.kernel].name), e.kernel < 0 ? 0 : e.kernels, e.step,
                     e.begin_ns, e.end_ns);
  return s;
}

}  // namespace sluice::plan_viz
