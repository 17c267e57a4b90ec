#pragma once
// Brings the inputs of steps into the slots of feeds, and their results out of the slots of sinks.
//
// Thread safety: calls for different steps from any threads at once; of one step, one after the other.
//
// Invariants
//  1. The input slots of a step are written only while they are free and before its start credit: by its submitter, or
//     from the backlog by the thread that learns of free slots. Memory that was handed over lies in the port memory
//     until then.
//  2. The slots that a sink reads are read while it fires.
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/session/backlog.h"
#include "runtime/session/port_memory.h"
#include "runtime/session/ports.h"
#include "runtime/session/session.h"
#include "runtime/session/step_state.h"

namespace sluice {

class StepPorts {
 public:
  struct Options {
    size_t max_in_flight = 1;
    size_t backlog = 0;  // steps
  };
  // REQUIRES: `plan` outlives it.
  StepPorts(Engine& engine, const plan::Plan& plan, Ports ports, Exchange exchange, Options options);

  const Ports& ports() const { return ports_; }
  PortMemory& memory() { return memory_; }
  const PortMemory& memory() const { return memory_; }
  bool has_backlog() const { return backlog_ != nullptr; }
  // How often an input was copied, and a result.
  uint64_t input_copies() const { return input_copies_; }
  uint64_t output_copies() const { return output_copies_; }
  // Bytes that the backlog holds.
  uint64_t backlog_bytes() const { return backlog_ == nullptr ? 0 : backlog_->bytes(); }

  // Throw kValue, kType or kUnsupported naming the port, what was expected and what came.
  void check_inputs(std::span<const InputTensor> inputs) const;
  void check_outputs(std::span<const OutputTensor> outputs) const;

  // Gives a step memory for its results: the caller's, or the session's own. Throws kMemory.
  void make_results(StepState& state, const StepCall& call);
  // A result that goes back to where it came from when nobody uses its state any more: memory of others.
  bool is_lent(const StepState& state, size_t output) const {
    return state.given || ports_.outputs[output].copied.empty();
  }

  // Makes sure of memory for inputs that are handed over. Throws kMemory, and then has taken nothing.
  void accept(uint64_t step, std::span<const InputTensor> inputs) { memory_.accept(step, inputs); }
  // Writes the inputs into the step's slots. Throws what devices do. REQUIRES: the slots are free.
  void copy_in(uint64_t step, std::span<const InputTensor> inputs, const actors::Runner& runner);
  // Keeps the inputs in the backlog, and writes them into the step's slots later.
  void put_in_backlog(uint64_t step, std::span<const InputTensor> inputs) { backlog_->put(step, inputs); }
  void copy_in_from_backlog(uint64_t step, const actors::Runner& runner) {
    copy_to_slots(step, backlog_->inputs(step), runner);
  }
  // Copies what was to be handed over and does not fit. Throws what devices do.
  void fill(uint64_t step, std::span<const InputTensor> inputs) { input_copies_ += memory_.fill(step, inputs); }
  // Puts the memory that was handed over into the step's slots. REQUIRES: they are free.
  void put(uint64_t step, actors::Runner& runner) { memory_.put(step, runner); }

  // A sink's firing, which finds results in slots and brings them to states.
  struct SinkFiring {
    const std::vector<int>& outputs;  // of the plan, that the sink gives
    void* const* slots;               // of these
    uint64_t firing = 0, part = 0;    // its part of the step
  };
  // Brings the results of a step out of the slots. Returns the first failure to copy.
  Status bring_out(StepState& state, const SinkFiring& sink, actors::Runner& runner);

 private:
  void check_handed_over(size_t index, const InputTensor& input) const;
  void copy_to_slots(uint64_t step, std::span<const InputTensor> inputs, const actors::Runner& runner);
  Status read_extent(StepState& state, int output, const void* slot) const;

  const plan::Plan& plan_;
  const Ports ports_;
  const std::shared_ptr<Allocator> results_memory_;
  PortMemory memory_;
  std::unique_ptr<Backlog> backlog_;  // null when the plan has slots for all that may be in flight
  std::atomic<uint64_t> input_copies_{0}, output_copies_{0};
};

}  // namespace sluice
