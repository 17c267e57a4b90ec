#include "tools/plan_viz/summary.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <map>
#include <span>
#include <utility>

#include "base/dtype.h"
#include "base/shape.h"
#include "plan/json/json.h"
#include "plan/verify.h"
#include "tools/plan_viz/text.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

constexpr int64_t kParts = 60;
constexpr size_t kMostTasks = 20;

// -1: of a control register, or absent.
int space_of(const Plan& plan, const View& view) {
  if (is_absent(view)) return -1;
  if (view.base == BaseKind::kVariable) return plan.variables[view.index].space;
  if (view.base == BaseKind::kBuffer) return plan.arenas[plan.buffers[view.index].arena].space;
  const std::vector<int>& slots = plan.registers[view.index].slots;
  return slots.empty() ? -1 : plan.arenas[plan.buffers[slots[0]].arena].space;
}

uint64_t view_bytes(const View& view) {
  return is_absent(view) ? 0 : static_cast<uint64_t>(numel(view.spec.shape)) * dtype_size(view.spec.dtype);
}

// Kernels that ran as one, from the first on, in the order of their actor's program.
class Programs {
 public:
  explicit Programs(const Plan& plan) : kernels_(plan.actors.size()), place_(plan.kernels.size(), {-1, 0}) {
    for (size_t a = 0; a < plan.actors.size(); ++a) {
      for (const Instr& i : plan.actors[a].program) {
        if (i.kind != InstrKind::kRun) continue;
        place_[i.index] = {static_cast<int>(a), kernels_[a].size()};
        kernels_[a].push_back(i.index);
      }
    }
  }
  template <class F>
  void each(const RunSpan& span, F&& f) const {
    const auto [actor, place] = place_[span.kernel];
    if (actor < 0) return;
    for (size_t i = place; i < kernels_[actor].size() && i < place + static_cast<size_t>(span.kernels); ++i)
      f(kernels_[actor][i]);
  }

 private:
  std::vector<std::vector<int>> kernels_;      // per actor
  std::vector<std::pair<int, size_t>> place_;  // per kernel: its actor, and which of that one's kernels it is
};

class Summing {
 public:
  Summing(const Plan& plan, const Run& run, const std::vector<int64_t>& critical) : plan_(plan), programs_(plan) {
    s_.total_ns = run.total_ns;
    s_.actors.resize(plan.actors.size());
    s_.lanes.resize(plan.streams.size() * static_cast<size_t>(run.instances));
    for (int64_t i = 0; i < kParts; ++i)
      s_.parts.push_back({run.total_ns * i / kParts, run.total_ns * (i + 1) / kParts, 0});
    std::vector<bool> in_cycle(plan.actors.size(), false);
    for (const int64_t actor : critical) in_cycle[static_cast<size_t>(actor)] = true;
    for (const RunFiring& firing : run.firings) {
      RunSummary::Lane& lane = s_.lanes[firing.lane];
      ++lane.firings;
      ++s_.actors[firing.actor].firings;
      lane.firings_ns += firing.end_ns - firing.begin_ns;
      for (const RunSpan& span : firing.spans) add(firing, span, in_cycle[firing.actor]);
    }
  }

  RunSummary done() {
    for (auto& [kernel, task] : tasks_) s_.tasks.push_back(task);
    std::ranges::stable_sort(s_.tasks, std::ranges::greater{},
                             [](const RunSummary::Task& task) { return std::pair(task.critical, task.total_ns); });
    for (auto& [width, bucket] : buckets_) s_.buckets.push_back(bucket);
    for (auto& [ends, link] : links_) s_.links.push_back(link);
    count_levels();
    return std::move(s_);
  }

 private:
  void add(const RunFiring& firing, const RunSpan& span, bool critical) {
    const int64_t ns = span.end_ns - span.begin_ns;
    s_.lanes[firing.lane].kernels += span.kernels;
    s_.lanes[firing.lane].kernels_ns += ns;
    s_.actors[firing.actor].kernels_ns += ns;
    RunSummary::Task& task = tasks_[span.kernel];
    task.kernel = span.kernel;
    task.critical = critical;
    ++task.runs;
    task.total_ns += ns;
    task.longest_ns = std::max(task.longest_ns, ns);
    const int width = static_cast<int>(std::bit_width(static_cast<uint64_t>(ns)));
    RunSummary::Bucket& bucket = buckets_[width];
    bucket.from_ns = width == 0 ? 0 : int64_t{1} << (width - 1);
    bucket.to_ns = int64_t{1} << width;
    ++bucket.runs;
    bucket.total_ns += ns;
    if (ns > 0) changes_.insert(changes_.end(), {{span.begin_ns, 1}, {span.end_ns, -1}});
    spread(span.begin_ns, span.end_ns);
    programs_.each(span, [&](int kernel) { move(firing.actor, plan_.kernels[kernel], ns); });
  }

  void spread(int64_t begin_ns, int64_t end_ns) {
    auto part = std::ranges::upper_bound(s_.parts, begin_ns, {}, &RunSummary::Part::to_ns);
    for (; part != s_.parts.end() && part->from_ns < end_ns; ++part)
      part->busy_ns += std::max<int64_t>(0, std::min(end_ns, part->to_ns) - std::max(begin_ns, part->from_ns));
  }

  void move(int actor, const Kernel& kernel, int64_t ns) {
    s_.actors[actor].bytes += bytes_of(kernel);
    for (const Move& move : moves_of(plan_, kernel)) {
      RunSummary::Link& link = links_[{move.from, move.to}];
      link.from = move.from;
      link.to = move.to;
      link.bytes += move.bytes;
      link.total_ns += ns;
      ++link.transfers;
    }
  }

  void count_levels() {
    std::ranges::sort(changes_);
    int64_t at = 0;
    size_t running = 0;
    const auto until = [&](int64_t ns) {
      if (s_.levels.size() <= running) s_.levels.resize(running + 1);
      s_.levels[running] += ns - at;
      at = ns;
    };
    for (const auto& [ns, change] : changes_) {
      until(ns);
      running += static_cast<size_t>(change);
    }
    until(s_.total_ns);
  }

  const Plan& plan_;
  const Programs programs_;
  RunSummary s_;
  std::map<int, RunSummary::Task> tasks_;
  std::map<int, RunSummary::Bucket> buckets_;
  std::map<std::pair<int, int>, RunSummary::Link> links_;
  std::vector<std::pair<int64_t, int>> changes_;
};

// Elements of a list of JSON.
template <class List, class One>
std::string list_of(const List& list, One one) {
  std::string s = "[";
  for (const auto& item : list) s += (s.size() > 1 ? "," : "") + one(item);
  return s + "]";
}

std::string lane_name(const Plan& plan, const Run& run, size_t lane) {
  const size_t streams = plan.streams.size();
  const std::string& name = plan.streams[lane % streams].name;
  return run.instances > 1 ? fmt::format("instance {} {}", lane / streams, name) : name;
}

}  // namespace

std::vector<Move> moves_of(const Plan& plan, const Kernel& kernel) {
  std::vector<Move> moves;
  const int to = kernel.outputs.empty() ? -1 : space_of(plan, kernel.outputs[0]);
  for (const View& view : kernel.inputs) {
    const int from = space_of(plan, view);
    if (from >= 0 && to >= 0 && from != to) moves.push_back({from, to, view_bytes(view)});
  }
  return moves;
}

uint64_t bytes_of(const Kernel& kernel) {
  uint64_t bytes = 0;
  for (const View& view : kernel.inputs) bytes += view_bytes(view);
  for (const View& view : kernel.outputs) bytes += view_bytes(view);
  return bytes;
}

RunSummary summary_of(const Plan& plan, const Run& run, const std::vector<int64_t>& critical) {
  return Summing(plan, run, critical).done();
}

std::string panels_json(const Plan& plan, const Run& run, const RunSummary& summary) {
  std::string s = "{\"parallelism\":" + list_of(summary.parts, [](const RunSummary::Part& part) {
                    return fmt::format("[{},{},{}]", part.from_ns, part.to_ns, part.busy_ns);
                  });
  s += fmt::format(",\"levels\":[{}]", fmt::join(summary.levels, ","));
  const size_t shown = std::min(kMostTasks, summary.tasks.size());
  s += ",\"tasks\":" + list_of(std::span(summary.tasks).first(shown), [&](const RunSummary::Task& task) {
         return fmt::format("{{\"kernel\":{},\"runs\":{},\"total_ns\":{},\"longest_ns\":{},\"critical\":{}}}",
                            quoted_json(plan.kernels[task.kernel].name), task.runs, task.total_ns, task.longest_ns,
                            task.critical);
       });
  size_t lane = 0;
  s += ",\"utilization\":" + list_of(summary.lanes, [&](const RunSummary::Lane& use) {
         return fmt::format(
             "{{\"stream\":{},\"firings\":{},\"kernels\":{},\"firings_ns\":{},\"kernels_ns\":{},\"share\":{}}}",
             quoted_json(lane_name(plan, run, lane++)), use.firings, use.kernels, use.firings_ns, use.kernels_ns,
             summary.total_ns > 0 ? static_cast<double>(use.kernels_ns) / static_cast<double>(summary.total_ns) : 0);
       });
  s += ",\"durations\":" + list_of(summary.buckets, [](const RunSummary::Bucket& bucket) {
         return fmt::format("[{},{},{},{}]", bucket.from_ns, bucket.to_ns, bucket.runs, bucket.total_ns);
       });
  return s + "}";
}

namespace {

std::string part_str(int64_t part, int64_t of) {
  return fmt::format("{:.1f}%", of > 0 ? 100 * static_cast<double>(part) / static_cast<double>(of) : 0);
}
std::string ns_str(int64_t ns) { return time_str(static_cast<double>(ns)); }

// Bytes per nanosecond are gigabytes per second.
std::string rate_str(uint64_t bytes, int64_t ns) {
  return ns > 0 ? fmt::format("{:.3g} GB/s", static_cast<double>(bytes) / static_cast<double>(ns)) : "";
}

// A block bar whose height is the share of `part` in `of`.
std::string block(int64_t part, int64_t of) {
  constexpr const char* kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const int64_t height = of > 0 ? (8 * part + of - 1) / of : 0;
  return kBlocks[std::clamp<int64_t>(height, 0, 8)];
}

std::string parallelism_text(const RunSummary& s) {
  int64_t most = 0;
  for (const RunSummary::Part& part : s.parts) most = std::max(most, part.busy_ns);
  std::string text = "  kernels at once, over time  |";
  for (const RunSummary::Part& part : s.parts) text += block(part.busy_ns, most);
  text += "|\n ";
  for (size_t n = 0; n < s.levels.size(); ++n) text += fmt::format(" {}: {}", n, part_str(s.levels[n], s.total_ns));
  return text + "\n";
}

std::string lanes_text(const Plan& plan, const Run& run, const RunSummary& s, const TextOptions& options) {
  std::vector<std::vector<std::string>> rows = {{"stream", "firings", "kernels", "in kernels", "share"}};
  for (size_t i = 0; i < s.lanes.size(); ++i)
    rows.push_back({lane_name(plan, run, i), std::to_string(s.lanes[i].firings), std::to_string(s.lanes[i].kernels),
                    ns_str(s.lanes[i].kernels_ns), part_str(s.lanes[i].kernels_ns, s.total_ns)});
  return table(rows, {false, true, true, true, true}, options.width);
}

std::string tasks_text(const Plan& plan, const RunSummary& s, const TextOptions& options) {
  std::vector<std::vector<std::string>> rows = {{"critical task", "runs", "all", "longest", ""}};
  for (size_t i = 0; i < std::min(kMostTasks, s.tasks.size()); ++i)
    rows.push_back({plan.kernels[s.tasks[i].kernel].name, std::to_string(s.tasks[i].runs), ns_str(s.tasks[i].total_ns),
                    ns_str(s.tasks[i].longest_ns), s.tasks[i].critical ? "in the critical cycle" : ""});
  return table(rows, {false, true, true, true, false}, options.width);
}

std::string buckets_text(const RunSummary& s, const TextOptions& options) {
  std::vector<std::vector<std::string>> rows = {{"a kernel took", "runs", "all"}};
  for (const RunSummary::Bucket& b : s.buckets)
    rows.push_back(
        {fmt::format("{} to {}", ns_str(b.from_ns), ns_str(b.to_ns)), std::to_string(b.runs), ns_str(b.total_ns)});
  return table(rows, {false, true, true}, options.width);
}

std::string actors_text(const Plan& plan, const RunSummary& s, const TextOptions& options) {
  std::vector<size_t> order;
  for (size_t a = 0; a < s.actors.size(); ++a)
    if (s.actors[a].bytes > 0) order.push_back(a);
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](size_t a) { return s.actors[a].bytes; });
  std::vector<std::vector<std::string>> rows = {{"actor", "firings", "in kernels", "reads and writes", ""}};
  for (size_t i = 0; i < std::min(kMostTasks, order.size()); ++i) {
    const RunSummary::Actor& actor = s.actors[order[i]];
    rows.push_back({plan.actors[order[i]].name, std::to_string(actor.firings), ns_str(actor.kernels_ns),
                    short_bytes(actor.bytes), rate_str(actor.bytes, actor.kernels_ns)});
  }
  std::string text = table(rows, {false, true, true, true, true}, options.width);
  if (order.size() > kMostTasks) text += fmt::format("  … {} more (--json)\n", order.size() - kMostTasks);
  if (s.links.empty()) return text;
  rows = {{"from", "to", "transfers", "bytes", ""}};
  for (const RunSummary::Link& link : s.links)
    rows.push_back({plan.spaces[link.from].str(), plan.spaces[link.to].str(), std::to_string(link.transfers),
                    short_bytes(link.bytes), rate_str(link.bytes, link.total_ns)});
  return text + table(rows, {false, false, true, true, true}, options.width);
}

}  // namespace

std::string runs_text(const Page& page, const TextOptions& options) {
  std::string s;
  const Drawn shown = drawn(page, !verify(*page.plan).ok());
  for (const Run& run : shown.runs) {
    const RunSummary summary = summary_of(shown.plan, run, shown.critical);
    s += "\n" + paint(fmt::format("{} run, {}", run.name, ns_str(run.total_ns)), Color::kBold, options) + "\n";
    if (run.total_ns == 0) continue;
    s += parallelism_text(summary) + lanes_text(shown.plan, run, summary, options);
    s += tasks_text(shown.plan, summary, options) + buckets_text(summary, options);
    s += actors_text(shown.plan, summary, options);
  }
  return s;
}

std::string runs_summary_json(const Page& page) {
  const Drawn shown = drawn(page, !verify(*page.plan).ok());
  return list_of(shown.runs, [&](const Run& run) {
    const RunSummary summary = summary_of(shown.plan, run, shown.critical);
    size_t a = 0;
    const std::string actors = list_of(summary.actors, [&](const RunSummary::Actor& actor) {
      return fmt::format(
          "{{\"actor\":{},\"firings\":{},\"kernels_ns\":{},\"bytes\":{},\"gb_per_s\":{}}}",
          quoted_json(shown.plan.actors[a++].name), actor.firings, actor.kernels_ns, actor.bytes,
          actor.kernels_ns > 0 ? static_cast<double>(actor.bytes) / static_cast<double>(actor.kernels_ns) : 0);
    });
    const std::string links = list_of(summary.links, [&](const RunSummary::Link& link) {
      return fmt::format("{{\"from\":{},\"to\":{},\"transfers\":{},\"bytes\":{},\"total_ns\":{}}}",
                         quoted_json(shown.plan.spaces[link.from].str()), quoted_json(shown.plan.spaces[link.to].str()),
                         link.transfers, link.bytes, link.total_ns);
    });
    return fmt::format("\n{{\"run\":{},\"total_ns\":{},\"panels\":{},\n\"actors\":{},\"links\":{}}}",
                       quoted_json(run.name), run.total_ns, panels_json(shown.plan, run, summary), actors, links);
  });
}

}  // namespace sluice::plan_viz
