#pragma once
// The counts of an executor.
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "inference.pb.h"
#include "serving/core/latencies.h"
#include "serving/execution/job.h"
#include "serving/execution/quantiles.h"

namespace sluice::serving {

// Why a request failed, as the metrics say.
const char* failure_reason(Code code);  // "REJECTED", "CANCELED", "BACKEND", "OTHER"

// Times of a step that went well.
struct StepTimes {
  Clock::duration input{}, infer{}, output{};
};

// Thread-safe.
class Statistics {
 public:
  Statistics(const inference::ModelConfig& config, const LatencyOptions& options);
  void executed(int64_t rows, const StepTimes& times);
  // A request that ran.
  void succeeded(const Job& job, const StepTimes& times, Clock::time_point end);
  void failed(Clock::time_point received, Code code, Clock::time_point end);
  void hit(const Job& job, Clock::duration lookup, Clock::time_point end);
  void missed(Clock::duration lookup_and_insert);

  inference::ModelStatistics read() const;
  std::map<std::string, uint64_t> failures() const;
  Latencies latencies() const;

 private:
  // With mutex_ held.
  void measure(const char* what, Clock::duration duration, Clock::time_point now);
  void first_response(Clock::duration duration);

  const LatencyOptions options_;
  const bool in_parts_;  // then a step's answer may be a later response
  mutable std::mutex mutex_;
  inference::ModelStatistics all_;
  std::map<int64_t, inference::InferBatchStatistics> batches_;
  std::map<std::string, uint64_t> failures_;
  std::map<std::string, Quantiles> quantiles_;
  std::optional<LatencyHistogram> first_response_;
};

}  // namespace sluice::serving
