#pragma once
// The server that is measured, and one call at a time to it.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/sluice_perf/forecast.h"

namespace sluice::perf {

struct Target {
  std::string host = "127.0.0.1", port = "8000";
  std::string base;  // path before /v2
  std::string model, version;
  std::string model_path() const;  // "/v2/models/digits/versions/1", after the base path
};

// Parses "host:port", "[::1]:8000", "http://host:port/base". Throws std::runtime_error.
Target parse_target(const std::string& url);

struct Answer {
  int status = 0;
  std::string body;
};

// One request, on a connection of its own. Throws std::runtime_error when there is no answer.
Answer call(const Target& target, const std::string& method, const std::string& path, const std::string& body = "");

// The model as its metadata and config tell.
struct ModelTensor {
  std::string name, datatype;
  std::vector<int64_t> shape;  // -1: any; with the batch
};
struct ModelInfo {
  std::string name, version;
  std::vector<ModelTensor> inputs, outputs;
  int64_t max_batch = 0;
};
ModelInfo model_info(const Target& target);

// The server's counts of the model so far, in ns, of all versions asked for.
struct ServerTimes {
  uint64_t requests = 0, executions = 0, inferences = 0;
  uint64_t queue = 0, input = 0, infer = 0, output = 0;
  ServerTimes since(const ServerTimes& before) const;
};
ServerTimes server_times(const Target& target);
// The steps that the server ran so far, by their rows.
StepTimes step_times(const Target& target);

}  // namespace sluice::perf
