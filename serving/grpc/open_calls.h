#pragma once
// Calls that are under way, for the end of the server. Only for the sources of this folder.
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace sluice::serving {

// Thread-safe. A call whose message has not come whole is not among them: gRPC's library has it alone.
class OpenCalls {
 public:
  // A call that may wait for its client's next request.
  class Stream {
   public:
    virtual ~Stream() = default;
    virtual void end() = 0;  // when all that it was asked is answered
  };

  // As long as a call lasts.
  class Here {
   public:
    explicit Here(OpenCalls& all) : all_(all) { all_.add(1); }
    ~Here() { all_.add(-1); }
    Here(const Here&) = delete;
    Here& operator=(const Here&) = delete;

   private:
    OpenCalls& all_;
  };

  void add(const std::shared_ptr<Stream>& stream) {
    bool ending = false;
    {
      const std::lock_guard lock(mutex_);
      streams_.emplace(stream.get(), stream);
      ending = ending_;
    }
    add(1);
    if (ending) stream->end();
  }
  // The stream may be gone behind it.
  void remove(Stream* stream) {
    std::shared_ptr<Stream> gone;
    {
      const std::lock_guard lock(mutex_);
      const auto found = streams_.find(stream);
      gone = std::move(found->second);
      streams_.erase(found);
    }
    add(-1);
  }
  // Those that wait are ended, also those that come.
  void end_streams() {
    std::vector<std::shared_ptr<Stream>> all;
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      for (const auto& [stream, owner] : streams_) all.push_back(owner);
    }
    for (const auto& stream : all) stream->end();
  }
  bool wait_for_none(std::chrono::system_clock::time_point until) {
    std::unique_lock lock(mutex_);
    return none_left_.wait_until(lock, until, [this] { return count_ == 0; });
  }

 private:
  void add(int more) {
    const std::lock_guard lock(mutex_);
    count_ += more;
    if (count_ == 0) none_left_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable none_left_;
  bool ending_ = false;
  int count_ = 0;
  std::map<Stream*, std::shared_ptr<Stream>> streams_;
};

}  // namespace sluice::serving
