#include "plan/record/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/files/file.h"
#include "base/log.h"
#include "plan/json/json.h"
#include "plan/query.h"
#include "plan/verify.h"

namespace sluice::plan {
namespace {

constexpr uint64_t kVersion = 1;

// An event's first byte says this.
enum class EventKind : uint8_t { kFiring, kKernel, kActorWait, kStreamWait };
constexpr int kLeftOut = 2, kCause = 3, kNewStep = 6, kCount = 7;  // bits: of one, of three, of one, of one

// The columns of a section of events.
enum Column : size_t { kFlags, kEnds, kBegins, kWho, kCauses, kSteps, kCounts, kColumns };

void put(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}
uint64_t zigzag(uint64_t difference) { return difference << 1 ^ (0 - (difference >> 63)); }
uint64_t unzigzag(uint64_t value) { return value >> 1 ^ (0 - (value & 1)); }
void put_difference(std::string& out, uint64_t now, uint64_t before) { put(out, zigzag(now - before)); }

void put_section(std::string& out, char letter, std::string_view bytes) {
  out.push_back(letter);
  put(out, bytes.size());
  out += bytes;
}

EventKind kind_of(const TraceEvent& e) {
  if (e.wait) return e.actor < 0 ? EventKind::kStreamWait : EventKind::kActorWait;
  return e.kernel >= 0 ? EventKind::kKernel : EventKind::kFiring;
}

// The events of one stream.
std::string columns_of(int stream, const std::vector<const TraceEvent*>& events) {
  std::array<std::string, kColumns> columns;
  uint64_t end = 0, begin = 0, step = 0, actor = 0, kernel = 0;
  for (const TraceEvent* e : events) {
    const EventKind kind = kind_of(*e);
    const int count = kind == EventKind::kKernel ? e->kernels - 1 : e->firing;
    columns[kFlags].push_back(static_cast<char>(
        static_cast<int>(kind) | static_cast<int>(e->left_out) << kLeftOut | static_cast<int>(e->cause.kind) << kCause |
        static_cast<int>(e->step != step) << kNewStep | static_cast<int>(count != 0) << kCount));
    put_difference(columns[kEnds], static_cast<uint64_t>(e->end_ns), end);
    // A firing's event comes behind those of its kernels.
    put_difference(columns[kBegins], static_cast<uint64_t>(e->begin_ns), kind == EventKind::kFiring ? begin : end);
    if (e->step != step) put_difference(columns[kSteps], e->step, step);
    if (count != 0) put(columns[kCounts], static_cast<uint64_t>(count));
    if (kind == EventKind::kKernel) {
      put_difference(columns[kWho], static_cast<uint64_t>(e->kernel), kernel);
      kernel = static_cast<uint64_t>(e->kernel);
    } else if (kind != EventKind::kStreamWait) {
      put_difference(columns[kWho], static_cast<uint64_t>(e->actor), actor);
      actor = static_cast<uint64_t>(e->actor);
    }
    if (e->cause.kind == TraceCause::Kind::kData || e->cause.kind == TraceCause::Kind::kCredit)
      put(columns[kCauses], static_cast<uint64_t>(e->cause.index));
    end = static_cast<uint64_t>(e->end_ns);
    begin = static_cast<uint64_t>(e->begin_ns);
    step = e->step;
  }
  std::string out;
  put(out, static_cast<uint64_t>(stream));
  put(out, events.size());
  for (const std::string& column : columns) put(out, column.size());
  for (const std::string& column : columns) out += column;
  return out;
}

// A part of the file that is read from its begin to its end.
class RecordingBytes {
 public:
  RecordingBytes(std::string_view all, size_t at, size_t end, const std::string& file)
      : all_(all), at_(at), end_(end), file_(file) {}
  bool empty() const { return at_ == end_; }
  size_t left() const { return end_ - at_; }
  [[noreturn]] void refuse(const std::string& what, size_t at) const {
    fail(ErrorKind::kValue, "{}: byte {}: {}", file_, at, what);
  }
  [[noreturn]] void refuse(const std::string& what) const { refuse(what, at_); }
  uint8_t byte() {
    if (empty()) refuse("the file is cut; a whole one must be given");
    return static_cast<uint8_t>(all_[at_++]);
  }
  uint64_t number() {
    const size_t from = at_;
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const uint8_t next = byte();
      if (shift == 63 && next > 1) refuse("a number is too large; it must fit 64 bits", from);
      value |= static_cast<uint64_t>(next & 0x7f) << shift;
      if (next < 0x80) return value;
    }
  }
  // One below `limit`.
  int index(uint64_t value, size_t limit, const char* what) const {
    if (value >= limit) refuse(fmt::format("{} {} is none of the plan's; it has {}", what, value, limit));
    return static_cast<int>(value);
  }
  RecordingBytes part(uint64_t size) {
    if (size > left()) refuse(fmt::format("the file is cut: {} bytes are left of {}", left(), size));
    const size_t from = at_;
    at_ += size;
    return {all_, from, at_, file_};
  }
  std::string_view rest() const { return all_.substr(at_, end_ - at_); }

 private:
  std::string_view all_;
  size_t at_, end_;
  const std::string& file_;
};

class RecordingReader {
 public:
  // `may_stop`: the file may end between two sections, as one whose program was killed does.
  RecordingReader(std::string_view bytes, const std::string& file, bool may_stop)
      : in_(bytes, 0, bytes.size(), file), file_(file), may_stop_(may_stop) {}

  Recording read() {
    if (in_.rest().substr(0, kRecordingMagic.size()) != kRecordingMagic)
      in_.refuse("this is no recording of Sluice; it must begin with SLUICETR");
    in_.part(kRecordingMagic.size());
    if (const uint64_t version = in_.number(); version != kVersion)
      in_.refuse(fmt::format("version {} of recordings; this build reads {}", version, kVersion));
    for (bool ended = false; !ended;) {
      if (may_stop_ && has_plan_ && in_.empty()) {
        log(LogLevel::kWarn, LogArea::kPlan,
            "{}: the recording was not ended, as its program was killed or still runs; what came last is missing",
            file_);
        break;
      }
      const char letter = static_cast<char>(in_.byte());
      RecordingBytes section = in_.part(in_.number());
      switch (letter) {
        case 'H': head(section); break;
        case 'P': plan(section); break;
        case 'E': events(section); break;
        case 'Z':
          out_.trace.lost = section.number();
          ended = true;
          break;
        default:
          section.refuse(
              fmt::format("section 0x{:02x} is unknown; it must be H, P, E or Z", static_cast<uint8_t>(letter)));
      }
      if (!section.empty()) section.refuse(fmt::format("{} bytes too many in section {}", section.left(), letter));
    }
    if (!in_.empty()) in_.refuse("there is more behind the end; nothing must be there");
    if (!has_plan_) in_.refuse("there is no plan; section P must come before the end");
    return std::move(out_);
  }

 private:
  void head(RecordingBytes& section) {
    out_.trace.begin_unix_ns = static_cast<int64_t>(section.number());
    out_.trace.begin_clock_ns = static_cast<int64_t>(section.number());
    const uint64_t rank = section.number();
    if (rank > INT32_MAX) section.refuse("the rank is too large");
    out_.rank = static_cast<int>(rank) - 1;
  }

  void plan(RecordingBytes& section) {
    if (has_plan_) section.refuse("a second plan; there must be one");
    out_.plan = from_json(section.rest(), file_);
    section.part(section.left());
    VerifyReport structure;
    verify_structure(out_.plan, structure);
    if (!structure.ok()) section.refuse(fmt::format("the plan does not hold: {}", structure.problems[0].text));
    actor_of_.assign(out_.plan.kernels.size(), -1);
    for (size_t a = 0; a < out_.plan.actors.size(); ++a) {
      for (const Instr& i : out_.plan.actors[a].program)
        if (i.kind == InstrKind::kRun) actor_of_[i.index] = static_cast<int>(a);
    }
    has_plan_ = true;
  }

  void events(RecordingBytes& section) {
    if (!has_plan_) section.refuse("events before the plan that they are of");
    const int stream = section.index(section.number(), out_.plan.streams.size(), "stream");
    const uint64_t count = section.number();
    if (count > section.left()) section.refuse(fmt::format("{} events in {} bytes", count, section.left()));
    std::array<uint64_t, kColumns> sizes;
    for (uint64_t& size : sizes) size = section.number();
    std::vector<RecordingBytes> columns;
    for (const uint64_t size : sizes) columns.push_back(section.part(size));
    if (sizes[kFlags] != count) columns[kFlags].refuse(fmt::format("{} events have {} kinds", count, sizes[kFlags]));
    TraceEvent before;
    uint64_t actor = 0, kernel = 0;
    for (uint64_t i = 0; i < count; ++i) {
      before = event(columns, stream, before, actor, kernel);
      out_.trace.events.push_back(before);
    }
    for (const RecordingBytes& column : columns)
      if (!column.empty()) column.refuse("a column of events is too long");
  }

  TraceEvent event(std::vector<RecordingBytes>& columns, int stream, const TraceEvent& before, uint64_t& actor,
                   uint64_t& kernel) {
    const Plan& plan = out_.plan;
    const uint8_t flags = columns[kFlags].byte();
    const auto kind = static_cast<EventKind>(flags & 3);
    const auto difference = [&](Column column, uint64_t from) { return from + unzigzag(columns[column].number()); };
    TraceEvent e;
    e.stream = stream;
    e.left_out = (flags >> kLeftOut & 1) != 0;
    e.wait = kind == EventKind::kActorWait || kind == EventKind::kStreamWait;
    const int cause = flags >> kCause & 7;
    if (cause > static_cast<int>(TraceCause::Kind::kDevice)) columns[kFlags].refuse("a cause is unknown");
    e.cause.kind = static_cast<TraceCause::Kind>(cause);
    const auto from = static_cast<uint64_t>(kind == EventKind::kFiring ? before.begin_ns : before.end_ns);
    e.begin_ns = static_cast<int64_t>(difference(kBegins, from));
    e.end_ns = static_cast<int64_t>(difference(kEnds, static_cast<uint64_t>(before.end_ns)));
    if (e.begin_ns < 0 || e.end_ns < e.begin_ns) columns[kEnds].refuse("an event ends before it begins");
    e.step = (flags >> kNewStep & 1) != 0 ? difference(kSteps, before.step) : before.step;
    const uint64_t count = (flags >> kCount & 1) != 0 ? columns[kCounts].number() : 0;
    if (count > UINT16_MAX) columns[kCounts].refuse("a count is too large");
    if (kind == EventKind::kKernel) {
      kernel = difference(kWho, kernel);
      e.kernel = columns[kWho].index(kernel, plan.kernels.size(), "kernel");
      e.actor = actor_of_[e.kernel];
      e.kernels = static_cast<int>(count) + 1;
    } else {
      e.firing = static_cast<int>(count);
      if (kind != EventKind::kStreamWait) {
        actor = difference(kWho, actor);
        e.actor = columns[kWho].index(actor, plan.actors.size(), "actor");
      }
    }
    const bool is_firing = kind == EventKind::kFiring || kind == EventKind::kKernel;
    if (is_firing && (e.actor < 0 || plan.actors[e.actor].stream != stream))
      columns[kWho].refuse("an event is of an actor of another stream");
    if (e.cause.kind == TraceCause::Kind::kData)
      e.cause.index = columns[kCauses].index(columns[kCauses].number(), plan.edges.size(), "edge");
    if (e.cause.kind == TraceCause::Kind::kCredit)
      e.cause.index = columns[kCauses].index(columns[kCauses].number(), plan.registers.size(), "register");
    return e;
  }

  RecordingBytes in_;
  const std::string& file_;
  const bool may_stop_;
  Recording out_;
  bool has_plan_ = false;
  std::vector<int> actor_of_;  // per kernel
};

}  // namespace

TraceNames trace_names_of(const Plan& plan) {
  TraceNames names;
  for (const Stream& stream : plan.streams) names.streams.push_back(stream.name);
  for (const Actor& actor : plan.actors) names.actors.push_back(actor.name);
  for (const Kernel& kernel : plan.kernels) {
    names.kernels.push_back(kernel.name);
    names.origins.push_back(kernel);
  }
  for (const Register& r : plan.registers) names.registers.push_back(r.name);
  for (const Edge& edge : plan.edges) names.edges.push_back(plan.registers[edge.reg].name);
  return names;
}

std::string recording_head(const Plan& plan, const Trace& begin, int rank) {
  std::string out(kRecordingMagic), head;
  put(out, kVersion);
  put(head, static_cast<uint64_t>(begin.begin_unix_ns));
  put(head, static_cast<uint64_t>(begin.begin_clock_ns));
  put(head, static_cast<uint64_t>(rank + 1));
  put_section(out, 'H', head);
  put_section(out, 'P', to_json(plan));
  return out;
}

std::string recording_events(const Plan& plan, std::span<const TraceEvent> events) {
  std::vector<std::vector<const TraceEvent*>> streams(plan.streams.size());
  for (const TraceEvent& e : events) streams[e.stream].push_back(&e);
  std::string out;
  const auto end_of = [](const TraceEvent* e) { return e->end_ns; };
  for (size_t s = 0; s < streams.size(); ++s) {
    if (!std::ranges::is_sorted(streams[s], {}, end_of)) std::ranges::stable_sort(streams[s], {}, end_of);
    if (!streams[s].empty()) put_section(out, 'E', columns_of(static_cast<int>(s), streams[s]));
  }
  return out;
}

std::string recording_tail(uint64_t lost) {
  std::string out, end;
  put(end, lost);
  put_section(out, 'Z', end);
  return out;
}

std::string recording_of(const Recording& recording) {
  return recording_head(recording.plan, recording.trace, recording.rank) +
         recording_events(recording.plan, recording.trace.events) + recording_tail(recording.trace.lost);
}

Recording read_recording(std::string_view bytes, const std::string& file_name) {
  return RecordingReader(bytes, file_name, false).read();
}

Recording load_recording(const std::string& path) { return RecordingReader(read_file(path), path, true).read(); }

}  // namespace sluice::plan
