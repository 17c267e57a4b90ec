#include "plan/record/live_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "plan/json/json.h"

namespace sluice::plan {

namespace {

namespace js = boost::json;

template <class T>
std::vector<T> numbers(const js::value& value) {
  std::vector<T> list;
  for (const js::value& one : value.as_array()) list.push_back(one.to_number<T>());
  return list;
}

LiveSession read_session(const js::value& v) {
  LiveSession s;
  const auto number = [&](const char* name) { return v.at(name).to_number<uint64_t>(); };
  s.id = number("id");
  s.name = v.at("name").as_string().c_str();
  s.rank = v.at("rank").to_number<int>();
  s.submitted = number("submitted");
  s.finished = number("finished");
  s.failed = number("failed");
  s.in_flight = number("in_flight");
  s.max_in_flight = number("max_in_flight");
  s.waiting = number("waiting");
  s.bytes = number("bytes");
  s.firings = numbers<uint64_t>(v.at("firings"));
  s.busy_ns = numbers<uint64_t>(v.at("busy_ns"));
  s.now = numbers<int>(v.at("now"));
  SLUICE_CHECK(s.busy_ns.size() == s.firings.size() && s.now.size() == s.firings.size(),
               "session '{}': {}, {} and {} numbers of actors; must be the same", s.name, s.firings.size(),
               s.busy_ns.size(), s.now.size());
  return s;
}

}  // namespace

std::string live_json(const LiveProcess& process) {
  std::string text = fmt::format("{{\"pid\":{},\"clock_ns\":{},\"version\":{},\"sessions\":[", process.pid,
                                 process.clock_ns, quoted_json(process.version));
  const char* comma = "";
  for (const LiveSession& s : process.sessions)
    text += fmt::format(
        "{}\n{{\"id\":{},\"name\":{},\"rank\":{},\"submitted\":{},\"finished\":{},\"failed\":{},\"in_flight\":{},"
        "\"max_in_flight\":{},\"waiting\":{},\"bytes\":{},\"firings\":[{}],\"busy_ns\":[{}],\"now\":[{}]}}",
        std::exchange(comma, ","), s.id, quoted_json(s.name), s.rank, s.submitted, s.finished, s.failed, s.in_flight,
        s.max_in_flight, s.waiting, s.bytes, fmt::join(s.firings, ","), fmt::join(s.busy_ns, ","),
        fmt::join(s.now, ","));
  return text + "]}\n";
}

LiveProcess read_live(std::string_view text, const std::string& from) {
  const js::value v = read_document(text, from, "the state of a process");
  try {
    if (const js::value* error = v.as_object().if_contains("error"))
      fail(ErrorKind::kValue, "{}", error->as_string().c_str());
    LiveProcess process;
    process.pid = v.at("pid").to_number<int64_t>();
    process.clock_ns = v.at("clock_ns").to_number<int64_t>();
    process.version = v.at("version").as_string().c_str();
    for (const js::value& session : v.at("sessions").as_array()) process.sessions.push_back(read_session(session));
    return process;
  } catch (const Error& error) {
    fail(ErrorKind::kValue, "{}: {}", from, error.what());
  } catch (const std::exception& error) {  // of Boost.JSON: a key is missing, or of another kind
    fail(ErrorKind::kValue, "{}: not the state of a process: {}; it may be another version of Sluice", from,
         error.what());
  }
}

std::string live_socket_name(int64_t pid) { return fmt::format("sluice-live-{}", pid); }

}  // namespace sluice::plan
