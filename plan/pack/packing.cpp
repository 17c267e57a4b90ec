#include "plan/pack/packing.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/shape.h"

namespace sluice::plan {
namespace {

// Up to this many intervals every order is tried; beyond it only until one is near enough, and up to the larger limit
// those orders that compare every pair.
constexpr size_t kTryAllLimit = 1024, kPairwiseLimit = 4096;
// Near enough: this part of the lower bound above it.
constexpr uint64_t kNearParts = 256;

struct Item {
  int64_t begin = 0, end = 0;
  uint64_t bytes = 0;  // rounded up
  int index = 0;
};

std::vector<Item> live_items(std::span<const Interval> intervals, uint64_t alignment) {
  std::vector<Item> items;
  items.reserve(intervals.size());
  uint64_t sum = 0;
  for (size_t i = 0; i < intervals.size(); ++i) {
    const Interval& v = intervals[i];
    SLUICE_CHECK(v.begin <= v.end, "pack: interval {}: begins at {} after its end {}; begin must not exceed end", i,
                 v.begin, v.end);
    if (v.begin == v.end || v.bytes == 0) continue;
    const uint64_t bytes = align_up(v.bytes, alignment);
    sum = checked_add(sum, bytes);
    items.push_back({v.begin, v.end, bytes, static_cast<int>(i)});
  }
  return items;
}

// Items by begin; with `ends` the indices by end: what a sweep over time needs.
struct Sweep {
  std::vector<int> begins, ends;
  explicit Sweep(const std::vector<Item>& items) : begins(items.size()) {
    std::iota(begins.begin(), begins.end(), 0);
    ends = begins;
    std::stable_sort(begins.begin(), begins.end(), [&](int a, int b) { return items[a].begin < items[b].begin; });
    std::stable_sort(ends.begin(), ends.end(), [&](int a, int b) { return items[a].end < items[b].end; });
  }
};

// The most bytes that are alive at one moment: no packing can need less. The dead are taken off first, since an
// interval that ends where another begins may share its bytes.
uint64_t most_live(const std::vector<Item>& items) {
  const Sweep sweep(items);
  uint64_t live = 0, most = 0;
  size_t freed = 0;
  for (const int i : sweep.begins) {
    while (freed < items.size() && items[sweep.ends[freed]].end <= items[i].begin)
      live -= items[sweep.ends[freed++]].bytes;
    live += items[i].bytes;
    most = std::max(most, live);
  }
  return most;
}

struct Packed {
  std::vector<uint64_t> offsets;  // per item
  uint64_t bytes = 0;
};

// Allocates and frees along time, always in the smallest hole that fits. n log n.
class BestFit {
 public:
  uint64_t allocate(uint64_t bytes) {
    // The smallest hole that is large enough leaves the large ones to large items.
    auto hole = by_size_.lower_bound({bytes, 0});
    uint64_t offset = 0, size = 0;
    if (hole != by_size_.end()) {
      std::tie(size, offset) = *hole;
      erase(offset, size);
    } else {
      // The hole that ends at the top, if any, grows.
      offset = top_;
      if (!by_offset_.empty()) {
        const auto [last, last_size] = *by_offset_.rbegin();
        if (last + last_size == top_) {
          offset = last;
          erase(last, last_size);
        }
      }
      size = bytes;
      top_ = std::max(top_, offset + bytes);
    }
    if (size > bytes) insert(offset + bytes, size - bytes);
    return offset;
  }
  // Neighbouring holes are joined at once, so that no two holes touch and the largest stay usable.
  void release(uint64_t offset, uint64_t bytes) {
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && next->first == offset + bytes) {
      const uint64_t size = next->second;
      bytes += size;
      erase(next->first, size);
    }
    auto previous = by_offset_.lower_bound(offset);
    if (previous != by_offset_.begin()) {
      --previous;
      const auto [at, size] = *previous;
      if (at + size == offset) {
        erase(at, size);
        offset = at;
        bytes += size;
      }
    }
    insert(offset, bytes);
  }
  uint64_t top() const { return top_; }

 private:
  void insert(uint64_t offset, uint64_t size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }
  void erase(uint64_t offset, uint64_t size) {
    by_offset_.erase(offset);
    by_size_.erase({size, offset});
  }
  std::map<uint64_t, uint64_t> by_offset_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;
  uint64_t top_ = 0;
};

Packed along_time(const std::vector<Item>& items) {
  const Sweep sweep(items);
  Packed layout;
  layout.offsets.resize(items.size());
  BestFit fit;
  size_t freed = 0;
  for (size_t i = 0; i < items.size();) {
    const int64_t now = items[sweep.begins[i]].begin;
    for (; freed < items.size() && items[sweep.ends[freed]].end <= now; ++freed) {
      const int f = sweep.ends[freed];
      fit.release(layout.offsets[f], items[f].bytes);
    }
    // Among those that begin together the largest comes first.
    size_t last = i;
    while (last < items.size() && items[sweep.begins[last]].begin == now) ++last;
    std::vector<int> now_born(sweep.begins.begin() + i, sweep.begins.begin() + last);
    std::stable_sort(now_born.begin(), now_born.end(), [&](int a, int b) { return items[a].bytes > items[b].bytes; });
    for (const int born : now_born) layout.offsets[born] = fit.allocate(items[born].bytes);
    i = last;
  }
  layout.bytes = fit.top();
  return layout;
}

// The same with time reversed: values that die together are then placed together, which suits graphs whose backward
// pass frees in the reverse order of the forward pass.
Packed against_time(const std::vector<Item>& items) {
  std::vector<Item> mirrored = items;
  for (Item& item : mirrored) {
    const int64_t begin = item.begin;
    item.begin = -item.end;
    item.end = -begin;
  }
  return along_time(mirrored);
}

// Which placed items may be alive at the same time: time is cut into slots with about equally many births.
class TimeIndex {
 public:
  explicit TimeIndex(const std::vector<Item>& items) : stamp_(items.size(), -1) {
    std::vector<int64_t> begins;
    for (const Item& item : items) begins.push_back(item.begin);
    std::sort(begins.begin(), begins.end());
    const size_t step = std::max<size_t>(1, begins.size() / kSlots);
    for (size_t i = step; i < begins.size(); i += step) cuts_.push_back(begins[i]);
    slots_.resize(cuts_.size() + 1);
  }
  // Placed items whose slots meet the item's, each once, in `found`. False when the item lives too long for that.
  bool near(const Item& item, int index, std::vector<int>& found) {
    const size_t first = slot(item.begin), last = slot(item.end - 1);
    if (last - first > kNear) return false;
    found.clear();
    for (size_t s = first; s <= last; ++s) {
      for (const int other : slots_[s]) {
        if (stamp_[other] == index) continue;
        stamp_[other] = index;
        found.push_back(other);
      }
    }
    return true;
  }
  void add(const Item& item, int index) {
    for (size_t s = slot(item.begin); s <= slot(item.end - 1); ++s) slots_[s].push_back(index);
  }

 private:
  static constexpr size_t kSlots = 256, kNear = 8;
  size_t slot(int64_t time) const {
    return static_cast<size_t>(std::upper_bound(cuts_.begin(), cuts_.end(), time) - cuts_.begin());
  }
  std::vector<int64_t> cuts_;
  std::vector<std::vector<int>> slots_;
  std::vector<int> stamp_;
};

// Each item in `order` at the lowest offset free over its whole life.
Packed first_fit(const std::vector<Item>& items, const std::vector<int>& order) {
  Packed layout;
  layout.offsets.resize(items.size());
  TimeIndex index(items);
  std::vector<int> placed, near;  // `placed` by offset
  placed.reserve(items.size());
  const auto below = [&](int a, int b) { return layout.offsets[a] < layout.offsets[b]; };
  for (const int i : order) {
    const Item& item = items[i];
    // Only items that live at the same time can be in the way. For one that lives long nearly all do, and then the list
    // that is sorted already is faster.
    const bool few = index.near(item, i, near);
    if (few) std::sort(near.begin(), near.end(), below);
    uint64_t offset = 0;
    for (const int p : few ? near : placed) {
      const Item& other = items[p];
      if (other.begin >= item.end || item.begin >= other.end) continue;
      // The items come by offset, so `offset` is the lowest place that is free beneath `other`.
      if (layout.offsets[p] >= offset + item.bytes) break;  // the gap before it is large enough
      offset = std::max(offset, layout.offsets[p] + other.bytes);
    }
    layout.offsets[i] = offset;
    layout.bytes = std::max(layout.bytes, offset + item.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i, below), i);
    index.add(item, i);
  }
  return layout;
}

// Highest byte taken at each moment, of moments 0 to n - 1: a segment tree.
class Skyline {
 public:
  explicit Skyline(size_t moments) {
    while (leaves_ < moments) leaves_ *= 2;
    most_.resize(2 * leaves_);
    whole_.resize(2 * leaves_);
  }
  uint64_t most(size_t begin, size_t end) const { return most(1, 0, leaves_, begin, end); }
  // From now on `top`, which is at least most(begin, end), at all moments of the range.
  void raise(size_t begin, size_t end, uint64_t top) { raise(1, 0, leaves_, begin, end, top); }

 private:
  uint64_t most(size_t node, size_t from, size_t to, size_t begin, size_t end) const {
    if (end <= from || to <= begin) return 0;
    if (begin <= from && to <= end) return most_[node];
    const size_t half = (from + to) / 2;
    return std::max({whole_[node], most(2 * node, from, half, begin, end), most(2 * node + 1, half, to, begin, end)});
  }
  void raise(size_t node, size_t from, size_t to, size_t begin, size_t end, uint64_t top) {
    if (end <= from || to <= begin) return;
    most_[node] = std::max(most_[node], top);
    if (begin <= from && to <= end) {
      whole_[node] = top;
      return;
    }
    const size_t half = (from + to) / 2;
    raise(2 * node, from, half, begin, end, top);
    raise(2 * node + 1, half, to, begin, end, top);
  }
  size_t leaves_ = 1;
  std::vector<uint64_t> most_, whole_;  // by node: most in its range, most that covers all of it
};

// Each item in `order` above all that are alive with it. n log n; good when long lives come first.
// Gaps beneath are never used, which is why the order matters: a short life that is placed early would keep bytes from
// those that come after it.
Packed on_top(const std::vector<Item>& items, const std::vector<int>& order) {
  std::vector<int64_t> moments;
  for (const Item& item : items) moments.push_back(item.begin);
  std::sort(moments.begin(), moments.end());
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  const auto moment = [&](int64_t time) {
    return static_cast<size_t>(std::lower_bound(moments.begin(), moments.end(), time) - moments.begin());
  };
  Skyline skyline(moments.size());
  Packed layout;
  layout.offsets.resize(items.size());
  for (const int i : order) {
    const size_t begin = moment(items[i].begin), end = moment(items[i].end);
    layout.offsets[i] = skyline.most(begin, end);
    skyline.raise(begin, end, layout.offsets[i] + items[i].bytes);
    layout.bytes = std::max(layout.bytes, layout.offsets[i] + items[i].bytes);
  }
  return layout;
}

template <class Key>
std::vector<int> order_by(const std::vector<Item>& items, Key key) {
  std::vector<int> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key(items[a]) < key(items[b]); });
  return order;
}

}  // namespace

uint64_t max_live_bytes(std::span<const Interval> intervals, uint64_t alignment) {
  return most_live(live_items(intervals, alignment));
}

Packing pack(std::span<const Interval> intervals, uint64_t alignment, bool every) {
  const std::vector<Item> items = live_items(intervals, alignment);
  Packing packing;
  packing.offsets.resize(intervals.size(), 0);
  if (items.empty()) return packing;
  packing.lower_bound = most_live(items);

  const auto life = [](const Item& v) { return static_cast<double>(v.end) - static_cast<double>(v.begin); };
  const auto bytes = [](const Item& v) { return static_cast<double>(v.bytes); };
  const auto by_life = [&](const Item& v) { return std::pair(-life(v), -bytes(v)); };
  const auto by_bytes = [&](const Item& v) { return std::pair(-bytes(v), -life(v)); };
  const auto by_area = [&](const Item& v) { return std::pair(-bytes(v) * life(v), v.begin); };
  const auto by_begin = [&](const Item& v) { return std::pair(v.begin, -bytes(v)); };
  const struct {
    const char* name;
    std::function<Packed()> make;
  } ways[] = {
      {"best fit along time", [&] { return along_time(items); }},
      {"best fit against time", [&] { return against_time(items); }},
      {"long lives at the bottom", [&] { return on_top(items, order_by(items, by_life)); }},
      {"first fit by bytes", [&] { return first_fit(items, order_by(items, by_bytes)); }},
      {"first fit by area", [&] { return first_fit(items, order_by(items, by_area)); }},
      {"first fit by life", [&] { return first_fit(items, order_by(items, by_life)); }},
      {"first fit by begin", [&] { return first_fit(items, order_by(items, by_begin)); }},
  };
  // The first three ways take n log n and are always tried; the others compare pairs. A large plan stops at the first
  // result that is near the lower bound, since compiling must not take long for little.
  const size_t fast = 3, tried = every || items.size() <= kPairwiseLimit ? std::size(ways) : fast;
  const uint64_t slack = every || items.size() <= kTryAllLimit ? 0 : packing.lower_bound / kNearParts;
  Packed best;
  for (size_t i = 0; i < tried; ++i) {
    if (i > 0 && !every && best.bytes - packing.lower_bound <= slack) break;
    Packed layout = ways[i].make();
    packing.tries.push_back({ways[i].name, layout.bytes});
    if (i == 0 || layout.bytes < best.bytes) best = std::move(layout);
  }
  packing.bytes = best.bytes;
  for (size_t i = 0; i < items.size(); ++i) packing.offsets[items[i].index] = best.offsets[i];
  return packing;
}

// Deliberately another method than pack()'s: a sweep that keeps the live ranges by offset.
std::string packing_fault(std::span<const Interval> intervals, const Packing& packing, uint64_t alignment) {
  if (packing.offsets.size() != intervals.size()) {
    return fmt::format("{} offsets for {} intervals", packing.offsets.size(), intervals.size());
  }
  struct Event {
    int64_t time;
    bool birth;  // deaths first
    int index;
  };
  std::vector<Event> events;
  for (int i = 0; i < static_cast<int>(intervals.size()); ++i) {
    const Interval& v = intervals[i];
    if (v.begin == v.end || v.bytes == 0) continue;
    const uint64_t offset = packing.offsets[i];
    if (offset % alignment != 0)
      return fmt::format("interval {}: offset {} is not a multiple of {}", i, offset, alignment);
    if (offset > packing.bytes || v.bytes > packing.bytes - offset) {
      return fmt::format("interval {}: bytes {} to {} leave the arena of {}", i, offset, offset + v.bytes,
                         packing.bytes);
    }
    events.push_back({v.begin, true, i});
    events.push_back({v.end, false, i});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tuple(a.time, a.birth, a.index) < std::tuple(b.time, b.birth, b.index);
  });
  // Live ranges do not overlap as long as no clash was found, so a new one has to be compared with its two neighbours
  // only.
  std::map<uint64_t, int> live;  // by offset
  const auto clash = [&](int a, int b) {
    return fmt::format("intervals {} and {} overlap: bytes {} to {} and {} to {} are alive at the same time",
                       std::min(a, b), std::max(a, b), packing.offsets[std::min(a, b)],
                       packing.offsets[std::min(a, b)] + intervals[std::min(a, b)].bytes,
                       packing.offsets[std::max(a, b)],
                       packing.offsets[std::max(a, b)] + intervals[std::max(a, b)].bytes);
  };
  for (const Event& event : events) {
    const uint64_t offset = packing.offsets[event.index];
    if (!event.birth) {
      live.erase(offset);
      continue;
    }
    const auto next = live.lower_bound(offset);
    if (next != live.end() && next->first < offset + intervals[event.index].bytes)
      return clash(event.index, next->second);
    if (next != live.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + intervals[previous->second].bytes > offset) return clash(event.index, previous->second);
    }
    live.emplace(offset, event.index);
  }
  const uint64_t least = max_live_bytes(intervals, alignment);
  if (packing.lower_bound != least)
    return fmt::format("lower bound is {}; {} bytes are alive at once", packing.lower_bound, least);
  return "";
}

}  // namespace sluice::plan
