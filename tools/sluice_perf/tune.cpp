#include "tools/sluice_perf/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <stdexcept>

namespace sluice::perf {

namespace json = boost::json;

std::string Candidate::name() const {
  std::string name = fmt::format("{} instance{}", instances, instances == 1 ? "" : "s");
  if (batching) name += delay_us == 0 ? ", batching" : fmt::format(", batching, delay {} us", delay_us);
  return name;
}

std::string Candidate::text() const {
  std::string text = fmt::format("instance_group {{ count: {} }}\n", instances);
  if (batching && delay_us == 0) text += "dynamic_batching { }\n";
  if (batching && delay_us > 0)
    text += fmt::format("dynamic_batching {{ max_queue_delay_microseconds: {} }}\n", delay_us);
  return text;
}

std::vector<Candidate> candidates(int64_t max_batch, int cores, const std::vector<int64_t>& delays_us) {
  std::vector<Candidate> all;
  for (int instances = 1; instances <= std::max(cores, 1); instances *= 2) {
    all.push_back({instances, false, 0});
    if (max_batch < 2) continue;
    all.push_back({instances, true, 0});
    for (const int64_t delay : delays_us) all.push_back({instances, true, delay});
  }
  return all;
}

std::string config_of(const Target& target) {
  const std::string path = target.model_path() + "/config";
  const Answer answer = call(target, "GET", path);
  json::error_code error;
  const json::value config = json::parse(answer.body, error);
  if (answer.status != 200 || error || !config.is_object())
    throw std::runtime_error(fmt::format("the server answers {} to GET {}: {}", answer.status, path, answer.body));
  for (const char* other : {"sequence_batching", "ensemble_scheduling"})
    if (config.as_object().contains(other))
      throw std::runtime_error(
          fmt::format("model '{}': it has {}; only models that take requests one by one, or in batches, are tuned",
                      target.model, other));
  return answer.body;
}

void load_with(const Target& target, const std::string& config, const Candidate* candidate) {
  json::value wanted = json::parse(config);
  if (candidate != nullptr) {
    json::object& object = wanted.as_object();
    object["instance_group"] = json::array{json::object{{"count", candidate->instances}}};
    object.erase("dynamic_batching");
    if (candidate->batching)
      object["dynamic_batching"] = json::object{{"max_queue_delay_microseconds", candidate->delay_us}};
  }
  const json::object body = {{"parameters", json::object{{"config", json::serialize(wanted)}}}};
  const Answer answer = call(target, "POST", "/v2/repository/models/" + target.model + "/load", json::serialize(body));
  if (answer.status == 200) return;
  json::error_code error;
  const json::value told = json::parse(answer.body, error);
  throw std::runtime_error(fmt::format("model '{}' cannot be loaded with another config: {}", target.model,
                                       !error && told.is_object() && told.as_object().contains("error")
                                           ? std::string(told.at("error").as_string())
                                           : answer.body));
}

}  // namespace sluice::perf
