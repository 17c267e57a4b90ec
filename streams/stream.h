#pragma once
// In-order queues of devices and the events that order them. Interfaces; one folder per kind of device.
#include <cstdint>
#include <memory>

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

// Thread safety: used by one host thread, except synchronize(), which any thread may call.
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
