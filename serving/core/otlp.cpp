#include "serving/core/otlp.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <regex>
#include <vector>

#include "serving/core/json_string.h"
#include "sluice/version.h"

namespace sluice::serving {

namespace {

uint64_t any_number() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  uint64_t number = 0;
  while (number == 0) number = random();  // an id of zeros is none
  return number;
}

// Spans of one trace, with times by the system's clock.
class Spans {
 public:
  explicit Spans(std::string trace_id) : trace_id_(std::move(trace_id)) {
    const auto unix_ns = std::chrono::system_clock::now().time_since_epoch();
    const auto steady_ns = Clock::now().time_since_epoch();
    offset_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(unix_ns - steady_ns).count();
  }
  std::string add(const std::string& parent, const std::string& name, int kind, int64_t begin_ns, int64_t end_ns,
                  const std::string& attributes) {
    std::string id = fmt::format("{:016x}", any_number());
    fmt::format_to(std::back_inserter(text_),
                   R"({}{{"traceId":"{}","spanId":"{}",{}"name":{},"kind":{},"startTimeUnixNano":"{}",)"
                   R"("endTimeUnixNano":"{}","attributes":[{}]}})",
                   text_.empty() ? "" : ",", trace_id_, id,
                   parent.empty() ? "" : fmt::format(R"("parentSpanId":"{}",)", parent), json_string(name), kind,
                   begin_ns + offset_ns_, std::max(begin_ns, end_ns) + offset_ns_, attributes);
    return id;
  }
  const std::string& text() const { return text_; }

 private:
  const std::string trace_id_;
  int64_t offset_ns_ = 0;
  std::string text_;
};

std::string attribute(const char* key, const std::string& value) {
  return fmt::format(R"({{"key":"{}","value":{{"stringValue":{}}}}})", key, json_string(value));
}
std::string attribute(const char* key, int64_t value) {
  return fmt::format(R"({{"key":"{}","value":{{"intValue":"{}"}}}})", key, value);
}

constexpr int kInternal = 1, kServer = 2;  // kinds of spans

void add_step(Spans& spans, const std::string& parent, const StepTrace& step) {
  for (const api::TraceEvent& e : step.events) {
    const bool of_kernel = e.kind == api::TraceEvent::Kind::kKernel;
    if (!of_kernel && e.kind != api::TraceEvent::Kind::kFiring) continue;
    const api::Trace::Plan& plan = step.plans->at(static_cast<size_t>(e.plan));
    const std::string& actor = plan.actors.at(static_cast<size_t>(e.actor));
    spans.add(parent, of_kernel ? plan.kernels.at(static_cast<size_t>(e.kernel)) : actor, kInternal, e.begin_ns,
              e.end_ns,
              attribute("sluice.stream", plan.streams.at(static_cast<size_t>(e.stream))) + "," +
                  attribute("sluice.actor", actor) + "," + attribute("sluice.kernels", of_kernel ? e.kernels : 0));
  }
}

}  // namespace

TraceParent trace_parent_of(const std::string& text) {
  static const std::regex form("[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?");
  std::smatch match;
  if (text.size() > 256 || !std::regex_match(text, match, form) || text.starts_with("ff")) return {};
  TraceParent parent{match[1], match[2]};
  const auto none = [](const std::string& id) { return id.find_first_not_of('0') == std::string::npos; };
  return none(parent.trace_id) || none(parent.span_id) ? TraceParent{} : parent;
}

std::string otlp_record(const RequestTrace& trace) {
  TraceParent parent = trace_parent_of(trace.parent);
  if (parent.trace_id.empty()) parent.trace_id = fmt::format("{:016x}{:016x}", any_number(), any_number());
  Spans spans(parent.trace_id);
  const auto at = [&](Stamp stamp, Stamp otherwise) {
    const int64_t ns = trace.at_ns(stamp);
    return ns != 0 ? ns : trace.at_ns(otherwise);
  };
  std::string attributes = attribute("sluice.model", trace.model) + "," + attribute("sluice.version", trace.version) +
                           "," + attribute("sluice.trace", static_cast<int64_t>(trace.id()));
  if (!trace.request_id.empty()) attributes += "," + attribute("sluice.request_id", trace.request_id);
  const std::string request =
      spans.add(parent.span_id, "infer " + trace.model, kServer, at(Stamp::kRecvStart, Stamp::kRequestStart),
                at(Stamp::kSendEnd, Stamp::kRequestEnd), attributes);
  const int64_t queued = trace.at_ns(Stamp::kQueueStart), begun = trace.at_ns(Stamp::kComputeStart);
  if (queued != 0 && begun != 0) spans.add(request, "queue", kInternal, queued, begun, "");
  if (begun != 0 && trace.at_ns(Stamp::kComputeEnd) != 0) {
    const std::string compute = spans.add(
        request, "compute", kInternal, begun, trace.at_ns(Stamp::kComputeEnd),
        attribute("sluice.instance", int64_t{trace.instance()}) + "," + attribute("sluice.step", trace.step()));
    for (const auto& step : trace.steps()) add_step(spans, compute, *step);
  }
  return fmt::format(R"({{"resourceSpans":[{{"resource":{{"attributes":[{}]}},"scopeSpans":[{{"scope":)"
                     R"({{"name":"sluice-serve","version":"{}"}},"spans":[{}]}}]}}]}})",
                     attribute("service.name", "sluice-serve"), SLUICE_VERSION, spans.text());
}

}  // namespace sluice::serving
