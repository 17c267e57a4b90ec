#pragma once
// The actors of an executor: one per instance, on a thread of its own, and a supervisor, which starts those anew that
// end with an error, and looks at the clock for all.
#include <caf/fwd.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "serving/core/request.h"

namespace sluice::serving {

struct RestartPolicy {
  int most = 3;  // within the window; then an instance is given up
  std::chrono::seconds window{60};
};

// The work that actors do. They hold it until they have ended.
class CrewWork {
 public:
  virtual ~CrewWork() = default;
  // On the instance's thread. Does what there is to do now; returns when to come again, if nobody wakes it before. An
  // exception from it ends the actor.
  virtual std::optional<Clock::time_point> serve(int instance) = 0;
  virtual void load(int instance) = 0;                  // anew, after its end by an error; on its thread; may throw
  virtual void unload(int instance) noexcept = 0;       // its actor has ended; on its thread
  virtual std::optional<Clock::time_point> tick() = 0;  // on the supervisor's
  virtual void gave_up(int instance, const std::string& why) noexcept = 0;  // on the supervisor's
};

class Crew {
 public:
  // All instances are loaded.
  Crew(caf::actor_system& system, int instances, std::shared_ptr<CrewWork> work, RestartPolicy policy = {});
  ~Crew();
  void wake(int instance);  // any thread; never blocks
  void tick();
  // Ends all. Once, whoever calls it; returns at once.
  void end();
  // Until all instances have ended; also on a thread that the supervisor would need.
  void wait();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace sluice::serving
