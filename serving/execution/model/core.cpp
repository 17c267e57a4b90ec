// Requests, from infer() to their answer, and what the clock brings: requests that wait too long, steps that are stuck,
// draining and the end. core_steps.cpp has the instances and their steps.
#include "serving/execution/model/core.h"

#include <fmt/format.h>

#include <algorithm>

#include "serving/core/trace.h"
#include "serving/execution/inside.h"
#include "serving/execution/model/pieces.h"
#include "serving/execution/parameters.h"
#include "serving/execution/scheduling.h"

namespace sluice::serving {

// A thread runs so many steps of other requests behind the step of the one that it has brought.
static constexpr int kStepsOfOthers = 4;

void Job::cancel() {
  if (const std::shared_ptr<ModelCore> held = core.lock()) held->cancel(shared_from_this());
}

ModelCore::ModelCore(const Machine& machine, ExecutorSpec spec, std::string bundle,
                     std::unique_ptr<ScratchFolder> scratch)
    : engine_(machine.engine),
      actors_(machine.actors),
      spec_(std::move(spec)),
      shared_(machine.shared != nullptr ? machine.shared : make_shared_resources(machine.options)),
      where_("model '" + spec_.config.name() + "'"),
      cached_(spec_.config, shared_->cache),
      loader_(engine_, where_, std::move(bundle), std::move(scratch),
              parameter_switch(spec_.config, "flush_denormals", true)),
      data_(spec_.config, spec_.folder, where_),
      statistics_(spec_.config, machine.options.metrics),
      answers_(spec_.config.name(), spec_.version, batching_of(spec_.config).dynamic_batching().preserve_ordering(),
               statistics_),
      waiting_(spec_.config, batching_of(spec_.config), std::max<uint32_t>(machine.options.max_queue_size, 1)),
      pace_(spec_.config) {}

ModelCore::~ModelCore() {
  for (const auto& instance : instances_)
    if (instance->limits != nullptr) shared_->limiter.leave(*instance->limits);
}

bool ModelCore::answer_from_cache(const JobPtr& job) {
  const auto begin = Clock::now();
  const ResponseCache::Outputs outputs = cached_.find(*job);
  const auto end = Clock::now();
  if (outputs == nullptr) {
    statistics_.missed(end - begin);
    return false;
  }
  InferResponse response = answers_.blank(*job);
  response.outputs = *outputs;
  for (Tensor& tensor : response.outputs)  // it may leave the cache before the client has read it
    tensor.data = counted(std::move(tensor.data), Held(job->request.memory, tensor.bytes));
  job->answered = true;
  statistics_.hit(*job, end - begin, end);
  answers_.deliver(job, std::move(response));
  return true;
}

std::shared_ptr<RequestHandle> ModelCore::infer(InferRequest request, Respond respond) {
  const auto job = std::make_shared<Job>();
  job->core = weak_from_this();
  job->respond = std::move(respond);
  job->received = request.received;
  job->request = std::move(request);
  answers_.expect(1);
  try {
    job->options = options_of(job->request.parameters);
    if (cached_.on() && answer_from_cache(job)) return job;
    data_.prepare(*job);
    if (!waiting_.stateful() && job->rows > data_.ports().step_rows()) return split(job);
    data_.count_answer(*job);
  } catch (const Error& error) {
    answers_.fail(job, error);
    return job;
  } catch (const std::exception& error) {
    answers_.fail(job, Error(Code::kInternal, where_ + ": " + error.what()));
    return job;
  }
  enqueue(job);
  return job;
}

std::shared_ptr<RequestHandle> ModelCore::split(const JobPtr& job) {
  const std::vector<JobPtr> parts = data_.cut(*job);
  const auto pieces = std::make_shared<Pieces>(parts.size());
  for (size_t number = 0; number < parts.size(); ++number) {
    parts[number]->respond = [this, job, pieces, number](InferResponse response, bool) {
      if (pieces->add(number, std::move(response))) join(job, pieces->all());
    };
  }
  answers_.expect(parts.size());
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

// Answers with the rows of all parts, one behind the other, or with the first error there was.
void ModelCore::join(const JobPtr& job, const std::vector<InferResponse>& parts) {
  {
    const std::lock_guard lock(mutex_);
    job->state = Job::State::kOver;
    job->parts.clear();
  }
  for (const InferResponse& part : parts)
    if (part.error) return answers_.fail(job, *part.error);
  InferResponse whole = answers_.blank(*job);
  try {
    whole.outputs = data_.join(*job, parts);
  } catch (const Error& error) {
    return answers_.fail(job, error);
  }
  if (job->answered.exchange(true)) return;
  job->rows = 0;  // its parts have counted theirs
  statistics_.succeeded(*job, {}, Clock::now());
  cached_.keep(*job, whole.outputs, job->request.memory != nullptr);
  answers_.deliver(job, std::move(whole));
}

// Throws Error where requests are not taken.
void ModelCore::check_open() const {
  if (closing_) throw Error(Code::kUnavailable, where_ + ": it is being unloaded");
  if (!instances_.any_up()) throw Error(Code::kUnavailable, where_ + ": no instance is there: " + last_failure_);
}

// From now on it waits. Throws Error where there is no room.
void ModelCore::admit(const JobPtr& job, Clock::time_point now) {
  job->queued = now;
  if (job->request.trace != nullptr) job->request.trace->stamp(Stamp::kQueueStart, now);
  if (!waiting_.admit(job, now)) {
    const RequestQueue& queue = waiting_.queue();
    const uint64_t level = queue.level_of(job->options);
    throw Error(
        Code::kOverloaded,
        fmt::format("{}: {} requests wait; the queue holds {}", where_, queue.waiting(level), queue.limit(level)),
        pace_.time_for(queue.rows(), instances_.up()));
  }
  arm_sequences();
  job->state = Job::State::kWaiting;
  answers_.arrived(*job);
}

void ModelCore::enqueue(const JobPtr& job) {
  Instance* mine = nullptr;
  BatchPtr batch;
  int wake = -1;
  try {
    const std::lock_guard lock(mutex_);
    check_open();
    const auto now = Clock::now();
    admit(job, now);
    // Alone, and somebody has room for it: this thread starts it, unless it would wait for another step.
    if (waiting_.queue().size() == 1 && !is_inside()) {
      mine = instances_.least_busy();
      if (mine != nullptr) batch = take_here(*mine, now);
    }
    if (batch == nullptr) wake = whom_to_wake(now);
    if (job->state == Job::State::kWaiting) arm(job->deadline);
  } catch (const Error& error) {
    answers_.fail(job, error);
  } catch (const std::exception& error) {
    answers_.fail(job, Error(Code::kInternal, where_ + ": " + error.what()));
  }
  // Requests that come meanwhile are left to this thread, which runs a few of them.
  for (int left = kStepsOfOthers; batch != nullptr; --left) {
    start(*mine, batch);
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    mine->woken = false;
    batch = left > 0 && waiting_.any() ? take_here(*mine, now) : nullptr;
    if (batch == nullptr && waiting_.any()) wake = whom_to_wake(now);
  }
  if (wake >= 0) crew_->wake(wake);
}

// Takes a step for this thread, unless the step would wait for another.
BatchPtr ModelCore::take_here(Instance& instance, Clock::time_point now) {
  if (instance.running > 0 && takes_turns_) return nullptr;
  std::optional<Clock::time_point> wait;
  BatchPtr batch = take(instance, now, wait);
  instance.woken = instance.woken || batch != nullptr;  // this thread looks again, behind its step
  return batch;
}

void ModelCore::arm(Clock::time_point deadline) {
  if (deadline >= armed_) return;
  armed_ = deadline;
  crew_->tick();
}

void ModelCore::arm_sequences() {
  if (waiting_.stateful() && crew_ != nullptr) arm(waiting_.sequence_deadline());
}

void ModelCore::cancel(const JobPtr& job) {
  int wake = -1;
  std::vector<JobPtr> parts;
  {
    const std::lock_guard lock(mutex_);
    if (job->state == Job::State::kOver) return;
    if (job->state == Job::State::kWaiting) {
      wake = waiting_.remove(job) ? whom_to_wake(Clock::now()) : -1;
      arm_sequences();
    }
    job->state = Job::State::kOver;
    parts = std::move(job->parts);
  }
  if (wake >= 0) crew_->wake(wake);
  for (const JobPtr& part : parts) cancel(part);
  answers_.fail(job, Error(Code::kCancelled, "infer: the request was cancelled"));
}

void ModelCore::end_jobs(const std::vector<JobPtr>& jobs) {
  const std::lock_guard lock(mutex_);
  for (const JobPtr& job : jobs) job->state = Job::State::kOver;
  waiting_.finished(jobs);
  arm_sequences();
}

inference::ModelStatistics ModelCore::statistics() const {
  inference::ModelStatistics all = statistics_.read();
  all.set_name(spec_.config.name());
  all.set_version(spec_.version);
  inference::MemoryUsage& memory = *all.add_memory_usage();
  memory.set_type("CPU");
  memory.set_byte_size(memory_bytes());
  return all;
}

bool ModelCore::ready() const {
  const std::lock_guard lock(mutex_);
  return !closing_ && instances_.any_up();
}

uint64_t ModelCore::memory_bytes() const {
  uint64_t bytes = 0;
  bool first = true;
  for (const auto& instance : instances_) {
    const std::optional<api::Counters> counters = instance->session.counters();
    if (!counters) continue;
    bytes += first ? counters->bytes : counters->bytes - counters->shared;
    first = false;
  }
  return bytes;
}

std::optional<Clock::time_point> ModelCore::tick() {
  const Inside here;
  std::vector<JobPtr> late, stuck;
  Clock::time_point next = Clock::time_point::max();
  std::vector<int> broken;
  int wake = -1;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    late = waiting_.expire(now);
    stuck = instances_.break_stuck(pace_, now, next);
    broken = instances_.broken();
    next = std::min(next, waiting_.next_deadline());
    armed_ = next;
    if (!late.empty() || waiting_.stateful()) wake = whom_to_wake(now);
  }
  answers_.fail(late, Error(Code::kTimeout, where_ + ": the request waited in the queue for longer than its timeout"));
  answers_.fail(stuck, Error(Code::kUnavailable, where_ + ": its step took too long; its instance is restarted"));
  for (const int instance : broken) crew_->wake(instance);
  if (wake >= 0) crew_->wake(wake);
  if (next == Clock::time_point::max()) return std::nullopt;
  return next;
}

void ModelCore::suspect() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (const auto& instance : instances_) {
    if (!instance->up() || crew_ == nullptr) continue;
    instance->suspect = true;
    if (instance->running == 0) continue;
    instance->busy_since = now;
    arm(now + pace_.limit(true));
  }
}

bool ModelCore::drain(std::chrono::milliseconds timeout) {
  constexpr std::chrono::hours kLong(24 * 365);
  if (answers_.wait_until(Clock::now() + std::min<std::chrono::milliseconds>(timeout, kLong))) return true;
  std::vector<JobPtr> left;
  {
    const std::lock_guard lock(mutex_);
    left = waiting_.clear();
    const std::vector<JobPtr> running = instances_.jobs();
    left.insert(left.end(), running.begin(), running.end());
    for (const JobPtr& job : left) job->state = Job::State::kOver;
  }
  answers_.fail(left, Error(Code::kUnavailable, where_ + ": it is being unloaded"));
  return false;
}

void ModelCore::close() {
  std::vector<JobPtr> left;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    left = waiting_.clear();
    for (const JobPtr& job : left) job->state = Job::State::kOver;
  }
  answers_.fail(left, Error(Code::kUnavailable, where_ + ": it is being unloaded"));
  if (crew_ == nullptr) return;
  crew_->end();
  if (!is_inside()) crew_->wait();
}

}  // namespace sluice::serving
