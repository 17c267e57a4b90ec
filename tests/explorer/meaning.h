#pragma once
// Computes what a plan means, without slots, quotas, acks or messages: the values every order of messages must produce.
//
// A register is an endless sequence of tokens; firing f of an actor reads the tokens its rates name, by number. A value
// is a hash of everything it was computed from, and knows every failure that would have reached it.
#include <bitset>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "plan/plan.h"

namespace sluice::explorer {

using Value = uint64_t;

inline Value mix(Value a, Value b) {
  uint64_t x = a * 0x9e3779b97f4a7c15ULL ^ (b + 0x632be59bd9b4e019ULL + (a << 6) + (a >> 2));
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// A failure is kernel `ordinal` of an actor's program failing in one firing. All of them are followed at once: failed
// tokens travel like others, so the failures that reach a value are a set that grows along with it.
inline constexpr int kMaxFailures = 512;
using Failures = std::bitset<kMaxFailures>;

class Values {
 public:
  static Value firing(int actor, int number) { return mix(0x100 + actor, number); }
  static Value initial_token(int reg, int number) { return mix(0x10000 + reg, number); }
  // The knowledge after reading `b` as well; `carries`: its failures are passed on.
  Value read(Value a, Value b, bool carries = true) {
    const Value v = mix(a, carries ? b : ~b);
    if (const auto [it, fresh] = failures_.try_emplace(v); fresh) {
      it->second = failures(a);
      if (carries) it->second |= failures(b);
    }
    return v;
  }
  // The same when a kernel that failure number `failure` is about has run.
  Value run(Value a, int failure) {
    const Value v = mix(a, 0x1000000 + failure);
    if (const auto [it, fresh] = failures_.try_emplace(v); fresh) {
      it->second = failures(a);
      it->second.set(failure);
    }
    return v;
  }
  Failures failures(Value v) const {
    const auto it = failures_.find(v);
    return it == failures_.end() ? Failures() : it->second;
  }
  void clear() { failures_.clear(); }

 private:
  std::unordered_map<Value, Failures> failures_;
};

// Feedback that only orders steps does not carry one step's failure into the next.
inline bool carries_failures(const plan::Register& reg) { return reg.bytes != 0 || reg.initial_tokens == 0; }

class Meaning {
 public:
  // The meaning of the start credits of `steps` for every source, followed by the end; source `ends` has data for
  // `ends_after` firings.
  Meaning(const plan::Plan& plan, const plan::Adjacency& adjacency, int steps, Values& values, int ends = -1,
          int ends_after = 0)
      : firings(plan.actors.size()),
        tokens(plan.registers.size()),
        sink(plan.actors.size()),
        kernels_(static_cast<int>(plan.kernels.size())) {
    std::vector<Value> drafts(plan.registers.size());
    for (size_t r = 0; r < plan.registers.size(); ++r) {
      for (int k = 0; k < plan.registers[r].initial_tokens; ++k) {
        tokens[r].push_back(Values::initial_token(static_cast<int>(r), k));
      }
    }
    const auto can_fire = [&](int a) {
      const int f = firings[a];
      if (is_started(plan.actors[a]) && (f >= steps * plan.actors[a].starts || (a == ends && f >= ends_after)))
        return false;
      for (const int e : adjacency.in_edges[a]) {
        const plan::Edge& edge = plan.edges[e];
        if (static_cast<int>(tokens[edge.reg].size()) < (f / edge.hold + 1) * edge.take) return false;
      }
      return true;
    };
    const auto fire = [&](int a) {
      const int f = firings[a]++;
      Value known = Values::firing(a, f);
      for (const int e : adjacency.in_edges[a]) {
        const plan::Edge& edge = plan.edges[e];
        for (int t = 0; t < edge.take; ++t) {
          known = values.read(known, tokens[edge.reg][f / edge.hold * edge.take + t],
                              carries_failures(plan.registers[edge.reg]));
        }
      }
      if (plan.actors[a].role == plan::ActorRole::kSink) sink[a].push_back(known);
      for (const plan::Instr& i : plan.actors[a].program) {
        if (i.kind == plan::InstrKind::kRun) known = values.run(known, failure(i.index, f));
        if (i.kind != plan::InstrKind::kEmit) continue;
        drafts[i.index] = values.read(drafts[i.index], known);
        if ((f + 1) % plan.registers[i.index].emit_every != 0) continue;
        tokens[i.index].push_back(values.read(drafts[i.index], static_cast<Value>(i.index)));
        drafts[i.index] = 0;
      }
    };
    for (bool again = true; again;) {
      again = false;
      for (int a = 0; a < static_cast<int>(plan.actors.size()); ++a) {
        for (; can_fire(a); again = true) fire(a);
      }
    }
  }

  // The number of the failure of `kernel` in its actor's firing `firing`. If there are more than kMaxFailures, some
  // share a number: then what either of them reaches is compared.
  int failure(int kernel, int firing) const { return (firing * kernels_ + kernel) % kMaxFailures; }

  std::vector<int> firings;                // per actor
  std::vector<std::vector<Value>> tokens;  // per register
  std::vector<std::vector<Value>> sink;    // per actor: what each firing of a sink receives

 private:
  int kernels_;
};

}  // namespace sluice::explorer
