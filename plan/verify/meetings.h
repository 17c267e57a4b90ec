#pragma once
// The order that meetings in collectives force on a plan: some periods, run once, with the causes of each piece of a
// firing kept as a vector of counts. For verify_collectives.
//
// A collective holds its stream until all ranks are there. So a firing on such a stream consists of segments: up to its
// first call, from there to the second, and so on to its end. A segment is caused by the tokens and free slots its
// firing takes, by the segment before it, for those after a call by the calls of all ranks, and, since a stream runs
// one firing at a time, by the ends of all firings of its stream that it is caused by at all.
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "plan/firing/network.h"

namespace sluice::plan {

class Meetings {
 public:
  struct Segment {
    int actor = 0;
    int64_t firing = 0;
    int part = 0;
    int call = -1;                  // in calls(): the one it ends with, -1 at the end of the firing
    int chain = -1, position = -1;  // on streams with collectives
    int next = -1;                  // the segment after it in the same firing
    std::vector<int> causes;        // per chain: how many of its segments must have run, itself included
  };
  struct Call {
    int kernel = 0, group = 0, rank = 0;
    int number = 0;    // of its rank's calls in the group
    int segment = 0;   // the segment that ends by entering it
    int meeting = -1;  // in meetings()
  };
  struct Running {  // what holds a stream
    int actor = -1;
    size_t pc = 0;
    bool at_collective = false;
    int segment = -1;
  };

  // Runs `periods` periods. REQUIRES: structure, rates and liveness hold.
  Meetings(const Plan& plan, const std::vector<int>& repetitions, int periods);

  // False when it got stuck; then network(), left() and streams() show where.
  bool finished() const { return finished_; }
  const Network& network() const { return network_; }
  const std::vector<int>& left() const { return left_; }
  const std::vector<Running>& streams() const { return streams_; }

  const std::vector<Segment>& segments() const { return segments_; }
  const std::vector<Call>& calls() const { return calls_; }
  const std::vector<std::vector<int>>& meetings() const { return meetings_; }  // calls
  // Per group and rank: calls in the order they came.
  const std::map<std::pair<int, int>, std::vector<int>>& sequences() const { return sequences_; }
  // Segments of a stream with collectives as few sequences in which each causes the next.
  const std::vector<std::vector<int>>& chains() const { return chains_; }
  const std::vector<std::vector<int>>& stream_chains() const { return stream_chains_; }  // per stream

  // Whether segment `a` is among the causes counted in `causes`.
  bool contains(const std::vector<int>& causes, int a) const {
    const Segment& s = segments_[a];
    return s.chain >= 0 && s.chain < static_cast<int>(causes.size()) && causes[s.chain] > s.position;
  }
  // Adds `causes` to `to`.
  static void join(std::vector<int>& to, const std::vector<int>& causes);
  // No firing of the last period can begin before those of the first have ended, so more periods show nothing new.
  bool covers_all() const;

 private:
  void run();
  void open(Running& run, int part);
  void close_call(Running& run, int kernel);
  bool advance(Running& run);
  void add_slot_causes(int reg, int64_t token, std::vector<int>& causes) const;
  void add_stream_causes(int stream, std::vector<int>& causes) const;
  void place(int segment, int stream);
  bool is_call(const Instr& i) const { return i.kind == InstrKind::kRun && plan_.kernels[i.index].collective >= 0; }

  const Plan& plan_;
  const std::vector<int> repetitions_;
  const int periods_;
  Network network_;
  std::vector<int> left_;
  std::vector<bool> calls_in_;    // per actor: its program has a collective
  std::vector<bool> meets_;       // per stream: an actor of it has
  std::vector<Running> streams_;  // per stream
  std::vector<Segment> segments_;
  std::vector<Call> calls_;
  std::vector<std::vector<int>> meetings_, chains_, stream_chains_;
  std::map<std::pair<int, int>, std::vector<int>> sequences_;
  std::map<int, int> ranks_;                          // per group: how many ranks call it
  std::vector<std::vector<int>> emitted_, released_;  // per register, per edge: the segment that did, by token
  std::vector<int> in_place_;                         // per edge: the register in its place, or -1
  std::vector<int> last_;                             // per actor: its last segment, or -1
  std::vector<int> touched_;                          // actors that messages went to, while running
  bool finished_ = false;
};

}  // namespace sluice::plan
