// Models: their instances, and what the interface of executors says.
#include "serving/core/executor.h"

#include <fmt/format.h>

#include <thread>

#include "serving/core/log.h"
#include "serving/execution/batching_file.h"
#include "serving/execution/decoupled.h"
#include "serving/execution/ensemble.h"
#include "serving/execution/errors.h"
#include "serving/execution/inside.h"
#include "serving/execution/model/core.h"
#include "serving/execution/scheduling.h"
#include "serving/execution/warmup.h"
#include "sluice/compile.h"

namespace sluice::serving {

namespace {

class ModelExecutor final : public Executor {
 public:
  explicit ModelExecutor(std::shared_ptr<ModelCore> core) : core_(std::move(core)) {}
  ~ModelExecutor() override { core_->close(); }
  std::shared_ptr<RequestHandle> infer(InferRequest request, Respond respond) override {
    return core_->infer(std::move(request), std::move(respond));
  }
  inference::ModelStatistics statistics() const override { return core_->statistics(); }
  std::map<std::string, uint64_t> failures() const override { return core_->failures(); }
  Latencies latencies() const override { return core_->latencies(); }
  void refused(Code code, Clock::time_point received) override { core_->refused(code, received); }
  size_t pending() const override { return core_->pending(); }
  bool ready() const override { return core_->ready(); }
  uint64_t memory_bytes() const override { return core_->memory_bytes(); }
  bool drain(std::chrono::milliseconds timeout) override { return core_->drain(timeout); }

 private:
  const std::shared_ptr<ModelCore> core_;
};

}  // namespace

namespace {

std::shared_ptr<ModelCore> make_core(const Machine& machine, ExecutorSpec spec) {
  std::vector<int64_t> allowed = apply_batching_file(spec.config, spec.folder);
  std::unique_ptr<ScratchFolder> scratch;
  std::string bundle = spec.bundle;
  if (spec.config.has_ensemble_scheduling()) {
    scratch = std::make_unique<ScratchFolder>();
    bundle = scratch->path() + "/ensemble";
    compile_ensemble(machine.engine, spec, bundle);
  }
  spec.step = nullptr;  // it may know other executors
  auto core = std::make_shared<ModelCore>(machine, std::move(spec), std::move(bundle), std::move(scratch));
  core->allow_batches(std::move(allowed));
  return core;
}

}  // namespace

void check_executor(const Machine& machine, ExecutorSpec spec) {
  const std::string where = "model '" + spec.config.name() + "'";
  try {
    const auto core = make_core(machine, std::move(spec));
    core->look();
    if (core->config().model_transaction_policy().decoupled()) check_decoupled(core->config());
  } catch (...) {
    rethrow_as_error(where);
  }
}

std::shared_ptr<Executor> make_executor(const Machine& machine, ExecutorSpec spec) {
  const std::string where = "model '" + spec.config.name() + "'";
  try {
    const auto core = make_core(machine, std::move(spec));
    auto executor = std::make_shared<ModelExecutor>(core);
    core->open();
    core->warm_up();
    if (core->config().model_transaction_policy().decoupled())
      return make_decoupled(executor, core->config(), machine.options.metrics);
    return executor;
  } catch (...) {
    rethrow_as_error(where);
  }
}

uint64_t ledger_of(const ExecutorSpec& spec) {
  const std::string where = "model '" + spec.config.name() + "'";
  try {
    const int instances = instances_of(spec.config);
    return spec.config.has_ensemble_scheduling() ? ledger_of_ensemble(spec, instances)
                                                 : api::Plan::load(spec.bundle).memory_bytes(instances);
  } catch (...) {
    rethrow_as_error(where);
  }
}

std::shared_ptr<api::Session> ModelCore::load_session(Instance& instance, const std::shared_ptr<Flight>& flight) {
  api::SessionOptions options;
  options.zero_copy = true;
  // A step so short is run by the thread that brings its request: to hand it to another takes as long.
  options.inline_up_to = std::chrono::microseconds(100);
  options.on_output_inline = true;
  options.on_output = [weak = weak_from_this(), &instance, flight](uint64_t, const std::vector<api::Tensor>& outputs,
                                                                   const std::string& error) {
    if (const auto core = weak.lock()) core->done(instance, *flight, outputs, error);
  };
  return std::make_shared<api::Session>(api::Session::load(engine_, bundle_, std::move(options)));
}

// Sessions of plans for all cores take turns; those of narrower ones run at the same time.
void ModelCore::plan_for_instances(int count) {
  const int cores = std::max(1, engine_.cores() / count);
  if (count > 1 && cores < engine_.cores()) plan_anew(cores);
}

void ModelCore::plan_anew(int cores) {
  if (scratch_ == nullptr) scratch_ = std::make_unique<ScratchFolder>();
  const std::string to = scratch_->path() + "/" + std::to_string(cores);
  api::CompileOptions options;
  options.cores = cores;
  api::replan(engine_, bundle_, to, options);
  bundle_ = to;
}

std::shared_ptr<api::Session> ModelCore::load_first_session(Instance& instance, const std::shared_ptr<Flight>& flight) {
  try {
    return load_session(instance, flight);
  } catch (const api::Error& error) {
    if (error.kind() != api::ErrorKind::kUnsupported) throw;
    const std::exception_ptr why = std::current_exception();
    try {
      plan_anew(0);
    } catch (const api::Error&) {
      std::rethrow_exception(why);
    }
    log_warning(fmt::format("{}: its plan was made for another machine, and is made anew: {}", where_,
                            client_text(error.what())));
  }
  return load_session(instance, flight);
}

void ModelCore::join_limiter() {
  size_t next = 0;
  for (const inference::ModelInstanceGroup& group : spec_.config.instance_group()) {
    for (int i = 0; i < std::max(group.count(), 1); ++i) {
      const size_t number = next++;
      instances_[number]->limits = shared_->limiter.join(
          group.rate_limiter(), [crew = crew_.get(), number] { crew->wake(static_cast<int>(number)); });
    }
  }
}

void ModelCore::warm_up() {
  const auto run = [&](Instance& instance, InferRequest request) {
    const auto job = std::make_shared<Job>();
    ModelPorts::Prepared prepared = ports_->prepare(request);
    job->inputs = std::move(prepared.inputs);
    job->ragged = std::move(prepared.ragged);
    if (sequence_ports_ != nullptr) sequence_ports_->fill(*job, {});
    Batch batch;
    batch.rows = batch.end = prepared.rows;
    batch.at = {0};
    batch.jobs.push_back(job);
    instance.session->hand_over(gather(batch)).get();
  };
  for (const inference::ModelWarmup& warmup : spec_.config.model_warmup())
    for (const auto& instance : instances_)
      for (uint32_t i = 0; i < std::max<uint32_t>(warmup.count(), 1); ++i)
        run(*instance, warmup_request(spec_.config, warmup, spec_.folder));
  for (const auto& instance : instances_)
    for_stored_requests([&](InferRequest request) { run(*instance, std::move(request)); });
}

void ModelCore::for_stored_requests(const std::function<void(InferRequest request)>& use) const {
  size_t number = 0;
  for (InferRequest& request : stored_requests(spec_.config, spec_.folder)) {
    ++number;
    try {
      use(std::move(request));
    } catch (const Error& error) {
      wrong(fmt::format("{}: warmup/requests.log: request {}: {}", where_, number, error.what()));
    }
  }
}

void ModelCore::open_ports(const std::vector<api::Port>& inputs, const std::vector<api::Port>& outputs, int instances) {
  if (!cache_prefix_.empty() && shared_->cache.limit() == 0)
    throw Error(Code::kInvalidArgument, where_ + ": response_cache: the server has none; give it bytes for one");
  for (const api::Port& port : inputs) takes_turns_ = takes_turns_ || !port.dims.empty();
  std::vector<std::string> made = SequencePorts::made(spec_.config, inputs);
  for (std::string& name : RaggedBatch::made(spec_.config, inputs)) made.push_back(std::move(name));
  ports_ = std::make_unique<ModelPorts>(spec_.config, inputs, outputs, spec_.folder,
                                        PortRoles{std::move(made), inputs_of_files(bundle_)});
  if (!ports_->ragged().empty()) {
    if (!allowed_.empty())
      wrong(where_ + ": allowed_batch_sizes: a step with ragged inputs is as large as its requests");
    const api::Plan plan = api::Plan::load(bundle_);
    ragged_ = std::make_unique<const RaggedBatch>(spec_.config, *ports_, plan.dims(), plan.members());
  }
  batcher_ = std::make_unique<const Batcher>(batching_, ports_->step_rows(), ports_->ragged_rows());
  open_sequences(inputs, outputs, instances);
}

void ModelCore::look() {
  const int count = instances_of(spec_.config);
  const api::Plan plan = api::Plan::load(bundle_);
  open_ports(plan.inputs(), plan.outputs(), count);
  for (const inference::ModelInstanceGroup& group : spec_.config.instance_group())
    static_cast<void>(shared_->limiter.join(group.rate_limiter(), [] {}));
  for (const inference::ModelWarmup& warmup : spec_.config.model_warmup()) {
    InferRequest request = warmup_request(spec_.config, warmup, spec_.folder);
    static_cast<void>(ports_->prepare(request));
  }
  for_stored_requests([this](InferRequest request) { static_cast<void>(ports_->prepare(request)); });
}

void ModelCore::open() {
  const int count = instances_of(spec_.config);
  plan_for_instances(count);
  for (int i = 0; i < count; ++i) {
    Instance& instance = *instances_.emplace_back(std::make_unique<Instance>());
    instance.number = i;
    instance.flight = std::make_shared<Flight>();
    instance.flying = instance.flight;
    instance.session = i == 0 ? load_first_session(instance, instance.flight) : load_session(instance, instance.flight);
    instance.depth = std::max(1, instance.session->counters().max_in_flight);
    if (ports_ == nullptr) open_ports(instance.session->inputs(), instance.session->outputs(), count);
  }
  crew_ = std::make_unique<Crew>(actors_, count, shared_from_this());
  join_limiter();
  shared_->add(weak_from_this());
}

void ModelCore::load(int number) {
  Instance& instance = *instances_[static_cast<size_t>(number)];
  const auto flight = std::make_shared<Flight>();
  std::shared_ptr<api::Session> session = load_session(instance, flight);
  {
    const std::lock_guard submitting(instance.submit);
    instance.session = std::move(session);
    instance.flight = flight;
  }
  const std::lock_guard lock(mutex_);
  instance.flying = flight;
  instance.broken.clear();
  instance.suspect = false;
  instance.woken = false;
  instance.armed = Clock::time_point::max();
  instance.state = Instance::State::kUp;
}

void ModelCore::unload(int number) noexcept {
  const Inside here;
  Instance& instance = *instances_[static_cast<size_t>(number)];
  {
    const std::lock_guard lock(mutex_);
    if (instance.state == Instance::State::kUp) instance.state = Instance::State::kDown;
    last_failure_ = instance.broken.empty() ? "it is being unloaded" : instance.broken;
  }
  // What has been answered is over, or all but: its last firing ends.
  for (int i = 0; i < 100 && collect_traces(instance).wait; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  bool returns = true;
  try {
    // Who waits in a submission is let go by stop().
    if (instance.session != nullptr) instance.session->stop();
  } catch (const api::Error&) {  // a kernel that does not return: the engine keeps what it uses
    returns = false;
  }
  std::shared_ptr<api::Session> session;
  std::shared_ptr<Flight> flight;
  {
    const std::lock_guard submitting(instance.submit);
    session = std::move(instance.session);
    flight = std::move(instance.flight);
    instance.session = nullptr;
    instance.flight = nullptr;
    instance.recorder.drop();
    instance.records = false;
  }
  session = nullptr;
  if (!returns) shared_->lost_a_thread();
  if (instance.limits != nullptr) shared_->limiter.give_up(*instance.limits);
  if (flight == nullptr) return;
  std::vector<BatchPtr> left;
  {
    const std::lock_guard lock(flight->mutex);
    flight->over = true;
    left = std::move(flight->failed);
    left.insert(left.end(), flight->in_flight.begin(), flight->in_flight.end());
    flight->in_flight.clear();
  }
  for (const BatchPtr& batch : left) {
    end_jobs(batch->jobs);
    refuse(batch->jobs, Error(Code::kUnavailable, where_ + ": its instance ended: " + last_failure_));
    release(instance);
  }
}

void ModelCore::gave_up(int number, const std::string& why) noexcept {
  const Inside here;
  std::vector<JobPtr> left;
  {
    const std::lock_guard lock(mutex_);
    instances_[static_cast<size_t>(number)]->state = Instance::State::kGone;
    last_failure_ = why;
    const bool any = std::any_of(instances_.begin(), instances_.end(),
                                 [](const auto& instance) { return instance->state != Instance::State::kGone; });
    if (!any) left = take_all();
    for (const JobPtr& job : left) job->state = Job::State::kOver;
  }
  refuse(left, Error(Code::kUnavailable, where_ + ": no instance is there: " + why));
}

bool ModelCore::ready() const {
  const std::lock_guard lock(mutex_);
  return !closing_ && std::any_of(instances_.begin(), instances_.end(),
                                  [](const auto& instance) { return instance->state == Instance::State::kUp; });
}

uint64_t ModelCore::memory_bytes() const {
  uint64_t bytes = 0;
  bool first = true;
  for (const auto& instance : instances_) {
    std::shared_ptr<api::Session> session;
    {
      const std::lock_guard lock(instance->submit);
      session = instance->session;
    }
    if (session == nullptr) continue;
    const api::Counters counters = session->counters();
    bytes += first ? counters.bytes : counters.bytes - counters.shared;
    first = false;
  }
  return bytes;
}

}  // namespace sluice::serving
