#pragma once
// Copies of the firing rule with one mistake each, to see that the explorer finds it.
#include <map>
#include <utility>
#include <vector>

#include "plan/firing/firing.h"

namespace sluice::explorer {

enum class Bug {
  kLostAck,             // the second ack is not sent
  kLostToken,           // the second token is not sent
  kEarlyRelease,        // an emit gives back the inputs, though kernels still read them
  kDoubleEmit,          // a token is sent twice
  kReorderedToken,      // the first token of an edge is overtaken by the second
  kForgottenEnd,        // the last edge hears of no end
  kLostDeferral,        // in place: the ack does not wait for the readers of the new contents
  kFreedByFirstReader,  // several readers: the first ack frees the slot
  kKeptLateToken,       // ended: tokens that still arrive are not given back
  kLostCredit,          // two start credits in one message count as one
  kWrongSlot,           // with three slots, the one after the right one is written
  kDeafToStop,          // a stop is ignored
};
inline constexpr int kBugs = 12;
inline const char* bug_name(Bug bug) {
  constexpr const char* kNames[kBugs] = {"lost ack",        "lost token",    "early release", "double emit",
                                         "reordered token", "forgotten end", "lost deferral", "freed by first reader",
                                         "kept late token", "lost credit",   "wrong slot",    "deaf to stop"};
  return kNames[static_cast<int>(bug)];
}

template <Bug kBug>
class Faulty : public plan::FiringRule {
 public:
  Faulty(const plan::Plan& plan, const plan::Adjacency& adjacency, int actor)
      : FiringRule(changed(plan), adjacency, actor) {
    for (const int r : adjacency.out_registers[actor]) {
      consumers_.push_back(static_cast<int>(adjacency.register_edges[r].size()));
      quotas_.push_back(plan.registers[r].quota);
      for (const int e : adjacency.register_edges[r]) last_edge_ = e;
    }
    released_.resize(adjacency.in_edges[actor].size(), false);
    acks_.resize(consumers_.size());
    for (size_t p = 0; p < acks_.size(); ++p) acks_[p].resize(static_cast<size_t>(quotas_[p]));
  }

  template <class Host>
  void on_ready(int in_port, int slot, Host&& host) {
    Filter<Host> filter{*this, host};
    filter.late = ended();
    FiringRule::on_ready(in_port, slot, filter);
  }
  template <class Host>
  void on_ack(int out_port, int slot, Host&& host) {
    Filter<Host> filter{*this, host};
    if (kBug == Bug::kFreedByFirstReader && consumers_[out_port] > 1) {
      const int n = acks_[out_port][slot]++ % consumers_[out_port];
      for (int i = 0; n == 0 && i < consumers_[out_port]; ++i) FiringRule::on_ack(out_port, slot, filter);
      return;
    }
    FiringRule::on_ack(out_port, slot, filter);
  }
  template <class Host>
  void on_end(int in_port, Host&& host) {
    Filter<Host> filter{*this, host};
    FiringRule::on_end(in_port, filter);
  }
  void on_start(uint64_t firings) {
    FiringRule::on_start(kBug == Bug::kLostCredit && firings > 1 ? firings - 1 : firings);
  }
  template <class Host>
  void on_stop(Host&& host) {
    Filter<Host> filter{*this, host};
    if (kBug != Bug::kDeafToStop) FiringRule::on_stop(filter);
  }
  int output_slot(int out_port) const {
    const int slot = FiringRule::output_slot(out_port);
    return kBug == Bug::kWrongSlot && quotas_[out_port] == 3 ? (slot + 1) % 3 : slot;
  }
  void begin() {
    released_.assign(released_.size(), false);
    FiringRule::begin();
  }
  template <class Host>
  void emit(int out_port, Host&& host) {
    Filter<Host> filter{*this, host};
    FiringRule::emit(out_port, filter);
    for (size_t p = 0; kBug == Bug::kEarlyRelease && p < released_.size(); ++p) release(static_cast<int>(p), host);
  }
  template <class Host>
  void release(int in_port, Host&& host) {
    Filter<Host> filter{*this, host};
    if (!released_[in_port]) FiringRule::release(in_port, filter);
    released_[in_port] = true;
  }
  template <class Host>
  void finish(Host&& host) {
    Filter<Host> filter{*this, host};
    FiringRule::finish(filter);
  }
  void append_state(std::vector<int>& state) const {
    FiringRule::append_state(state);
    state.push_back(std::min(sent_acks_, 2));
    state.push_back(std::min(sent_tokens_, 2));
    for (const std::vector<int>& port : acks_) state.insert(state.end(), port.begin(), port.end());
    for (const bool r : released_) state.push_back(r);
    for (const auto& [edge, slot] : held_back_) state.insert(state.end(), {edge, slot});
  }

 private:
  // Between the rule and the outside.
  template <class Host>
  struct Filter {
    Faulty& rule;
    std::remove_reference_t<Host>& host;
    bool late = false;
    void ready(int edge, int slot) {
      const int n = ++rule.sent_tokens_;
      if (kBug == Bug::kLostToken && n == 2) return;
      if (kBug == Bug::kReorderedToken) {
        const auto [it, first] = rule.held_back_.try_emplace(edge, slot);
        if (first) return;
        host.ready(edge, slot);
        if (it->second >= 0) host.ready(edge, std::exchange(it->second, -1));
        return;
      }
      host.ready(edge, slot);
      if (kBug == Bug::kDoubleEmit) host.ready(edge, slot);
    }
    void ack(int edge, int slot) {
      if (kBug == Bug::kLostAck && ++rule.sent_acks_ == 2) return;
      if (kBug == Bug::kKeptLateToken && late) return;
      host.ack(edge, slot);
    }
    void end(int edge) {
      if (kBug != Bug::kForgottenEnd || edge != rule.last_edge_) host.end(edge);
    }
  };

  static plan::Plan changed(const plan::Plan& plan) {
    plan::Plan copy = plan;
    for (plan::Register& r : copy.registers) {
      if (kBug == Bug::kLostDeferral) r.in_place_of = -1;
    }
    return copy;
  }

  int sent_acks_ = 0, sent_tokens_ = 0, last_edge_ = -1;
  std::vector<int> consumers_, quotas_;  // per out port
  std::vector<std::vector<int>> acks_;   // per out port and slot
  std::vector<bool> released_;           // per in port, in this firing
  std::map<int, int> held_back_;         // edge: slot
};

// Calls f.operator()<bug>() for every bug.
template <class F>
void for_each_bug(F&& f) {
  const auto each = [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    (f.template operator()<static_cast<Bug>(kIndex)>(), ...);
  };
  each(std::make_integer_sequence<int, kBugs>());
}

}  // namespace sluice::explorer
