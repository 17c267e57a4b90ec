// include/sluice/diagnostics.h, forwarded.
#include "base/error.h"
#include "base/log.h"
#include "include/sluice/sluice.hpp"
#include "runtime/report/describe.h"

namespace sluice::api {

std::string describe(bool json) { return sluice::describe(json); }

void set_log(const std::string& spec) {
  try {
    sluice::set_log(spec);
  } catch (const sluice::Error& error) {
    throw Error(static_cast<ErrorKind>(error.kind()), error.what());
  }
}

std::string log_spec() { return sluice::log_spec(); }

void set_log_sink(std::function<void(std::string_view line)> sink) { sluice::set_log_sink(std::move(sink)); }

}  // namespace sluice::api
