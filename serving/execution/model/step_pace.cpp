#include "serving/execution/model/step_pace.h"

#include <algorithm>
#include <cmath>

#include "serving/core/error.h"

namespace sluice::serving {
namespace {

std::chrono::milliseconds step_timeout_of(const inference::ModelConfig& config) {
  const auto found = config.parameters().find("step_timeout_ms");
  if (found == config.parameters().end()) return {};
  const std::string& text = found->second.string_value();
  const bool number = !text.empty() && text.size() < 10 &&
                      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!number)
    throw Error(Code::kInvalidArgument,
                "config: parameter 'step_timeout_ms': '" + text + "'; must be a number of milliseconds");
  return std::chrono::milliseconds(std::stol(text));
}

}  // namespace

StepPace::StepPace(const inference::ModelConfig& config) : timeout_(step_timeout_of(config)) {}

void StepPace::went_well(Clock::duration took, int64_t rows) {
  const double ns = static_cast<double>(took.count());
  period_ns_ = period_ns_ == 0 ? ns : 0.8 * period_ns_ + 0.2 * ns;
  rows_ = 0.8 * rows_ + 0.2 * static_cast<double>(rows);
}

std::chrono::milliseconds StepPace::limit(bool suspect) const {
  if (!suspect) return timeout_;
  const auto usual = std::chrono::milliseconds(static_cast<int64_t>(20 * period_ns_ / 1e6));
  const auto limit = std::max(std::chrono::milliseconds(1000), usual);
  return timeout_.count() > 0 ? std::min(limit, timeout_) : limit;
}

std::chrono::milliseconds StepPace::time_for(int64_t rows, size_t instances) const {
  const double steps = std::ceil(static_cast<double>(rows) / std::max(1.0, rows_)) + 1;
  const double ms = std::ceil(period_ns_ / 1e6 * steps / static_cast<double>(std::max<size_t>(1, instances)));
  return std::chrono::milliseconds(std::clamp<int64_t>(static_cast<int64_t>(ms), 1, 60000));
}

}  // namespace sluice::serving
