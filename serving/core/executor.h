#pragma once
// What runs the requests of one version of a model: its queue, batcher and instances. The repository makes executors
// and hands out shared pointers to them, so one lives until its last request is answered.
#include <caf/fwd.hpp>
#include <functional>
#include <memory>
#include <string>

#include "inference.pb.h"
#include "serving/core/options.h"
#include "serving/core/request.h"
#include "sluice/engine.h"

namespace sluice::serving {

// What executors share within a server.
struct Machine {
  api::Engine& engine;
  caf::actor_system& actors;
  const ServerOptions& options;
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
  // As Server::infer. The request's names have been resolved; inputs and outputs have not been checked.
  virtual std::shared_ptr<RequestHandle> infer(InferRequest request, Respond respond) = 0;
  virtual inference::ModelStatistics statistics() const = 0;
  virtual size_t pending() const = 0;         // requests not answered
  virtual bool ready() const = 0;             // false while an instance is restarted and no other is there
  virtual uint64_t memory_bytes() const = 0;  // of its sessions, weights once
  // Waits until no request is under way, or for `timeout`; then cancels what is left. True when nothing was.
  virtual bool drain(std::chrono::milliseconds timeout) = 0;
};

// Loads the model and runs its warm-up requests. Throws Error with what is wrong.
std::shared_ptr<Executor> make_executor(const Machine& machine, ExecutorSpec spec);
// Bytes that it would need, without loading it.
uint64_t ledger_of(const ExecutorSpec& spec);

}  // namespace sluice::serving
