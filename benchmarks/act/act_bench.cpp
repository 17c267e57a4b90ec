// act.*: what passing tokens costs. Usage: act_bench [PREFIX]. Prints one JSON line per result; the peers run
// interleaved with ours in this process.
#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "act/caf_pair.h"
#include "act/futex_hop.h"
#include "act/report.h"
#include "act/sluice_line.h"
#ifdef SLUICE_BENCH_TBB
#include "act/tbb_line.h"
#endif

namespace sluice::bench {
namespace {

constexpr int kRounds = 11;

struct Peer {
  std::string name;
  std::vector<double> rounds;
};

// Ours against a peer; null where none is installed.
void print_against(const std::string& name, const std::vector<double>& ours, const Peer* peer, const char* unit,
                   std::initializer_list<const Peer*> also = {}) {
  Line line;
  line.name = name;
  line.ours = median(ours);
  line.unit = unit;
  line.n = ours.size();
  line.spread = spread(ours);
  line.peer_name = "not installed";
  if (peer != nullptr) {
    line.peer = median(peer->rounds);
    line.peer_name = peer->name;
    line.spread = std::max(line.spread, spread(peer->rounds));
  }
  for (const Peer* other : also) line.also.emplace_back(other->name, median(other->rounds));
  print(line);
}

void one_stream() {
  constexpr int kActors = 200, kQuota = 2, kSteps = 20000;
  SluiceLine line({.actors = kActors, .quota = kQuota});
  std::vector<double> ours;
  std::vector<Peer> peers;
  line.ns_per_act(kSteps);
#ifdef SLUICE_BENCH_TBB
  constexpr int kTbbSteps = 2000;
  TbbLine queueing(kActors, kQuota, false), lightweight(kActors, kQuota, true);
  queueing.ns_per_act(kTbbSteps);
  lightweight.ns_per_act(kTbbSteps);
  peers = {{"oneTBB flow graph, limiter of 2 per edge", {}},
           {"oneTBB flow graph, lightweight, limiter of 2 per edge", {}}};
#endif
  for (int round = 0; round < kRounds; ++round) {
    ours.push_back(line.ns_per_act(kSteps));
#ifdef SLUICE_BENCH_TBB
    peers[0].rounds.push_back(queueing.ns_per_act(kTbbSteps));
    peers[1].rounds.push_back(lightweight.ns_per_act(kTbbSteps));
#endif
  }
  const auto faster = [](const Peer& a, const Peer& b) { return median(a.rounds) < median(b.rounds); };
  const auto best = std::min_element(peers.begin(), peers.end(), faster);
  print_against("act.one_stream", ours, best == peers.end() ? nullptr : &*best, "ns/act");
}

// Compares many kernels that are planned as one firing with the same kernels as actors of their own, with one slot
// each.
void light() {
  constexpr int kKernels = 200, kSteps = 5000;
  SluiceLine fused({.actors = kKernels, .quota = 1, .idle = true, .one_firing = true});
  SluiceLine apart({.actors = kKernels, .quota = 1, .idle = true});
  std::vector<double> ours;
  Peer generic{"an actor for each kernel, quota 1", {}};
  fused.ns_per_act(kSteps);
  apart.ns_per_act(kSteps);
  for (int round = 0; round < kRounds; ++round) {
    ours.push_back(fused.ns_per_act(kSteps));
    generic.rounds.push_back(apart.ns_per_act(kSteps));
  }
  print_against("act.light", ours, &generic, "ns/kernel");
}

// Quota 1 makes the two take turns: a step is two hops.
void cross_stream() {
  constexpr int kSteps = 100000;
  SluiceLine pair({.actors = 2, .quota = 1, .streams = 2});
  std::vector<double> ours;
  Peer own_threads{"CAF, two actors on threads of their own", {}}, scheduled{"CAF, two scheduled actors", {}};
  pair.ns_per_act(kSteps);
  for (int round = 0; round < kRounds; ++round) {
    ours.push_back(pair.ns_per_act(kSteps) / 1e3);
    scheduled.rounds.push_back(caf_hop_ns(CafKind::kScheduled, 50000) / 1e3);
    own_threads.rounds.push_back(caf_hop_ns(CafKind::kDetached, 2000) / 1e3);
  }
  print_against("act.cross_stream", ours, &own_threads, "us/hop", {&scheduled});
}

void cross_stream_parked() {
  constexpr int kSamples = 40, kIdleUs = 300;
  SluiceLine pair({.actors = 2, .quota = 1, .streams = 2, .stamps = true});
  std::vector<double> ours;
  Peer own_threads{"CAF, two actors on threads of their own", {}}, scheduled{"CAF, two scheduled actors", {}},
      bare{"a bare futex wake", {}};
  pair.parked_hops_ns(kSamples, kIdleUs);
  for (int round = 0; round < kRounds; ++round) {
    ours.push_back(median(pair.parked_hops_ns(kSamples, kIdleUs)) / 1e3);
    scheduled.rounds.push_back(median(caf_parked_hops_ns(CafKind::kScheduled, kSamples, kIdleUs)) / 1e3);
    bare.rounds.push_back(median(futex_hops_ns(kSamples, kIdleUs)) / 1e3);
    own_threads.rounds.push_back(median(caf_parked_hops_ns(CafKind::kDetached, kSamples, kIdleUs)) / 1e3);
  }
  print_against("act.cross_stream.parked", ours, &own_threads, "us/hop", {&scheduled, &bare});
}

// How much dearer an act is among up to a thousand times as many actors, and on more streams than one.
void scale() {
  constexpr int kActs = 4000000, kStreamed = 10000;
  constexpr double kAim = 1.3;
  const int sizes[] = {100, 1000, 10000, 100000}, streams[] = {1, 2, 4, 8};
  std::vector<std::unique_ptr<SluiceLine>> by_size, by_streams;
  for (const int n : sizes) by_size.push_back(std::make_unique<SluiceLine>(LineOptions{.actors = n}));
  for (const int n : streams) {
    by_streams.push_back(
        std::make_unique<SluiceLine>(LineOptions{.actors = kStreamed, .streams = n, .neighbours = true}));
  }
  std::vector<Peer> size_ns, stream_ns;
  for (const int n : sizes) size_ns.push_back({fmt::format("ns per act at {} actors", n), {}});
  for (const int n : streams) stream_ns.push_back({fmt::format("ns per act on {} streams", n), {}});
  // Per round against the first line; of the line that is the dearest in the median.
  const auto growth = [](const auto& lines, std::vector<Peer>& ns, const auto& steps) {
    for (size_t i = 0; i < lines.size(); ++i) lines[i]->ns_per_act(steps(i));
    std::vector<std::vector<double>> ratios(lines.size());
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < lines.size(); ++i) {
        ns[i].rounds.push_back(lines[i]->ns_per_act(steps(i)));
        ratios[i].push_back(ns[i].rounds.back() / ns[0].rounds.back());
      }
    }
    return *std::max_element(ratios.begin(), ratios.end(),
                             [](const auto& x, const auto& y) { return median(x) < median(y); });
  };
  const Peer aim{"the aim", {kAim}};
  const std::vector<double> by_size_growth = growth(by_size, size_ns, [&](size_t i) { return kActs / sizes[i]; });
  print_against("act.scale.actors", by_size_growth, &aim, "dearest ns/act of 100 to 100,000 actors / ns/act at 100",
                {&size_ns[0], &size_ns[1], &size_ns[2], &size_ns[3]});
  const std::vector<double> by_streams_growth = growth(by_streams, stream_ns, [](size_t) { return kActs / kStreamed; });
  print_against("act.scale.streams", by_streams_growth, &aim, "dearest ns/act on 1 to 8 streams / ns/act on one",
                {&stream_ns[0], &stream_ns[1], &stream_ns[2], &stream_ns[3]});
  // An act takes a token and an ack.
  std::vector<double> ns_per_message;
  for (const double ns : size_ns.back().rounds) ns_per_message.push_back(ns / 2);
  const Peer five_million{"the aim, 5 million messages a second", {200}};
  print_against("act.scale.messages", ns_per_message, &five_million, "ns/message of one core, 100,000 actors");
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  return run_benchmarks("act_bench",
                        {{"act.one_stream", one_stream},
                         {"act.light", light},
                         {"act.cross_stream", cross_stream},
                         {"act.cross_stream.parked", cross_stream_parked},
                         {"act.scale", scale}},
                        argc, argv);
}
