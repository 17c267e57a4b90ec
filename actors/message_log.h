#pragma once
// Writes down the order in which an engine's streams handle messages, and says which comes next when that order is
// replayed. An engine that does neither has none.
//
// Messages are numbered by what they are, not by when they come: two that wait at the same time and have the same
// number do the same. So the numbers in their order say all about a run that its inputs do not.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "plan/record/message_order.h"

namespace sluice::actors {

// Thread-safe, but for next() and take(), which are for the thread that steps.
class MessageLog {
 public:
  struct Options {
    std::string record, replay;  // files, or empty
    std::string build;           // that runs
  };
  // Throws kIo and kValue for files that cannot be used.
  explicit MessageLog(Options options);
  ~MessageLog();  // ends the file
  MessageLog(const MessageLog&) = delete;
  MessageLog& operator=(const MessageLog&) = delete;

  bool replays() const { return order_.has_value(); }
  // Gives the number of its first message. Throws kValue when another plan was loaded here in the run that is replayed.
  uint32_t add_plan(const plan::Plan& plan, uint64_t ids);
  // It is about to be handled. Before what it causes can be.
  void record(uint32_t id, plan::Handled how, uint64_t starts = 1);

  struct Next {
    uint32_t id;
    plan::Handled how;
    uint64_t starts;
  };
  // Empty when there is no more, or the run has left the order.
  std::optional<Next> next() const;
  void take(const Next& next) { at_ += next.starts; }
  // The next message is not there. Throws kValue, once; a run that is ending goes on in any order, with a warning.
  void leave(const std::string& why);
  void end() { ending_ = true; }
  // Held while a plan becomes active: two at once would wait for each other.
  std::mutex& activation() { return activation_; }
  bool left() const { return left_; }
  std::string where() const;

 private:
  void write(bool all) SLUICE_REQUIRES(mutex_);

  const Options options_;
  std::optional<plan::MessageOrder> order_;
  size_t at_ = 0;
  bool left_ = false;
  std::atomic<bool> ending_{false};
  std::mutex activation_;
  Mutex mutex_;
  std::FILE* file_ SLUICE_GUARDED_BY(mutex_) = nullptr;
  std::string buffer_ SLUICE_GUARDED_BY(mutex_);
  uint64_t messages_ SLUICE_GUARDED_BY(mutex_) = 0;
  size_t plans_ SLUICE_GUARDED_BY(mutex_) = 0;
  uint32_t ids_ SLUICE_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice::actors
