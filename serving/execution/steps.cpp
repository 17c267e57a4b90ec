// Steps: what instances do with the requests that wait.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "serving/core/trace.h"
#include "serving/execution/classify.h"
#include "serving/execution/core.h"
#include "serving/execution/errors.h"
#include "serving/execution/inside.h"

namespace sluice::serving {

ModelCore::BatchPtr ModelCore::take(Instance& instance, Clock::time_point now, std::optional<Clock::time_point>& wait) {
  if (closing_ || instance.state != Instance::State::kUp || !instance.broken.empty()) return nullptr;
  if (instance.running >= instance.depth) return nullptr;
  const BatchChoice choice = batcher_.choose(queue_, now, instance.running == 0);
  wait = choice.wait;
  if (instance.limits != nullptr) {
    if (choice.jobs == 0)
      shared_->limiter.give_up(*instance.limits);
    else if (!shared_->limiter.acquire(*instance.limits))
      return nullptr;
  }
  if (choice.jobs == 0) return nullptr;
  auto batch = std::make_shared<Batch>();
  batch->started = now;
  for (size_t i = 0; i < choice.jobs; ++i) {
    JobPtr job = queue_.pop();
    job->state = Job::State::kRunning;
    job->started = now;
    if (job->request.trace != nullptr) job->request.trace->stamp(Stamp::kComputeStart, now);
    batch->rows += job->rows;
    batch->jobs.push_back(std::move(job));
  }
  ++instance.running;
  return batch;
}

// An instance that has something to do and does not know it; -1: none.
int ModelCore::whom_to_wake(Clock::time_point now) {
  int best = -1;
  for (size_t i = 0; i < instances_.size(); ++i) {
    Instance& instance = *instances_[i];
    if (instance.state != Instance::State::kUp || instance.woken || instance.running >= instance.depth) continue;
    if (best < 0 || instance.running < instances_[static_cast<size_t>(best)]->running) best = static_cast<int>(i);
  }
  if (best < 0) return -1;
  Instance& instance = *instances_[static_cast<size_t>(best)];
  const BatchChoice choice = batcher_.choose(queue_, now, instance.running == 0);
  if (choice.jobs == 0 && (!choice.wait || *choice.wait >= instance.armed)) return -1;
  instance.woken = true;
  return best;
}

std::optional<Clock::time_point> ModelCore::serve(int number) {
  const Inside here;
  Instance& instance = *instances_[static_cast<size_t>(number)];
  look_into_failures(instance);
  while (true) {
    std::optional<Clock::time_point> wait;
    BatchPtr batch;
    int other = -1;
    {
      const std::lock_guard lock(mutex_);
      instance.woken = false;
      instance.armed = Clock::time_point::max();
      if (!instance.broken.empty()) throw Error(Code::kUnavailable, instance.broken);
      const auto now = Clock::now();
      batch = take(instance, now, wait);
      if (batch == nullptr && wait) instance.armed = *wait;
      if (batch != nullptr && !queue_.empty()) other = whom_to_wake(now);
      if (other == number) {
        instance.woken = false;
        other = -1;
      }
    }
    if (other >= 0) crew_->wake(other);
    if (batch == nullptr) return wait;
    start(instance, batch);
  }
}

// The rows of all its requests, one behind the other, for each input.
std::vector<api::Tensor> ModelCore::gather(Batch& batch) {
  const int64_t rows = ports_->fixed_rows() > 0 ? ports_->fixed_rows() : batch.rows;
  if (batch.jobs.size() == 1 && (ports_->max_batch() == 0 || rows == batch.rows))
    return std::move(batch.jobs.front()->inputs);
  std::vector<api::Tensor> inputs;
  for (size_t i = 0; i < ports_->bundle_inputs().size(); ++i) {
    const api::Tensor& first = batch.jobs.front()->inputs[i];
    std::vector<int64_t> shape = first.shape();
    shape[0] = rows;
    const uint64_t bytes = checked_bytes(shape, api::dtype_size(first.dtype()), where_);
    std::shared_ptr<void> memory = buffers_.take(bytes);
    auto* to = static_cast<uint8_t*>(memory.get());
    size_t left = bytes;
    for (const JobPtr& job : batch.jobs) {
      const size_t size = job->inputs[i].bytes();
      if (size == 0) continue;
      std::memcpy(to, job->inputs[i].raw(), size);
      to += size;
      left -= size;
    }
    if (left > 0) std::memset(to, 0, left);
    inputs.emplace_back(first.dtype(), std::move(shape), std::move(memory));
  }
  for (const JobPtr& job : batch.jobs) job->inputs.clear();
  return inputs;
}

void ModelCore::start(Instance& instance, const BatchPtr& batch) {
  const auto failed = [&](const Error& error) {
    refuse(batch->jobs, error);
    release(instance);
  };
  std::shared_ptr<Flight> flight;
  const auto forget = [&] {
    if (flight == nullptr) return;
    const std::lock_guard lock(flight->mutex);
    const auto found = std::find(flight->in_flight.begin(), flight->in_flight.end(), batch);
    if (found != flight->in_flight.end()) flight->in_flight.erase(found);
  };
  try {
    std::vector<api::Tensor> inputs = gather(*batch);
    const std::lock_guard submitting(instance.submit);
    if (instance.session == nullptr) throw Error(Code::kUnavailable, where_ + ": its instance has ended");
    flight = instance.flight;
    batch->submitted = Clock::now();
    {
      const std::lock_guard lock(flight->mutex);
      flight->in_flight.push_back(batch);
    }
    batch->result = instance.session->hand_over(std::move(inputs));
    for (const JobPtr& job : batch->jobs) {
      if (job->request.trace == nullptr) continue;
      job->request.trace->stamp(Stamp::kComputeInputEnd, batch->submitted);
      job->request.trace->ran(instance.number, batch->result->step());
    }
  } catch (const api::Error& error) {
    forget();
    if (is_fatal(error)) {
      {
        const std::lock_guard lock(mutex_);
        if (instance.broken.empty()) instance.broken = client_text(error.what());
      }
      crew_->wake(instance.number);
    }
    failed(error_of_submission(where_, error));
  } catch (const Error& error) {
    forget();
    failed(error);
  } catch (const std::exception& error) {
    forget();
    failed(Error(Code::kInternal, where_ + ": " + error.what()));
  }
}

// On a thread of the engine: a step is over, the oldest of this instance.
void ModelCore::done(Instance& instance, Flight& flight, const std::vector<api::Tensor>& outputs,
                     const std::string& error) {
  const Inside here;
  const auto now = Clock::now();
  BatchPtr batch;
  {
    const std::lock_guard lock(flight.mutex);
    if (flight.over || flight.in_flight.empty()) return;
    batch = std::move(flight.in_flight.front());
    flight.in_flight.pop_front();
    if (!error.empty()) {
      batch->error = error;
      flight.failed.push_back(batch);
    }
  }
  if (!error.empty()) {  // only the result knows of what kind, and it is not there yet
    crew_->wake(instance.number);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    const double ns = static_cast<double>((now - batch->started).count());
    period_ns_ = period_ns_ == 0 ? ns : 0.8 * period_ns_ + 0.2 * ns;
    rows_per_step_ = 0.8 * rows_per_step_ + 0.2 * static_cast<double>(batch->rows);
  }
  release(instance);
  scatter(*batch, outputs, now);
}

void ModelCore::release(Instance& instance) {
  int wake = -1;
  {
    const std::lock_guard lock(mutex_);
    --instance.running;
    if (instance.limits != nullptr) shared_->limiter.release(*instance.limits);
    if (!queue_.empty()) wake = whom_to_wake(Clock::now());
  }
  if (wake >= 0) crew_->wake(wake);
}

// In memory of its own where it lies in that of a batch, which would stay with it.
void ModelCore::keep(const Job& job, const std::vector<Tensor>& outputs, bool shares) {
  auto kept = std::make_shared<std::vector<Tensor>>(outputs);
  for (Tensor& tensor : *kept) {
    if (!shares || tensor.bytes == 0) continue;
    std::shared_ptr<void> copy = BufferPool(0).take(tensor.bytes);
    std::memcpy(copy.get(), tensor.data.get(), tensor.bytes);
    tensor.data = std::move(copy);
  }
  shared_->cache.insert(job.key, std::move(kept));
}

void ModelCore::scatter(const Batch& batch, const std::vector<api::Tensor>& outputs, Clock::time_point infer_end) {
  std::vector<InferResponse> responses;
  std::optional<Error> failed;
  int64_t start = 0;
  for (const JobPtr& job : batch.jobs) {
    InferResponse& response = responses.emplace_back(response_of(*job));
    try {
      for (size_t o = 0; o < job->outputs.size(); ++o) {
        const ShownPort& port = ports_->outputs()[static_cast<size_t>(job->outputs[o])];
        Tensor& tensor = response.outputs.emplace_back(
            ports_->show({port, outputs.at(static_cast<size_t>(port.port)), start, job->rows}));
        if (o >= job->request.outputs.size()) continue;
        const RequestedOutput& wanted = job->request.outputs[o];
        tensor.name = wanted.name;
        if (wanted.classes > 0) classify(tensor, wanted.classes, port, ports_->max_batch() > 0);
      }
    } catch (const Error& error) {
      response.error = error;
    } catch (const std::exception& error) {
      response.error = Error(Code::kInternal, where_ + ": " + error.what());
    }
    start += job->rows;
  }
  const auto end = Clock::now();
  const StepTimes times{batch.submitted - batch.started, infer_end - batch.submitted, end - infer_end};
  statistics_.executed(batch.rows, times);
  end_jobs(batch.jobs);
  for (size_t j = 0; j < batch.jobs.size(); ++j) {
    const JobPtr& job = batch.jobs[j];
    if (responses[j].error) {
      fail(job, *responses[j].error);
      continue;
    }
    if (job->answered.exchange(true)) continue;
    statistics_.succeeded(*job, times, end);
    if (job->request.trace != nullptr) {
      job->request.trace->stamp(Stamp::kComputeOutputStart, infer_end);
      job->request.trace->stamp(Stamp::kComputeEnd, end);
    }
    if (!job->key.empty()) keep(*job, responses[j].outputs, batch.jobs.size() > 1);
    deliver(job, std::move(responses[j]));
  }
}

// On the instance's thread. Throws where the instance cannot go on.
void ModelCore::look_into_failures(Instance& instance) {
  const std::shared_ptr<Flight> flight = instance.flight;  // which this thread alone changes
  if (flight == nullptr) return;
  while (true) {
    BatchPtr batch;
    {
      const std::lock_guard lock(flight->mutex);
      if (flight->failed.empty()) return;
      batch = std::move(flight->failed.front());
      flight->failed.erase(flight->failed.begin());
    }
    std::optional<api::Error> why;
    {
      const std::lock_guard submitted(instance.submit);  // the result is there
    }
    try {
      if (batch->result) static_cast<void>(batch->result->get());
    } catch (const api::Error& error) {
      why = error;
    }
    const bool fatal = why && is_fatal(*why);
    if (fatal) {
      const std::lock_guard lock(mutex_);
      if (instance.broken.empty()) instance.broken = client_text(why->what());
    }
    end_jobs(batch->jobs);
    refuse(batch->jobs, error_of_step(where_, why ? *why : api::Error(api::ErrorKind::kRuntime, batch->error)));
    release(instance);
  }
}

}  // namespace sluice::serving
