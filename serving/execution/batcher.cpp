#include "serving/execution/batcher.h"

#include <algorithm>
#include <utility>

namespace sluice::serving {

// Requests share a step if their tensors differ in the first axis alone, along which the rows are laid together.
bool mergeable(const Job& a, const Job& b) {
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    const std::vector<int64_t>&x = a.inputs[i].shape(), &y = b.inputs[i].shape();
    if (x.size() != y.size() || !std::equal(x.begin() + (x.empty() ? 0 : 1), x.end(), y.begin() + (y.empty() ? 0 : 1)))
      return false;
  }
  return true;
}

Batcher::Batcher(const inference::ModelConfig& config, int64_t step_rows, std::vector<int64_t> ragged_rows)
    : most_ragged_(std::move(ragged_rows)) {
  const inference::ModelDynamicBatching& batching = config.dynamic_batching();
  const std::string where = "config: dynamic_batching: ";
  if (config.has_dynamic_batching() && config.max_batch_size() < 1)
    throw Error(Code::kInvalidArgument, where + "max_batch_size is 0; the model has no batches");
  merges_ = config.has_dynamic_batching();
  most_ = std::max(config.max_batch_size(), 1);
  constexpr uint64_t kHourUs = 3600ull * 1000000;
  if (batching.max_queue_delay_microseconds() > kHourUs)
    throw Error(Code::kInvalidArgument,
                where + "max_queue_delay_microseconds: " + std::to_string(batching.max_queue_delay_microseconds()) +
                    "; at most an hour");
  delay_ = std::chrono::microseconds(batching.max_queue_delay_microseconds());
  for (const int32_t size : batching.preferred_batch_size()) {
    if (size < 1 || size > most_)
      throw Error(Code::kInvalidArgument, where + "preferred_batch_size: " + std::to_string(size) +
                                              "; must be of 1 to max_batch_size, " + std::to_string(most_));
    preferred_.push_back(size);
  }
  std::sort(preferred_.begin(), preferred_.end());
  // The plan may have room for fewer rows than the config allows.
  most_ = std::min(most_, step_rows);
  std::erase_if(preferred_, [&](int64_t size) { return size > most_; });
}

BatchChoice Batcher::choose(const RequestQueue& queue, Clock::time_point now, bool idle) const {
  BatchChoice choice, preferred;
  JobPtr first;
  bool full = false;
  Clock::time_point oldest = Clock::time_point::max();
  std::vector<int64_t> room = most_ragged_;
  const auto has_room = [&](const Job& job) {
    for (size_t r = 0; r < room.size(); ++r)
      if (job.ragged[r].rows > room[r]) return false;
    return true;
  };
  // Requests are taken in the order of the queue, and none is passed over: the first one that does not fit ends the
  // batch, so that nobody waits for ever behind requests that suit better.
  queue.visit([&](const JobPtr& job) {
    if (first == nullptr) {
      first = job;
    } else if (!merges_ || choice.rows + job->rows > most_ || !mergeable(*first, *job) || !has_room(*job)) {
      full = true;
      return false;
    }
    ++choice.jobs;
    choice.rows += job->rows;
    for (size_t r = 0; r < room.size(); ++r) room[r] -= job->ragged[r].rows;
    oldest = std::min(oldest, job->queued);
    if (std::binary_search(preferred_.begin(), preferred_.end(), choice.rows)) preferred = choice;
    full = choice.rows >= most_ || !merges_;
    return !full;
  });
  if (choice.jobs == 0) return choice;
  // The largest of the preferred sizes is worth no waiting; smaller ones run as soon as somebody is idle.
  if (preferred.jobs > 0 && (full || preferred.rows == preferred_.back() || idle)) return preferred;
  if (full || (idle && now >= oldest + delay_)) return choice;
  // While an instance is idle and the batch is not full, it waits for more requests, but no longer than the oldest
  // one's delay.
  BatchChoice later;
  if (idle) later.wait = oldest + delay_;
  return later;
}

}  // namespace sluice::serving
