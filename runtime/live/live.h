#pragma once
// Shows a process to those who ask: `plan-viz top PID` and `plan-viz live PID`. It answers on a Unix socket in the
// abstract namespace, on a thread of its own that sleeps until somebody asks; so it costs nothing while nobody looks,
// and leaves nothing behind. It is there only when the program or SLUICE_LIVE=1 has asked for it (docs/adr/0062).
//
// Thread safety: every function, from any thread.
#include <memory>
#include <optional>

#include "plan/plan.h"
#include "plan/record/live_state.h"

namespace sluice {

// Is shown while somebody else holds it.
class LiveSource {
 public:
  virtual ~LiveSource() = default;
  // Nothing once it is at its end. Sets all but the id. Must wait for nothing but short locks.
  virtual std::optional<plan::LiveSession> live_state() = 0;
  virtual const plan::Plan& live_plan() const = 0;  // as long as it lives
};

// Tells of a session. The first one of the process lets it be seen where SLUICE_LIVE says so.
void add_live_source(const std::shared_ptr<LiveSource>& source);

// From now on this process can be looked at by its own user and the superuser, or no longer. Throws kRuntime when the
// system gives no socket or thread.
void set_live(bool on);
bool live();

}  // namespace sluice
