#pragma once
// Load of one level: so many requests at a time, or so many a second, measured in windows until they agree.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tools/sluice_perf/target.h"

namespace sluice::perf {

// A level sets one of both.
struct Level {
  int concurrency = 0;       // closed loop: as many requests under way, each followed by the next
  double request_rate = 0;   // open loop: requests a second, whether or not earlier ones were answered
  std::string name() const;  // "4", "250/s"
};

enum class Arrivals { kPoisson, kConstant };

struct LoadOptions {
  double warmup_s = 1, window_s = 2;
  int windows = 3;         // that must agree
  int max_windows = 10;    // then the last ones are taken as they are
  double stability = 0.1;  // by which they may differ in throughput and p50
  Arrivals arrivals = Arrivals::kPoisson;
  uint64_t seed = 1;
  int max_connections = 512;  // of the open loop, whose further requests wait for one; the wait counts
  double timeout_s = 60;      // without an answer, which is an error of status 0
  bool expect_equal = false;  // all answers to a request must be equal to its first
};

struct Summary {
  uint64_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, p999 = 0, max = 0;  // us
};
Summary summarize(std::vector<int64_t> ns);

struct LevelResult {
  Level level;
  double seconds = 0;
  double throughput = 0;           // requests answered well, a second
  double offered = 0;              // requests begun, a second
  Summary ok, failed;              // latencies; of the open loop from when the request was due
  std::map<int, uint64_t> errors;  // by status; 0: no answer
  std::string first_error;         // what the first of them said
  uint64_t different = 0;          // answers unlike the first
  uint64_t dropped = 0;  // requests sent again, since the server had closed their connection without an answer
  int windows = 0, connections = 0;
  bool stable = false;
  ServerTimes server;        // during what was measured
  double forecast_rows = 0;  // of a step; 0: not asked for
};

// Sends `requests`, whole HTTP requests, in turn. `progress` is called about ten times a second with a line for people.
// Throws std::runtime_error when the server cannot be reached at all.
LevelResult run_level(const Target& target, const std::vector<std::string>& requests, const Level& level,
                      const LoadOptions& options, const std::function<void(const std::string& line)>& progress);

}  // namespace sluice::perf
