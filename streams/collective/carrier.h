#pragma once
// Collectives of somebody else's, in place of Gloo's over our own connections: a library's, such as MPI's, those of
// another network, or of memory.
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "streams/collective/communicator.h"
#include "streams/collective/rendezvous.h"

namespace sluice::collective {

// A carrier of a job's messages, as one rank has it. Messages from one rank to another with one key are received
// in the order in which they were sent; those with different keys are independent.
//
// Thread safety: everything, from any thread; send() and receive() of different keys at the same time.
class Carrier {
 public:
  virtual ~Carrier() = default;
  // Does not wait for the other rank to receive.
  virtual void send(int to, uint64_t key, std::vector<std::byte> message) = 0;
  // Waits as long as the job's timeout says, and throws kTimeout then; or what has made the job fail.
  virtual std::vector<std::byte> receive(int from, uint64_t key) = 0;
  // A group with collectives of the carrier's own; null: they are made of send() and receive().
  virtual std::unique_ptr<Communicator> communicator(const std::vector<int>& /*ranks*/, uint32_t /*channel*/) {
    return nullptr;
  }
  // Every rank's receive(), under way or to come, throws the text.
  virtual void fail(const std::string& text) noexcept = 0;
  virtual Status failure() const = 0;
  virtual int failed_rank() const { return -1; }
  // This rank takes part in nothing any more; with a failure, fail() first.
  virtual void leave(const std::string& failure) noexcept {
    if (!failure.empty()) fail(failure);
  }
};

using MakeCarrier = std::function<std::shared_ptr<Carrier>(const WorldOptions& options)>;
// From now on jobs whose WorldOptions::carrier is `name` have such a one. Throws kValue for "gloo", and for a name that
// is taken. Thread-safe.
void register_carrier(const std::string& name, MakeCarrier make);
// The carrier of the options. Throws kValue naming those that there are.
std::shared_ptr<Carrier> make_carrier(const WorldOptions& options);

// A group whose collectives are made of messages: each rank sends the others what they want, and adds up in the order
// of ranks. REQUIRES: `ranks` ascending, with options.rank.
std::unique_ptr<Communicator> make_message_communicator(std::shared_ptr<Carrier> carrier, const WorldOptions& options,
                                                        std::vector<int> ranks, uint32_t channel);

}  // namespace sluice::collective
