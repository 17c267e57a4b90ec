#pragma once
// One host thread per stream: takes messages, runs the nodes they make ready, parks when there is nothing to do.
// Shared by all sessions of an engine that use the same (device, kind, index).
//
// Thread safety: post(), call(), run_sync(), name(), stream().synchronize() from any thread; the rest on the stream's
// own thread (manual stepping: on the thread that steps).
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "actors/inbox.h"
#include "actors/ring.h"
#include "actors/trace_buffer.h"

namespace sluice {
class CoreLeases;
class Device;
class Stream;
}  // namespace sluice

namespace sluice::actors {

class StreamExecutor {
 public:
  struct Options {
    std::string name;              // "cpu:0/compute0"
    CoreLeases* leases = nullptr;  // REQUIRES: outlives the executor
    Device* device = nullptr;      // REQUIRES: outlives the executor
    bool manual = false;           // no thread
  };
  StreamExecutor(Options options, std::unique_ptr<Stream> stream);
  // REQUIRES: no node uses it any more.
  ~StreamExecutor();
  StreamExecutor(const StreamExecutor&) = delete;
  StreamExecutor& operator=(const StreamExecutor&) = delete;

  const std::string& name() const { return options_.name; }
  Stream& stream() const { return *stream_; }
  Device& device() const { return *options_.device; }
  bool manual() const { return options_.manual; }
  bool on_thread() const;

  void post(Cell* cell) { inbox_.push(cell); }
  void call(std::function<void()> run);
  // Runs `run` on the stream's thread and waits for it; rethrows what it throws.
  void run_sync(const std::function<void()>& run);

  // For nodes of this stream, on its thread.
  void post_local(const Item& item) { ring_.push(item); }
  // Holds `cores` cores of the machine until the queue is empty or another stream wants some.
  void lease(int cores);
  void unlease();

  // Records into `buffer`, as lane `lane`, when the stream is parked.
  void add_tracer(TraceBuffer* buffer, int lane);
  void remove_tracer(TraceBuffer* buffer);

  // Manual stepping.
  size_t pending();
  // Delivers a message chosen by `random` among those that may come next: the first of some edge.
  void step(std::mt19937_64& random);

 private:
  struct Tracer {
    TraceBuffer* buffer;
    int lane;
  };
  void run();
  void drain_inbox();
  void discard_rest();
  void deliver(const Item& item);

  Options options_;
  std::unique_ptr<Stream> stream_;
  Ring ring_;
  std::vector<Item> choices_;  // manual stepping: what is pending
  std::vector<Tracer> tracers_;
  int leased_ = 0;
  Inbox inbox_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace sluice::actors
