#pragma once
// Joins packets of several streams by their timestamps, whatever their rates. All of it is in this header.
//
//   Join<Tensor> join(2, {.policy = Join<Tensor>::Policy::kSynced});
//   join.add(0, 10, image);              // of stream 0, at time 10
//   join.bound(1, 11);                   // stream 1 has nothing before time 11
//   while (auto set = join.next()) ...   // {10, {image, nothing}}
//
// With kSynced the sets depend on the packets alone, and not on when or in which order those of different streams come.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "error.h"

namespace sluice::api {

// Thread safety: none; its callers lock.
template <class Packet>
class Join {
 public:
  // kSynced: a set for each time at which some stream has a packet, once all streams have said what they have then.
  // kImmediate: a set for each packet, as they come.
  enum class Policy { kSynced, kImmediate };
  struct Options {
    Policy policy = Policy::kSynced;
    size_t newest = 0;  // so many packets of a stream wait: one more takes the place of the oldest. 0: no limit
  };
  struct Set {
    int64_t timestamp = 0;
    std::vector<std::optional<Packet>> packets;  // by stream; nothing: it has none at that time
  };

  explicit Join(size_t streams, Options options = {}) : options_(options), streams_(streams) {
    if (streams == 0) throw Error(ErrorKind::kValue, "join: of 0 streams; must be 1 or more");
  }

  // Throws kValue for a stream that there is not, for a timestamp below the stream's bound, and of a stream at its end.
  void add(size_t stream, int64_t timestamp, Packet packet) {
    Stream& to = checked(stream, "add");
    if (to.ended || timestamp < to.bound || timestamp == std::numeric_limits<int64_t>::max())
      throw Error(
          ErrorKind::kValue,
          "join: stream " + std::to_string(stream) + ": a packet at " + std::to_string(timestamp) +
              (to.ended ? "; the stream is at its end" : "; must be at " + std::to_string(to.bound) + " or later"));
    to.bound = timestamp + 1;
    to.waiting.push_back({timestamp, ++arrived_, std::move(packet)});
    if (options_.newest == 0 || to.waiting.size() <= options_.newest) return;
    to.waiting.pop_front();
    ++to.dropped;
  }
  // The stream has no packet any more before `timestamp`. A bound does not fall.
  void bound(size_t stream, int64_t timestamp) {
    Stream& to = checked(stream, "bound");
    if (timestamp > to.bound) to.bound = timestamp;
  }
  // The stream has no packet any more.
  void end(size_t stream) { checked(stream, "end").ended = true; }

  // The next set; nothing where a stream may still have a packet that belongs to it, or where there is none.
  std::optional<Set> next() {
    const Stream* first = nullptr;
    for (const Stream& stream : streams_)
      if (!stream.waiting.empty() && (first == nullptr || before(stream.waiting[0], first->waiting[0])))
        first = &stream;
    if (first == nullptr) return std::nullopt;
    const int64_t at = first->waiting[0].timestamp, order = first->waiting[0].order;
    const bool synced = options_.policy == Policy::kSynced;
    for (const Stream& stream : streams_)
      if (synced && stream.waiting.empty() && !stream.ended && stream.bound <= at) return std::nullopt;
    Set set{at, {}};
    for (Stream& stream : streams_) {
      std::optional<Packet>& packet = set.packets.emplace_back();
      if (stream.waiting.empty()) continue;
      Waiting& own = stream.waiting[0];
      if (synced ? own.timestamp != at : own.order != order) continue;
      packet = std::move(own.packet);
      stream.waiting.pop_front();
    }
    return set;
  }
  // All streams are at their end, and next() has given everything.
  bool ended() const {
    for (const Stream& stream : streams_)
      if (!stream.ended || !stream.waiting.empty()) return false;
    return true;
  }

  // How many packets of a stream wait; how many have gone because newer ones came.
  size_t waiting(size_t stream) const { return checked(stream, "waiting").waiting.size(); }
  uint64_t dropped(size_t stream) const { return checked(stream, "dropped").dropped; }
  // The time from which on the stream can have packets.
  int64_t bound_of(size_t stream) const { return checked(stream, "bound_of").bound; }

 private:
  struct Waiting {
    int64_t timestamp = 0, order = 0;
    Packet packet;
  };
  struct Stream {
    std::deque<Waiting> waiting;
    int64_t bound = std::numeric_limits<int64_t>::min();
    bool ended = false;
    uint64_t dropped = 0;
  };

  const Stream& checked(size_t stream, const char* what) const {
    if (stream >= streams_.size())
      throw Error(ErrorKind::kIndex, std::string("join: ") + what + ": stream " + std::to_string(stream) + " of " +
                                         std::to_string(streams_.size()) + "; there is none");
    return streams_[stream];
  }
  Stream& checked(size_t stream, const char* what) {
    return const_cast<Stream&>(std::as_const(*this).checked(stream, what));
  }
  bool before(const Waiting& a, const Waiting& b) const {
    return options_.policy == Policy::kSynced ? a.timestamp < b.timestamp : a.order < b.order;
  }

  Options options_;
  std::vector<Stream> streams_;
  int64_t arrived_ = 0;
};

}  // namespace sluice::api
