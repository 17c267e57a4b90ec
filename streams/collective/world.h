#pragma once
// The ranks of a job, as one of them sees it.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/libraries.h"
#include "streams/collective/communicator.h"
#include "streams/collective/rendezvous.h"

namespace sluice::collective {

class Carrier;
class Links;

inline constexpr uint32_t kFirstChannel = 16;  // those below are the world's own
inline constexpr uint32_t kEndOfChannels = 1u << 23;

// Thread safety: everything, from any thread.
class World {
 public:
  // Blocks until all ranks have met; see meet() for what it throws.
  explicit World(const WorldOptions& options);
  // Worlds of ranks that are all in this process, by rank, connected without a master.
  static std::vector<std::shared_ptr<World>> in_one_process(int size);
  ~World();  // leaves
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const WorldOptions& options() const { return options_; }

  // All ranks, for what the program itself calls.
  Communicator& all() const { return *all_; }
  // All ranks, for what the runtime has to agree on.
  Communicator& control() const { return *control_; }
  // A group of these ranks, ascending and with this one. `channel` (kFirstChannel to kEndOfChannels) is the same in all
  // of them, and used by one communicator alone. Throws kValue for ranks that are none such.
  std::unique_ptr<Communicator> communicator(const std::vector<int>& ranks, uint32_t channel);

  // The job ends with a failure of this rank, which every rank's calls throw. Nothing when it has failed already.
  void fail(const std::string& text) noexcept;
  // Says goodbye to the others; with a `failure`, fail() first. Communicators can no longer be used. Later calls do
  // nothing.
  void leave(const std::string& failure = {}) noexcept;
  // The first of `n` channels that nobody else has, counted up: the same in all ranks that ask in one order.
  uint32_t take_channels(uint32_t n) { return next_channel_.fetch_add(n); }
  // A thread that waits for another rank sleeps at once from now on, and does not spin for a moment first.
  void forbid_looks();
  // The failure that ended the job, if one did, and the rank at fault (else -1).
  Status failure() const;
  int failed_rank() const;

 private:
  World(const WorldOptions& options, std::vector<Socket> sockets);
  std::unique_ptr<Communicator> make(const std::vector<int>& ranks, uint32_t channel) const;
  const WorldOptions options_;
  const std::shared_ptr<Carrier> carrier_;  // null: links_
  const std::shared_ptr<Links> links_;
  const std::unique_ptr<Communicator> all_, control_;
  std::atomic<uint32_t> next_channel_{kFirstChannel};
};

// Gloo.
std::vector<LibraryVersion> collective_libraries();

}  // namespace sluice::collective
