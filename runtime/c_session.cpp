// The C API on top of the C++ one: shared arenas, sessions, steps.
#include "runtime/c_support.h"

namespace api = sluice::api;
using namespace sluice::c_api;

namespace {

// The caller's function, with the outputs as handles that end with it. It cannot throw.
auto on_output_of(const sluice_session_options& options) {
  return [call = options.on_output, context = options.context](uint64_t step, const std::vector<api::Tensor>& outputs,
                                                               const std::string& error) {
    std::vector<sluice_tensor*> tensors(outputs.size());
    give(outputs, tensors.data());
    call(context, step, tensors.data(), tensors.size(), error.c_str());
    for (sluice_tensor* tensor : tensors) handles().remove(tensor);
  };
}

}  // namespace

sluice_status* sluice_arenas_create(sluice_engine* engine, sluice_arenas** arenas) {
  return guarded([&] {
    const char* where = "sluice_arenas_create";
    check_pointer(arenas, where, "arenas");
    const auto owner = get<api::Engine>(engine, where, "an engine");
    *arenas =
        handles().add<sluice_arenas>(std::make_shared<ArenasObject>(ArenasObject{owner, api::SharedArenas(*owner)}));
  });
}
sluice_status* sluice_arenas_reserve(sluice_arenas* arenas, const sluice_plan* plan) {
  return guarded([&] {
    const char* where = "sluice_arenas_reserve";
    const auto object = get<ArenasObject>(arenas, where, "arenas");
    object->arenas.reserve(get<PlanObject>(plan, where, "a plan")->plan);
  });
}
uint64_t sluice_arenas_bytes(const sluice_arenas* arenas) {
  return answered<uint64_t>(0, [&] { return get<ArenasObject>(arenas, "", "")->arenas.bytes(); });
}
void sluice_arenas_destroy(sluice_arenas* arenas) { handles().remove(arenas); }

sluice_status* sluice_session_load(sluice_engine* engine, const char* bundle, const sluice_session_options* options,
                                   sluice_session** session) {
  return guarded([&] {
    const char* where = "sluice_session_load";
    check_pointer(session, where, "session");
    const auto owner = get<api::Engine>(engine, where, "an engine");
    check_pointer(bundle, where, "bundle");
    const sluice_session_options o = read_options(options, SLUICE_SESSION_OPTIONS_INIT, where);
    api::SessionOptions given;
    given.max_in_flight = o.max_in_flight;
    given.check_numerics = o.check_numerics != 0;
    given.zero_copy = o.zero_copy != 0;
    given.submit_timeout = timeout_of(o.submit_timeout_ms, where, "submit_timeout_ms");
    given.wait_timeout = timeout_of(o.wait_timeout_ms, where, "wait_timeout_ms");
    if (o.on_output != nullptr) given.on_output = on_output_of(o);
    if (o.arenas != nullptr) given.arenas = get<ArenasObject>(o.arenas, where, "arenas")->arenas;
    *session = handles().add<sluice_session>(
        std::make_shared<SessionObject>(SessionObject{owner, api::Session::load(*owner, bundle, std::move(given))}));
  });
}

void sluice_session_destroy(sluice_session* session) { handles().remove(session); }

size_t sluice_session_num_inputs(const sluice_session* session) {
  return answered<size_t>(0, [&] { return get<SessionObject>(session, "", "")->session.inputs().size(); });
}
size_t sluice_session_num_outputs(const sluice_session* session) {
  return answered<size_t>(0, [&] { return get<SessionObject>(session, "", "")->session.outputs().size(); });
}
sluice_status* sluice_session_input(const sluice_session* session, size_t index, sluice_port* port) {
  return guarded([&] {
    const char* where = "sluice_session_input";
    give_port(get<SessionObject>(session, where, "a session")->inputs, index, port, where);
  });
}
sluice_status* sluice_session_output(const sluice_session* session, size_t index, sluice_port* port) {
  return guarded([&] {
    const char* where = "sluice_session_output";
    give_port(get<SessionObject>(session, where, "a session")->outputs, index, port, where);
  });
}

sluice_status* sluice_session_run(sluice_session* session, sluice_tensor* const* inputs, size_t num_inputs,
                                  sluice_tensor** outputs, size_t num_outputs) {
  return guarded([&] {
    const char* where = "sluice_session_run";
    const auto object = get<SessionObject>(session, where, "a session");
    const auto tensors = tensors_of(inputs, num_inputs, object->session.inputs().size(), where);
    check_outputs(outputs, num_outputs, object->session.outputs().size(), where);
    give(object->session.run(tensors), outputs);
  });
}

sluice_status* sluice_session_submit(sluice_session* session, sluice_tensor* const* inputs, size_t num_inputs,
                                     sluice_step** step) {
  return guarded([&] {
    const char* where = "sluice_session_submit";
    check_pointer(step, where, "step");
    auto object = get<SessionObject>(session, where, "a session");
    const auto tensors = tensors_of(inputs, num_inputs, object->session.inputs().size(), where);
    api::Result result = object->session.submit(tensors);
    *step = handles().add<sluice_step>(std::make_shared<StepObject>(StepObject{std::move(object), std::move(result)}));
  });
}

sluice_status* sluice_session_try_submit(sluice_session* session, sluice_tensor* const* inputs, size_t num_inputs,
                                         sluice_step** step) {
  return guarded([&] {
    const char* where = "sluice_session_try_submit";
    check_pointer(step, where, "step");
    auto object = get<SessionObject>(session, where, "a session");
    const auto tensors = tensors_of(inputs, num_inputs, object->session.inputs().size(), where);
    std::optional<api::Result> result = object->session.try_submit(tensors);
    *step = result ? handles().add<sluice_step>(
                         std::make_shared<StepObject>(StepObject{std::move(object), *std::move(result)}))
                   : nullptr;
  });
}

sluice_status* sluice_session_hand_over(sluice_session* session, sluice_tensor* const* inputs, size_t num_inputs,
                                        sluice_step** step) {
  return guarded([&] {
    const char* where = "sluice_session_hand_over";
    check_pointer(step, where, "step");
    auto object = get<SessionObject>(session, where, "a session");
    auto made = std::make_shared<StepObject>(StepObject{object, {}});
    sluice_step* const handle = handles().add<sluice_step>(made);
    try {
      made->result = object->session.hand_over(tensors_of(inputs, num_inputs, object->session.inputs().size(), where));
    } catch (...) {
      handles().remove(handle);
      throw;
    }
    for (size_t i = 0; i < num_inputs; ++i) handles().remove(inputs[i]);
    *step = handle;
  });
}

sluice_status* sluice_session_wait_all(sluice_session* session) {
  return guarded([&] { get<SessionObject>(session, "sluice_session_wait_all", "a session")->session.wait_all(); });
}
sluice_status* sluice_session_reset(sluice_session* session) {
  return guarded([&] { get<SessionObject>(session, "sluice_session_reset", "a session")->session.reset(); });
}
sluice_status* sluice_session_stop(sluice_session* session) {
  return guarded([&] { get<SessionObject>(session, "sluice_session_stop", "a session")->session.stop(); });
}

uint64_t sluice_step_number(const sluice_step* step) {
  return answered<uint64_t>(0, [&] { return get<StepObject>(step, "", "")->result.step(); });
}
int sluice_step_ready(const sluice_step* step) {
  return answered(0, [&] { return get<StepObject>(step, "", "")->result.ready() ? 1 : 0; });
}
sluice_status* sluice_step_wait(sluice_step* step, int64_t timeout_ms) {
  return guarded([&] {
    const char* where = "sluice_step_wait";
    const auto object = get<StepObject>(step, where, "a step");
    if (timeout_ms < 0)
      object->result.get();
    else
      object->result.get(timeout_of(timeout_ms, where, "timeout_ms"));
  });
}
sluice_status* sluice_step_outputs(sluice_step* step, sluice_tensor** outputs, size_t num_outputs) {
  return guarded([&] {
    const char* where = "sluice_step_outputs";
    const auto object = get<StepObject>(step, where, "a step");
    check_outputs(outputs, num_outputs, object->session->session.outputs().size(), where);
    give(object->result.get(), outputs);
  });
}
void sluice_step_destroy(sluice_step* step) { handles().remove(step); }
