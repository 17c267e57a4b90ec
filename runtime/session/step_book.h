#pragma once
// Keeps what a session knows of its steps: the state that a step under way shares with its caller's handle, states to
// use again, and failures.
//
// Thread safety: none of its own. The lock of its session guards it.
//
// Invariants
//  1. A step has its state here from when it enters until remove(). Steps without a handle have none.
//  2. A pooled state is used again only once nobody else holds it.
//  3. A failure of a step under way is kept until that step, or a later one, is finished; one of a step that had been
//     finished is late. The first late failure is kept until take_late_failure().
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/session/step_state.h"
#include "runtime/session/storage_pool.h"

namespace sluice {

class StepBook {
 public:
  // At most so many steps with a handle are under way.
  explicit StepBook(size_t max_in_flight) : states_(max_in_flight) {}

  // A pooled state that nobody else uses any more, with the results of the step that it stood for; null: there is none.
  std::shared_ptr<StepState> unused_state() const;
  // A state that is pooled where there is room.
  std::shared_ptr<StepState> new_state(std::weak_ptr<SessionCore> session);
  // Takes from the pooled states that nobody uses a storage of which `may_go(state, output)` is true; null: there is
  // none.
  template <class MayGo>
  std::shared_ptr<Storage> take_result(MayGo&& may_go);
  // The session is at its end and needs no states.
  void clear_pool() { pool_.clear(); }

  void enter(uint64_t step, std::shared_ptr<StepState> state) { at(step) = std::move(state); }
  // Null: it has no handle. REQUIRES: it is under way.
  const std::shared_ptr<StepState>& state(uint64_t step) const { return states_[step % states_.size()]; }
  std::shared_ptr<StepState> remove(uint64_t step) { return std::exchange(at(step), nullptr); }
  // " ('name')" where the step is under way and has a tag; else "".
  std::string tag_of(uint64_t step) const;

  // Keeps a failure of a step under way. It becomes a late one where there is no memory to keep it.
  void add_failure(uint64_t step, const Status& status);
  // How the step went, of which its sinks have said `answered`: forgets the failures of it and of earlier ones.
  // `first_here`: its first failure here says more than what the sinks say.
  Status take_failures(uint64_t step, Status answered, bool first_here);
  void add_late_failure(const Status& status) {
    if (late_failure_.ok()) late_failure_ = status;
  }
  bool has_late_failure() const { return !late_failure_.ok(); }
  Status take_late_failure() { return std::exchange(late_failure_, {}); }

  // Steps that have failed, of those finished.
  uint64_t failed() const { return failed_; }
  void count_failed() { ++failed_; }

  // Counting begins anew. Late failures stay. REQUIRES: no step is under way.
  void reset() {
    failures_.clear();
    failed_ = 0;
  }

 private:
  std::shared_ptr<StepState>& at(uint64_t step) { return states_[step % states_.size()]; }

  std::vector<std::shared_ptr<StepState>> states_;  // per step % size
  std::vector<std::shared_ptr<StepState>> pool_;
  std::map<uint64_t, Status> failures_;
  Status late_failure_;
  uint64_t failed_ = 0;
};

template <class MayGo>
std::shared_ptr<Storage> StepBook::take_result(MayGo&& may_go) {
  for (const std::shared_ptr<StepState>& pooled : pool_) {
    if (!sole_owner(pooled)) continue;
    for (size_t o = 0; o < pooled->outputs.size(); ++o)
      if (pooled->outputs[o].storage != nullptr && may_go(*pooled, o)) return std::move(pooled->outputs[o].storage);
  }
  return nullptr;
}

}  // namespace sluice
