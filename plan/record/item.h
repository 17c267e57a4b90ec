#pragma once
// The way of one step through the graph of a recorded run: where it waited, and where it was worked on.
#include <cstdint>
#include <vector>

#include "plan/record/timeline.h"

namespace sluice::plan {

// A firing on the way. The step was handed to it at arrived_ns, it began at begin_ns, and what the next hop took was
// made at left_ns; of the last hop, that is the end of the firing.
struct ItemHop {
  int actor = 0;
  int firing = 0;  // in Timeline::firings
  int edge = -1;   // by which it arrived; -1: it begins here, or the actor's firing before this one had it
  int64_t arrived_ns = 0, begin_ns = 0, left_ns = 0;
  std::vector<Segment> did;  // what the actor did from arrived_ns to left_ns, without gaps
  int64_t wait_ns() const { return begin_ns - arrived_ns; }
  int64_t run_ns() const { return left_ns - begin_ns; }
};

// A value that one firing of the step made and another one took.
struct ItemFlow {
  TokenWay way;
  int64_t made_ns = 0, taken_ns = 0;
};

// The waits and runs of all hops are the time from begin_ns to end_ns, exactly: each hop begins where the one before it
// ends. The way goes along the value that was made last, if a firing took several.
struct ItemWay {
  uint64_t step = 0;
  int64_t begin_ns = 0;  // of the step's first firing of the actor where the way begins
  int64_t end_ns = 0;    // of the step's last firing of the sink
  std::vector<ItemHop> hops;
  std::vector<ItemFlow> flows;  // all of the step, not only those on the way
};

// The way to a sink; -1: the sink that ended last. Throws kValue where the step was not recorded there.
ItemWay way_of_item(const Recording& recording, uint64_t step, int sink = -1);

}  // namespace sluice::plan
