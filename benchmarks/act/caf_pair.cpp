#include "act/caf_pair.h"

#include <atomic>
#include <caf/all.hpp>
#include <chrono>
#include <thread>

namespace sluice::bench {
namespace {

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

struct Hop {
  std::atomic<int64_t> finished_ns{0};
  std::atomic<int64_t> taken_ns{0};
};

// Counts down; sends one less back.
caf::behavior counter(caf::event_based_actor* self, Hop* hop) {
  return {[self, hop](int32_t left) {
    if (left == 0) {
      hop->finished_ns.store(now_ns());
      hop->finished_ns.notify_all();
    } else {
      self->send(caf::actor_cast<caf::actor>(self->current_sender()), left - 1);
    }
  }};
}

// Passes the time of its own send on.
caf::behavior stamper(caf::event_based_actor* self, caf::actor receiver) {
  return {[self, receiver](int32_t) { self->send(receiver, now_ns()); }};
}
caf::behavior reader(caf::event_based_actor*, Hop* hop) {
  return {[hop](int64_t sent_ns) {
    hop->taken_ns.store(now_ns() - sent_ns);
    hop->taken_ns.notify_all();
  }};
}

template <class F, class... Args>
caf::actor spawn(caf::actor_system& system, CafKind kind, F f, Args... args) {
  return kind == CafKind::kDetached ? system.spawn<caf::detached>(f, args...) : system.spawn(f, args...);
}

struct System {
  caf::actor_system_config config;
  System() { config.set("scheduler.max-threads", size_t{2}); }
};

}  // namespace

double caf_hop_ns(CafKind kind, int hops) {
  System setup;
  caf::actor_system system{setup.config};
  Hop hop;
  const caf::actor a = spawn(system, kind, counter, &hop), b = spawn(system, kind, counter, &hop);
  const auto run = [&](int32_t n) {
    hop.finished_ns.store(0);
    const int64_t begin = now_ns();
    caf::send_as(b, a, n);
    hop.finished_ns.wait(0);
    return static_cast<double>(hop.finished_ns.load() - begin) / n;
  };
  run(hops / 10 + 1);
  const double ns = run(hops);
  caf::anon_send_exit(a, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(b, caf::exit_reason::user_shutdown);
  return ns;
}

std::vector<double> caf_parked_hops_ns(CafKind kind, int samples, int idle_us) {
  System setup;
  caf::actor_system system{setup.config};
  Hop hop;
  const caf::actor to = spawn(system, kind, reader, &hop), from = spawn(system, kind, stamper, to);
  std::vector<double> taken;
  for (int i = 0; i < samples; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(idle_us));
    hop.taken_ns.store(0);
    caf::anon_send(from, int32_t{0});
    hop.taken_ns.wait(0);
    taken.push_back(static_cast<double>(hop.taken_ns.load()));
  }
  caf::anon_send_exit(from, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(to, caf::exit_reason::user_shutdown);
  return taken;
}

}  // namespace sluice::bench
