#pragma once
// The requests to send: whole HTTP requests, made once from the model's metadata, or from a log of requests.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/sluice_perf/target.h"

namespace sluice::perf {

struct InputOptions {
  std::string data = "random";  // "random", "zero", a file of JSON, or a folder with a file of raw bytes per input
  int64_t batch = 1;
  std::map<std::string, std::vector<int64_t>> shapes;  // of inputs with dims of any size, without the batch
  size_t string_length = 16;                           // of random elements of BYTES
  uint64_t seed = 1;
  std::string extra_headers;  // "authorization: Bearer x\r\n"
};

// Throws std::runtime_error with what is missing.
std::vector<std::string> make_requests(const Target& target, const ModelInfo& model, const InputOptions& options);

std::string get_request(const Target& target, const std::string& path, const std::string& extra_headers);

// The requests of a log that sluice-serve --request-log wrote, as they were, for the models they name.
std::vector<std::string> logged_requests(const Target& target, const std::string& file);

}  // namespace sluice::perf
