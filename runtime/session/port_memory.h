#pragma once
// The memory in slots of ports that exchange it with callers.
//
// A slot's memory is whoever's turn it is: of a feed's register, the submitter's from when the slot is free until its
// start credit; of the sink's, the sink's while it fires. Messages order these turns, so there is no lock.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "actors/runner.h"
#include "runtime/session/engine.h"
#include "runtime/session/exchange.h"
#include "runtime/session/ports.h"
#include "runtime/session/session.h"
#include "runtime/session/storage_pool.h"

namespace sluice {

// All of a host's memory is one space, whichever rank's.
inline bool same_memory(const plan::Space& a, const plan::Space& b) {
  return a.kind == b.kind && (a.kind == plan::SpaceKind::kHost || a.device == b.device);
}

class PortMemory {
 public:
  // Memory for the slots of outputs is allocated now. REQUIRES: `plan` and `ports` outlive it.
  PortMemory(Engine& engine, const plan::Plan& plan, const Ports& ports, Exchange exchange, size_t max_in_flight);

  const Exchange& exchange() const { return exchange_; }
  // Tells a runner that has not begun where the slots are.
  void bind(actors::Runner& runner) const;

  // An input that is handed over as it is.
  bool fits(size_t port, const InputTensor& input) const;
  // The next calls belong to a submission, in this order. Makes sure of memory for the inputs of `step`: what is handed
  // over and fits, or a place to copy to. Throws kMemory, and then has taken nothing.
  void accept(uint64_t step, std::span<const InputTensor> inputs);
  // Copies what did not fit. Returns how many. Throws what devices do.
  uint64_t fill(uint64_t step, std::span<const InputTensor> inputs);
  // Puts the memory into the step's slots. REQUIRES: they are free.
  void put(uint64_t step, actors::Runner& runner);

  // Copies between host memory and a slot of a register, of any strides. Throws what devices do.
  void copy_in(int reg, void* slot, const TensorSpec& slot_spec, const void* from, const TensorSpec& spec) const;
  void copy_out(int reg, void* to, const TensorSpec& spec, const void* slot, const TensorSpec& slot_spec) const;

  // The memory that a slot of a feed's register had, once its readers are done with a firing; null where it holds none.
  std::shared_ptr<Storage> release(int reg, uint64_t firing);
  // Memory for a result, which the slot gets in exchange; null where the slot gets it from its feed. Throws kMemory.
  std::shared_ptr<Storage> new_result(int output);
  // Exchanges the memory of the slot that the sink's firing reads for `result`.
  void hand_out(int output, uint64_t firing, actors::Runner& runner, std::shared_ptr<Storage>& result);

  // REQUIRES: nothing fires. Lets go of everything that was handed over and not handed out.
  void clear_inputs();
  // The same, and of its own memory.
  void clear();

  // The bytes that it has, or may have, of its own in `space`: copies of inputs; slots of outputs and results in
  // flight.
  uint64_t input_bytes(const plan::Space& space) const;
  uint64_t output_bytes(const plan::Space& space) const;

 private:
  struct Place {  // of an input of the plan
    int reg = 0;
    uint64_t offset = 0;  // bytes, in a part
  };
  struct Input {
    bool exchanged = false;
    int64_t parts = 1;
    uint64_t part_bytes = 0;
    TensorSpec spec;  // contiguous
    plan::Space space;
    bool to_result = false;  // a slot's memory becomes a result's
    std::vector<Place> places;
    std::unique_ptr<StoragePool> pool;
  };
  struct Output {
    int slots = -1;                     // of exchange_; -1: it is copied
    std::unique_ptr<StoragePool> pool;  // null where the memory comes from the feed
  };
  void set(actors::Runner& runner, int slots, int slot, std::byte* address) const;

  const Exchange exchange_;
  std::vector<Device*> devices_;  // per register: whose memory its slots are; null: the host's
  const size_t max_in_flight_;
  std::vector<Input> inputs_;                                // per port
  std::vector<Output> outputs_;                              // per port
  std::vector<std::vector<std::shared_ptr<Storage>>> held_;  // per exchange_.slots and slot
  // Per step % max_in_flight and port: what put() will put there.
  std::vector<std::vector<InputTensor>> accepted_;
};

}  // namespace sluice
