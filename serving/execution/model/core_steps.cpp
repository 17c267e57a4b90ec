// Steps: what instances do with the requests that wait.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "serving/core/trace.h"
#include "serving/execution/classify.h"
#include "serving/execution/errors.h"
#include "serving/execution/inside.h"
#include "serving/execution/model/core.h"

namespace sluice::serving {

ModelCore::BatchPtr ModelCore::take(Instance& instance, Clock::time_point now, std::optional<Clock::time_point>& wait) {
  if (closing_ || instance.state != Instance::State::kUp || !instance.broken.empty()) return nullptr;
  if (instance.running >= instance.depth) return nullptr;
  const BatchChoice choice = choose(instance, now);
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
    JobPtr job = direct() ? take_direct(instance) : queue_.pop();
    job->state = Job::State::kRunning;
    job->started = now;
    if (job->request.trace != nullptr) job->request.trace->stamp(Stamp::kComputeStart, now);
    batch->at.push_back(direct() ? row_of(*job) : batch->rows);
    batch->rows += job->rows;
    batch->end = batch->at.back() + job->rows;
    batch->jobs.push_back(std::move(job));
  }
  if (instance.running++ == 0) instance.busy_since = now;
  if (const auto limit = time_limit(instance); limit.count() > 0) arm(instance.busy_since + limit);
  return batch;
}

// An instance that has something to do and does not know it; -1: none.
int ModelCore::whom_to_wake(Clock::time_point now) {
  Instance* best = nullptr;
  for (const auto& one : instances_) {
    Instance& instance = *one;
    if (instance.state != Instance::State::kUp || instance.woken || instance.running >= instance.depth) continue;
    if (direct() && instance.rows.empty()) continue;
    if (best == nullptr || instance.running < best->running) best = &instance;
  }
  if (best == nullptr) return -1;
  const BatchChoice choice = choose(*best, now);
  if (choice.jobs == 0 && (!choice.wait || *choice.wait >= best->armed)) return -1;
  best->woken = true;
  return best->number;
}

std::optional<Clock::time_point> ModelCore::serve(int number) {
  const Inside here;
  Instance& instance = *instances_[static_cast<size_t>(number)];
  look_into_failures(instance);
  const std::optional<Clock::time_point> traces = collect_traces(instance).next;
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
      if (batch != nullptr && something_waits()) other = whom_to_wake(now);
      if (other == number) {
        instance.woken = false;
        other = -1;
      }
    }
    if (other >= 0) crew_->wake(other);
    if (batch == nullptr) return wait && traces ? std::min(*wait, *traces) : wait ? wait : traces;
    start(instance, batch);
  }
}

// The rows of all its requests, one behind the other, for each input.
std::vector<api::Tensor> ModelCore::gather(Batch& batch) {
  if (ragged_ != nullptr) {
    batch.step_rows = batch.rows;  // its results are as long as its requests
    return ragged_->gather(batch, buffers_);
  }
  const auto allowed = std::lower_bound(allowed_.begin(), allowed_.end(), batch.end);
  const int64_t wanted = allowed == allowed_.end() ? batch.end : *allowed;
  const int64_t rows = ports_->fixed_rows() > 0 ? ports_->fixed_rows() : wanted;
  batch.step_rows = ports_->max_batch() > 0 ? rows : batch.rows;
  if (batch.jobs.size() == 1 && (ports_->max_batch() == 0 || rows == batch.rows))
    return std::move(batch.jobs.front()->inputs);
  std::vector<api::Tensor> inputs;
  for (size_t i = 0; i < ports_->bundle_inputs().size(); ++i) {
    const api::Tensor& first = batch.jobs.front()->inputs[i];
    std::vector<int64_t> shape = first.shape();
    shape[0] = 1;
    const uint64_t row = checked_bytes(shape, api::dtype_size(first.dtype()), where_);
    shape[0] = rows;
    const uint64_t bytes = checked_bytes(shape, api::dtype_size(first.dtype()), where_);
    std::shared_ptr<void> memory = buffers_.take(bytes);
    auto* const to = static_cast<uint8_t*>(memory.get());
    int64_t next = 0;
    const auto nobody = [&](int64_t until) {  // rows of nobody
      if (until <= next || bytes == 0) return;
      uint8_t* const from = to + static_cast<size_t>(next) * row;
      std::memset(from, 0, static_cast<size_t>(until - next) * row);
      if (sequence_ports_ != nullptr)
        sequence_ports_->fill_empty(static_cast<int>(i), from, row, static_cast<size_t>(until - next));
    };
    for (size_t j = 0; j < batch.jobs.size(); ++j) {
      const api::Tensor& given = batch.jobs[j]->inputs[i];
      nobody(batch.at[j]);
      if (given.bytes() > 0) std::memcpy(to + static_cast<size_t>(batch.at[j]) * row, given.raw(), given.bytes());
      next = batch.at[j] + batch.jobs[j]->rows;
    }
    nobody(rows);
    inputs.emplace_back(first.dtype(), std::move(shape), std::move(memory));
  }
  for (const JobPtr& job : batch.jobs) job->inputs.clear();
  return inputs;
}

void ModelCore::start(Instance& instance, const BatchPtr& batch) {
  const auto failed = [&](const Error& error) {
    end_jobs(batch->jobs);
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
    count_padding(*batch);
    const std::lock_guard submitting(instance.submit);
    if (instance.session == nullptr) throw Error(Code::kUnavailable, where_ + ": its instance has ended");
    flight = instance.flight;
    batch->submitted = Clock::now();
    {
      const std::lock_guard lock(flight->mutex);
      flight->in_flight.push_back(batch);
    }
    StepRecorder::Step traced = instance.recorder.begin(*instance.session, instance.number, *batch);
    batch->traced = !traced.requests.empty();
    if (batch->traced) instance.records = true;
    batch->result = instance.session->hand_over(std::move(inputs));
    instance.recorder.submitted(batch->result->step(), std::move(traced));
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
    instance.suspect = false;
    const double ns = static_cast<double>((now - batch->started).count());
    period_ns_ = period_ns_ == 0 ? ns : 0.8 * period_ns_ + 0.2 * ns;
    rows_per_step_ = 0.8 * rows_per_step_ + 0.2 * static_cast<double>(batch->rows);
  }
  if (sequences_ != nullptr) {
    std::vector<std::vector<api::Tensor>> states;
    for (const int64_t at : batch->at) states.push_back(state_after(outputs, at, batch->jobs.size() == 1));
    const std::lock_guard lock(mutex_);
    for (size_t j = 0; j < states.size(); ++j) sequence_goes_on(*batch->jobs[j], std::move(states[j]));
    pump();
  }
  release(instance);
  scatter(*batch, outputs, now);
  if (batch->traced) crew_->wake(instance.number);
}

ModelCore::Traces ModelCore::collect_traces(Instance& instance) {
  if (!instance.records) return {};
  const auto now = Clock::now();
  // Whoever submits may wait there until this thread ends the session.
  const std::unique_lock submitting(instance.submit, std::try_to_lock);
  if (!submitting) return {now + std::chrono::milliseconds(5), true};
  if (instance.session == nullptr) return {};
  const Traces traces{instance.recorder.collect(*instance.session, now), instance.recorder.waits()};
  instance.records = traces.next.has_value();
  return traces;
}

void ModelCore::release(Instance& instance) {
  int wake = -1;
  {
    const std::lock_guard lock(mutex_);
    --instance.running;
    instance.busy_since = Clock::now();
    if (instance.limits != nullptr) shared_->limiter.release(*instance.limits);
    if (something_waits()) wake = whom_to_wake(Clock::now());
  }
  if (wake >= 0) crew_->wake(wake);
}

// In memory of its own where it lies in that of a batch, or counts for a client, which would stay with it.
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

namespace {

// What a step gave, and its counts: parts of it may be all that is left of it, and keep the whole.
struct Results {
  std::vector<Held> counts;  // given back last
  std::vector<std::shared_ptr<void>> outputs;
};

std::shared_ptr<Results> results_of(Batch& batch, const std::vector<api::Tensor>& outputs) {
  std::vector<Held> counts;
  for (const JobPtr& job : batch.jobs)
    if (job->answer.bytes() > 0) counts.push_back(std::move(job->answer));
  if (counts.empty()) return nullptr;
  counts.push_back(std::move(batch.padding));
  auto results = std::make_shared<Results>();
  results->counts = std::move(counts);
  for (const api::Tensor& output : outputs) results->outputs.push_back(output.shared());
  return results;
}

// The tensor counts as long as somebody has it.
void count(Tensor& tensor, const api::Tensor& whole, const std::shared_ptr<Results>& results, const MemoryPtr& memory) {
  if (results == nullptr || tensor.data == nullptr) return;
  const bool part = !tensor.data.owner_before(whole.shared()) && !whole.shared().owner_before(tensor.data);
  tensor.data = part ? std::shared_ptr<void>(results, tensor.data.get())
                     : counted(std::move(tensor.data), Held(memory, tensor.bytes));
}

}  // namespace

void ModelCore::scatter(Batch& batch, const std::vector<api::Tensor>& outputs, Clock::time_point infer_end) {
  std::vector<InferResponse> responses;
  const std::shared_ptr<Results> results = results_of(batch, outputs);
  std::optional<Error> failed;
  for (size_t j = 0; j < batch.jobs.size(); ++j) {
    const JobPtr& job = batch.jobs[j];
    InferResponse& response = responses.emplace_back(response_of(*job));
    try {
      for (size_t o = 0; o < job->outputs.size(); ++o) {
        const ShownPort& port = ports_->outputs()[static_cast<size_t>(job->outputs[o])];
        const api::Tensor& whole = outputs.at(static_cast<size_t>(port.port));
        Tensor& tensor = response.outputs.emplace_back(ports_->show(
            port.ragged
                ? OutputRows{port, whole, batch.ragged_at[port.scatter][j], job->rows, &job->ragged[port.scatter]}
                : OutputRows{port, whole, batch.at[j], job->rows, nullptr,
                             port.lengths < 0 ? nullptr : &outputs.at(static_cast<size_t>(port.lengths))}));
        if (o < job->request.outputs.size()) {
          const RequestedOutput& wanted = job->request.outputs[o];
          tensor.name = wanted.name;
          if (wanted.classes > 0) classify(tensor, wanted.classes, port.labels, ports_->max_batch() > 0);
        }
        count(tensor, whole, results, job->request.memory);
      }
    } catch (const Error& error) {
      response.error = error;
    } catch (const std::exception& error) {
      response.error = Error(Code::kInternal, where_ + ": " + error.what());
    }
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
    if (!job->key.empty()) keep(*job, responses[j].outputs, batch.jobs.size() > 1 || results != nullptr);
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
