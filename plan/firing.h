#pragma once
// The firing rule: one actor's state as a pure state machine. No threads, no allocation after construction.
//
// Hosts (the CAF runtime, the simulator, the tests' explorer) feed it messages and, when can_fire(), run one firing:
//
//   rule.begin();                                  // takes input tokens, acquires output slots
//   for (instr : actor.program)                    // kRun: the host's business
//     kEmit:    rule.emit(out_port, host);         // may call host.ready(edge, slot)
//     kRelease: rule.release(in_port, host);       // may call host.ack(edge, slot)
//   rule.finish(host);                             // may call host.end(edge), host.ack(edge, slot)
//
// `host` is any object with  ready(int edge, int slot), ack(int edge, int slot), end(int edge).
// Ports are positions in Adjacency::in_edges / out_registers of the actor.
//
// Rates. in port: at firings 0, hold, 2*hold... takes `take` tokens; gives them back at the last firing of the hold.
// out port: acquires a slot at firings 0, emit_every, ...; emits it at the last firing of the period.
// Slots are used round robin: token k of a register lies in slot k % quota, initial tokens first.
//
// Invariants
//  1. Conservation: per register, free + (acquired or written, not acknowledged by all consumers) = quota.
//  2. Tokens of an edge arrive, and are acknowledged, in production order.
//  3. can_fire() depends only on counts, so results do not depend on the order of different edges' messages.
//  6. A register that is in place of an edge defers that edge's ack until its own slot is free again.
//
// Thread safety: none; one host thread per actor.
#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

enum class MessageKind : uint8_t { kReady, kAck, kEnd, kStart, kStop };

class FiringRule {
 public:
  // Sources (role kSource, kFeed) fire only on start credits; `plan` need not outlive the rule.
  FiringRule(const Plan& plan, const Adjacency& adjacency, int actor);

  // Messages. REQUIRES (checked in debug builds, errors in conserving hosts): ports in range, order as above.
  void on_ready(int in_port, int slot);
  template <class Host> void on_ack(int out_port, int slot, Host&& host);
  void on_start(uint64_t firings);
  void on_end(int in_port);
  // Sources stop accepting start credits and count as ended.
  void on_stop();

  bool can_fire() const { return blockers_ == 0; }
  void begin();
  // Slots of this firing.
  int input_slot(int in_port, int token = 0) const;
  int output_slot(int out_port) const;
  // True at the firing in which this port's tokens were taken / slot was acquired (a fresh slot, a new wait is due).
  bool takes_now(int in_port) const;
  bool acquires_now(int out_port) const;
  template <class Host> void emit(int out_port, Host&& host);
  template <class Host> void release(int in_port, Host&& host);
  template <class Host> void finish(Host&& host);

  // After an end on its inputs (or stop, for sources) no further firing is possible: end() has been sent on every
  // edge and leftover tokens were returned. quiescent(): also, every output slot has come back.
  bool ended() const;
  bool quiescent() const;
  uint64_t firings() const { return firings_; }

  // What it waits for, for the watchdog and for deadlock reports.
  struct Wait {
    bool credit = false;  // false: a token on `index` (edge); true: a free slot of `index` (register)
    int index = 0;
    std::string str(const Plan& plan) const;  // "data on 'images'", "a free slot of 'loss'", "a start credit"
  };
  std::vector<Wait> waits() const;

 private:
  // Data members and the inline bodies are the implementer's.
  int blockers_ = 0;
  uint64_t firings_ = 0;
};

}  // namespace sluice::plan
