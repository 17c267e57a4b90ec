#include "actors/inbox.h"

namespace sluice::actors {

// Not std::atomic's wait(): that yields the core several times before it sleeps.
void Inbox::park() {
  Cell* empty = nullptr;
  // Read-modify-write rather than a fence: whoever pushes next sees `parked_` and wakes us, or we see its cell.
  if (!head_.compare_exchange_strong(empty, &parked_, std::memory_order_acq_rel)) return;
  while (sem_wait(&wakes_) != 0) {  // interrupted by a signal
  }
}

// Once for each time that the consumer has parked.
void Inbox::wake() { sem_post(&wakes_); }

}  // namespace sluice::actors
