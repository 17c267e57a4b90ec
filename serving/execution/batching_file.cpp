#include "serving/execution/batching_file.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>

#include "serving/core/error.h"

namespace sluice::serving {

namespace {

[[noreturn]] void wrong_file(const std::string& what) {
  throw Error(Code::kInvalidArgument, "config: batching_parameters_file: " + what);
}

constexpr const char *kMost = "max_batch_size", *kDelay = "batch_timeout_micros", *kQueue = "max_enqueued_batches",
                     *kThreads = "num_batch_threads", *kAllowed = "allowed_batch_sizes";

// "max_batch_size { value: 8 }", "allowed_batch_sizes: 4", and comments.
std::multimap<std::string, int64_t> read(const std::string& text) {
  static const std::set<std::string> known{kMost, kDelay, kQueue, kThreads, kAllowed};
  static const std::regex entry(R"(^\s*(\w+)\s*(?::\s*(\d{1,12})|:?\s*\{\s*value\s*:\s*(\d{1,12})\s*\})\s*[,;]?)");
  std::multimap<std::string, int64_t> values;
  std::string left = std::regex_replace(text, std::regex("#[^\n]*"), "");
  for (std::smatch match; left.find_first_not_of(" \t\r\n") != std::string::npos; left = match.suffix()) {
    if (!std::regex_search(left, match, entry))
      wrong_file("'" + left.substr(left.find_first_not_of(" \t\r\n"), 40) + "': not a parameter and its value");
    const std::string name = match[1];
    if (!known.contains(name)) wrong_file("'" + name + "' has no meaning here");
    if (name != kAllowed && values.contains(name)) wrong_file("'" + name + "' is there twice");
    values.emplace(name, std::stoll(match[2].matched ? match[2] : match[3]));
  }
  return values;
}

}  // namespace

std::vector<int64_t> apply_batching_file(inference::ModelConfig& config, const std::string& folder) {
  const auto named = config.parameters().find("batching_parameters_file");
  if (named == config.parameters().end()) return {};
  const std::string& file = named->second.string_value();
  if (file.empty() || file.front() == '/' || file.find("..") != std::string::npos)
    wrong_file("'" + file + "'; it must be a file in the model's folder");
  std::ifstream in(folder + "/" + file);
  if (!in) wrong_file("'" + file + "': no such file in the model's folder");
  constexpr size_t kLongest = 65536;
  std::string text(kLongest + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kLongest) wrong_file(fmt::format("'{}': more than {} bytes", file, kLongest));
  const std::multimap<std::string, int64_t> values = read(text);
  const auto value = [&](const char* name, int64_t otherwise, int64_t least, int64_t most) {
    const auto found = values.find(name);
    if (found == values.end()) return otherwise;
    if (found->second < least || found->second > most)
      wrong_file(fmt::format("{}: {}; must be of {} to {}", name, found->second, least, most));
    return found->second;
  };
  if (config.has_sequence_batching() || config.has_ensemble_scheduling()) wrong_file("the model is batched otherwise");
  if (config.max_batch_size() < 1) wrong_file("max_batch_size is 0; the model has no batches");
  const int64_t rows = value(kMost, config.max_batch_size(), 1, config.max_batch_size());
  config.set_max_batch_size(static_cast<int32_t>(rows));
  inference::ModelDynamicBatching& batching = *config.mutable_dynamic_batching();
  batching.set_max_queue_delay_microseconds(static_cast<uint64_t>(value(kDelay, 0, 0, 3600000000)));
  if (values.contains(kQueue))
    batching.mutable_default_queue_policy()->set_max_queue_size(
        static_cast<uint32_t>(value(kQueue, 1, 1, 1 << 20) * rows));
  if (values.contains(kThreads)) {
    config.clear_instance_group();
    config.add_instance_group()->set_count(static_cast<int32_t>(value(kThreads, 1, 1, 256)));
  }
  std::vector<int64_t> allowed;
  for (const auto& [name, size] : values) {
    if (name != kAllowed) continue;
    if (size < 1 || (!allowed.empty() && size <= allowed.back())) wrong_file("allowed_batch_sizes must ascend");
    allowed.push_back(size);
  }
  if (!allowed.empty() && allowed.back() != rows)
    wrong_file(fmt::format("allowed_batch_sizes end at {}; they must end at max_batch_size, {}", allowed.back(), rows));
  return allowed;
}

}  // namespace sluice::serving
