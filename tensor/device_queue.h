#pragma once
// The queue for the eager calls of a device: one stream, in the order of the calls, and memory whose reuse follows that
// order. A call is queued and returns; the host waits where it needs a value.
//
// Calls are numbered, and a storage knows the number of the call that wrote it last.
//
// Thread safety: every method may be called from any thread.
// Invariants
//  1. Everything that a queued call uses (its kernel, the text of its context, staged bytes, events) is kept until the
//     stream has passed it. Blocks of memory are not: who gets one next is queued behind.
//  2. The stream skips what comes after a failure, until the failure has been told. The calls from the one that failed
//     to the last one before that made nothing: who asks for their results is told the same error.
//  3. Memory goes back to the device after the stream has been waited for.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/fork.h"
#include "kernels/kernel.h"
#include "memory/counted_bytes.h"
#include "memory/storage.h"
#include "streams/stream.h"

namespace sluice {

class Engine;

// A user of every storage it gives: who else accesses one waits for the calls so far.
class DeviceQueue final : public StorageUser, public std::enable_shared_from_this<DeviceQueue> {
 public:
  // REQUIRES: made by make_shared; the engine outlives close().
  DeviceQueue(Engine& engine, const DeviceId& id);
  ~DeviceQueue() override;

  const DeviceId& id() const { return id_; }
  // The space of its tensors' memory: the device's, or the host's where that is the device's.
  const plan::Space& space() const { return space_; }
  // The memory of eager tensors: freed blocks are kept for the next ones. Whoever holds it holds the queue.
  std::shared_ptr<Allocator> memory();
  // The memory of what plans keep: counted with theirs, and freed at once. Null where the device's memory is the
  // host's.
  std::shared_ptr<Allocator> plan_memory();
  // In use by eager tensors; taken from the device, with what is kept for reuse.
  AllocatorStats stats() const { return cache_->stats(); }
  uint64_t held_bytes() const { return cache_->held_bytes(); }
  // Gives what is kept for reuse back to the device.
  void empty_cache();

  // Queues a kernel of the device. `written`: the storages of its outputs. Throws what the kernel throws at launch.
  void launch(const std::shared_ptr<const PreparedKernel>& kernel, KernelArgs args, const char* op, int threads,
              std::span<Storage* const> written);
  // From host memory that may change when this returns.
  void copy_from_host(Storage& to, void* data, const void* from, uint64_t bytes);
  // Waits for the calls so far.
  void copy_to_host(void* to, const Storage& from, const void* data, uint64_t bytes);
  // Waits for the calls so far. Throws the failure of one of them that nobody has been told yet.
  void synchronize();
  // Throws where the call that wrote the storage last has failed, or was skipped, as far as is known.
  void check(const Storage& storage) override;
  void wait_idle(bool writes_only) override;

  // Nothing can be queued from now on. Waits at most so long for what is; what is still running then keeps its memory.
  void close(std::chrono::milliseconds timeout) noexcept;

 private:
  struct Call {
    uint64_t number = 0;
    std::shared_ptr<const PreparedKernel> kernel;
    std::string context;
    void* staged = nullptr;
    uint64_t staged_bytes = 0;
    std::unique_ptr<Event> before, after;  // of its copy from the host
  };
  struct Mark {  // complete when the stream has passed call `number`
    uint64_t number = 0;
    std::unique_ptr<Event> event;
  };
  struct Failure {
    uint64_t first = 0, last = 0;
    Status status;
  };
  class PlanMemory;
  // Dropped after the lock: what calls held may take other locks when it goes.
  using Passed = std::vector<Call>;

  void check_open() const;
  // REQUIRES, of those below: mutex_ held.
  Call& next_call(const char* what, Passed& passed);
  void mark();
  void pass_mark(Passed& passed);
  void retire(uint64_t number, Passed& passed);
  Status found(const Status& status);  // as it is to be told
  void told();
  std::unique_ptr<Event> take_event();

  bool forked() const { return forks_ != fork_count(); }
  void drain() noexcept;

  Engine& engine_;
  const DeviceId id_;
  const uint64_t forks_ = fork_count();
  const std::shared_ptr<Allocator> plans_;  // of the device's space; holds the device
  Device& device_;
  const plan::DeviceDesc desc_;
  const plan::Space space_;
  const std::shared_ptr<Allocator> pinned_;
  std::unique_ptr<Stream> compute_, copy_in_;  // copy_in_: null where copies are made at once
  std::unique_ptr<Allocator> plan_memory_;
  std::shared_ptr<Allocator> cache_;

  std::mutex mutex_;  // in a fork it may be held for ever: check_open() comes before it
  std::deque<Call> calls_;
  std::deque<Mark> marks_;
  std::vector<std::unique_ptr<Event>> events_;
  uint64_t number_ = 0, passed_ = 0;  // of the last call; up to here the stream is known to be
  uint64_t staged_bytes_ = 0;
  uint64_t told_ = 0;  // how many failures
  bool failing_ = false;
  bool drained_ = false;
  std::atomic<bool> closed_{false};

  std::atomic<bool> any_failed_{false};
  std::mutex failures_mutex_;  // taken last
  std::vector<Failure> failures_;
};

}  // namespace sluice
