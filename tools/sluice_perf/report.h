#pragma once
// Shows what was measured: for people, as CSV, as JSON, and as a picture.
#include <string>
#include <vector>

#include "tools/sluice_perf/load.h"

namespace sluice::perf {

std::string table_head();
std::string table_row(const LevelResult& result);
std::string csv(const std::vector<LevelResult>& results);
std::string json_text(const std::string& model, const std::vector<LevelResult>& results);
// Latency against throughput as SVG: a line for each of p50, p90 and p99, a point for each level.
std::string picture(const std::string& title, const std::vector<LevelResult>& results);

// Rows of a step against requests a second: what was measured, and what was forecast.
std::string batch_picture(const std::string& title, const std::vector<LevelResult>& results);

}  // namespace sluice::perf
