// The C API on top of the C++ one: traces of sessions.
#include "runtime/api/c_support.h"

namespace api = sluice::api;
using namespace sluice::c_api;

namespace {

const char* name_at(const std::vector<std::string>& names, int index) {
  return index < 0 || static_cast<size_t>(index) >= names.size() ? nullptr : names[static_cast<size_t>(index)].c_str();
}

}  // namespace

sluice_status* sluice_session_set_trace(sluice_session* session, int on) {
  return guarded(
      [&] { get<SessionObject>(session, "sluice_session_set_trace", "a session")->session.set_trace(on != 0); });
}

sluice_status* sluice_session_take_trace(sluice_session* session, sluice_trace** trace) {
  return guarded([&] {
    const char* where = "sluice_session_take_trace";
    check_pointer(trace, where, "trace");
    const auto object = get<SessionObject>(session, where, "a session");
    *trace = handles().add<sluice_trace>(std::make_shared<api::Trace>(object->session.take_trace()));
  });
}
void sluice_trace_destroy(sluice_trace* trace) { handles().remove(trace); }

sluice_status* sluice_trace_totals(const sluice_trace* trace, sluice_trace_counts* counts) {
  return guarded([&] {
    const char* where = "sluice_trace_totals";
    const auto t = get<api::Trace>(trace, where, "a trace");
    give_struct({0, t->events.size(), t->steps.size(), t->plans.size(), t->lost, t->begin_ns, t->begin_unix_ns}, counts,
                where, "counts");
  });
}

sluice_status* sluice_trace_event(const sluice_trace* trace, size_t index, sluice_traced_event* event) {
  return guarded([&] {
    const char* where = "sluice_trace_event";
    const auto t = get<api::Trace>(trace, where, "a trace");
    const api::TraceEvent& e = entry(t->events, index, where);
    const api::Trace::Plan& plan = entry(t->plans, static_cast<size_t>(e.plan), where);
    give_struct(
        {0, static_cast<sluice_event_kind>(e.kind), e.plan, e.stream, e.actor, e.kernel, e.kernels, e.step, e.begin_ns,
         e.end_ns, name_at(plan.streams, e.stream), name_at(plan.actors, e.actor), name_at(plan.kernels, e.kernel)},
        event, where, "event");
  });
}

sluice_status* sluice_trace_step(const sluice_trace* trace, size_t index, sluice_traced_step* step) {
  return guarded([&] {
    const char* where = "sluice_trace_step";
    const auto t = get<api::Trace>(trace, where, "a trace");
    const api::Trace::Step& s = entry(t->steps, index, where);
    give_struct({0, s.step, s.tag.c_str(), s.over ? 1 : 0}, step, where, "step");
  });
}

sluice_status* sluice_trace_chrome_json(const sluice_trace* trace, sluice_text** text) {
  return guarded([&] {
    const char* where = "sluice_trace_chrome_json";
    check_pointer(text, where, "text");
    give_text(get<api::Trace>(trace, where, "a trace")->chrome_json(), text);
  });
}
