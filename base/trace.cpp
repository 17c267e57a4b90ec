#include "base/trace.h"

#include <fmt/format.h>

#include "base/json_text.h"

namespace sluice {
namespace {

const std::string& name_at(const std::vector<std::string>& names, int index) {
  static const std::string kUnknown = "?";
  return index >= 0 && index < static_cast<int>(names.size()) ? names[index] : kUnknown;
}

}  // namespace

std::string chrome_trace_json(const std::vector<TraceEvent>& events, const TraceNames& names) {
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  for (size_t i = 0; i < names.streams.size(); ++i)
    out += fmt::format("{{\"ph\":\"M\",\"pid\":1,\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}},\n", i,
                       quoted_json(names.streams[i]));
  for (const TraceEvent& e : events) {
    std::string what = e.wait          ? std::string("wait")
                       : e.kernel >= 0 ? name_at(names.kernels, e.kernel)
                                       : name_at(names.actors, e.actor);
    if (e.kernels > 1) what += fmt::format(" and {} more", e.kernels - 1);
    out += fmt::format(
        "{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"name\":{},\"cat\":\"{}\",\"args\":{{"
        "\"step\":{}}}}},\n",
        e.stream, e.begin_ns / 1e3, (e.end_ns - e.begin_ns) / 1e3, quoted_json(what),
        e.wait          ? "wait"
        : e.kernel >= 0 ? "kernel"
                        : "firing",
        e.step);
  }
  out += "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"sluice\"}}\n]}\n";
  return out;
}

}  // namespace sluice
