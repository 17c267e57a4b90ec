// Requests of more rows than a step takes.
#include <cstring>

#include "serving/execution/model/core.h"

namespace sluice::serving {

namespace {

// What the answers of the parts are kept in, until the last is there.
struct Pieces {
  std::mutex mutex;
  std::vector<InferResponse> responses;
  size_t left = 0;
};

std::vector<api::Tensor> rows_of(const std::vector<api::Tensor>& inputs, int64_t start, int64_t rows) {
  std::vector<api::Tensor> part;
  for (const api::Tensor& input : inputs) {
    std::vector<int64_t> shape = input.shape();
    const size_t row = input.bytes() / static_cast<size_t>(shape[0]);
    shape[0] = rows;
    auto* const data = static_cast<uint8_t*>(input.raw()) + static_cast<size_t>(start) * row;
    part.emplace_back(input.dtype(), std::move(shape), std::shared_ptr<void>(input.shared(), data));
  }
  return part;
}

}  // namespace

std::shared_ptr<RequestHandle> ModelCore::split(const JobPtr& job) {
  const int64_t most = ports_->step_rows();
  const auto pieces = std::make_shared<Pieces>();
  std::vector<JobPtr> parts;
  for (int64_t start = 0; start < job->rows; start += most) {
    const auto part = std::make_shared<Job>();
    part->core = weak_from_this();
    part->part = true;
    part->received = job->received;
    part->request.outputs = job->request.outputs;
    part->request.trace = job->request.trace;
    part->request.memory = job->request.memory;
    part->options = job->options;
    part->outputs = job->outputs;
    part->rows = std::min(most, job->rows - start);
    part->inputs = rows_of(job->inputs, start, part->rows);
    count_answer(*part);
    const size_t number = parts.size();
    part->respond = [this, job, pieces, number](InferResponse response, bool) {
      {
        const std::lock_guard lock(pieces->mutex);
        pieces->responses[number] = std::move(response);
        if (--pieces->left > 0) return;
      }
      join(job, pieces->responses);
    };
    parts.push_back(part);
  }
  pieces->responses.resize(parts.size());
  pieces->left = parts.size();
  pending_ += parts.size();
  undelivered_ += parts.size();
  {
    const std::lock_guard lock(mutex_);
    job->parts = parts;
    job->state = Job::State::kRunning;
    job->queued = job->started = Clock::now();
  }
  job->inputs.clear();
  for (const JobPtr& part : parts) enqueue(part);
  return job;
}

// The rows of all parts behind each other; or the first error there was.
void ModelCore::join(const JobPtr& job, std::vector<InferResponse>& parts) {
  {
    const std::lock_guard lock(mutex_);
    job->state = Job::State::kOver;
    job->parts.clear();
  }
  for (const InferResponse& part : parts)
    if (part.error) return fail(job, *part.error);
  InferResponse whole = response_of(*job);
  whole.outputs = parts.front().outputs;
  for (size_t o = 0; o < whole.outputs.size(); ++o) {
    Tensor& tensor = whole.outputs[o];
    tensor.bytes = 0;
    tensor.shape[0] = 0;
    for (const InferResponse& part : parts) {
      tensor.bytes += part.outputs[o].bytes;
      tensor.shape[0] += part.outputs[o].shape[0];
    }
    try {
      tensor.data = buffers_.take(tensor.bytes, job->request.memory);
    } catch (const Error& error) {
      return fail(job, error);
    }
    auto* to = static_cast<uint8_t*>(tensor.data.get());
    for (const InferResponse& part : parts) {
      const Tensor& from = part.outputs[o];
      if (from.bytes > 0) std::memcpy(to, from.data.get(), from.bytes);
      to += from.bytes;
    }
  }
  if (job->answered.exchange(true)) return;
  job->rows = 0;  // its parts have counted theirs
  statistics_.succeeded(*job, {}, Clock::now());
  if (!job->key.empty()) keep(*job, whole.outputs, job->request.memory != nullptr);
  deliver(job, std::move(whole));
}

}  // namespace sluice::serving
