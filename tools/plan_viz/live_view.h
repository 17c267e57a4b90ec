#pragma once
// Says what a running process does, from its counters: rates, who waits for whom, how full its registers are.
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "plan/firing/firing_counts.h"
#include "plan/firing/token_counts.h"
#include "plan/record/live_state.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

// The state of an actor at one moment.
struct Doing {
  // kRuns: kernel `index`. kData: waits for edge `index`. kSlot: for one of register `index`. kStep: for a step of the
  // program. kStream: is ready, while its stream fires another. kReady: is about to fire.
  enum class What : uint8_t { kRuns, kDevice, kCores, kData, kSlot, kStep, kStream, kReady };
  What what = What::kReady;
  int index = -1;
  int whom = -1;  // the actor that it waits for; -1: none
  auto operator<=>(const Doing&) const = default;
};
const char* doing_name(Doing::What what);  // "runs", "device", "cores", "data", "slot", "step", "stream", "ready"

// A session's plan, with what it takes to read its counters.
class LivePlan {
 public:
  // Throws kValue for a plan whose structure or rates do not hold.
  explicit LivePlan(plan::Plan plan);
  const plan::Plan& plan() const { return plan_; }
  // Throws kValue where the numbers are not of this plan.
  void check(const plan::LiveSession& session) const;
  // REQUIRES: check() held, for both.
  std::vector<plan::TokenCounts> tokens(const plan::LiveSession& session) const;
  std::vector<Doing> doings(const plan::LiveSession& session) const;
  std::string str(const Doing& doing) const;  // "waits for 'prepare': data 'images'"

 private:
  plan::Plan plan_;
  plan::Adjacency adjacency_;
  plan::FiringCounts counts_;
};

struct LiveSample {
  int64_t clock_ns = 0;
  plan::LiveSession session;
};

// Says what a session did between the first and the last sample. REQUIRES: two samples or more, of `plan`.
std::string top_text(const LivePlan& plan, std::span<const LiveSample> samples, const TextOptions& options);
std::string top_json(const LivePlan& plan, std::span<const LiveSample> samples);

// One moment of a session, for the page: its counters, what each actor does, and the registers' slots.
std::string moment_json(const LivePlan& plan, const LiveSample& sample);

}  // namespace sluice::plan_viz
