// Requests: from infer() to their answer.
#include "serving/execution/model/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "serving/core/trace.h"
#include "serving/execution/inside.h"
#include "serving/execution/scheduling.h"

namespace sluice::serving {

// That a thread runs behind the one of the request that it has brought.
static constexpr int kStepsOfOthers = 4;

void Job::cancel() {
  if (const std::shared_ptr<ModelCore> held = core.lock()) held->cancel(shared_from_this());
}

namespace {

// Of this executor and no other: a version loaded anew may answer otherwise.
std::string new_prefix(const inference::ModelConfig& config) {
  static std::atomic<uint64_t> count{0};
  return config.response_cache().enable() ? fmt::format("{}#", count++) : "";
}

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

std::shared_ptr<SharedResources> make_shared_resources(const ServerOptions& options) {
  return std::make_shared<SharedResources>(options);
}

ModelCore::ModelCore(const Machine& machine, ExecutorSpec spec, std::string bundle,
                     std::unique_ptr<ScratchFolder> scratch)
    : engine_(machine.engine),
      actors_(machine.actors),
      spec_(std::move(spec)),
      shared_(machine.shared != nullptr ? machine.shared : make_shared_resources(machine.options)),
      bundle_(std::move(bundle)),
      where_("model '" + spec_.config.name() + "'"),
      cache_prefix_(new_prefix(spec_.config)),
      scratch_(std::move(scratch)),
      batching_(batching_of(spec_.config)),
      batcher_(std::make_unique<const Batcher>(batching_, INT64_MAX)),
      statistics_(spec_.config, machine.options.metrics),
      buffers_(size_t{64} << 20),
      most_waiting_(std::max<uint32_t>(machine.options.max_queue_size, 1)),
      queue_(batching_, most_waiting_),
      step_timeout_(step_timeout_of(spec_.config)),
      ordered_(batching_.dynamic_batching().preserve_ordering()) {}

ModelCore::~ModelCore() {
  for (const auto& instance : instances_)
    if (instance->limits != nullptr) shared_->limiter.leave(*instance->limits);
  if (!cache_prefix_.empty()) shared_->cache.forget(cache_prefix_);
}

bool ModelCore::answer_from_cache(const JobPtr& job) {
  const auto begin = Clock::now();
  uint64_t bytes = 0;
  for (const Tensor& input : job->request.inputs) bytes += input.bytes;
  Held own(job->request.memory, bytes);
  std::string key = cache_key(cache_prefix_, job->request);
  const ResponseCache::Outputs outputs = shared_->cache.find(key);
  const auto end = Clock::now();
  if (outputs == nullptr) {
    job->key = std::move(key);
    job->own = std::move(own);
    statistics_.missed(end - begin);
    return false;
  }
  InferResponse response = response_of(*job);
  response.outputs = *outputs;
  for (Tensor& tensor : response.outputs)  // it may leave the cache before the client has read it
    tensor.data = counted(std::move(tensor.data), Held(job->request.memory, tensor.bytes));
  job->answered = true;
  statistics_.hit(*job, end - begin, end);
  deliver(job, std::move(response));
  return true;
}

std::shared_ptr<RequestHandle> ModelCore::infer(InferRequest request, Respond respond) {
  const auto job = std::make_shared<Job>();
  job->core = weak_from_this();
  job->respond = std::move(respond);
  job->received = request.received;
  job->request = std::move(request);
  ++pending_;
  ++undelivered_;
  try {
    job->options = options_of(job->request.parameters);
    if (!cache_prefix_.empty() && answer_from_cache(job)) return job;
    ModelPorts::Prepared prepared = ports_->prepare(job->request);
    job->inputs = std::move(prepared.inputs);
    job->outputs = std::move(prepared.outputs);
    job->rows = prepared.rows;
    job->ragged = std::move(prepared.ragged);
    count_texts(*job);
    if (sequences_ == nullptr && job->rows > ports_->step_rows()) return split(job);
    count_answer(*job);
  } catch (const Error& error) {
    fail(job, error);
    return job;
  } catch (const std::exception& error) {
    fail(job, Error(Code::kInternal, where_ + ": " + error.what()));
    return job;
  }
  enqueue(job);
  return job;
}

void ModelCore::count_texts(Job& job) const {
  if (job.request.memory == nullptr) return;
  uint64_t bytes = job.own.bytes() + text_bytes(job.request);
  for (const ShownPort& port : ports_->inputs())
    if (port.datatype == DataType::TYPE_STRING) bytes += job.inputs[static_cast<size_t>(port.port)].bytes();
  job.own = Held(job.request.memory, bytes);
}

void ModelCore::count_answer(Job& job) const {
  if (job.request.memory == nullptr) return;
  job.answer = Held(job.request.memory, ports_->result_bytes(job.rows, job.ragged));
}

void ModelCore::count_padding(Batch& batch) const {
  const MemoryPtr& memory = batch.jobs.front()->request.memory;
  if (memory == nullptr || batch.step_rows == batch.rows) return;
  uint64_t counted = 0;
  for (const JobPtr& job : batch.jobs) counted += job->answer.bytes();
  const uint64_t all = ports_->result_bytes(batch.step_rows, {});
  if (all > counted) batch.padding = Held(memory, all - counted);
}

void ModelCore::enqueue(const JobPtr& job) {
  Instance* mine = nullptr;
  BatchPtr batch;
  int wake = -1;
  try {
    const std::lock_guard lock(mutex_);
    if (closing_) throw Error(Code::kUnavailable, where_ + ": it is being unloaded");
    if (std::none_of(instances_.begin(), instances_.end(),
                     [](const auto& instance) { return instance->state == Instance::State::kUp; }))
      throw Error(Code::kUnavailable, where_ + ": no instance is there: " + last_failure_);
    const auto now = Clock::now();
    job->queued = now;
    if (job->request.trace != nullptr) job->request.trace->stamp(Stamp::kQueueStart, now);
    if (sequences_ != nullptr) {
      if (ports_->max_batch() > 0 && job->rows != 1)
        throw Error(Code::kInvalidArgument, fmt::format("infer: {} rows; a request of a sequence has one", job->rows));
      sequence_ports_->check(*job);
      sequences_->admit(job, now);
      pump();
    } else if (!queue_.push(job)) {
      const uint64_t level = queue_.level_of(job->options);
      throw Error(
          Code::kOverloaded,
          fmt::format("{}: {} requests wait; the queue holds {}", where_, queue_.waiting(level), queue_.limit(level)),
          retry_after());
    }
    job->state = Job::State::kWaiting;
    if (ordered_) {
      job->number = ++arrivals_;
      const std::lock_guard in_order(order_mutex_);
      order_.emplace(job->number, std::nullopt);
    }
    // Alone, and somebody has room for it: this thread starts it, unless it would wait for another step.
    if (queue_.size() == 1 && !is_inside()) {
      mine = least_busy();
      if (mine != nullptr) batch = take_here(*mine, now);
    }
    if (batch == nullptr) wake = whom_to_wake(now);
    if (job->state == Job::State::kWaiting) arm(job->deadline);
  } catch (const Error& error) {
    fail(job, error);
  } catch (const std::exception& error) {
    fail(job, Error(Code::kInternal, where_ + ": " + error.what()));
  }
  // Who comes meanwhile leaves its request to this thread, which runs a few of them.
  for (int left = kStepsOfOthers; batch != nullptr; --left) {
    start(*mine, batch);
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    mine->woken = false;
    batch = left > 0 && something_waits() ? take_here(*mine, now) : nullptr;
    if (batch == nullptr && something_waits()) wake = whom_to_wake(now);
  }
  if (wake >= 0) crew_->wake(wake);
}

// For this thread, unless its step would wait for another.
ModelCore::BatchPtr ModelCore::take_here(Instance& instance, Clock::time_point now) {
  if (instance.running > 0 && takes_turns_) return nullptr;
  std::optional<Clock::time_point> wait;
  BatchPtr batch = take(instance, now, wait);
  instance.woken = instance.woken || batch != nullptr;  // this thread looks again, behind its step
  return batch;
}

ModelCore::Instance* ModelCore::least_busy() const {
  Instance* best = nullptr;
  for (const auto& instance : instances_) {
    if (instance->state != Instance::State::kUp || !instance->broken.empty() || instance->woken ||
        instance->running >= instance->depth)
      continue;
    if (best == nullptr || instance->running < best->running) best = instance.get();
  }
  return best;
}

void ModelCore::arm(Clock::time_point deadline) {
  if (deadline >= armed_) return;
  armed_ = deadline;
  crew_->tick();
}

void ModelCore::cancel(const JobPtr& job) {
  int wake = -1;
  std::vector<JobPtr> parts;
  {
    const std::lock_guard lock(mutex_);
    if (job->state == Job::State::kOver) return;
    if (job->state == Job::State::kWaiting) wake = take_out(job) ? whom_to_wake(Clock::now()) : -1;
    job->state = Job::State::kOver;
    parts = std::move(job->parts);
  }
  if (wake >= 0) crew_->wake(wake);
  for (const JobPtr& part : parts) cancel(part);
  fail(job, Error(Code::kCancelled, "infer: the request was cancelled"));
}

InferResponse ModelCore::response_of(const Job& job) const {
  InferResponse response;
  response.model = spec_.config.name();
  response.version = spec_.version;
  response.id = job.request.id;
  response.trace = job.request.trace;
  return response;
}

void ModelCore::refuse(const std::vector<JobPtr>& jobs, const Error& error) {
  for (const JobPtr& job : jobs) fail(job, error);
}

void ModelCore::fail(const JobPtr& job, const Error& error) {
  if (job->answered.exchange(true)) return;
  if (!job->part) statistics_.failed(job->received, error.code(), Clock::now());
  InferResponse response = response_of(*job);
  response.error = error;
  deliver(job, std::move(response));
}

void ModelCore::end_jobs(const std::vector<JobPtr>& jobs) {
  const std::lock_guard lock(mutex_);
  for (const JobPtr& job : jobs) {
    job->state = Job::State::kOver;
    if (sequences_ != nullptr) sequence_goes_on(*job, std::nullopt);
  }
  pump();
}

// In the order of arrival, where that is asked for; one thread at a time gives answers then.
void ModelCore::deliver(const JobPtr& job, InferResponse response) {
  if (job->number == 0) {
    return tell(job, std::move(response));
  }
  std::unique_lock lock(order_mutex_);
  order_.at(job->number).emplace(job, std::move(response));
  if (std::exchange(delivering_, true)) return;
  while (!order_.empty() && order_.begin()->second.has_value()) {
    auto [first, due] = *std::move(order_.begin()->second);
    order_.erase(order_.begin());
    lock.unlock();
    tell(first, std::move(due));
    lock.lock();
  }
  delivering_ = false;
}

void ModelCore::tell(const JobPtr& job, InferResponse response) {
  --pending_;
  job->own = Held();  // whoever has a handle may have it for longer
  job->respond(std::move(response), true);
  job->respond = nullptr;
  if (--undelivered_ > 0) return;
  const std::lock_guard lock(mutex_);
  all_delivered_.notify_all();
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

}  // namespace sluice::serving
