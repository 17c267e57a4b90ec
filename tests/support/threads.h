#pragma once
// The threads of this process, as /proc tells of them.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/eventually.h"

namespace sluice::test {

struct ThreadInfo {
  pid_t id = 0;
  std::string name;
  char state = '?';
  bool ends = false;  // it may have been joined already, although /proc still shows it

  bool asleep() const { return state == 'S'; }
};

// All threads that /proc shows, those that end included.
inline std::vector<ThreadInfo> all_threads() {
  constexpr unsigned kExiting = 0x4;  // the kernel's PF_EXITING, which it sets before whoever joins hears of the end
  std::vector<ThreadInfo> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string line;
    if (!std::getline(std::ifstream(task.path() / "stat"), line)) continue;  // it has gone
    const size_t open = line.find('('), close = line.rfind(')');
    ThreadInfo thread{.id = std::stoi(line), .name = line.substr(open + 1, close - open - 1)};
    std::istringstream fields(line.substr(close + 1));
    std::string skipped;
    unsigned flags = 0;
    fields >> thread.state;
    for (int field = 4; field < 9; ++field) fields >> skipped;
    fields >> flags;
    thread.ends = (flags & kExiting) != 0;
    threads.push_back(std::move(thread));
  }
  return threads;
}

// A thread that has been joined is not among them.
inline std::vector<ThreadInfo> live_threads() {
  std::vector<ThreadInfo> threads = all_threads();
  std::erase_if(threads, [](const ThreadInfo& thread) { return thread.ends; });
  return threads;
}
inline size_t threads_now() { return live_threads().size(); }

// How many there are once those that nobody joins have ended, or after a long time.
inline size_t threads_settled(size_t expected) {
  eventually([&] { return threads_now() <= expected; });
  return threads_now();
}

// Waits until the thread blocks.
inline bool falls_asleep(pid_t id) {
  return eventually([id] {
    for (const ThreadInfo& thread : all_threads()) {
      if (thread.id == id) return thread.asleep();
    }
    return false;
  });
}

// Waits until all threads but the caller's block, and none is ending.
inline bool others_fall_asleep() {
  return eventually([own = gettid()] {
    const std::vector<ThreadInfo> threads = all_threads();
    return std::all_of(threads.begin(), threads.end(),
                       [own](const ThreadInfo& thread) { return thread.id == own || thread.asleep(); });
  });
}

// How many there are once none is ending that nobody joins.
inline size_t threads_at_rest() {
  others_fall_asleep();
  return threads_now();
}

}  // namespace sluice::test
