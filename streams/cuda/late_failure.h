#pragma once
// Failures that a running kernel finds (an index out of range): told by device memory, long after the launch.
//
// A stream has a word for its firing in device memory, an event one in pinned host memory. A kernel that fails sets its
// stream's word, unless it is set; kernels of ours do nothing where it is set. Recording an event copies the word to
// the event's, waiting for one merges the event's into the stream's. So a failure follows the data, on the device, and
// what does not depend on it goes on. A firing in which no kernel can fail does none of this.
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"

namespace sluice::cuda {

struct LateFailure {
  uint64_t ticket = 0;  // of the launch, with kMoved when it came with an event; 0: none
  int64_t values[4] = {};
};

// Sets apart what a kernel has found itself from what the same kernel, repeated with the same ticket, found in another
// firing.
inline constexpr uint64_t kMoved = uint64_t{1} << 62;

// The port that a kernel is given: the kernel returns at once when `word` is not null and its ticket is neither 0 nor
// its own. To fail, it sets the ticket from 0 to its own and adds values. The layout is known to generated code.
struct FailurePort {
  LateFailure* word = nullptr;  // in device memory; null: nothing in this firing can have failed
  uint64_t ticket = 0;
};

// Makes the error of the values that a kernel left.
using DescribeFailure = Status (*)(const int64_t* values);

// Tickets, and what they stand for. Thread-safe; note() allocates nothing for contexts of ordinary length.
class FailureLog {
 public:
  FailureLog();
  // `context` may be null. Copied, because failures are read when their kernels may be gone.
  uint64_t note(DescribeFailure describe, const std::string* context);
  // The same for a launch that is repeated; known until release().
  uint64_t hold(DescribeFailure describe, const std::string* context);
  void release(uint64_t ticket);
  // The error of a failure with a ticket. REQUIRES: failure.ticket != 0.
  Status resolve(const LateFailure& failure) const;

 private:
  struct Entry {
    uint64_t ticket = 0;
    DescribeFailure describe = nullptr;
    std::string context;
  };
  static constexpr uint64_t kKept = 4096;               // more than a device has launches in flight
  static constexpr uint64_t kHeld = uint64_t{1} << 63;  // in tickets of hold()

  mutable std::mutex mutex_;
  uint64_t last_ = 0;
  std::vector<Entry> entries_;
  std::map<uint64_t, Entry> held_;
};

}  // namespace sluice::cuda
