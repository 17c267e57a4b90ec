// A recorded run in Perfetto's own format: TrackEvents in protocol buffers. Lanes of streams have firings with their
// kernels, lanes of actors what each was at or waited for; no two slices of a lane overlap. Flows lead from the firing
// that made a token to the one that took it; counters say how many slots are free, and their bytes.
#include <algorithm>
#include <map>
#include <utility>

#include "plan/record/blame.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

// One message of protocol buffers; fields as perfetto/trace/*.proto number them.
class Message {
 public:
  Message& number(int field, uint64_t value) {
    varint(static_cast<uint64_t>(field) << 3);
    varint(value);
    return *this;
  }
  Message& fixed(int field, uint64_t value) {
    varint(static_cast<uint64_t>(field) << 3 | 1);
    for (int i = 0; i < 8; ++i) bytes_ += static_cast<char>(value >> 8 * i);
    return *this;
  }
  Message& text(int field, std::string_view value) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

namespace packet {
constexpr int kClocks = 6, kTime = 8, kSequence = 10, kEvent = 11, kInterned = 12, kFlags = 13, kTrack = 60;
constexpr uint64_t kNewState = 1, kNeedsState = 2;
}  // namespace packet
namespace track {
constexpr int kUuid = 1, kName = 2, kProcess = 3, kParent = 5, kCounter = 8;
}
namespace event {
constexpr int kCategory = 3, kAnnotation = 4, kType = 9, kName = 10, kTrack = 11, kValue = 30, kFlow = 47,
              kFlowEnd = 48;
constexpr uint64_t kBegin = 1, kEnd = 2, kCounter = 4;
}  // namespace event
constexpr uint64_t kUnitCount = 2, kUnitBytes = 3;
constexpr uint64_t kProcessTrack = 1, kActorsTrack = 2, kSlotsTrack = 3, kMemoryTrack = 4, kFirstTrack = 16;
constexpr uint64_t kBoottime = 6, kRealtime = 1;

// Texts that are written once, and then called by their numbers. Kinds are fields of InternedData.
enum class Interned { kCategory = 1, kName = 2, kAnnotation = 3 };

struct Slice {
  int64_t begin_ns = 0, end_ns = 0;
  const char* category = "";
  std::string name;
  std::vector<std::pair<const char*, std::string>> notes;  // a text each
  int64_t step = -1;
  std::vector<uint64_t> flows, flow_ends;
};

class PerfettoWriter {
 public:
  explicit PerfettoWriter(const Recording& recording)
      : recording_(recording), plan_(recording.plan), timeline_(timeline_of(recording)) {}

  std::string write() {
    begin();
    find_flows();
    for (size_t s = 0; s < plan_.streams.size(); ++s) write_stream(static_cast<int>(s));
    group(kActorsTrack, "actors");
    for (size_t a = 0; a < plan_.actors.size(); ++a) write_actor(static_cast<int>(a));
    write_counters();
    return std::move(out_);
  }

 private:
  void put(const Message& packet) { out_ += Message().message(1, packet).bytes(); }

  void begin() {
    Message clocks;
    clocks.message(1, Message().number(1, kBoottime).number(2, time(0)));
    clocks.message(1, Message().number(1, kRealtime).number(2, static_cast<uint64_t>(recording_.trace.begin_unix_ns)));
    put(Message()
            .number(packet::kSequence, 1)
            .number(packet::kFlags, packet::kNewState)
            .message(packet::kClocks, clocks));
    const std::string name = recording_.rank < 0 ? fmt::format("plan '{}'", plan_.name)
                                                 : fmt::format("plan '{}', rank {}", plan_.name, recording_.rank);
    Message process;
    process.number(1, static_cast<uint64_t>(std::max(recording_.rank, 0) + 1)).text(6, name);
    put(Message()
            .number(packet::kSequence, 1)
            .message(packet::kTrack, Message().number(track::kUuid, kProcessTrack).message(track::kProcess, process)));
  }

  uint64_t time(int64_t ns) const { return static_cast<uint64_t>(recording_.trace.begin_clock_ns + ns); }

  void add_track(uint64_t uuid, const std::string& name, uint64_t parent, const Message* counter = nullptr) {
    Message described;
    described.number(track::kUuid, uuid).text(track::kName, name).number(track::kParent, parent);
    if (counter != nullptr) described.message(track::kCounter, *counter);
    put(Message().number(packet::kSequence, 1).message(packet::kTrack, described));
  }
  void group(uint64_t uuid, const char* name) { add_track(uuid, name, kProcessTrack); }
  uint64_t new_track(const std::string& name, uint64_t parent, const Message* counter = nullptr) {
    add_track(next_track_, name, parent, counter);
    return next_track_++;
  }

  // The number of a text; when it is new, `fresh` gets it.
  uint64_t intern(Interned kind, const std::string& text, Message& fresh) {
    const auto [it, added] = numbers_[kind].try_emplace(text, numbers_[kind].size() + 1);
    if (added) fresh.message(static_cast<int>(kind), Message().number(1, it->second).text(2, text));
    return it->second;
  }

  void put_event(int64_t ns, const Message& event, const Message& fresh) {
    Message packet;
    packet.number(packet::kTime, time(ns)).number(packet::kSequence, 1).number(packet::kFlags, packet::kNeedsState);
    if (!fresh.bytes().empty()) packet.message(packet::kInterned, fresh);
    put(packet.message(packet::kEvent, event));
  }

  void begin_slice(uint64_t track, const Slice& slice) {
    Message event, fresh;
    event.number(event::kType, event::kBegin).number(event::kTrack, track);
    event.number(event::kCategory, intern(Interned::kCategory, slice.category, fresh));
    event.number(event::kName, intern(Interned::kName, slice.name, fresh));
    if (slice.step >= 0) {
      Message note;
      note.number(1, intern(Interned::kAnnotation, "step", fresh)).number(4, static_cast<uint64_t>(slice.step));
      event.message(event::kAnnotation, note);
    }
    for (const auto& [name, text] : slice.notes) {
      if (text.empty()) continue;
      event.message(event::kAnnotation, Message().number(1, intern(Interned::kAnnotation, name, fresh)).text(6, text));
    }
    for (const uint64_t flow : slice.flows) event.fixed(event::kFlow, flow);
    for (const uint64_t flow : slice.flow_ends) event.fixed(event::kFlowEnd, flow);
    put_event(slice.begin_ns, event, fresh);
  }
  void end_slice(uint64_t track, int64_t ns) {
    put_event(ns, Message().number(event::kType, event::kEnd).number(event::kTrack, track), {});
  }

  // Slices that lie within each other or apart. One that would overlap another gets a lane of its own beside.
  void write_lane(const std::string& name, uint64_t parent, std::vector<Slice> slices) {
    struct Lane {
      uint64_t track = 0;
      std::vector<int64_t> open;  // ends, the innermost last
    };
    std::ranges::stable_sort(slices, [](const Slice& a, const Slice& b) {
      return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
    });
    std::vector<Lane> lanes;
    const auto close_until = [&](Lane& lane, int64_t ns) {
      for (; !lane.open.empty() && lane.open.back() <= ns; lane.open.pop_back())
        end_slice(lane.track, lane.open.back());
    };
    for (const Slice& slice : slices) {
      Lane* fits = nullptr;
      for (Lane& lane : lanes) {
        close_until(lane, slice.begin_ns);
        if (fits == nullptr && (lane.open.empty() || lane.open.back() >= slice.end_ns)) fits = &lane;
      }
      if (fits == nullptr) {
        const std::string label = lanes.empty() ? name : fmt::format("{} #{}", name, lanes.size() + 1);
        fits = &lanes.emplace_back(Lane{new_track(label, parent), {}});
      }
      begin_slice(fits->track, slice);
      fits->open.push_back(slice.end_ns);
    }
    for (Lane& lane : lanes) close_until(lane, INT64_MAX);
  }

  void find_flows() {
    flows_.resize(plan_.actors.size());
    flow_ends_.resize(plan_.actors.size());
    for (size_t a = 0; a < plan_.actors.size(); ++a) {
      flows_[a].resize(timeline_.firings[a].size());
      flow_ends_[a].resize(timeline_.firings[a].size());
    }
    uint64_t flow = 0;
    for (const TokenWay& way : ways_of(plan_, timeline_)) {
      const Edge& edge = plan_.edges[way.edge];
      flows_[plan_.registers[edge.reg].producer][way.from].push_back(++flow);
      flow_ends_[edge.consumer][way.to].push_back(flow);
    }
  }

  void write_stream(int stream) {
    std::vector<Slice> slices;
    for (size_t a = 0; a < plan_.actors.size(); ++a) {
      if (plan_.actors[a].stream != stream) continue;
      for (size_t i = 0; i < timeline_.firings[a].size(); ++i) {
        const Fired& f = timeline_.firings[a][i];
        slices.push_back({f.begin_ns,
                          f.end_ns,
                          "firing",
                          plan_.actors[a].name,
                          {},
                          static_cast<int64_t>(f.step),
                          flows_[a][i],
                          flow_ends_[a][i]});
      }
    }
    for (const TraceEvent& e : recording_.trace.events) {
      if (e.stream != stream || e.actor < 0) continue;  // a stream that has nothing to do is a gap
      if (!e.wait && e.kernel < 0) continue;
      Slice& slice = slices.emplace_back(Slice{e.begin_ns, e.end_ns, "", "", {}, static_cast<int64_t>(e.step), {}, {}});
      if (e.wait) {
        slice.category = "wait";
        slice.name = e.cause.kind == TraceCause::Kind::kCores ? "wait for cores" : "wait for a device";
        continue;
      }
      const Kernel& kernel = plan_.kernels[e.kernel];
      slice.category = e.left_out ? "left out" : "kernel";
      slice.name = e.kernels > 1 ? fmt::format("{} and {} more", kernel.name, e.kernels - 1) : kernel.name;
      slice.notes = {{"line", kernel.source.str()}, {"module", kernel.module}, {"role", role_name(kernel.role)}};
    }
    write_lane(plan_.streams[stream].name, kProcessTrack, std::move(slices));
  }

  void write_actor(int actor) {
    std::vector<Slice> slices;
    for (const Segment& segment : timeline_.actors[actor]) {
      const bool runs = segment.spent == Spent::kRun || segment.spent == Spent::kRanks;
      const bool waits =
          segment.spent == Spent::kInput || segment.spent == Spent::kCredit || segment.spent == Spent::kStream;
      const std::string name = runs    ? plan_.kernels[segment.who].name
                               : waits ? wait_str(plan_, {segment.spent, segment.who, 0})
                                       : spent_name(segment.spent);
      slices.push_back({segment.begin_ns, segment.end_ns, spent_name(segment.spent), name, {}, -1, {}, {}});
    }
    write_lane(plan_.actors[actor].name, kActorsTrack, std::move(slices));
  }

  // The value from each change on, in the order of time.
  void write_counter(const std::string& name, uint64_t parent, uint64_t unit, int64_t start,
                     std::map<int64_t, int64_t> changes) {
    const Message counter = std::move(Message().number(3, unit));
    const uint64_t track = new_track(name, parent, &counter);
    int64_t value = start;
    changes.try_emplace(timeline_.begin_ns, 0);
    for (const auto& [ns, change] : changes) {
      value += change;
      if (change == 0 && ns != timeline_.begin_ns) continue;
      Message event;
      event.number(event::kType, event::kCounter).number(event::kTrack, track);
      put_event(ns, event.number(event::kValue, static_cast<uint64_t>(value)), {});
    }
  }

  void write_counters() {
    group(kSlotsTrack, "free slots");
    group(kMemoryTrack, "memory of registers");
    const std::vector<std::vector<TokenTimes>> tokens = tokens_of(recording_);
    std::vector<std::map<int64_t, int64_t>> memory(plan_.spaces.size());
    std::vector<int64_t> held(plan_.spaces.size());
    std::vector<bool> known(plan_.spaces.size());
    for (size_t r = 0; r < plan_.registers.size(); ++r) {
      const Register& reg = plan_.registers[r];
      const int space =
          reg.slots.empty() || reg.in_place_of >= 0 ? -1 : plan_.arenas[plan_.buffers[reg.slots[0]].arena].space;
      const auto bytes = static_cast<int64_t>(reg.bytes);
      if (space >= 0) known[space] = true;
      int64_t free = reg.quota;
      std::map<int64_t, int64_t> changes;
      const auto change = [&](int64_t ns, int slots) {
        changes[ns] += slots;
        if (space >= 0) memory[space][ns] -= slots * bytes;
      };
      for (const TokenTimes& token : tokens[r]) {
        if (token.acquired_ns == INT64_MIN) {
          --free;
          if (space >= 0) held[space] += bytes;
        } else {
          change(token.acquired_ns, -1);
        }
        if (token.freed_ns != INT64_MAX) change(token.freed_ns, 1);
      }
      write_counter(reg.name, kSlotsTrack, kUnitCount, free, std::move(changes));
    }
    for (size_t s = 0; s < memory.size(); ++s) {
      if (known[s]) write_counter(plan_.spaces[s].str(), kMemoryTrack, kUnitBytes, held[s], std::move(memory[s]));
    }
  }

  const Recording& recording_;
  const Plan& plan_;
  const Timeline timeline_;
  std::vector<std::vector<std::vector<uint64_t>>> flows_, flow_ends_;  // per actor and firing
  std::map<Interned, std::map<std::string, uint64_t>> numbers_;
  uint64_t next_track_ = kFirstTrack;
  std::string out_;
};

}  // namespace

std::string perfetto_trace(const plan::Recording& recording) { return PerfettoWriter(recording).write(); }

}  // namespace sluice::plan_viz
