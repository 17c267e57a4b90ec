#pragma once
// The asking end of runtime/live/live.h: the counters and plans of a process that runs.
//
// Thread safety: one thread at a time.
#include <cstdint>
#include <memory>
#include <string>

#include "plan/record/live_state.h"
#include "tools/plan_viz/live_view.h"

namespace sluice::plan_viz {

class LiveClient {
 public:
  // Throws kIo for a process that is not there, belongs to another user, or does not let itself be seen.
  explicit LiveClient(int64_t pid);
  ~LiveClient();
  LiveClient(const LiveClient&) = delete;
  LiveClient& operator=(const LiveClient&) = delete;

  const std::string& program() const { return program_; }  // "python3"
  // False once the process has ended, or is no longer to be seen; then nothing can be asked any more.
  bool ask_state(plan::LiveProcess& state);
  // Null for a session that is not there any more. Throws kValue for what is no plan.
  std::unique_ptr<LivePlan> plan(uint64_t session);

 private:
  // "" where the other end has gone. Throws kIo for what is no answer.
  std::string ask(const std::string& question);
  // False where the other end has gone.
  bool hear_more();

  const int64_t pid_;
  std::string program_;
  int fd_ = -1;
  std::string rest_;  // of what has come
};

}  // namespace sluice::plan_viz
