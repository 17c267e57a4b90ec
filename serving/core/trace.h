#pragma once
// What is noted of one request that is traced (Tracing in settings.h chooses them). It travels with the request, and
// then with its response; when the last who holds it lets go, it is written to the trace file.
//
//   if (request.trace) request.trace->stamp(Stamp::kQueueStart);
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "serving/core/request.h"

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

// Thread safety: everything may be called from any thread; a stamp costs a relaxed store.
class RequestTrace {
 public:
  // What is written in the end, by whoever lets go last.
  using Finish = std::function<void(const RequestTrace& trace)>;
  RequestTrace(uint64_t id, Transport transport, Finish finish);
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

  uint64_t id() const { return id_; }
  Transport transport() const { return transport_; }
  int64_t at_ns(Stamp stamp) const;  // of the steady clock; 0: never
  int instance() const { return instance_.load(std::memory_order_relaxed); }
  int64_t step() const { return step_.load(std::memory_order_relaxed); }  // -1: it has not run

  // Set before anybody else has it.
  std::string model, version, request_id;

 private:
  uint64_t id_;
  Transport transport_;
  Finish finish_;
  std::array<std::atomic<int64_t>, kStamps> at_{};
  std::atomic<int> instance_{-1};
  std::atomic<int64_t> step_{-1};
};

}  // namespace sluice::serving
