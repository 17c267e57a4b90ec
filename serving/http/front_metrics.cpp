#include "serving/http/front_metrics.h"

#include <fmt/format.h>

namespace sluice::serving {

std::string front_metrics(const MemoryBudget& memory, int connections) {
  const auto gauge = [](const char* name, const char* help, uint64_t value) {
    return fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n{0} {2}\n", name, help, value);
  };
  return gauge("nv_request_memory_bytes", "Bytes that requests and their answers hold", memory.held()) +
         gauge("nv_request_memory_kept_bytes", "Bytes that are kept for the next requests", memory.kept()) +
         gauge("nv_request_memory_limit_bytes", "Bytes that both may be together", memory.limit()) +
         gauge("nv_http_connections", "Connections of HTTP", static_cast<uint64_t>(connections));
}

}  // namespace sluice::serving
