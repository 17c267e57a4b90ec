#pragma once
// Requests of stateful models: those of one sequence run one after another, each with the state that the one before it
// has left. A model takes so many sequences at a time; others wait until one of them has ended.
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "inference.pb.h"
#include "serving/execution/job.h"
#include "serving/execution/ports.h"

namespace sluice::serving {

// Values that the server writes into inputs of the bundle, per row.
struct ControlPort {
  int port = 0;
  inference::ModelSequenceBatching::Control::Kind kind{};
  std::string no, yes;  // bytes of START, READY, END when false and true; of CORRID an empty row's
  DataType datatype = DataType::TYPE_INVALID;
};

// An output that is an input of the next request of its sequence.
struct StatePort {
  int input = 0, output = 0;
  std::string initial;  // bytes of a row
};

// The config's words about sequences, held against the bundle.
class SequencePorts {
 public:
  // Throws Error naming what does not fit.
  SequencePorts(const inference::ModelConfig& config, const std::vector<api::Port>& inputs,
                const std::vector<api::Port>& outputs, const std::string& folder);
  // Names of the bundle's inputs that are the server's.
  static std::vector<std::string> made(const inference::ModelConfig& config, const std::vector<api::Port>& inputs);

  const std::vector<ControlPort>& controls() const { return controls_; }
  const std::vector<StatePort>& states() const { return states_; }
  // Throws kInvalidArgument for an id that the model cannot take.
  void check(const Job& job) const;
  // Writes the controls of a request, and its state, into its inputs.
  void fill(Job& job, const std::vector<api::Tensor>& state) const;
  // Rows of nobody: not ready.
  void fill_empty(int port, uint8_t* to, size_t row_bytes, size_t rows) const;

 private:
  void add_control(const inference::ModelSequenceBatching::ControlInput& input, const std::vector<api::Port>& ports);
  void add_state(const inference::ModelSequenceBatching::State& state, const std::vector<api::Port>& inputs,
                 const std::vector<api::Port>& outputs, const std::string& folder);

  std::string where_;
  bool batched_ = false;
  std::vector<api::Port> inputs_;
  std::vector<ControlPort> controls_;
  std::vector<StatePort> states_;
};

// Not thread-safe.
class Sequences {
 public:
  struct Limits {
    size_t active = 1;     // sequences that have a place
    size_t waiting = 256;  // requests in all, beside those that run
    std::chrono::microseconds idle{0};
  };
  explicit Sequences(Limits limits) : limits_(limits), free_(limits.active) {
    for (size_t i = 0; i < limits.active; ++i) free_[i] = limits.active - 1 - i;
  }

  // Takes a request in. Throws Error: kInvalidArgument for one that belongs to no sequence, kOverloaded.
  void admit(const JobPtr& job, Clock::time_point now);
  // A request that may run now, with its place, whose state is `state`; null when there is none.
  JobPtr next();
  // A request has run, and left this; or failed, without a state.
  void finished(const Job& job, std::optional<std::vector<api::Tensor>> state, Clock::time_point now);
  // Takes out a request that waits; false when it does not.
  bool remove(const Job& job);
  // Sequences that nobody has used for too long lose their place.
  void expire(Clock::time_point now);
  Clock::time_point next_deadline() const;
  std::vector<JobPtr> clear();

  const std::vector<api::Tensor>& state(const Job& job) const;
  size_t waiting() const { return waiting_; }

 private:
  struct Sequence {
    uint64_t number = 0;
    std::string id;
    std::deque<JobPtr> jobs;
    bool busy = false;   // one of its requests is due or runs
    bool ended = false;  // its last request has been taken in
    std::optional<size_t> place;
    std::vector<api::Tensor> state;
    Clock::time_point used;
  };
  void give_places();
  void end(uint64_t number);

  const Limits limits_;
  std::vector<size_t> free_;  // places
  uint64_t count_ = 0;
  std::map<uint64_t, Sequence> sequences_;
  std::map<std::string, uint64_t> open_;  // sequences that may go on, by id
  std::deque<uint64_t> without_place_;
  std::deque<uint64_t> due_;
  size_t waiting_ = 0;
};

}  // namespace sluice::serving
