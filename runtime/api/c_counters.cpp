// The C API on top of the C++ one: counters of sessions.
#include "runtime/api/c_support.h"

namespace api = sluice::api;
using namespace sluice::c_api;

sluice_status* sluice_session_counters(const sluice_session* session, sluice_counters** counters) {
  return guarded([&] {
    const char* where = "sluice_session_counters";
    check_pointer(counters, where, "counters");
    const auto object = get<SessionObject>(session, where, "a session");
    *counters = handles().add<sluice_counters>(std::make_shared<api::Counters>(object->session.counters()));
  });
}
void sluice_counters_destroy(sluice_counters* counters) { handles().remove(counters); }

sluice_status* sluice_counters_totals(const sluice_counters* counters, sluice_totals* totals) {
  return guarded([&] {
    const char* where = "sluice_counters_totals";
    const auto c = get<api::Counters>(counters, where, "counters");
    give_struct(
        {0, c->submitted, c->finished, c->failed, c->in_flight, c->max_in_flight, c->bytes, c->mapped, c->input_copies,
         c->output_copies, c->actors.size(), c->streams.size(), c->registers.size(), c->waiting, c->shared},
        totals, where, "totals");
  });
}

sluice_status* sluice_counters_actor(const sluice_counters* counters, size_t index, sluice_actor_counters* actor) {
  return guarded([&] {
    const char* where = "sluice_counters_actor";
    const auto c = get<api::Counters>(counters, where, "counters");
    const api::Counters::Actor& a = entry(c->actors, index, where);
    give_struct({0, a.name.c_str(), a.firings, a.waits, a.busy_ns, a.stream}, actor, where, "actor");
  });
}

sluice_status* sluice_counters_stream(const sluice_counters* counters, size_t index, sluice_stream_counters* stream) {
  return guarded([&] {
    const char* where = "sluice_counters_stream";
    const auto c = get<api::Counters>(counters, where, "counters");
    const api::Counters::Stream& s = entry(c->streams, index, where);
    give_struct({0, s.name.c_str(), s.busy_ns, s.parks}, stream, where, "stream");
  });
}

sluice_status* sluice_counters_register(const sluice_counters* counters, size_t index,
                                        sluice_register_counters* counted) {
  return guarded([&] {
    const char* where = "sluice_counters_register";
    const auto c = get<api::Counters>(counters, where, "counters");
    const api::Counters::Register& r = entry(c->registers, index, where);
    give_struct({0, r.name.c_str(), r.tokens, r.quota, r.used, r.ready, r.peak}, counted, where, "counted");
  });
}

const char* sluice_counters_text(const sluice_counters* counters) {
  return answered("", [&] { return get<api::Counters>(counters, "", "")->text.c_str(); });
}
