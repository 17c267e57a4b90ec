#pragma once
// The floors of echo.*: what there and back costs with nothing but the system's own means.
#include <functional>
#include <memory>
#include <vector>

namespace sluice::bench {

// Somebody who answers every call, on a thread or in a process of its own.
class PingPong {
 public:
  virtual ~PingPong() = default;
  // There and back: returns once the answer is here.
  virtual void call() = 0;
};

// Two threads take turns to sleep on a word and to wake the other.
std::unique_ptr<PingPong> futex_ping_pong();
// Two processes send each other 16 bytes through a TCP connection on this machine, in blocking reads and writes.
// REQUIRES: this process has no other thread.
std::unique_ptr<PingPong> socket_ping_pong();

// Runs `program` in a process of its own, which ends with this one at the latest. REQUIRES: no other thread.
int start_process(const std::function<void()>& program);
// Waits for its end; throws std::runtime_error unless it went well.
void join_process(int process);

}  // namespace sluice::bench
