#pragma once
// Memory for the arenas of sessions that take turns. Per space it is as large as the largest of them needs, however
// many there are. Arenas whose contents one step leaves to the next (plan::arenas_with_state) stay each session's own.
//
//   auto arenas = std::make_shared<SharedArenas>(engine);
//   for (const plan::Plan& plan : plans) arenas->reserve(plan);
//   Session a = Session::load(engine, plans[0], variables, {.arenas = arenas});
//
// One of the sessions at a time has steps in flight: submit() to another waits for them (runtime/session/turns.h).
//
// Thread safety: every method may be called from any thread, also while one of the sessions runs.
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "memory/storage.h"
#include "plan/plan.h"
#include "runtime/session/turns.h"

namespace sluice {

class Engine;

// A block of `space`, filled with zeros where it is the host's. Throws kMemory, telling what the whole plan needs.
std::shared_ptr<Storage> allocate_for(Engine& engine, const plan::Plan& plan, const plan::Space& space, uint64_t bytes);

class SharedArenas {
 public:
  // REQUIRES: the engine is there at each reserve() and place(). The memory may outlive it.
  explicit SharedArenas(Engine& engine) : engine_(engine) {}

  // Makes room for a plan, which loading does too: plans that are known beforehand are best reserved for before the
  // first of them is loaded, as memory that a session has been given cannot grow. If the memory is too small for a
  // later plan, that plan gets new memory, and the old goes with the sessions that have it. Throws kMemory as loading
  // does.
  void reserve(const plan::Plan& plan);

  // The memory of a plan's arenas: a null block where an arena is not shared. Reserves them.
  struct Place {
    std::shared_ptr<Storage> block;
    uint64_t offset = 0;
  };
  std::vector<Place> place(const plan::Plan& plan);

  const Engine& engine() const { return engine_; }
  const std::shared_ptr<Turns>& turns() const { return turns_; }

  // Held for plans to come, without what only sessions still hold.
  uint64_t bytes(const plan::Space& space) const;

 private:
  std::shared_ptr<Storage>& block(const plan::Plan& plan, const plan::Space& space, uint64_t bytes)
      SLUICE_REQUIRES(mutex_);

  Engine& engine_;
  const std::shared_ptr<Turns> turns_ = std::make_shared<Turns>();
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<Storage>> blocks_ SLUICE_GUARDED_BY(mutex_);  // one per space
};

}  // namespace sluice
