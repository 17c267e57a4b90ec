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

}  // namespace

std::string chrome_trace_json(const std::vector<TraceEvent>& events, const TraceNames& names) {
  const int process = std::max(names.rank, 0) + 1;
  std::string out =
      fmt::format("{{\"displayTimeUnit\":\"ns\",\"beginUnixNs\":{},\"traceEvents\":[\n", names.begin_unix_ns);
  for (size_t i = 0; i < names.streams.size(); ++i)
    out += fmt::format("{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}},\n",
                       process, i, quoted_json(names.streams[i]));
  for (const TraceEvent& e : events) {
    std::string what = e.wait          ? std::string("wait")
                       : e.kernel >= 0 ? name_at(names.kernels, e.kernel)
                                       : name_at(names.actors, e.actor);
    if (e.kernels > 1) what += fmt::format(" and {} more", e.kernels - 1);
    out += fmt::format(
        "{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"name\":{},\"cat\":\"{}\",\"args\":{{"
        "\"step\":{}}}}},\n",
        process, e.stream, e.begin_ns / 1e3, (e.end_ns - e.begin_ns) / 1e3, quoted_json(what),
        e.wait          ? "wait"
        : e.kernel >= 0 ? "kernel"
                        : "firing",
        e.step);
  }
  const std::string name = names.rank < 0 ? "sluice" : fmt::format("sluice rank {}", names.rank);
  return out + fmt::format("{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_name\",\"args\":{{\"name\":{}}}}}\n]}}\n",
                           process, quoted_json(name));
}

}  // namespace sluice
