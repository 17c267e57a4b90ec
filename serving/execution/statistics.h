#pragma once
// What an executor counts.
#include <map>
#include <mutex>
#include <string>

#include "inference.pb.h"
#include "serving/execution/job.h"

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
  void executed(int64_t rows, const StepTimes& times);
  // A request that ran.
  void succeeded(const Job& job, const StepTimes& times, Clock::time_point end);
  void failed(const Job& job, Code code, Clock::time_point end);
  void hit(const Job& job, Clock::duration lookup, Clock::time_point end);
  void missed(Clock::duration lookup_and_insert);

  inference::ModelStatistics read() const;
  std::map<std::string, uint64_t> failures() const;

 private:
  mutable std::mutex mutex_;
  inference::ModelStatistics all_;
  std::map<int64_t, inference::InferBatchStatistics> batches_;
  std::map<std::string, uint64_t> failures_;
};

}  // namespace sluice::serving
