#include "base/trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_text.h"

namespace sluice {
namespace {

const std::string& name_at(const std::vector<std::string>& names, int index) {
  static const std::string kUnknown = "?";
  return index >= 0 && index < static_cast<int>(names.size()) ? names[index] : kUnknown;
}

// Says what the event's kernel is part of, as more members of its "args".
std::string origin_args(const TraceEvent& e, const TraceNames& names) {
  if (e.wait || e.kernel < 0 || e.kernel >= static_cast<int>(names.origins.size())) return "";
  const Provenance& origin = names.origins[e.kernel];
  return fmt::format(",\"line\":{},\"module\":{},\"role\":\"{}\"", quoted_json(origin.source.str()),
                     quoted_json(origin.module), role_name(origin.role));
}

std::string tag_arg(const TraceEvent& e, const TraceNames& names) {
  const auto found = e.actor < 0 ? names.tags.end() : names.tags.find(e.step);
  return found == names.tags.end() ? "" : ",\"tag\":" + quoted_json(found->second);
}

std::string cause_str(const TraceCause& cause, const TraceNames& names) {
  switch (cause.kind) {
    case TraceCause::Kind::kNone: return "";
    case TraceCause::Kind::kData: return "data '" + name_at(names.edges, cause.index) + "'";
    case TraceCause::Kind::kCredit: return "a slot of '" + name_at(names.registers, cause.index) + "'";
    case TraceCause::Kind::kStart: return "a step";
    case TraceCause::Kind::kStream: return "its stream";
    case TraceCause::Kind::kCores: return "cores";
    case TraceCause::Kind::kDevice: return "a device";
  }
  return "";
}

std::string cause_arg(const TraceEvent& e, const TraceNames& names) {
  const std::string cause = cause_str(e.cause, names);
  return cause.empty() ? "" : ",\"cause\":" + quoted_json(cause);
}

int process_of(const TraceNames& names) { return std::max(names.rank, 0) + 1; }

// A stream's thread in the file. Perfetto takes number 0 for the first thread of the process, which may be another
// stream's.
size_t thread_of(size_t stream) { return stream + 1; }

// Readers multiply by 1,000 and cut off or round: a fifth of a nanosecond more keeps them from the one before. Perfetto
// drops slices that seem to end behind the beginning of the next.
double microseconds(int64_t ns) { return static_cast<double>(ns) / 1e3 + 2e-4; }

}  // namespace

std::string chrome_trace_head(const TraceNames& names, int64_t begin_unix_ns) {
  std::string out = fmt::format("{{\"displayTimeUnit\":\"ns\",\"beginUnixNs\":{},\"traceEvents\":[\n", begin_unix_ns);
  for (size_t i = 0; i < names.streams.size(); ++i)
    out += fmt::format("{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}},\n",
                       process_of(names), thread_of(i), quoted_json(names.streams[i]));
  return out;
}

std::string chrome_trace_events(const std::vector<TraceEvent>& events, const TraceNames& names) {
  std::string out;
  for (const TraceEvent& e : events) {
    std::string what = e.wait && e.cause.kind != TraceCause::Kind::kNone ? "wait for " + cause_str(e.cause, names)
                       : e.wait                                          ? std::string("wait")
                       : e.kernel >= 0                                   ? name_at(names.kernels, e.kernel)
                                                                         : name_at(names.actors, e.actor);
    if (e.kernels > 1) what += fmt::format(" and {} more", e.kernels - 1);
    out += fmt::format(
        "{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.4f},\"dur\":{:.4f},\"name\":{},\"cat\":\"{}\",\"args\":{{"
        "\"step\":{}{}{}{}}}}},\n",
        process_of(names), thread_of(static_cast<size_t>(e.stream)), microseconds(e.begin_ns),
        microseconds(e.end_ns - e.begin_ns), quoted_json(what),
        e.wait          ? "wait"
        : e.left_out    ? "left out"
        : e.kernel >= 0 ? "kernel"
                        : "firing",
        e.step, cause_arg(e, names), tag_arg(e, names), origin_args(e, names));
  }
  return out;
}

std::string chrome_trace_tail(const TraceNames& names, uint64_t lost) {
  const std::string name = names.rank < 0 ? "sluice" : fmt::format("sluice rank {}", names.rank);
  return fmt::format(
      "{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_name\",\"args\":{{\"name\":{}}}}}\n],\"lostEvents\":{}}}\n",
      process_of(names), quoted_json(name), lost);
}

std::string chrome_trace_json(const Trace& trace, const TraceNames& names) {
  return chrome_trace_head(names, trace.begin_unix_ns) + chrome_trace_events(trace.events, names) +
         chrome_trace_tail(names, trace.lost);
}

}  // namespace sluice
