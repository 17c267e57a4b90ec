#pragma once
// In-order queues of devices and the events that order them. Interfaces; one folder per kind of device.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/device.h"
#include "base/error.h"
#include "plan/plan.h"
#include "plan/target.h"

namespace sluice {

// A point in a stream's work. Made once per register slot and reused: record() after everyone waited for the last use.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool complete() const = 0;
  // Blocks the calling host thread. Returns the failure of the firing it was recorded in, if it failed.
  virtual Status wait() = 0;
};

// Work that a stream can repeat as a whole. Used by the stream's host thread; REQUIRES: not after the stream.
class Chain {
 public:
  virtual ~Chain() = default;
  // Queues what `work` queues. It may do so by repeating what it queued under an equal `key`: the addresses, and
  // whatever else it depends on, that are not always the same. Throws what `work` and the device throw.
  virtual void run(std::span<void* const> key, const std::function<void()>& work) = 0;
};

// Thread safety: used by one host thread, except synchronize() and create_chain(), which any thread may call.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual DeviceId device() const = 0;
  virtual plan::StreamKind kind() const = 0;
  // False: kernels run inline in PreparedKernel::run, events are not needed and create_event() returns null.
  virtual bool asynchronous() const = 0;
  virtual std::unique_ptr<Event> create_event() = 0;
  // Starts a firing: forgets the previous firing's failure, in stream order.
  virtual void begin_firing(uint64_t step) = 0;
  // Later work of this stream waits, on the device, for `event`, and fails with it if it failed.
  virtual void wait(Event& event) = 0;
  // Marks the current firing failed, in stream order: its later work is skipped and its events carry the failure.
  virtual void fail(const Status& status) = 0;
  virtual void record(Event& event) = 0;
  // For work that always queues the same, but for addresses, and waits for nothing. `context` names it when the device
  // fails. Null where nothing is gained.
  virtual std::unique_ptr<Chain> create_chain(const std::string& /*context*/) { return nullptr; }
  // Blocks until all work so far is complete; returns the last firing's failure.
  virtual Status synchronize() = 0;
};

// A device: makes streams, owns memory. Destroying it waits for its work.
class Device {
 public:
  virtual ~Device() = default;
  virtual plan::DeviceDesc describe() const = 0;
  virtual std::unique_ptr<Stream> create_stream(plan::StreamKind kind, int index) = 0;
  // Memory of `space` (this device's own, or pinned host memory); 64-aligned, contents undefined. Throws kMemory.
  virtual void* allocate(const plan::Space& space, uint64_t bytes) = 0;
  virtual void deallocate(const plan::Space& space, void* data, uint64_t bytes) = 0;
  // Synchronous copies between the host and this device's memory (bundles, variables, eager access).
  virtual void copy_to_host(void* host, const void* device, uint64_t bytes) = 0;
  virtual void copy_from_host(void* device, const void* host, uint64_t bytes) = 0;
};

}  // namespace sluice
