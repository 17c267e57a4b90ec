#include "serving/execution/statistics.h"

#include "serving/execution/response_times.h"

namespace sluice::serving {

namespace {

uint64_t ns_of(Clock::duration duration) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  return ns < 0 ? 0 : static_cast<uint64_t>(ns);
}

void add(inference::StatisticDuration& to, Clock::duration duration) {
  to.set_count(to.count() + 1);
  to.set_ns(to.ns() + ns_of(duration));
}

uint64_t now_ms() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count());
}

}  // namespace

const char* failure_reason(Code code) {
  switch (code) {
    case Code::kOverloaded:
    case Code::kTimeout: return "REJECTED";
    case Code::kCancelled: return "CANCELED";
    case Code::kInternal: return "BACKEND";
    default: return "OTHER";
  }
}

Statistics::Statistics(const inference::ModelConfig& config, const LatencyOptions& options)
    : options_(options),
      in_parts_(config.model_transaction_policy().decoupled()),
      first_response_(first_response_of(config, options)) {
  if (!options_.summaries) return;
  for (const char* what : {"request", "queue", "compute_input", "compute_infer", "compute_output"}) quantiles_[what];
  if (!config.response_cache().enable()) return;
  for (const char* what : {"cache_hit", "cache_miss"}) quantiles_[what];
}

void Statistics::measure(const char* what, Clock::duration duration, Clock::time_point now) {
  if (const auto found = quantiles_.find(what); found != quantiles_.end()) found->second.add(duration, now);
}

void Statistics::first_response(Clock::duration duration) {
  if (first_response_ && !in_parts_) add(*first_response_, duration);
}

Latencies Statistics::latencies() const {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  Latencies latencies;
  for (const auto& [what, quantiles] : quantiles_)
    for (const double quantile : options_.quantiles)
      latencies.summaries[what].emplace_back(quantile, quantiles.value(quantile, now));
  latencies.first_response = first_response_;
  return latencies;
}

void Statistics::executed(int64_t rows, const StepTimes& times) {
  const std::lock_guard lock(mutex_);
  all_.set_execution_count(all_.execution_count() + 1);
  inference::InferBatchStatistics& batch = batches_[rows];
  batch.set_batch_size(static_cast<uint64_t>(rows));
  add(*batch.mutable_compute_input(), times.input);
  add(*batch.mutable_compute_infer(), times.infer);
  add(*batch.mutable_compute_output(), times.output);
}

void Statistics::succeeded(const Job& job, const StepTimes& times, Clock::time_point end) {
  const std::lock_guard lock(mutex_);
  all_.set_inference_count(all_.inference_count() + static_cast<uint64_t>(job.rows));
  if (job.part) return;
  all_.set_last_inference(now_ms());
  inference::InferStatistics& stats = *all_.mutable_inference_stats();
  add(*stats.mutable_success(), end - job.received);
  add(*stats.mutable_queue(), job.started - job.queued);
  add(*stats.mutable_compute_input(), times.input);
  add(*stats.mutable_compute_infer(), times.infer);
  add(*stats.mutable_compute_output(), times.output);
  first_response(end - job.received);
  if (!options_.summaries) return;
  measure("request", end - job.received, end);
  measure("queue", job.started - job.queued, end);
  measure("compute_input", times.input, end);
  measure("compute_infer", times.infer, end);
  measure("compute_output", times.output, end);
}

void Statistics::failed(Clock::time_point received, Code code, Clock::time_point end) {
  const std::lock_guard lock(mutex_);
  add(*all_.mutable_inference_stats()->mutable_fail(), end - received);
  ++failures_[failure_reason(code)];
}

void Statistics::hit(const Job& job, Clock::duration lookup, Clock::time_point end) {
  const std::lock_guard lock(mutex_);
  all_.set_last_inference(now_ms());
  inference::InferStatistics& stats = *all_.mutable_inference_stats();
  add(*stats.mutable_success(), end - job.received);
  add(*stats.mutable_cache_hit(), lookup);
  first_response(end - job.received);
  measure("request", end - job.received, end);
  measure("cache_hit", lookup, end);
}

void Statistics::missed(Clock::duration lookup_and_insert) {
  const std::lock_guard lock(mutex_);
  add(*all_.mutable_inference_stats()->mutable_cache_miss(), lookup_and_insert);
  measure("cache_miss", lookup_and_insert, Clock::now());
}

inference::ModelStatistics Statistics::read() const {
  const std::lock_guard lock(mutex_);
  inference::ModelStatistics copy = all_;
  inference::InferStatistics& stats = *copy.mutable_inference_stats();
  // Clients expect all of them to be there.
  for (auto* duration : {stats.mutable_success(), stats.mutable_fail(), stats.mutable_queue(),
                         stats.mutable_compute_input(), stats.mutable_compute_infer(), stats.mutable_compute_output(),
                         stats.mutable_cache_hit(), stats.mutable_cache_miss()})
    static_cast<void>(duration);
  for (const auto& [rows, batch] : batches_) *copy.add_batch_stats() = batch;
  return copy;
}

std::map<std::string, uint64_t> Statistics::failures() const {
  const std::lock_guard lock(mutex_);
  return failures_;
}

}  // namespace sluice::serving
