// requests: what a server's traced requests waited for, and what the engine did for each.
#include <fmt/ranges.h>

#include "plan/json/json.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

namespace {

// Nanoseconds that the events of a kind took, all together.
double sum_ns(const ServedTrace& trace, const ServedRequest& request, ServedEvent::Kind kind, size_t& count) {
  double sum = 0;
  for (const int s : request.steps) {
    for (const ServedEvent& event : trace.steps[static_cast<size_t>(s)].events) {
      if (event.kind != kind) continue;
      ++count;
      sum += static_cast<double>(event.end_ns - event.begin_ns);
    }
  }
  return sum;
}

std::string span_str(const ServedRequest& request, std::string_view from, std::string_view to) {
  const int64_t begin = request.at_ns(from), end = request.at_ns(to);
  return end == 0 ? "-" : time_str(static_cast<double>(end - begin));
}

std::vector<uint64_t> mates_of(const ServedTrace& trace, const ServedRequest& request) {
  std::vector<uint64_t> ids;
  for (const int s : request.steps)
    for (const uint64_t id : trace.steps[static_cast<size_t>(s)].ids)
      if (id != request.id && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  return ids;
}

}  // namespace

std::string requests_text(const plan::Plan& plan, const ServedTrace& trace, const TextOptions& options) {
  std::vector<std::vector<std::string>> lines = {
      {"id", "instance", "step", "queue", "compute", "in kernels", "firings", "kernels", "with", "request"}};
  for (const ServedRequest& request : trace.requests) {
    const ServedStep& step = trace.steps[static_cast<size_t>(request.steps.back())];
    size_t firings = 0, kernels = 0;
    sum_ns(trace, request, ServedEvent::Kind::kFiring, firings);
    const double in_kernels = sum_ns(trace, request, ServedEvent::Kind::kKernel, kernels);
    lines.push_back({std::to_string(request.id), std::to_string(step.instance), std::to_string(step.number),
                     span_str(request, "QUEUE_START", "COMPUTE_START"),
                     span_str(request, "COMPUTE_START", "COMPUTE_END"), time_str(in_kernels), std::to_string(firings),
                     std::to_string(kernels), fmt::format("{}", fmt::join(mates_of(trace, request), " ")),
                     request.request_id});
  }
  std::string what = fmt::format("plan '{}', {}, {}", plan.name, count_str(trace.requests.size(), "request"),
                                 count_str(trace.steps.size(), "step"));
  if (trace.unjoined > 0) what += fmt::format("; {} more without the engine's events", trace.unjoined);
  if (trace.others > 0) what += fmt::format("; {} of other plans", trace.others);
  return paint(what, Color::kBold, options) + "\n" +
         table(lines, {true, true, true, true, true, true, true, true, false, false}, options.width);
}

std::string requests_json(const plan::Plan& plan, const ServedTrace& trace) {
  const auto event_json = [&](const ServedEvent& event) {
    const char* const kinds[] = {"firing", "kernel", "wait", "left out"};
    return fmt::format(R"({{"kind": "{}", "stream": {}, "actor": {}, "name": {}, "begin_ns": {}, "end_ns": {}}})",
                       kinds[static_cast<int>(event.kind)],
                       plan::quoted_json(plan.streams[plan.actors[event.actor].stream].name),
                       plan::quoted_json(plan.actors[event.actor].name), plan::quoted_json(name_of(plan, event)),
                       event.begin_ns, event.end_ns);
  };
  std::string s = fmt::format(R"({{"plan": {}, "unjoined": {}, "others": {}, "requests": [)",
                              plan::quoted_json(plan.name), trace.unjoined, trace.others);
  const char* comma = "";
  for (const ServedRequest& r : trace.requests) {
    std::string stamps;
    for (const auto& [name, ns] : r.stamps)
      stamps += fmt::format("{}{}: {}", stamps.empty() ? "" : ", ", plan::quoted_json(name), ns);
    s += fmt::format(
        "{}\n  {{\"id\": {}, \"request_id\": {}, \"model\": {}, \"version\": {}, \"steps\": [{}], \"stamps\": {{{}}}}}",
        comma, r.id, plan::quoted_json(r.request_id), plan::quoted_json(r.model), plan::quoted_json(r.version),
        fmt::join(r.steps, ", "), stamps);
    comma = ",";
  }
  s += "],\n\"steps\": [";
  comma = "";
  for (const ServedStep& step : trace.steps) {
    std::string events;
    for (const ServedEvent& event : step.events) events += (events.empty() ? "" : ",\n    ") + event_json(event);
    s += fmt::format("{}\n  {{\"ids\": [{}], \"instance\": {}, \"number\": {}, \"events\": [\n    {}]}}", comma,
                     fmt::join(step.ids, ", "), step.instance, step.number, events);
    comma = ",";
  }
  return s + "]}\n";
}

}  // namespace sluice::plan_viz
