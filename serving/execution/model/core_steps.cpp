// Instances, from their loading to their end, and the steps that they run.
#include <algorithm>
#include <thread>

#include "serving/execution/errors.h"
#include "serving/execution/inside.h"
#include "serving/execution/model/core.h"
#include "serving/execution/scheduling.h"
#include "serving/execution/warmup.h"

namespace sluice::serving {

SessionLoader::OnOutput ModelCore::on_output(int instance, std::shared_ptr<Flight> flight) {
  return [weak = weak_from_this(), instance, flight = std::move(flight)](
             uint64_t, const std::vector<api::Tensor>& outputs, const std::string& error) {
    if (const auto core = weak.lock()) core->done(core->instances_[instance], *flight, outputs, error);
  };
}

void ModelCore::open_ports(const std::vector<api::Port>& inputs, const std::vector<api::Port>& outputs, int instances) {
  cached_.check(where_);
  for (const api::Port& port : inputs) takes_turns_ = takes_turns_ || !port.dims.empty();
  data_.open(inputs, outputs, loader_.bundle());
  waiting_.open(data_.ports());
  if (!spec_.config.has_sequence_batching()) return;
  data_.open_sequences(inputs, outputs);
  waiting_.open_sequences(data_.ports(), *data_.sequences(), instances);
}

void ModelCore::look() {
  const int count = instances_of(spec_.config);
  const api::Plan plan = api::Plan::load(loader_.bundle());
  open_ports(plan.inputs(), plan.outputs(), count);
  for (const inference::ModelInstanceGroup& group : spec_.config.instance_group())
    static_cast<void>(shared_->limiter.join(group.rate_limiter(), [] {}));
  for (const inference::ModelWarmup& warmup : spec_.config.model_warmup()) {
    InferRequest request = warmup_request(spec_.config, warmup, spec_.folder);
    static_cast<void>(data_.ports().prepare(request));
  }
  for_stored_requests(spec_.config, spec_.folder,
                      [this](InferRequest request) { static_cast<void>(data_.ports().prepare(request)); });
}

void ModelCore::open() {
  const int count = instances_of(spec_.config);
  loader_.plan_for(count);
  for (int i = 0; i < count; ++i) {
    const auto flight = std::make_shared<Flight>();
    const auto on_output = this->on_output(i, flight);
    const std::shared_ptr<api::Session> session = i == 0 ? loader_.load_first(on_output) : loader_.load(on_output);
    instances_.add(session, flight);
    if (!data_.is_open()) open_ports(session->inputs(), session->outputs(), count);
  }
  crew_ = std::make_unique<Crew>(actors_, count, shared_from_this());
  join_limiter();
  shared_->add(weak_from_this());
}

void ModelCore::join_limiter() {
  size_t next = 0;
  for (const inference::ModelInstanceGroup& group : spec_.config.instance_group()) {
    for (int i = 0; i < std::max(group.count(), 1); ++i) {
      const size_t number = next++;
      instances_[static_cast<int>(number)].limits = shared_->limiter.join(
          group.rate_limiter(), [crew = crew_.get(), number] { crew->wake(static_cast<int>(number)); });
    }
  }
}

void ModelCore::warm_up() {
  const auto run = [&](Instance& instance, InferRequest request) {
    const auto job = std::make_shared<Job>();
    job->request = std::move(request);
    data_.prepare(*job);
    if (data_.sequences() != nullptr) data_.sequences()->fill(*job, {});
    Batch batch;
    batch.rows = batch.end = job->rows;
    batch.at = {0};
    batch.jobs.push_back(job);
    instance.session.run(data_.gather(batch));
  };
  for (const inference::ModelWarmup& warmup : spec_.config.model_warmup())
    for (const auto& instance : instances_)
      for (uint32_t i = 0; i < std::max<uint32_t>(warmup.count(), 1); ++i)
        run(*instance, warmup_request(spec_.config, warmup, spec_.folder));
  for (const auto& instance : instances_)
    for_stored_requests(spec_.config, spec_.folder, [&](InferRequest request) { run(*instance, std::move(request)); });
}

void ModelCore::load(int number) {
  Instance& instance = instances_[number];
  const auto flight = std::make_shared<Flight>();
  instance.session.put(loader_.load(on_output(number, flight)), flight);
  const std::lock_guard lock(mutex_);
  instance.starts_anew(flight);
}

void ModelCore::unload(int number) noexcept {
  const Inside here;
  Instance& instance = instances_[number];
  {
    const std::lock_guard lock(mutex_);
    if (instance.up()) instance.state = Instance::State::kDown;
    last_failure_ = instance.broken.empty() ? "it is being unloaded" : instance.broken;
  }
  // Steps that are answered are over but for their last firing, which ends soon.
  for (int i = 0; i < 100 && instance.session.collect_traces().wait; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const bool returns = instance.session.stop();
  const std::shared_ptr<Flight> flight = instance.session.take_away();
  if (!returns) shared_->lost_a_thread();
  if (instance.limits != nullptr) shared_->limiter.give_up(*instance.limits);
  if (flight == nullptr) return;
  for (const BatchPtr& batch : flight->end())
    give_back(instance, batch->jobs, Error(Code::kUnavailable, where_ + ": its instance ended: " + last_failure_));
}

void ModelCore::gave_up(int number, const std::string& why) noexcept {
  const Inside here;
  std::vector<JobPtr> left;
  {
    const std::lock_guard lock(mutex_);
    instances_[number].state = Instance::State::kGone;
    last_failure_ = why;
    if (!instances_.any_left()) left = waiting_.clear();
    for (const JobPtr& job : left) job->state = Job::State::kOver;
  }
  answers_.fail(left, Error(Code::kUnavailable, where_ + ": no instance is there: " + why));
}

BatchPtr ModelCore::take(Instance& instance, Clock::time_point now, std::optional<Clock::time_point>& wait) {
  if (closing_ || !instance.has_room() || !instance.broken.empty()) return nullptr;
  const BatchChoice choice = waiting_.choose(instance.number, instance.running == 0, now);
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
  for (size_t i = 0; i < choice.jobs; ++i) waiting_.move_next(instance.number, *batch, now);
  instance.begins_step(now);
  if (const auto limit = pace_.limit(instance.suspect); limit.count() > 0) arm(instance.busy_since + limit);
  return batch;
}

// Finds an instance that has something to do and does not know it; -1: there is none.
int ModelCore::whom_to_wake(Clock::time_point now) {
  Instance* best = nullptr;
  for (const auto& one : instances_) {
    if (!one->has_room() || one->woken || waiting_.none_for(one->number)) continue;
    if (best == nullptr || one->running < best->running) best = one.get();
  }
  if (best == nullptr) return -1;
  const BatchChoice choice = waiting_.choose(best->number, best->running == 0, now);
  if (choice.jobs == 0 && (!choice.wait || *choice.wait >= best->armed)) return -1;
  best->woken = true;
  return best->number;
}

std::optional<Clock::time_point> ModelCore::serve(int number) {
  const Inside here;
  Instance& instance = instances_[number];
  look_into_failures(instance);
  const std::optional<Clock::time_point> traces = instance.session.collect_traces().next;
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
      if (batch != nullptr && waiting_.any()) other = whom_to_wake(now);
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

void ModelCore::start(Instance& instance, const BatchPtr& batch) {
  std::optional<Error> failed;
  try {
    return instance.session.submit(instance.number, batch, data_.gather(*batch), where_);
  } catch (const api::Error& error) {
    if (is_fatal(error)) {
      {
        const std::lock_guard lock(mutex_);
        instance.breaks(client_text(error.what()));
      }
      crew_->wake(instance.number);
    }
    failed = error_of_submission(where_, error);
  } catch (const Error& error) {
    failed = error;
  } catch (const std::exception& error) {
    failed = Error(Code::kInternal, where_ + ": " + error.what());
  }
  give_back(instance, batch->jobs, *failed);
}

void ModelCore::give_back(Instance& instance, const std::vector<JobPtr>& jobs, const Error& error) {
  end_jobs(jobs);
  answers_.fail(jobs, error);
  release(instance);
}

void ModelCore::release(Instance& instance) {
  int wake = -1;
  {
    const std::lock_guard lock(mutex_);
    instance.ends_step(Clock::now());
    if (instance.limits != nullptr) shared_->limiter.release(*instance.limits);
    if (waiting_.any()) wake = whom_to_wake(Clock::now());
  }
  if (wake >= 0) crew_->wake(wake);
}

// The oldest step of this instance is over. Runs on a thread of the engine.
void ModelCore::done(Instance& instance, Flight& flight, const std::vector<api::Tensor>& outputs,
                     const std::string& error) {
  const Inside here;
  const auto now = Clock::now();
  const BatchPtr batch = flight.land(error);
  if (batch == nullptr) return;
  if (!error.empty()) {  // only the result knows of what kind, and it is not there yet
    crew_->wake(instance.number);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    instance.suspect = false;
    pace_.went_well(now - batch->started, batch->rows);
  }
  if (data_.sequences() != nullptr) {
    std::vector<std::vector<api::Tensor>> states = data_.states_after(*batch, outputs);
    const std::lock_guard lock(mutex_);
    waiting_.finished(batch->jobs, std::move(states));
    arm_sequences();
  }
  release(instance);
  answer(*batch, outputs, now);
  if (batch->traced) crew_->wake(instance.number);
}

void ModelCore::answer(Batch& batch, const std::vector<api::Tensor>& outputs, Clock::time_point infer_end) {
  StepData::Shown shown = data_.show(batch, outputs, answers_);
  const auto end = Clock::now();
  const StepTimes times{batch.submitted - batch.started, infer_end - batch.submitted, end - infer_end};
  statistics_.executed(batch.rows, times);
  end_jobs(batch.jobs);
  for (size_t j = 0; j < batch.jobs.size(); ++j) {
    const JobPtr& job = batch.jobs[j];
    InferResponse& response = shown.responses[j];
    if (response.error) {
      answers_.fail(job, *response.error);
      continue;
    }
    if (job->answered.exchange(true)) continue;
    statistics_.succeeded(*job, times, end);
    if (job->request.trace != nullptr) {
      job->request.trace->stamp(Stamp::kComputeOutputStart, infer_end);
      job->request.trace->stamp(Stamp::kComputeEnd, end);
    }
    cached_.keep(*job, response.outputs, batch.jobs.size() > 1 || shown.counts != nullptr);
    answers_.deliver(job, std::move(response));
  }
}

// Answers the steps that failed. Runs on the instance's thread.
void ModelCore::look_into_failures(Instance& instance) {
  while (const BatchPtr batch = instance.session.next_failed()) {
    std::optional<api::Error> why;
    try {
      if (batch->result) static_cast<void>(batch->result->get());
    } catch (const api::Error& error) {
      why = error;
    }
    if (why && is_fatal(*why)) {
      const std::lock_guard lock(mutex_);
      instance.breaks(client_text(why->what()));
    }
    give_back(instance, batch->jobs,
              error_of_step(where_, why ? *why : api::Error(api::ErrorKind::kRuntime, batch->error)));
  }
}

}  // namespace sluice::serving
