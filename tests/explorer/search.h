#pragma once
// Walks every order of a world's events, or some at random, and finds the shortest way to what breaks.
#include <deque>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "explorer/world.h"

namespace sluice::explorer {

struct Outcome {
  std::string broken;        // the invariant, in words; "" when none broke
  std::vector<Event> trace;  // the way there
  size_t states = 0, moves = 0;
  double orders = 0;  // from the start to an end
  bool whole = true;  // false: more than `max_states`, the rest was not looked at
  bool ok() const { return broken.empty(); }
};

struct SearchOptions {
  size_t max_states = 1'000'000;
  bool reduced = false;   // World::reduce: fewer states, the same ends
  bool shortest = false;  // look for the shortest way to a break
};

template <class Rule>
class Search {
 public:
  Search(World<Rule>& world, SearchOptions options) : world_(world), options_(options) {}

  // Every order, depth first; a state reached in several ways is left once.
  Outcome all() {
    at(0) = world_.initial();
    outcome_ = {};
    seen_.clear();
    if (world_.broken().empty()) {
      outcome_.orders = visit(0);
    }
    outcome_.broken = world_.broken();
    if (!outcome_.ok() && options_.shortest) shorten();
    return outcome_;
  }

  // `walks` orders, each event chosen at random.
  Outcome some(int walks, uint64_t seed) {
    std::mt19937_64 random(seed);
    outcome_ = {};
    outcome_.whole = false;
    std::vector<Event> events;
    for (int i = 0; i < walks && world_.broken().empty(); ++i) {
      State<Rule>& s = at(0);
      s = world_.initial();
      outcome_.trace.clear();
      while (world_.broken().empty()) {
        world_.events(s, events);
        ++outcome_.states;
        if (look(s, events)) break;
        outcome_.trace.push_back(events[random() % events.size()]);
        world_.apply(s, outcome_.trace.back());
        ++outcome_.moves;
      }
      ++outcome_.orders;
    }
    outcome_.broken = world_.broken();
    return outcome_;
  }

 private:
  // A deque, since references into it must survive growth. Assigning to a state reuses its memory.
  struct Level {
    State<Rule> state;
    std::vector<Event> events;
  };
  State<Rule>& at(size_t depth) {
    while (levels_.size() <= depth) levels_.emplace_back();
    return levels_[depth].state;
  }

  // Checks of a state in which little can happen. True at an end.
  bool look(const State<Rule>& s, const std::vector<Event>& events) {
    if (world_.idle(s, events)) world_.check_idle(s);
    if (events.empty()) world_.check_final(s);
    return events.empty();
  }

  double visit(size_t depth) {
    at(depth + 1);
    std::vector<Event>& events = levels_[depth].events;
    world_.events(levels_[depth].state, events);
    if (look(levels_[depth].state, events)) return 1;
    if (options_.reduced) world_.reduce(levels_[depth].state, events);
    double orders = 0;
    for (const Event& event : events) {
      if (!world_.broken().empty()) return orders;
      if (seen_.size() >= options_.max_states) {
        outcome_.whole = false;
        return orders;
      }
      State<Rule>& next = levels_[depth + 1].state;
      next = levels_[depth].state;
      outcome_.trace.push_back(event);
      world_.apply(next, event);
      ++outcome_.moves;
      if (!world_.broken().empty()) return orders;
      const Key key = key_of_(next);
      if (const double* known = seen_.find(key); known != nullptr) {
        orders += *known;
      } else {
        ++outcome_.states;
        const double below = visit(depth + 1);
        if (!world_.broken().empty()) return orders;
        seen_.insert(key, below);
        orders += below;
      }
      outcome_.trace.pop_back();
    }
    return orders;
  }

  // Breadth first, so that the first break found is a nearest one.
  void shorten() {
    constexpr size_t kMost = 200'000;
    struct Step {
      int from;
      Event event;
    };
    std::vector<Step> steps{{-1, {}}};
    std::deque<std::pair<int, State<Rule>>> front;
    world_.forget();
    front.emplace_back(0, world_.initial());
    seen_.clear();
    std::vector<Event> events;
    const auto found = [&](int step) {
      outcome_.broken = world_.broken();
      outcome_.trace.clear();
      for (int i = step; i > 0; i = steps[i].from) outcome_.trace.insert(outcome_.trace.begin(), steps[i].event);
    };
    while (!front.empty() && steps.size() < kMost) {
      const auto [at, state] = std::move(front.front());
      front.pop_front();
      world_.events(state, events);
      look(state, events);
      if (!world_.broken().empty()) return found(at);
      for (const Event& event : events) {
        State<Rule> next = state;
        world_.apply(next, event);
        if (world_.broken().empty()) {
          const Key key = key_of_(next);
          if (seen_.find(key) != nullptr) continue;
          seen_.insert(key, 1);
        }
        steps.push_back({at, event});
        if (!world_.broken().empty()) return found(static_cast<int>(steps.size()) - 1);
        front.emplace_back(static_cast<int>(steps.size()) - 1, std::move(next));
      }
    }
  }

  World<Rule>& world_;
  SearchOptions options_;
  Outcome outcome_;
  Seen seen_;
  KeyMaker key_of_;
  std::deque<Level> levels_;
};

}  // namespace sluice::explorer
