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
// `host` is any object with  ready(int edge, int slot), ack(int edge, int slot), end(int edge). It may deliver at
// once or later, also to the same actor in the middle of its firing.
// A source whose data has ended calls abandon(host) instead, before it has emitted or released anything.
// Ports are positions in Adjacency::in_edges / out_registers of the actor.
//
// Rates. in port: at firings 0, hold, 2*hold... takes `take` tokens; gives them back at the last firing of the hold.
// out port: acquires a slot at firings 0, emit_every, ...; emits it at the last firing of the period.
// Slots are used round robin: token k of a register lies in slot k % quota, initial tokens first.
//
// Invariants
//  1. Conservation: per register, free + withheld + (acquired or written, not acknowledged by all consumers) = quota.
//     Free is below 0 while more slots are out than the rest of the quota, until they come back.
//  2. Tokens of an edge arrive, and are acknowledged, in production order.
//  3. can_fire() depends only on counts, so results do not depend on the order of different edges' messages.
//  4. blockers_ counts the unsatisfied conditions of the next firing, also while a firing runs; below 0 once ended.
//  5. After end() on an edge nothing more is sent on it.
//  6. A register that is in place of an edge defers that edge's ack until its own slot is free again.
//
// Ending. An actor ends when a firing can never happen again: an input has ended and holds too few tokens, or (source,
// feed) it was stopped and its start credits are used up, or (source) it said that its data has ended. It then returns
// every token it has, sends end on every edge, and returns what still arrives.
//
// Thread safety: none but of peak_slots(); one host thread per actor.
#include <atomic>
#include <boost/container/vector.hpp>
#include <cassert>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

enum class MessageKind : uint8_t { kReady, kAck, kEnd, kStart, kStop };

class FiringRule {
 public:
  // Sources (role kSource, kFeed) fire only on start credits; `plan` need not outlive the rule.
  // REQUIRES: rates, quotas and initial tokens are valid (verify()'s structure check).
  FiringRule(const Plan& plan, const Adjacency& adjacency, int actor);

  // Messages. REQUIRES (asserted): ports in range, tokens and acks of an edge in order.
  template <class Host>
  void on_ready(int in_port, int slot, Host&& host);
  template <class Host>
  void on_ack(int out_port, int slot, Host&& host);
  template <class Host>
  void on_end(int in_port, Host&& host);
  // No effect on other actors than sources, nor after on_stop.
  void on_start(uint64_t firings);
  // Sources accept no further start credits and end when theirs are used up. No effect on other actors.
  template <class Host>
  void on_stop(Host&& host);

  bool can_fire() const { return blockers_ == 0; }
  // can_fire() or ended(), for hosts that count messages first and look what is to be done later.
  bool due() const { return blockers_ <= 0; }
  // REQUIRES: can_fire(), and no firing in progress.
  void begin();
  // Slots of this firing. REQUIRES: between begin() and finish(); 0 <= token < take.
  int input_slot(int in_port, int token = 0) const;
  int output_slot(int out_port) const;
  // True at the firing in which this port's tokens were taken / slot was acquired (a fresh slot, a new wait is due).
  bool takes_now(int in_port) const { return ins_[in_port].phase == 0; }
  bool acquires_now(int out_port) const { return outs_[out_port].phase == 0; }
  // Between firings: of the next one that acquires a slot.
  int next_slot(int out_port) const { return outs_[out_port].next; }
  // True at the firing in which this port's emit / release takes effect.
  bool emits_now(int out_port) const { return outs_[out_port].phase + 1 == outs_[out_port].emit_every; }
  bool releases_now(int in_port) const { return ins_[in_port].phase + 1 == ins_[in_port].hold; }
  // REQUIRES: between begin() and finish(), once per port and firing.
  template <class Host>
  void emit(int out_port, Host&& host);
  template <class Host>
  void release(int in_port, Host&& host);
  // REQUIRES: every port has been emitted or released since begin().
  template <class Host>
  void finish(Host&& host);

  // Takes `n` more credits of a register out of circulation, or, where n < 0, gives so many back, which may make a
  // firing possible: as if its quota were another one. Tokens lie in the slots in which they would lie without.
  // REQUIRES: no firing in progress; 0 <= withheld() < quota then.
  void withhold(int out_port, int n);
  int withheld(int out_port) const { return outs_[out_port].withheld; }
  // Between begin() and finish(): the slot whose return let this port acquire its own.
  int credit_slot(int out_port) const {
    const Out& out = outs_[out_port];
    return wrap(out.slot + out.withheld, out.quota);
  }

  // The firing does not happen, nor any later one: the source's data has ended.
  // REQUIRES: of a source, between begin() and finish(), with nothing emitted or released since.
  template <class Host>
  void abandon(Host&& host);

  // No further firing is possible: end() has been sent on every edge and leftover tokens were returned (those behind
  // a deferred ack follow it). quiescent(): also, every output slot has come back.
  bool ended() const { return ended_; }
  bool quiescent() const;
  bool in_firing() const { return firing_; }
  uint64_t firings() const { return firings_; }
  uint64_t start_credits() const { return credits_; }
  int free_slots(int out_port) const { return outs_[out_port].free; }
  int tokens(int in_port) const { return ins_[in_port].tokens; }  // arrived and not yet taken
  // The most slots that were ever not free at once. From any thread.
  int peak_slots(int out_port) const {
    Out& out = const_cast<Out&>(outs_[out_port]);  // an atomic_ref of C++20 wants it so; nothing is written
    return out.quota - std::atomic_ref(out.withheld).load(std::memory_order_relaxed) -
           std::atomic_ref(out.least_free).load(std::memory_order_relaxed);
  }

  // The message that an actor waits for, for the watchdog and for deadlock reports.
  struct Wait {
    bool credit = false;  // false: a token on `index` (edge); true: a free slot of `index` (register)
    int index = 0;        // -1: a start credit
    std::string str(const Plan& plan) const;  // "data on 'images'", "a free slot of 'loss'", "a start credit"
  };
  std::vector<Wait> waits() const;

  // Everything the future depends on, for explorers and certificates: equal states behave equally.
  void append_state(std::vector<int>& state) const;

 private:
  struct alignas(64) In {
    int tokens = 0;      // arrived, not taken
    int need = 0;        // tokens the next firing needs; 0 in the middle of a hold
    bool plain = false;  // one token per firing, not in place: its release is one ack
    int take = 1, hold = 1;
    int phase = 0;  // of the current (or next) firing within the hold
    int head = 0;   // slot of the first token taken
    int next = 0;   // slot of the next token to take
    int quota = 1;
    int edge = 0;
    int in_place_out = -1;  // port of the register in place of this edge
    int owed = 0;           // in place: releases minus slots come free; the ack is due when both have happened
    int ack_slot = 0;       // in place: slot of the next ack
    bool ended = false;
  };
  struct alignas(64) Out {
    int free = 0;
    int least_free = 0;  // ever; also read by other threads
    int need = 1;        // slots the next firing needs; 0 in the middle of a period
    bool plain = false;  // one token per firing, for one consumer
    int emit_every = 1;
    int phase = 0;
    int slot = 0;  // of the current period
    int next = 0;  // slot to acquire next
    int quota = 1;
    int reg = 0;
    int consumers = 0, first_edge = 0;  // in edges_
    int only_edge = -1;                 // of a single consumer
    int pending = 0;                    // in pending_, when there are several consumers
    int in_place_in = -1;
    int withheld = 0;  // also read by other threads
  };
  static void take_slot(Out& out) {
    out.slot = out.next;
    out.next = wrap(out.next + 1, out.quota);
    if (--out.free < out.least_free) [[unlikely]]
      std::atomic_ref(out.least_free).store(out.free, std::memory_order_relaxed);
  }
  static int wrap(int slot, int quota) { return slot >= quota ? slot - quota : slot; }

  // Out of line, to keep the common way short.
  template <class Host>
  [[gnu::noinline]] void emit_general(Out& out, Host& host);
  template <class Host>
  [[gnu::noinline]] void release_general(In& in, Host& host);
  template <class Host>
  void slot_freed(Out& out, Host& host);
  template <class Host>
  [[gnu::noinline]] void slot_in_place_freed(const Out& out, Host& host);
  template <class Host>
  [[gnu::noinline]] void end_now(Host& host);
  template <class Host>
  [[gnu::noinline]] void return_tokens(In& in, Host& host);
  bool must_end() const;

  int blockers_ = 0;
  bool firing_ = false;
  bool ending_ = false;  // an end or a stop was seen: finish() must look whether this was the last firing
  bool ended_ = false;
  bool source_ = false;
  bool stopped_ = false;
  bool multirate_ = false;
  uint64_t firings_ = 0;
  uint64_t credits_ = 0;
  // A vector of two words, so that everything that a firing reads of a rule is one line of memory.
  template <class T>
  using Short = boost::container::vector<T, std::allocator<T>,
                                         boost::container::vector_options_t<boost::container::stored_size<uint32_t>>>;
  Short<In> ins_;
  Short<Out> outs_;
  Short<int> edges_;    // edges of the output registers
  Short<int> pending_;  // acks awaited per slot, of registers with several consumers
};

inline int FiringRule::input_slot(int in_port, int token) const {
  const In& in = ins_[in_port];
  assert(token >= 0 && token < in.take);
  return wrap(in.head + token, in.quota);
}

inline int FiringRule::output_slot(int out_port) const { return outs_[out_port].slot; }

template <class Host>
void FiringRule::on_ready(int in_port, [[maybe_unused]] int slot, Host&& host) {
  In& in = ins_[in_port];
  if (++in.tokens == in.need) --blockers_;
  if (ended_) [[unlikely]]
    return_tokens(in, host);
}

template <class Host>
void FiringRule::on_ack(int out_port, int slot, Host&& host) {
  Out& out = outs_[out_port];
  if (out.consumers > 1 && --pending_[out.pending + slot] != 0) return;
  slot_freed(out, host);
}

template <class Host>
void FiringRule::slot_freed(Out& out, Host& host) {
  assert(out.free < out.quota);
  if (++out.free == out.need) --blockers_;
  if (out.in_place_in >= 0) [[unlikely]]
    slot_in_place_freed(out, host);
}

template <class Host>
void FiringRule::slot_in_place_freed(const Out& out, Host& host) {
  In& in = ins_[out.in_place_in];
  if (in.owed-- > 0) {
    const int slot = in.ack_slot;
    in.ack_slot = wrap(slot + 1, in.quota);
    host.ack(in.edge, slot);
  }
  if (ended_) return_tokens(in, host);
}

template <class Host>
void FiringRule::on_end(int in_port, Host&& host) {
  ins_[in_port].ended = true;
  ending_ = true;
  if (!firing_ && !ended_ && must_end()) end_now(host);
}

inline void FiringRule::on_start(uint64_t firings) {
  if (!source_ || stopped_ || ended_ || firings == 0) return;
  if (credits_ == 0) --blockers_;
  credits_ += firings;
}

template <class Host>
void FiringRule::on_stop(Host&& host) {
  if (!source_) return;
  stopped_ = ending_ = true;
  if (!firing_ && !ended_ && must_end()) end_now(host);
}

[[gnu::always_inline]] inline void FiringRule::begin() {
  assert(can_fire() && !firing_);
  firing_ = true;
  if (!multirate_) [[likely]] {  // what follows below, with every phase 0 and every need constant
    int blockers = 0;
    for (In& in : ins_) {
      in.tokens -= in.take;
      in.head = in.next;
      in.next = wrap(in.next + in.take, in.quota);
      blockers += in.tokens < in.need;
    }
    for (Out& out : outs_) {
      take_slot(out);
      blockers += out.free < 1;
    }
    blockers_ += blockers;
    if (source_ && --credits_ == 0) ++blockers_;
    return;
  }
  for (In& in : ins_) {
    if (in.phase == 0) {
      in.tokens -= in.take;
      in.head = in.next;
      in.next = wrap(in.next + in.take, in.quota);
    }
    in.need = in.phase + 1 == in.hold ? in.take : 0;
    blockers_ += in.tokens < in.need;
  }
  for (Out& out : outs_) {
    if (out.phase == 0) take_slot(out);
    out.need = out.phase + 1 == out.emit_every ? 1 : 0;
    blockers_ += out.free < out.need;
  }
  if (source_ && --credits_ == 0) ++blockers_;
}

template <class Host>
[[gnu::always_inline]] inline void FiringRule::emit(int out_port, Host&& host) {
  Out& out = outs_[out_port];
  if (out.plain) [[likely]] {
    host.ready(out.only_edge, out.slot);
  } else {
    emit_general(out, host);
  }
}

template <class Host>
void FiringRule::emit_general(Out& out, Host& host) {
  if (out.phase + 1 != out.emit_every) return;
  const int slot = out.slot;
  if (out.consumers == 0) {
    slot_freed(out, host);
    return;
  }
  if (out.consumers > 1) pending_[out.pending + slot] = out.consumers;
  for (int i = 0; i < out.consumers; ++i) host.ready(edges_[out.first_edge + i], slot);
}

template <class Host>
[[gnu::always_inline]] inline void FiringRule::release(int in_port, Host&& host) {
  In& in = ins_[in_port];
  if (in.plain) [[likely]] {
    host.ack(in.edge, in.head);
  } else {
    release_general(in, host);
  }
}

template <class Host>
void FiringRule::release_general(In& in, Host& host) {
  if (in.phase + 1 != in.hold) return;
  if (in.in_place_out >= 0) {
    if (in.owed++ < 0) {
      in.ack_slot = wrap(in.head + 1, in.quota);
      host.ack(in.edge, in.head);
    }
    return;
  }
  int slot = in.head;
  for (int i = 0; i < in.take; ++i) {
    host.ack(in.edge, slot);
    slot = wrap(slot + 1, in.quota);
  }
}

template <class Host>
[[gnu::always_inline]] inline void FiringRule::finish(Host&& host) {
  if (multirate_) [[unlikely]] {
    for (In& in : ins_) {
      if (++in.phase == in.hold) in.phase = 0;
    }
    for (Out& out : outs_) {
      if (++out.phase == out.emit_every) out.phase = 0;
    }
  }
  ++firings_;
  firing_ = false;
  if (ending_ && !ended_ && must_end()) [[unlikely]]
    end_now(host);
}

template <class Host>
void FiringRule::abandon(Host&& host) {
  assert(source_ && firing_ && !ended_);
  for (In& in : ins_) {
    if (in.phase != 0) continue;
    in.tokens += in.take;
    in.next = in.head;
  }
  for (Out& out : outs_) {
    if (out.phase != 0) continue;
    ++out.free;
    out.next = out.slot;
  }
  firing_ = false;
  stopped_ = ending_ = true;
  credits_ = 0;
  end_now(host);
}

template <class Host>
void FiringRule::end_now(Host& host) {
  ended_ = true;
  blockers_ -= 1 << 20;  // never fires again
  for (Out& out : outs_) {
    out.need = 0;
    if (out.phase != 0) {  // a slot acquired and never to be emitted
      out.phase = 0;
      ++out.free;
    }
  }
  for (In& in : ins_) {
    in.need = 0;
    if (in.phase != 0) {  // tokens held and never to be released
      in.phase = 0;
      in.tokens += in.take;
      in.next = in.head;
    }
    return_tokens(in, host);
  }
  for (const Out& out : outs_) {
    for (int i = 0; i < out.consumers; ++i) host.end(edges_[out.first_edge + i]);
  }
}

template <class Host>
void FiringRule::return_tokens(In& in, Host& host) {
  if (in.in_place_out >= 0 && in.owed > 0) return;  // acks go out in order
  while (in.tokens > 0) {                           // everything before `next` has been acknowledged
    --in.tokens;
    const int slot = in.next;
    in.next = wrap(slot + 1, in.quota);
    host.ack(in.edge, slot);
  }
}

}  // namespace sluice::plan
