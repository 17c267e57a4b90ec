#pragma once
// For whoever looks for what is wrong.
#include <string>
#include <string_view>

#include "export.h"
#include "standard.h"

namespace sluice::api {

// Describes what this process runs on and with: versions, build, machine, devices, environment. The thing to paste into
// a bug report: no user names, host names or paths. As text, or as one JSON object.
SLUICE_API std::string describe(bool json = false);

// Sets what is logged, as the environment variable SLUICE_LOG does at the start: "warn,plan=debug,json".
// Throws kValue naming the first part that is wrong.
SLUICE_API void set_log(const std::string& spec);
// The levels in force, in the form that set_log() takes.
SLUICE_API std::string log_spec();
// Sets the function that takes lines of the log, without their newlines, from one thread at a time; null: to stderr, or
// SLUICE_LOG_FILE. `sink` must not throw or call Sluice. Once this returns, the sink that was there before is not
// called any more.
SLUICE_API void set_log_sink(std::function<void(std::string_view line)> sink);

}  // namespace sluice::api
