#include "plan/pack/packing_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "base/shape.h"

namespace sluice::plan {
namespace {

// Time between two moments at which something begins or ends is a section; an item lives in [first, last) of them.
struct Item {
  int first = 0, last = 0;
  uint64_t bytes = 0;
  int index = 0;  // of the interval
};

// Every packing can be pushed down until each item rests on another or on the ground, and be read from the lowest
// offset up: only such are tried.
class Search {
 public:
  Search(const std::vector<Item>& items, int sections)
      : items_(items), neighbours_(items.size()), of_section_(sections), count_(sections, 0), rank_(items.size()) {
    for (int i = 0; i < static_cast<int>(items.size()); ++i) {
      for (int s = items[i].first; s < items[i].last; ++s) of_section_[s].push_back(i);
    }
    for (int i = 0; i < static_cast<int>(items.size()); ++i) {
      for (int j = 0; j < i; ++j) {
        if (items[i].first >= items[j].last || items[j].first >= items[i].last) continue;
        neighbours_[i].push_back(j);
        neighbours_[j].push_back(i);
      }
    }
  }

  // Whether all items fit into so many bytes, found in so many steps. `order` is tried first to last where there is a
  // choice.
  bool run(uint64_t capacity, const std::vector<int>& order, uint64_t steps) {
    capacity_ = capacity;
    steps_ = steps;
    depth_ = 0;
    offsets_.assign(items_.size(), 0);
    placed_.assign(items_.size(), false);
    waits_.assign(items_.size(), false);
    rest_.assign(of_section_.size(), 0);
    for (const Item& item : items_) {
      for (int s = item.first; s < item.last; ++s) rest_[s] += item.bytes;
    }
    raised_.clear();
    done_.clear();
    for (size_t k = 0; k < order.size(); ++k) rank_[order[k]] = static_cast<int>(k);
    std::vector<int> all(items_.size());
    std::iota(all.begin(), all.end(), 0);
    std::stable_sort(all.begin(), all.end(), [&](int a, int b) { return items_[a].first < items_[b].first; });
    return parts(all);
  }
  const std::vector<uint64_t>& offsets() const { return offsets_; }

 private:
  // The state of an item before it was placed.
  struct Before {
    int item = 0;
    uint64_t offset = 0;
    bool waits = false;
  };

  // fill() calls itself once per item, or more: no deeper than a stack of a few MiB holds.
  static constexpr int kDeepest = 4000;
  struct Level {
    explicit Level(int& depth) : depth(depth) { ++depth; }
    ~Level() { --depth; }
    Level(const Level&) = delete;
    int& depth;
  };

  bool take_steps(uint64_t n) {
    steps_ -= std::min(n, steps_);
    return steps_ > 0;
  }

  // The items that are left, sorted by begin: those that share no section, directly or through others, are apart.
  bool parts(const std::vector<int>& left) {
    if (!take_steps(left.size() + 1)) return false;
    std::vector<int> part;
    int until = 0;
    for (const int i : left) {
      if (!part.empty() && items_[i].first >= until) {
        if (!fill(part)) return false;
        part.clear();
      }
      until = part.empty() ? items_[i].last : std::max(until, items_[i].last);
      part.push_back(i);
    }
    return part.empty() || fill(part);
  }

  // Fills the lowest place there is. The item that lies on a section there is one of those that cover it and rest at
  // that height; of all such sections the one with the fewest is taken. Or nothing does, where there are bytes to
  // spare: then these wait until something lifts them.
  bool fill(const std::vector<int>& left) {
    const Level level(depth_);
    if (depth_ > kDeepest) return false;
    uint64_t lowest = std::numeric_limits<uint64_t>::max();
    for (const int i : left) {
      if (!waits_[i]) lowest = std::min(lowest, offsets_[i]);
    }
    std::vector<int> resting;
    for (const int i : left) {
      if (!waits_[i] && offsets_[i] == lowest) resting.push_back(i);
    }
    if (resting.empty()) return false;
    uint64_t steps = left.size();
    for (const int i : resting) {
      for (int s = items_[i].first; s < items_[i].last; ++s) ++count_[s];
      steps += static_cast<uint64_t>(items_[i].last - items_[i].first);
    }
    int section = items_[resting.front()].first;
    for (const int i : resting) {
      for (int s = items_[i].first; s < items_[i].last; ++s)
        if (std::pair(count_[s], s) < std::pair(count_[section], section)) section = s;
    }
    for (const int i : resting) {
      for (int s = items_[i].first; s < items_[i].last; ++s) count_[s] = 0;
    }
    if (!take_steps(steps)) return false;
    std::vector<int> choices;
    for (const int i : resting) {
      if (items_[i].first <= section && section < items_[i].last) choices.push_back(i);
    }
    std::sort(choices.begin(), choices.end(), [&](int a, int b) { return rank_[a] < rank_[b]; });
    const size_t raised = raised_.size(), done = done_.size();
    for (const int i : choices) {
      if (!take_steps(left.size() + neighbours_[i].size())) return false;
      if (place(i)) {
        std::vector<int> rest;
        rest.reserve(left.size() - 1);
        for (const int other : left) {
          if (other != i) rest.push_back(other);
        }
        if (parts(rest)) return true;
      }
      undo(raised, done);
      if (steps_ == 0) return false;
    }
    if (lowest + rest_[section] == capacity_) return false;
    for (const int i : choices) {
      raised_.push_back({i, lowest, false});
      waits_[i] = true;
    }
    if (fill(left)) return true;
    undo(raised, done);
    return false;
  }

  // Puts an item where it rests and lifts the others above it. False when a section can no longer hold what it must.
  bool place(int i) {
    const uint64_t top = offsets_[i] + items_[i].bytes;
    placed_[i] = true;
    done_.push_back(i);
    for (int s = items_[i].first; s < items_[i].last; ++s) rest_[s] -= items_[i].bytes;
    int first = items_[i].first, last = items_[i].last;
    for (const int j : neighbours_[i]) {
      if (placed_[j] || offsets_[j] >= top) continue;
      if (top + items_[j].bytes > capacity_) return false;
      raised_.push_back({j, offsets_[j], waits_[j]});
      offsets_[j] = top;
      waits_[j] = false;
      first = std::min(first, items_[j].first);
      last = std::max(last, items_[j].last);
    }
    // Nothing comes to lie below the lowest of those that are left.
    uint64_t seen = 0;
    bool fits = true;
    for (int s = first; s < last && fits; ++s) {
      if (rest_[s] == 0) continue;
      uint64_t floor = std::numeric_limits<uint64_t>::max();
      for (const int j : of_section_[s]) {
        if (!placed_[j]) floor = std::min(floor, offsets_[j]);
      }
      seen += of_section_[s].size();
      fits = floor + rest_[s] <= capacity_;
    }
    return take_steps(seen) && fits;
  }

  void undo(size_t raised, size_t done) {
    for (; raised_.size() > raised; raised_.pop_back()) {
      offsets_[raised_.back().item] = raised_.back().offset;
      waits_[raised_.back().item] = raised_.back().waits;
    }
    for (; done_.size() > done; done_.pop_back()) {
      const Item& item = items_[done_.back()];
      placed_[done_.back()] = false;
      for (int s = item.first; s < item.last; ++s) rest_[s] += item.bytes;
    }
  }

  const std::vector<Item>& items_;
  std::vector<std::vector<int>> neighbours_;  // per item: who lives at the same time
  std::vector<std::vector<int>> of_section_;  // items
  std::vector<int> count_;                    // per section, of fill()
  // These belong to one run.
  uint64_t capacity_ = 0, steps_ = 0;
  int depth_ = 0;
  std::vector<int> rank_;             // per item: its place in the order of preference
  std::vector<uint64_t> offsets_;     // per item: where it lies or, if it is left, the lowest place there is
  std::vector<uint64_t> rest_;        // per section: bytes that are left to place
  std::vector<bool> placed_, waits_;  // per item
  std::vector<Before> raised_;
  std::vector<int> done_;
};

// A number in [0, 1) that is the same with every standard library.
double unit(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

}  // namespace

Packing search_packing(std::span<const Interval> intervals, uint64_t steps, uint64_t alignment) {
  Packing best = pack(intervals, alignment, true);
  std::vector<int64_t> moments;
  for (const Interval& v : intervals) {
    if (v.begin != v.end && v.bytes != 0) moments.insert(moments.end(), {v.begin, v.end});
  }
  std::sort(moments.begin(), moments.end());
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  const auto section = [&](int64_t time) {
    return static_cast<int>(std::lower_bound(moments.begin(), moments.end(), time) - moments.begin());
  };
  std::vector<Item> items;
  for (int i = 0; i < static_cast<int>(intervals.size()); ++i) {
    const Interval& v = intervals[i];
    if (v.begin != v.end && v.bytes != 0)
      items.push_back({section(v.begin), section(v.end), align_up(v.bytes, alignment), i});
  }
  constexpr size_t kMostItems = 2000;  // pairs are listed, and the search is as deep
  if (items.size() > kMostItems || best.bytes == best.lower_bound) return best;

  // Preferences: long lives, large areas, many bytes first; then mixtures of these at random. Most searches end at once
  // or never, so that many short ones find more than a long one.
  const auto order = [&](int number) {
    std::mt19937_64 random(static_cast<uint64_t>(number));
    const double of_life = number < 3 ? (number == 2 ? 0 : 1) : unit(random);
    const double of_bytes = number < 3 ? (number == 0 ? 0 : 1) : unit(random);
    std::vector<double> keys;
    for (const Item& v : items) {
      const double noise = number < 3 ? 0 : unit(random);
      keys.push_back(of_life * std::log2(v.last - v.first) + of_bytes * std::log2(static_cast<double>(v.bytes)) +
                     noise);
    }
    std::vector<int> sorted(items.size());
    std::iota(sorted.begin(), sorted.end(), 0);
    std::stable_sort(sorted.begin(), sorted.end(), [&](int a, int b) { return keys[a] > keys[b]; });
    return sorted;
  };
  // The lower bound has half of the steps, then sizes ever further above it.
  constexpr int kSearches = 96;
  constexpr uint64_t kParts[] = {0, 256, 64, 32, 16, 8};  // of the lower bound, above it
  Search search(items, static_cast<int>(moments.size()) - 1);
  for (const uint64_t part : kParts) {
    const uint64_t capacity = best.lower_bound + (part == 0 ? 0 : best.lower_bound / part / alignment * alignment);
    if (capacity >= best.bytes) break;
    const int searches = part == 0 ? kSearches : kSearches / static_cast<int>(std::size(kParts) - 1);
    for (int number = 0; number < searches; ++number) {
      if (!search.run(capacity, order(number), steps / (2 * kSearches))) continue;
      best.bytes = 0;
      for (size_t i = 0; i < items.size(); ++i) {
        best.offsets[items[i].index] = search.offsets()[i];
        best.bytes = std::max(best.bytes, search.offsets()[i] + items[i].bytes);
      }
      best.tries.push_back({"search", best.bytes});
      return best;
    }
  }
  return best;
}

}  // namespace sluice::plan
