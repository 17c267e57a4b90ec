#include "tensor/versions.h"

#include <mutex>
#include <unordered_map>

namespace sluice {
namespace {

// These belong to the process, as tensors do: any graph may write any of them.
struct Borrowed {
  struct Entry {
    uint64_t version = 0;  // when it was borrowed
    uint64_t steps = 0;    // since
  };
  std::mutex mutex;
  std::unordered_map<uint64_t*, Entry> entries;
};
Borrowed& borrowed() {
  static auto* const all = new Borrowed();
  return *all;
}

}  // namespace

void BorrowedVersions::borrow(const VersionCounter& counter) {
  std::lock_guard lock(borrowed().mutex);
  if (borrowed().entries.try_emplace(counter.get(), Borrowed::Entry{*counter, 0}).second) counters_.push_back(counter);
}

void BorrowedVersions::give_back() {
  std::lock_guard lock(borrowed().mutex);
  for (const VersionCounter& counter : counters_) {
    const Borrowed::Entry entry = borrowed().entries.extract(counter.get()).mapped();
    *counter = entry.version + entry.steps;
  }
  counters_.clear();
}

void count_step(std::span<const VersionCounter> written) {
  std::lock_guard lock(borrowed().mutex);
  for (const VersionCounter& counter : written) {
    const auto entry = borrowed().entries.find(counter.get());
    ++(entry == borrowed().entries.end() ? *counter : entry->second.steps);
  }
}

}  // namespace sluice
