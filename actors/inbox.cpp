#include "actors/inbox.h"

namespace sluice::actors {

void Inbox::park() {
  const int wakes = wakes_.load(boost::memory_order_acquire);
  Cell* empty = nullptr;
  // Read-modify-write rather than a fence: whoever pushes next sees `parked_` and wakes us, or we see its cell.
  if (!head_.compare_exchange_strong(empty, &parked_, std::memory_order_acq_rel)) return;
  wakes_.wait(wakes, boost::memory_order_acquire);
}

void Inbox::wake() {
  wakes_.fetch_add(1, boost::memory_order_acq_rel);
  wakes_.notify_one();
}

}  // namespace sluice::actors
