#pragma once
// A setting of a thread that scopes give: the innermost open one counts. Scopes may end in any order, and on any
// thread, because a generator of Python that began inside of a `with` block may end behind it, when its garbage is
// collected.
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

namespace sluice {

template <class T>
class ScopedSetting {
  struct Entry {
    T value;
    std::atomic<bool> ended{false};
  };

 public:
  explicit ScopedSetting(T outermost = T()) : outermost_(std::move(outermost)) {}

  // On the thread of the setting; until a scope begins or ends.
  const T& now() {
    while (!entries_.empty() && entries_.back()->ended.load(std::memory_order_acquire)) entries_.pop_back();
    return entries_.empty() ? outermost_ : entries_.back()->value;
  }

  class Scope {
   public:
    Scope(ScopedSetting& setting, T value) : entry_(new Entry{std::move(value)}) {
      setting.now();  // drops what has ended
      setting.entries_.push_back(entry_);
    }
    ~Scope() { entry_->ended.store(true, std::memory_order_release); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const std::shared_ptr<Entry> entry_;
  };

 private:
  const T outermost_;
  std::vector<std::shared_ptr<Entry>> entries_;
};

}  // namespace sluice
