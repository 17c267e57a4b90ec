#pragma once
// Runs the requests of one version of a model: it has a queue, a batcher and instances. The repository makes executors
// and hands out shared pointers to them, so one lives until its last request is answered.
#include <caf/fwd.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "inference.pb.h"
#include "serving/core/options.h"
#include "serving/core/request.h"
#include "sluice/engine.h"

namespace sluice::serving {

class SharedResources;
// The response cache and the resources of rate limiters, of all models of a server.
std::shared_ptr<SharedResources> make_shared_resources(const ServerOptions& options);

// The parts that executors share within a server. The engine outlives the actors, and these all executors.
struct Machine {
  api::Engine& engine;
  caf::actor_system& actors;
  const ServerOptions& options;
  std::shared_ptr<SharedResources> shared = nullptr;  // null: an executor has its own
};

class Executor;

struct ExecutorSpec {
  inference::ModelConfig config;  // complete
  std::string version;            // "3"
  std::string folder;             // of the model, for labels and warmup/
  std::string bundle;             // the folder that sluice.save wrote; "" of an ensemble
  // The executor that serves a step of an ensemble, and its bundle. Throws kNotFound.
  struct Step {
    std::shared_ptr<Executor> executor;
    std::string bundle;
    inference::ModelConfig config;
  };
  std::function<Step(const std::string& model, int64_t version)> step;
};

class Executor {
 public:
  virtual ~Executor() = default;
  // The same as Server::infer. The request's names have been resolved; inputs and outputs have not been checked.
  virtual std::shared_ptr<RequestHandle> infer(InferRequest request, Respond respond) = 0;
  virtual inference::ModelStatistics statistics() const = 0;
  virtual std::map<std::string, uint64_t> failures() const { return {}; }  // by reason, as the metrics name them
  virtual Latencies latencies() const { return {}; }                       // those that the options want
  virtual void refused(Code code, Clock::time_point received) = 0;         // as Server::refused
  virtual size_t pending() const = 0;                                      // requests not answered
  virtual bool ready() const = 0;             // false while an instance is restarted and no other is there
  virtual uint64_t memory_bytes() const = 0;  // of its sessions, weights once
  // Waits until no request is under way, or for `timeout`; then cancels what is left. True when nothing was.
  virtual bool drain(std::chrono::milliseconds timeout) = 0;
};

// Loads the model and runs its warm-up requests. Throws Error with what is wrong.
std::shared_ptr<Executor> make_executor(const Machine& machine, ExecutorSpec spec);
// Throws what make_executor would throw, as far as that is known without loading the model.
void check_executor(const Machine& machine, ExecutorSpec spec);
// Bytes that it would need, without loading it.
uint64_t ledger_of(const ExecutorSpec& spec);

}  // namespace sluice::serving
