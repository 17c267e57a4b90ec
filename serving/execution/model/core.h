#pragma once
// The heart of an executor: requests come in, wait, run in steps with others, and are answered.
//
// Thread safety: everything but open() may be called from any thread.
// Invariants: a request is waiting (in the queue), running (in one batch of one instance) or over; `mutex_` guards
// which. An answer is given without any lock held, by whoever makes the request's `answered` true.
// Locks are taken in the order Instance::submit, mutex_, Flight::mutex.
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

#include "serving/core/buffers.h"
#include "serving/core/executor.h"
#include "serving/execution/batcher.h"
#include "serving/execution/crew.h"
#include "serving/execution/job.h"
#include "serving/execution/model/shared.h"
#include "serving/execution/ports.h"
#include "serving/execution/queue.h"
#include "serving/execution/ragged.h"
#include "serving/execution/scratch.h"
#include "serving/execution/sequences.h"
#include "serving/execution/statistics.h"
#include "serving/execution/step_recorder.h"
#include "sluice/session.h"

namespace sluice::serving {

class ModelCore final : public CrewWork, public std::enable_shared_from_this<ModelCore> {
 public:
  // `scratch` may hold the bundle.
  ModelCore(const Machine& machine, ExecutorSpec spec, std::string bundle, std::unique_ptr<ScratchFolder> scratch);
  ~ModelCore() override;
  // Sizes to which batches are filled up, ascending; before open(). None: all.
  void allow_batches(std::vector<int64_t> sizes) { allowed_ = std::move(sizes); }
  // Loads the instances and starts the actors. Throws Error.
  void open();
  // What open() and warm_up() would refuse, without a session. Throws Error. Nothing else may be called then.
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
  size_t pending() const { return pending_; }
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
  using BatchPtr = std::shared_ptr<Batch>;
  // The steps of one session.
  struct Flight {
    std::mutex mutex;
    bool over = false;               // the session has ended, whatever it still tells
    std::deque<BatchPtr> in_flight;  // as submitted
    std::vector<BatchPtr> failed;    // told of, and not yet answered
  };
  struct Instance {
    enum class State { kUp, kDown, kGone };
    // Guarded by mutex_.
    State state = State::kUp;
    int running = 0;                                     // steps taken and not over
    Clock::time_point busy_since;                        // the oldest of them, or the end of the one before it
    std::shared_ptr<Flight> flying;                      // of its session
    bool woken = false;                                  // it will look at the queue
    Clock::time_point armed = Clock::time_point::max();  // when it will look by itself
    std::string broken;                                  // why it has to end, once it has to
    bool suspect = false;  // it may share a thread that is lost: until it has done a step, none may take long

    std::map<size_t, JobPtr> rows;  // due, with direct sequences: by their row

    std::shared_ptr<RateLimiter::Client> limits;  // null: none
    int number = 0;
    int depth = 1;      // steps that it may have under way
    std::mutex submit;  // one submission after another; guards what follows
    std::shared_ptr<api::Session> session;
    std::shared_ptr<Flight> flight;
    StepRecorder recorder;
    std::atomic<bool> records{false};  // it has something to do
  };

  // Throws Error where the config contradicts the bundle.
  void open_ports(const std::vector<api::Port>& inputs, const std::vector<api::Port>& outputs, int instances);
  // Errors tell the request's number.
  void for_stored_requests(const std::function<void(InferRequest request)>& use) const;
  void plan_for_instances(int count);
  // From the bundle's graph, for this machine. 0: for all cores.
  void plan_anew(int cores);
  void open_sequences(const std::vector<api::Port>& inputs, const std::vector<api::Port>& outputs, int instances);
  void join_limiter();
  // Answers from the cache, or lets the job know its key.
  bool answer_from_cache(const JobPtr& job);
  std::shared_ptr<api::Session> load_session(Instance& instance, const std::shared_ptr<Flight>& flight);
  // The same of a bundle that may be of another machine, whose plan may have kernels that there are not here.
  std::shared_ptr<api::Session> load_first_session(Instance& instance, const std::shared_ptr<Flight>& flight);
  // All with mutex_ held.
  BatchChoice choose(const Instance& instance, Clock::time_point now) const;
  BatchChoice choose_direct(const Instance& instance, Clock::time_point now) const;
  JobPtr take_direct(Instance& instance);
  // Of a step; 0: as long as it takes.
  std::chrono::milliseconds time_limit(const Instance& instance) const;
  std::vector<JobPtr> stuck_jobs(Clock::time_point now, Clock::time_point& next);
  void pump();  // requests of sequences that are due
  void sequence_goes_on(Job& job, std::optional<std::vector<api::Tensor>> state);
  bool direct() const { return spec_.config.sequence_batching().has_direct(); }
  int64_t row_of(const Job& job) const { return static_cast<int64_t>(job.place % rows_per_instance()); }
  size_t rows_per_instance() const { return static_cast<size_t>(std::max(spec_.config.max_batch_size(), 1)); }
  bool something_waits() const { return !queue_.empty() || due_rows_ > 0; }
  bool take_out(const JobPtr& job);  // of where it waits
  std::vector<JobPtr> take_all();    // that wait
  BatchPtr take(Instance& instance, Clock::time_point now, std::optional<Clock::time_point>& wait);
  int whom_to_wake(Clock::time_point now);
  Instance* least_busy() const;  // that may have one step more, and that nobody looks after; null: none
  BatchPtr take_here(Instance& instance, Clock::time_point now);

  void enqueue(const JobPtr& job);
  // Counts its names and parameters, and what its texts became, each as long as the longest may be.
  void count_texts(Job& job) const;
  // Counts what it will be answered with, before there is any of it. Throws what the request's share does.
  void count_answer(Job& job) const;
  // The same of a step, whose rows of nobody are counted with its first request's.
  void count_padding(Batch& batch) const;
  // Of more rows than a step takes: several requests, whose answers are joined.
  std::shared_ptr<RequestHandle> split(const JobPtr& job);
  void join(const JobPtr& job, std::vector<InferResponse>& parts);
  void start(Instance& instance, const BatchPtr& batch);
  std::vector<api::Tensor> gather(Batch& batch);
  void done(Instance& instance, Flight& flight, const std::vector<api::Tensor>& outputs, const std::string& error);
  void scatter(Batch& batch, const std::vector<api::Tensor>& outputs, Clock::time_point infer_end);
  // What a request leaves for the next one of its sequence.
  std::vector<api::Tensor> state_after(const std::vector<api::Tensor>& outputs, int64_t row, bool alone) const;
  void keep(const Job& job, const std::vector<Tensor>& outputs, bool shares);
  void look_into_failures(Instance& instance);
  // What the engine did for traced requests, on the instance's thread. When to come again; whether steps wait for it.
  struct Traces {
    std::optional<Clock::time_point> next;
    bool wait = false;
  };
  Traces collect_traces(Instance& instance);
  void release(Instance& instance);  // a step is over
  void refuse(const std::vector<JobPtr>& jobs, const Error& error);
  void end_jobs(const std::vector<JobPtr>& jobs);  // from now on they are over, and the next of their sequences due
  // Answers, unless somebody has.
  void fail(const JobPtr& job, const Error& error);
  void deliver(const JobPtr& job, InferResponse response);
  void tell(const JobPtr& job, InferResponse response);
  InferResponse response_of(const Job& job) const;
  std::chrono::milliseconds retry_after() const;  // mutex_ held
  void arm(Clock::time_point deadline);

  api::Engine& engine_;
  caf::actor_system& actors_;
  const ExecutorSpec spec_;
  const std::shared_ptr<SharedResources> shared_;
  std::string bundle_;
  const std::string where_, cache_prefix_;  // "": its responses are not cached
  std::unique_ptr<ScratchFolder> scratch_;  // of bundles made here
  std::unique_ptr<ModelPorts> ports_;
  std::unique_ptr<const RaggedBatch> ragged_;      // of a model with ragged inputs
  std::unique_ptr<SequencePorts> sequence_ports_;  // of a model with sequences
  const inference::ModelConfig batching_;          // dynamic batching, that of the oldest sequences included
  std::unique_ptr<const Batcher> batcher_;
  std::vector<int64_t> allowed_;
  bool takes_turns_ = false;  // steps of a plan wait for those of the others, with which it shares memory
  Statistics statistics_;
  BufferPool buffers_;
  std::vector<std::unique_ptr<Instance>> instances_;
  std::unique_ptr<Crew> crew_;
  std::atomic<size_t> pending_{0};      // not answered
  std::atomic<size_t> undelivered_{0};  // whose callers have not been told, or are just being told

  mutable std::mutex mutex_;
  mutable std::condition_variable all_delivered_;
  const uint32_t most_waiting_;
  RequestQueue queue_;
  std::unique_ptr<Sequences> sequences_;
  size_t due_rows_ = 0;  // in Instance::rows
  bool closing_ = false;
  double period_ns_ = 0;  // of an instance's steps, moving
  double rows_per_step_ = 1;
  Clock::time_point armed_ = Clock::time_point::max();
  uint64_t arrivals_ = 0;
  std::string last_failure_;  // of an instance

  // With preserve_ordering: answers that wait for earlier ones.
  // Of a config's parameter "step_timeout_ms": a step that takes longer is stuck; 0: none is.
  const std::chrono::milliseconds step_timeout_;
  const bool ordered_;
  std::mutex order_mutex_;
  std::map<uint64_t, std::optional<std::pair<JobPtr, InferResponse>>> order_;
  bool delivering_ = false;
};

}  // namespace sluice::serving
