#pragma once
// The notes about one request that is traced (Tracing in settings.h chooses them). It travels with the request, and
// then with its response; the request is over when the last who holds it lets go. It is written to the trace file when
// nobody has more to add either: the executor, which learns later what the engine did, keeps the record open till then.
//
//   if (request.trace) request.trace->stamp(Stamp::kQueueStart);
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "serving/core/request.h"
#include "sluice/trace.h"

namespace sluice::serving {

enum class Stamp : uint8_t {
  kRecvStart,  // by the front end: first and last byte of the request
  kRecvEnd,
  kRequestStart,  // by the server, which has the request whole
  kQueueStart,    // by the executor
  kComputeStart,
  kComputeInputEnd,
  kComputeOutputStart,
  kComputeEnd,
  kInferResponseComplete,  // by the server
  kRequestEnd,
  kSendStart,  // by the front end
  kSendEnd,
};
inline constexpr int kStamps = 12;

// The work of the engine in one step, which may have run several requests.
struct StepTrace {
  std::vector<uint64_t> ids;  // of those that are traced: RequestTrace::id()
  int instance = 0;           // and the number of the step in its session
  uint64_t number = 0;
  std::vector<api::TraceEvent> events;                         // of the step; times of the steady clock
  std::shared_ptr<const std::vector<api::Trace::Plan>> plans;  // names of what ran
};

// Thread safety: everything may be called from any thread; a stamp costs a relaxed store.
class RequestTrace : public std::enable_shared_from_this<RequestTrace> {
 public:
  // The function that writes it in the end, called by the last who lets go.
  using Finish = std::function<void(const RequestTrace& trace)>;
  RequestTrace(uint64_t id, Transport transport, Finish finish);
  // One to travel with a request.
  static std::shared_ptr<RequestTrace> make(uint64_t id, Transport transport, Finish finish);
  ~RequestTrace();
  RequestTrace(const RequestTrace&) = delete;
  RequestTrace& operator=(const RequestTrace&) = delete;

  // The last one counts.
  void stamp(Stamp stamp, Clock::time_point at = Clock::now()) noexcept {
    at_[static_cast<size_t>(stamp)].store(at.time_since_epoch().count(), std::memory_order_relaxed);
  }
  // The step of an instance's session that ran it, by which the engine's own trace knows it.
  void ran(int instance, uint64_t step) noexcept {
    instance_.store(instance, std::memory_order_relaxed);
    step_.store(static_cast<int64_t>(step), std::memory_order_relaxed);
  }

  // Keeps the record open, though not the request.
  std::shared_ptr<RequestTrace> record() { return shared_from_this(); }
  void add(std::shared_ptr<const StepTrace> step);
  std::vector<std::shared_ptr<const StepTrace>> steps() const;

  uint64_t id() const { return id_; }
  Transport transport() const { return transport_; }
  int64_t at_ns(Stamp stamp) const;  // of the steady clock; 0: never
  int instance() const { return instance_.load(std::memory_order_relaxed); }
  int64_t step() const { return step_.load(std::memory_order_relaxed); }  // -1: it has not run

  // Set before anybody else has it.
  std::string model, version, request_id, parent;
  bool with_steps = false;  // what the engine does is wanted

 private:
  uint64_t id_;
  Transport transport_;
  Finish finish_;
  std::array<std::atomic<int64_t>, kStamps> at_{};
  std::atomic<int> instance_{-1};
  std::atomic<int64_t> step_{-1};
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const StepTrace>> steps_;
};

}  // namespace sluice::serving
