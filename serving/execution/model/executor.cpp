// The interface of executors, over the core of each.
#include "serving/core/executor.h"

#include "serving/execution/batching_file.h"
#include "serving/execution/decoupled.h"
#include "serving/execution/ensemble.h"
#include "serving/execution/errors.h"
#include "serving/execution/model/core.h"
#include "serving/execution/scheduling.h"
#include "sluice/plan.h"

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

}  // namespace sluice::serving
