#pragma once
// The heart of an executor: requests come in, wait, run in steps with others, and are answered. Its parts own what they
// know: WaitingRequests, Instances, StepPace, StepData, Answers, CachedAnswers, SessionLoader.
//
// Thread safety: everything but open() may be called from any thread.
// Invariants: a request is waiting (in `waiting_`), running (in one batch of one instance) or over; `mutex_` guards
// which. An answer is given without any lock held, by whoever makes the request's `answered` true.
// Locks are taken in the order of an instance's session, mutex_, then those of Flight, Answers and the limiter.
#include <map>
#include <mutex>

#include "serving/core/executor.h"
#include "serving/execution/crew.h"
#include "serving/execution/job.h"
#include "serving/execution/model/answers.h"
#include "serving/execution/model/cached_answers.h"
#include "serving/execution/model/instances.h"
#include "serving/execution/model/session_loader.h"
#include "serving/execution/model/shared.h"
#include "serving/execution/model/step_data.h"
#include "serving/execution/model/step_pace.h"
#include "serving/execution/model/waiting.h"
#include "serving/execution/statistics.h"

namespace sluice::serving {

class ModelCore final : public CrewWork, public std::enable_shared_from_this<ModelCore> {
 public:
  // `scratch` may hold the bundle.
  ModelCore(const Machine& machine, ExecutorSpec spec, std::string bundle, std::unique_ptr<ScratchFolder> scratch);
  ~ModelCore() override;
  // Sizes to which batches are filled up, ascending; before open(). None: all.
  void allow_batches(std::vector<int64_t> sizes) { data_.allow_batches(std::move(sizes)); }
  // Loads the instances and starts the actors. Throws Error.
  void open();
  // Refuses what open() and warm_up() would, without a session. Throws Error. Nothing else may be called then.
  void look();
  // Runs the warm-up requests in each of them.
  void warm_up();
  // Refuses what waits and what comes, and ends the actors. Waits for them where this thread may.
  void close();

  std::shared_ptr<RequestHandle> infer(InferRequest request, Respond respond);
  void cancel(const JobPtr& job);
  inference::ModelStatistics statistics() const;
  std::map<std::string, uint64_t> failures() const { return statistics_.failures(); }
  Latencies latencies() const { return statistics_.latencies(); }
  void refused(Code code, Clock::time_point received) { statistics_.failed(received, code, Clock::now()); }
  size_t pending() const { return answers_.pending(); }
  const inference::ModelConfig& config() const { return spec_.config; }
  bool ready() const;
  uint64_t memory_bytes() const;
  bool drain(std::chrono::milliseconds timeout);
  void suspect();  // its instances

  std::optional<Clock::time_point> serve(int instance) override;
  void load(int instance) override;
  void unload(int instance) noexcept override;
  std::optional<Clock::time_point> tick() override;
  void gave_up(int instance, const std::string& why) noexcept override;

 private:
  // Throws Error where the config contradicts the bundle.
  void open_ports(const std::vector<api::Port>& inputs, const std::vector<api::Port>& outputs, int instances);
  void join_limiter();
  SessionLoader::OnOutput on_output(int instance, std::shared_ptr<Flight> flight);

  // Answers from the cache, or lets the job know its key.
  bool answer_from_cache(const JobPtr& job);
  // A request of more rows than a step takes becomes several, whose answers are joined.
  std::shared_ptr<RequestHandle> split(const JobPtr& job);
  void join(const JobPtr& job, const std::vector<InferResponse>& parts);
  void enqueue(const JobPtr& job);

  // All with mutex_ held.
  void check_open() const;
  void admit(const JobPtr& job, Clock::time_point now);
  BatchPtr take(Instance& instance, Clock::time_point now, std::optional<Clock::time_point>& wait);
  BatchPtr take_here(Instance& instance, Clock::time_point now);
  int whom_to_wake(Clock::time_point now);
  void arm(Clock::time_point deadline);
  void arm_sequences();

  void start(Instance& instance, const BatchPtr& batch);
  void done(Instance& instance, Flight& flight, const std::vector<api::Tensor>& outputs, const std::string& error);
  void answer(Batch& batch, const std::vector<api::Tensor>& outputs, Clock::time_point infer_end);
  void look_into_failures(Instance& instance);
  void release(Instance& instance);                // a step is over
  void end_jobs(const std::vector<JobPtr>& jobs);  // from now on they are over, and the next of their sequences due
  void give_back(Instance& instance, const std::vector<JobPtr>& jobs, const Error& error);  // of a step without results

  api::Engine& engine_;
  caf::actor_system& actors_;
  const ExecutorSpec spec_;
  const std::shared_ptr<SharedResources> shared_;
  const std::string where_;
  CachedAnswers cached_;
  SessionLoader loader_;
  StepData data_;
  bool takes_turns_ = false;  // steps of a plan wait for those of the others, with which it shares memory
  Statistics statistics_;
  Answers answers_;

  mutable std::mutex mutex_;  // guards what follows; open() alone adds instances and makes the crew
  WaitingRequests waiting_;
  StepPace pace_;
  Instances instances_;
  bool closing_ = false;
  Clock::time_point armed_ = Clock::time_point::max();
  std::string last_failure_;  // of an instance
  std::unique_ptr<Crew> crew_;
};

}  // namespace sluice::serving
