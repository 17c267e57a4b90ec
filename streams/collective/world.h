#pragma once
// The ranks of a job, as one of them sees it.
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/libraries.h"
#include "streams/collective/communicator.h"
#include "streams/collective/rendezvous.h"

namespace sluice::collective {

class Links;

// Thread safety: everything, from any thread.
class World {
 public:
  // Blocks until all ranks have met; see meet() for what it throws.
  explicit World(const WorldOptions& options);
  ~World();  // leaves
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const WorldOptions& options() const { return options_; }

  // A group of these ranks, ascending and with this one. `channel` (below 65536) is the same in all of them, and each
  // group has its own. Throws kValue for ranks that are none such.
  std::unique_ptr<Communicator> communicator(const std::vector<int>& ranks, uint32_t channel);

  // Says goodbye to the others, or, when `failure` is not empty, that this rank failed so: each of them ends with an
  // error that says it. Communicators can no longer be used. Later calls do nothing.
  void leave(const std::string& failure = {}) noexcept;
  // The failure that ended the job, if one did, and the rank at fault (else -1).
  Status failure() const;
  int failed_rank() const;

 private:
  const WorldOptions options_;
  const std::shared_ptr<Links> links_;
};

// Gloo.
std::vector<LibraryVersion> collective_libraries();

}  // namespace sluice::collective
