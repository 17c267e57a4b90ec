#pragma once
// Carries what a running process shows of its sessions at one moment to another process, as text.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::plan {

// An actor's `now`, where it is not the kernel that it runs.
inline constexpr int kLiveIdle = -1, kLiveDevice = -2, kLiveCores = -3;

// Numbers per actor are in the plan's order. Streams publish them as they go and stop for nobody, so two of them may be
// a few firings apart.
struct LiveSession {
  uint64_t id = 0;  // within its process
  std::string name;
  int rank = -1;
  uint64_t submitted = 0, finished = 0, failed = 0;
  uint64_t in_flight = 0, max_in_flight = 0, waiting = 0;
  uint64_t bytes = 0;
  std::vector<uint64_t> firings, busy_ns;
  std::vector<int> now;  // the kernel it runs, or one of the above
};

struct LiveProcess {
  int64_t pid = 0;
  int64_t clock_ns = 0;  // of its steady clock
  std::string version;
  std::vector<LiveSession> sessions;
};

std::string live_json(const LiveProcess& process);
// Throws kValue naming `from` for what is none.
LiveProcess read_live(std::string_view text, const std::string& from);

// How the two ends talk, on a Unix socket in the abstract namespace, so that nothing of it is in the file system: the
// asking end writes one of these lines (the second with a session's id), the other end the length of its answer as a
// line, then the answer: JSON, which begins with kLiveError where there is nothing to tell.
std::string live_socket_name(int64_t pid);
inline constexpr std::string_view kAskState = "state", kAskPlan = "plan", kLiveError = "{\"error\":";

}  // namespace sluice::plan
