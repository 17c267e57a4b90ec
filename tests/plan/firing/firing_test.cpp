#include "plan/firing/firing.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "plan/firing/network.h"
#include "support/plan_builder.h"

namespace sluice::plan {
namespace {

// Writes down what a rule sends.
struct Record {
  std::vector<std::string> sent;
  void ready(int edge, int slot) { sent.push_back(fmt::format("ready {} {}", edge, slot)); }
  void ack(int edge, int slot) { sent.push_back(fmt::format("ack {} {}", edge, slot)); }
  void end(int edge) { sent.push_back(fmt::format("end {}", edge)); }
  std::vector<std::string> take() { return std::exchange(sent, {}); }
};
using Sent = std::vector<std::string>;

struct Line {  // feed -x-> net -y-> sink
  explicit Line(const RegOptions& x, const RegOptions& y = {}, int take = 1, int hold = 1) {
    feed = b.feed("feed", b.stream());
    net = b.actor("net");
    sink = b.sink("sink");
    rx = b.reg("x", feed, {}, x);
    ry = b.reg("y", net, {sink}, y);
    ex = b.edge(rx, net, take, hold);
    plan = b.build(false);
  }
  FiringRule rule(int actor) const { return FiringRule(plan, Adjacency(plan), actor); }
  PlanBuilder b;
  int feed, net, sink, rx, ry, ex, ey = 0;
  Plan plan;
};

TEST(Firing, NeedsATokenAndAFreeSlot) {
  Line line({.quota = 2}, {.quota = 1});
  FiringRule net = line.rule(line.net);
  Record host;
  EXPECT_FALSE(net.can_fire());
  ASSERT_EQ(net.waits().size(), 1u);
  EXPECT_EQ(net.waits()[0].str(line.plan), "data on 'x'");
  net.on_ready(0, 0, host);
  ASSERT_TRUE(net.can_fire());
  net.begin();
  EXPECT_EQ(net.input_slot(0), 0);
  EXPECT_EQ(net.output_slot(0), 0);
  net.emit(0, host);
  net.release(0, host);
  net.finish(host);
  EXPECT_EQ(host.take(), (Sent{"ready 0 0", "ack 1 0"}));
  net.on_ready(0, 1, host);
  EXPECT_FALSE(net.can_fire());
  EXPECT_EQ(net.waits()[0].str(line.plan), "a free slot of 'y'");
  net.on_ack(0, 0, host);
  EXPECT_TRUE(net.can_fire());
  EXPECT_EQ(net.firings(), 1u);
}

TEST(Firing, WithheldCreditsAreASmallerQuota) {  // C-14
  Line line({.quota = 3});
  FiringRule feed = line.rule(line.feed);
  Record host;
  const auto fires = [&] {
    feed.begin();
    const int slot = feed.output_slot(0);
    feed.emit(0, host);
    feed.finish(host);
    return slot;
  };
  feed.on_start(10);
  feed.withhold(0, 1);
  EXPECT_EQ(fires(), 0);
  EXPECT_EQ(fires(), 1);
  EXPECT_FALSE(feed.can_fire());
  feed.on_ack(0, 0, host);
  feed.begin();
  EXPECT_EQ(feed.output_slot(0), 2);  // slots are taken in turn, whatever the quota
  EXPECT_EQ(feed.credit_slot(0), 0);
  feed.emit(0, host);
  feed.finish(host);
  EXPECT_FALSE(feed.can_fire());
  EXPECT_EQ(feed.peak_slots(0), 2);
  feed.withhold(0, -1);
  ASSERT_TRUE(feed.can_fire());
  EXPECT_EQ(fires(), 0);
  EXPECT_EQ(feed.peak_slots(0), 3);
  feed.withhold(0, 2);  // while all three are out
  EXPECT_EQ(feed.free_slots(0), -2);
  feed.on_ack(0, 1, host);
  feed.on_ack(0, 2, host);
  EXPECT_FALSE(feed.can_fire());
  feed.on_ack(0, 0, host);
  ASSERT_TRUE(feed.can_fire());
  EXPECT_EQ(fires(), 1);
  EXPECT_FALSE(feed.can_fire());
  feed.on_ack(0, 1, host);
  feed.on_stop(host);
  while (feed.can_fire()) feed.on_ack(0, fires(), host);
  EXPECT_TRUE(feed.ended());
  EXPECT_TRUE(feed.quiescent());
}

TEST(Firing, SourcesFireOncePerStartCredit) {
  Line line({.quota = 3});
  FiringRule feed = line.rule(line.feed);
  Record host;
  EXPECT_EQ(feed.waits()[0].str(line.plan), "a start credit");
  feed.on_start(2);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(feed.can_fire());
    feed.begin();
    feed.emit(0, host);
    feed.finish(host);
  }
  EXPECT_FALSE(feed.can_fire());
  EXPECT_EQ(host.take(), (Sent{"ready 1 0", "ready 1 1"}));
}

TEST(Firing, SlotsGoRoundAfterTheInitialTokens) {
  Line line({.quota = 3, .initial_tokens = 2});
  FiringRule feed = line.rule(line.feed), net = line.rule(line.net);
  Record host;
  feed.on_start(5);
  feed.begin();
  EXPECT_EQ(feed.output_slot(0), 2);
  feed.emit(0, host);
  feed.finish(host);
  EXPECT_FALSE(feed.can_fire());
  feed.on_ack(0, 0, host);
  feed.begin();
  EXPECT_EQ(feed.output_slot(0), 0);
  EXPECT_EQ(net.tokens(0), 2);
  ASSERT_TRUE(net.can_fire());
  net.begin();
  EXPECT_EQ(net.input_slot(0), 0);
}

TEST(Firing, HoldsAndPeriods) {
  // net takes 2 tokens for 3 firings and emits one result for these.
  Line line({.quota = 4}, {.quota = 1, .emit_every = 3}, 2, 3);
  FiringRule net = line.rule(line.net);
  Record host;
  net.on_ready(0, 0, host);
  EXPECT_FALSE(net.can_fire());
  net.on_ready(0, 1, host);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(net.can_fire()) << i;
    net.begin();
    EXPECT_EQ(net.takes_now(0), i == 0);
    EXPECT_EQ(net.acquires_now(0), i == 0);
    EXPECT_EQ(net.emits_now(0), i == 2);
    EXPECT_EQ(net.releases_now(0), i == 2);
    EXPECT_EQ(net.input_slot(0, 1), 1);
    net.emit(0, host);
    net.release(0, host);
    net.finish(host);
    if (i < 2) {
      EXPECT_EQ(host.take(), Sent{});
    }
  }
  EXPECT_EQ(host.take(), (Sent{"ready 0 0", "ack 1 0", "ack 1 1"}));
  EXPECT_FALSE(net.can_fire());
}

TEST(Firing, ASlotIsFreeWhenAllConsumersAcknowledged) {
  PlanBuilder b;
  b.stream();
  const int feed = b.feed("feed"), left = b.actor("left"), right = b.actor("right");
  b.reg("x", feed, {left, right}, {.quota = 1});
  const Plan plan = b.build(false);
  FiringRule rule(plan, Adjacency(plan), feed);
  Record host;
  rule.on_start(2);
  rule.begin();
  rule.emit(0, host);
  rule.finish(host);
  EXPECT_EQ(host.take(), (Sent{"ready 0 0", "ready 1 0"}));
  rule.on_ack(0, 0, host);
  EXPECT_FALSE(rule.can_fire());
  rule.on_ack(0, 0, host);
  EXPECT_TRUE(rule.can_fire());
}

TEST(Firing, ARegisterInPlaceDefersTheAckUntilItsOwnSlotIsFree) {
  PlanBuilder b;
  b.stream();
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 64});
  b.reg("y", net, {sink}, {.quota = 2, .bytes = 64, .in_place_of = b.edge_of(x, net)});
  const Plan plan = b.build(false);
  FiringRule rule(plan, Adjacency(plan), net);
  Record host;
  for (int slot = 0; slot < 2; ++slot) {
    rule.on_ready(0, slot, host);
    rule.begin();
    EXPECT_EQ(rule.output_slot(0), rule.input_slot(0));
    rule.emit(0, host);
    rule.release(0, host);
    rule.finish(host);
    EXPECT_EQ(host.take(), (Sent{fmt::format("ready 1 {}", slot)}));
  }
  rule.on_end(0, host);  // ends at once; the acks still owed come with the slots
  EXPECT_TRUE(rule.ended());
  EXPECT_FALSE(rule.quiescent());
  EXPECT_EQ(host.take(), (Sent{"end 1"}));
  rule.on_ack(0, 0, host);
  EXPECT_EQ(host.take(), (Sent{"ack 0 0"}));
  rule.on_ack(0, 1, host);
  EXPECT_EQ(host.take(), (Sent{"ack 0 1"}));
  EXPECT_TRUE(rule.quiescent());
}

TEST(Firing, AnEndLetsTheRestBeUsedAndThenPassesOn) {
  Line line({.quota = 3}, {.quota = 2});
  FiringRule net = line.rule(line.net);
  Record host;
  net.on_ready(0, 0, host);
  net.on_end(0, host);
  EXPECT_FALSE(net.ended());
  net.begin();
  net.emit(0, host);
  net.release(0, host);
  net.finish(host);
  EXPECT_EQ(host.take(), (Sent{"ready 0 0", "ack 1 0", "end 0"}));
  EXPECT_TRUE(net.ended());
  EXPECT_FALSE(net.quiescent());
  net.on_ack(0, 0, host);
  EXPECT_TRUE(net.quiescent());
}

TEST(Firing, AnEndInTheMiddleOfAHoldReturnsWhatIsHeld) {
  Line line({.quota = 4}, {.quota = 1, .emit_every = 2}, 3, 2);
  FiringRule net = line.rule(line.net);
  Record host;
  for (int slot = 0; slot < 4; ++slot) net.on_ready(0, slot, host);
  net.begin();
  net.emit(0, host);
  net.release(0, host);
  net.on_end(0, host);  // in mid-firing: nothing yet; the second firing of the hold needs no token
  EXPECT_FALSE(net.ended());
  net.finish(host);
  EXPECT_FALSE(net.ended());
  net.begin();
  net.emit(0, host);
  net.release(0, host);
  net.finish(host);
  EXPECT_TRUE(net.ended());
  EXPECT_EQ(host.take(), (Sent{"ready 0 0", "ack 1 0", "ack 1 1", "ack 1 2", "ack 1 3", "end 0"}));
}

TEST(Firing, WhatArrivesAfterTheEndGoesStraightBack) {
  PlanBuilder b;
  b.stream();
  const int one = b.source("one"), two = b.source("two"), join = b.sink("join");
  b.reg("a", one, {join}, {.quota = 2});
  b.reg("b", two, {join}, {.quota = 2});
  const Plan plan = b.build(false);
  FiringRule rule(plan, Adjacency(plan), join);
  Record host;
  rule.on_ready(1, 0, host);
  rule.on_end(0, host);
  EXPECT_EQ(host.take(), (Sent{"ack 1 0"}));
  rule.on_ready(1, 1, host);
  EXPECT_EQ(host.take(), (Sent{"ack 1 1"}));
  EXPECT_FALSE(rule.can_fire());
  EXPECT_TRUE(rule.quiescent());
}

TEST(Firing, StopUsesUpTheCreditsAlreadyGiven) {
  Line line({.quota = 1});
  FiringRule feed = line.rule(line.feed);
  Record host;
  feed.on_start(1);
  feed.on_stop(host);
  feed.on_start(5);
  EXPECT_FALSE(feed.ended());
  feed.begin();
  feed.emit(0, host);
  feed.finish(host);
  EXPECT_EQ(host.take(), (Sent{"ready 1 0", "end 1"}));
  EXPECT_TRUE(feed.ended());
  EXPECT_FALSE(feed.can_fire());
}

// Random plans, messages delivered in random order per edge pair, then stopped: everything ends, all slots return.
struct Queued {
  struct Message {
    MessageKind kind;
    int edge, slot;
  };
  std::map<std::pair<int, int>, std::vector<Message>> queues;  // by (edge, direction): in order
  void ready(int edge, int slot) { queues[{edge, 0}].push_back({MessageKind::kReady, edge, slot}); }
  void end(int edge) { queues[{edge, 0}].push_back({MessageKind::kEnd, edge, 0}); }
  void ack(int edge, int slot) { queues[{edge, 1}].push_back({MessageKind::kAck, edge, slot}); }
};

TEST(Firing, StoppedPlansReturnEverySlotInEveryOrder) {
  int live = 0;
  for (unsigned seed = 0; seed < 600; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int n) { return static_cast<int>(random() % n); };
    PlanBuilder b;
    b.stream();
    const int feed = b.feed("feed");
    std::vector<int> actors{feed};
    for (int i = 0; i < 4; ++i) {
      const int a = b.actor("a" + std::to_string(i));
      const int r = b.reg("r" + std::to_string(i), actors[pick(static_cast<int>(actors.size()))], {},
                          {.quota = 1 + pick(3), .emit_every = 1 + pick(2)});
      b.edge(r, a, 1, 1 + pick(2));
      actors.push_back(a);
    }
    const int back = b.reg("back", actors[4], {}, {.quota = 3, .initial_tokens = 2});
    b.edge(back, actors[1 + pick(3)]);
    const Plan plan = b.build(false);
    try {
      find_schedule(plan);
    } catch (const Error&) {
      continue;  // a plan that blocks does not end by itself
    }
    ++live;
    Network net(plan);
    Queued host;
    net.rules[feed].on_start(1 + pick(9));
    int steps = 0;
    for (; steps < 5000; ++steps) {
      if (steps == 20) net.rules[feed].on_stop(host);
      std::vector<std::pair<int, int>> open;
      for (auto& [key, queue] : host.queues) {
        if (!queue.empty()) open.push_back(key);
      }
      std::vector<int> ready;
      for (int a = 0; a < net.actors(); ++a) {
        if (net.rules[a].can_fire()) ready.push_back(a);
      }
      if (open.empty() && ready.empty()) {
        if (steps > 20) break;
        continue;
      }
      const int choice = pick(static_cast<int>(open.size() + ready.size()));
      if (choice < static_cast<int>(open.size())) {
        auto& queue = host.queues[open[choice]];
        const Queued::Message m = queue.front();
        queue.erase(queue.begin());
        const Network::Ends& ends = net.ends(m.edge);
        if (m.kind == MessageKind::kReady) net.rules[ends.consumer].on_ready(ends.in_port, m.slot, host);
        if (m.kind == MessageKind::kEnd) net.rules[ends.consumer].on_end(ends.in_port, host);
        if (m.kind == MessageKind::kAck) net.rules[ends.producer].on_ack(ends.out_port, m.slot, host);
      } else {
        const int a = ready[choice - open.size()];
        net.rules[a].begin();
        for (const Instr& i : plan.actors[a].program) {
          if (i.kind == InstrKind::kEmit) net.rules[a].emit(net.out_port(i.index), host);
          if (i.kind == InstrKind::kRelease) net.rules[a].release(net.ends(i.index).in_port, host);
        }
        net.rules[a].finish(host);
      }
    }
    ASSERT_LT(steps, 5000) << "seed " << seed;
    for (int a = 0; a < net.actors(); ++a) ASSERT_TRUE(net.rules[a].quiescent()) << "seed " << seed << " actor " << a;
  }
  EXPECT_GT(live, 50);
}

// The messages that a rule tells, in order: "ready 0/1" of edge 0 and slot 1, "ack", "end 0".
struct Told {
  std::vector<std::string>& log;
  void ready(int edge, int slot) { log.push_back(fmt::format("ready {}/{}", edge, slot)); }
  void ack(int edge, int slot) { log.push_back(fmt::format("ack {}/{}", edge, slot)); }
  void end(int edge) { log.push_back(fmt::format("end {}", edge)); }
};

TEST(FiringRule, AnAbandonedFiringHasNotHappened) {
  PlanBuilder b("abandoned");
  b.stream();
  const int source = b.source("source"), sink = b.sink("sink");
  b.reg("x", source, {sink}, {.quota = 2, .bytes = 16});
  b.reg("pair", source, {sink}, {.quota = 2, .emit_every = 2});
  b.reg("back", sink, {source}, {.quota = 2, .initial_tokens = 1});
  const Adjacency adjacency(b.plan);
  for (const int before : {0, 1, 2}) {
    FiringRule rule(b.plan, adjacency, source);
    std::vector<std::string> log;
    Told told{log};
    rule.on_start(10);
    for (int n = 0; n < before; ++n) {
      if (n > 0) rule.on_ready(0, n % 2, told);
      rule.begin();
      rule.emit(0, told);
      rule.emit(1, told);
      rule.release(0, told);
      rule.finish(told);
      rule.on_ack(0, n % 2, told);
    }
    if (before > 0) rule.on_ready(0, before % 2, told);
    ASSERT_TRUE(rule.can_fire()) << before;
    log.clear();
    rule.begin();
    rule.abandon(told);
    EXPECT_TRUE(rule.ended());
    EXPECT_FALSE(rule.can_fire());
    EXPECT_EQ(rule.firings(), static_cast<uint64_t>(before));
    EXPECT_EQ(rule.start_credits(), 0u);
    EXPECT_EQ(log, (std::vector<std::string>{fmt::format("ack 2/{}", before % 2), "end 0", "end 1"}));
    EXPECT_EQ(rule.free_slots(0), 2);
    EXPECT_EQ(rule.free_slots(1), before == 2 ? 1 : 2);  // the pair's token is with its reader
    rule.on_start(1);
    EXPECT_FALSE(rule.can_fire());
    if (before == 2) rule.on_ack(1, 0, told);
    EXPECT_TRUE(rule.quiescent());
  }
}

}  // namespace
}  // namespace sluice::plan
