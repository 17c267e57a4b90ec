#pragma once
// The peer of act.cross_stream: two stock CAF actors that send each other an integer.
#include <vector>

namespace sluice::bench {

// kScheduled: on CAF's work-stealing workers, two of them. kDetached: each on a thread of its own.
enum class CafKind { kScheduled, kDetached };

// Nanoseconds of one hop, over `hops` hops back and forth.
double caf_hop_ns(CafKind kind, int hops);
// Nanoseconds from a send to the receiver's handler, the receiver idle for `idle_us` before; one figure per sample.
std::vector<double> caf_parked_hops_ns(CafKind kind, int samples, int idle_us);

}  // namespace sluice::bench
