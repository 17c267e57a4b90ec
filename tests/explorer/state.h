#pragma once
// A moment of a run: the rules, what is on its way, and the explorer's own books about every token and slot.
#include <string>
#include <vector>

#include "explorer/meaning.h"
#include "plan/firing/network.h"
#include "plan/plan.h"

namespace sluice::explorer {

// The books. Tokens of a register are numbered from 0, initial tokens first; so are the tokens of each of its edges.
// The tokens on their way on an edge are the difference of those sent and those that have arrived.
struct ActorBooks {
  int begun = 0, firings = 0;
  int pc = -1;       // next instruction; -1: not in a firing
  int credits = 0;   // start credits that have arrived
  int controls = 0;  // control messages that have arrived
  enum class Meeting : uint8_t { kNone, kWaits, kMet } meeting = Meeting::kNone;  // of a collective: with other ranks
  bool ended = false;
  Value known = 0;  // by the firing under way
};
struct EdgeBooks {
  int sent = 0, arrived = 0, taken = 0, released = 0;
  int acks_sent = 0, acks_arrived = 0;
  bool end_sent = false, end_arrived = false;
};
struct RegisterBooks {
  int acquired = 0, emitted = 0;
  Value draft = 0;  // of the token being made, over all firings of its period
};

template <class Rule>
struct State {
  std::vector<Rule> rules;
  std::vector<ActorBooks> actors;
  std::vector<EdgeBooks> edges;
  std::vector<RegisterBooks> registers;
  std::vector<Value> cells;        // contents of every slot
  std::vector<int> stream_holder;  // actor in a firing, or -1
  std::vector<int> calls;          // collective calls entered, per member of a group
};

enum class EventKind : uint8_t { kControl, kToken, kAck, kStep, kMeet };
struct Event {
  EventKind kind = EventKind::kStep;
  int index = 0;  // kControl, kStep: actor; kToken, kAck: edge; kMeet: group
};

struct Key {
  uint64_t a = 0, b = 0;
  bool operator==(const Key&) const = default;
};

class KeyMaker {
 public:
  template <class Rule>
  Key operator()(const State<Rule>& s) {
    Key key{1, 2};
    const auto add = [&key](uint64_t x) {
      key.a = mix(key.a, x);
      key.b = (key.b ^ x) * 0x100000001b3ULL + (key.b >> 29);
    };
    ints_.clear();
    for (const Rule& rule : s.rules) rule.append_state(ints_);
    for (const int i : ints_) add(static_cast<uint64_t>(i));
    for (const ActorBooks& a : s.actors) {
      add(static_cast<uint64_t>(a.begun) << 40 | static_cast<uint64_t>(a.firings) << 20 |
          static_cast<uint64_t>(a.pc + 1));
      add(static_cast<uint64_t>(a.credits) << 32 | a.controls << 3 | static_cast<uint64_t>(a.meeting) << 1 | a.ended);
      add(a.known);
    }
    for (const EdgeBooks& e : s.edges) {
      add(static_cast<uint64_t>(e.sent) << 48 | static_cast<uint64_t>(e.arrived) << 32 |
          static_cast<uint64_t>(e.taken) << 16 | static_cast<uint64_t>(e.released));
      add(static_cast<uint64_t>(e.acks_sent) << 32 | static_cast<uint64_t>(e.acks_arrived) << 2 | e.end_sent << 1 |
          e.end_arrived);
    }
    for (const RegisterBooks& r : s.registers) {
      add(static_cast<uint64_t>(r.acquired) << 32 | static_cast<uint64_t>(r.emitted));
      add(r.draft);
    }
    for (const Value v : s.cells) add(v);
    for (const int h : s.stream_holder) add(static_cast<uint64_t>(h + 1));
    for (const int n : s.calls) add(static_cast<uint64_t>(n));
    return key;
  }

 private:
  std::vector<int> ints_;
};

// States seen, by hash of 128 bits, and how many orders lead from each to an end.
class Seen {
 public:
  Seen() { clear(); }
  void clear() {
    entries_.assign(kInitial, {});
    size_ = 0;
  }
  const double* find(const Key& key) const {
    for (size_t i = key.a & (entries_.size() - 1);; i = (i + 1) & (entries_.size() - 1)) {
      if (entries_[i].orders < 0) return nullptr;
      if (entries_[i].key == key) return &entries_[i].orders;
    }
  }
  void insert(const Key& key, double orders) {
    if (2 * ++size_ > entries_.size()) {
      std::vector<Entry> old(4 * entries_.size());
      old.swap(entries_);
      for (const Entry& e : old) {
        if (e.orders >= 0) place(e);
      }
    }
    place({key, orders});
  }
  size_t size() const { return size_; }

 private:
  static constexpr size_t kInitial = 1024;
  struct Entry {
    Key key;
    double orders = -1;
  };
  void place(const Entry& entry) {
    size_t i = entry.key.a & (entries_.size() - 1);
    while (entries_[i].orders >= 0) i = (i + 1) & (entries_.size() - 1);
    entries_[i] = entry;
  }
  std::vector<Entry> entries_;
  size_t size_ = 0;
};

}  // namespace sluice::explorer
