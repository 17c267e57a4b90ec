#pragma once
// Takes what the actors of a session's plan, and those who watch over them, tell of a run. It has the session's state,
// whose runner is made with it as its listener.
//
// Thread safety: every method, on stream threads and those of the control plane.
#include "actors/runner.h"
#include "actors/system.h"
#include "runtime/session/session_state.h"

namespace sluice {

class RunEvents final : public actors::RunListener, public actors::Supervised {
 public:
  RunEvents(Engine& engine, std::unique_ptr<LoadedPlan> loaded) : session_(engine, std::move(loaded), *this) {}
  SessionState& state() { return session_; }

  // actors::RunListener
  void on_sink(int actor, uint64_t step, const Status& status, void* const* outputs) override;
  bool sinks_are_brief() const override { return session_.shape.brief_sinks && session_.callbacks.load() == 0; }
  void on_input_slots(int reg, uint64_t writable) override;
  void on_sink_end(int actor) override;
  void on_data_end() override;
  void on_failure(uint64_t step, const Status& status) override;
  void on_missed_collective(int kernel, const Status& status) override;
  void on_variables_done(bool writes) override;

  // actors::Supervised
  void on_actor_down(int actor, const std::string& reason) override;
  uint64_t firings() const override;
  bool busy() const override;
  void on_stall(std::chrono::milliseconds idle) override;

 private:
  SessionState session_;
};

}  // namespace sluice
