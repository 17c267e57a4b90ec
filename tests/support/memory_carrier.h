#pragma once
// Messages between ranks that are threads of this process, in memory.
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "base/mutex.h"
#include "streams/collective/carrier.h"

namespace sluice::test {

// The messages of one job.
struct Mailbox {
  Mutex mutex;
  ConditionVariable changed;
  std::map<std::tuple<int, int, uint64_t>, std::deque<std::vector<std::byte>>> messages;  // by from, to and key
  Status failure;
  int failed_rank = -1;
  uint64_t sent = 0;
};

class MemoryCarrier final : public collective::Carrier {
 public:
  MemoryCarrier(std::shared_ptr<Mailbox> box, const collective::WorldOptions& options)
      : box_(std::move(box)), rank_(options.rank), timeout_(options.timeout) {}

  void send(int to, uint64_t key, std::vector<std::byte> message) override {
    const MutexLock lock(box_->mutex);
    box_->messages[{rank_, to, key}].push_back(std::move(message));
    ++box_->sent;
    box_->changed.notify_all();
  }
  std::vector<std::byte> receive(int from, uint64_t key) override {
    MutexLock lock(box_->mutex);
    auto& queue = box_->messages[{from, rank_, key}];
    const bool came = box_->changed.wait_for(lock, timeout_, [&] { return !queue.empty() || !box_->failure.ok(); });
    if (!box_->failure.ok()) box_->failure.throw_if_error();
    SLUICE_CHECK_KIND(kTimeout, came, "rank {} has sent nothing in time", from);
    std::vector<std::byte> message = std::move(queue.front());
    queue.pop_front();
    return message;
  }
  void fail(const std::string& text) noexcept override {
    const MutexLock lock(box_->mutex);
    if (!box_->failure.ok()) return;
    box_->failure = Status(ErrorKind::kRuntime, text);
    box_->failed_rank = rank_;
    box_->changed.notify_all();
  }
  Status failure() const override {
    const MutexLock lock(box_->mutex);
    return box_->failure;
  }
  int failed_rank() const override {
    const MutexLock lock(box_->mutex);
    return box_->failed_rank;
  }

 private:
  const std::shared_ptr<Mailbox> box_;
  const int rank_;
  const std::chrono::milliseconds timeout_;
};

// Registers carriers over this box; returns their name.
inline std::string carrier_over(const std::shared_ptr<Mailbox>& box) {
  static std::atomic<int> count{0};
  const std::string name = "memory " + std::to_string(count++);
  collective::register_carrier(
      name, [box](const collective::WorldOptions& options) { return std::make_shared<MemoryCarrier>(box, options); });
  return name;
}

}  // namespace sluice::test
