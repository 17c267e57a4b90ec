// The C API on top of the C++ one: shared arenas, sessions, steps.
#include <atomic>
#include <optional>

#include "runtime/api/c_support.h"

namespace api = sluice::api;
using namespace sluice::c_api;

namespace {

// Calls a caller's function with the outputs as handles that end with it. It cannot throw.
template <class Call>
void with_handles(const std::vector<api::Tensor>& outputs, Call&& call) {
  std::vector<sluice_tensor*> tensors(outputs.size());
  give(outputs, tensors.data());
  call(tensors.data(), tensors.size());
  for (sluice_tensor* tensor : tensors) handles().remove(tensor);
}

auto on_output_of(const sluice_session_options& options) {
  return [call = options.on_output, context = options.context](uint64_t step, const std::vector<api::Tensor>& outputs,
                                                               const std::string& error) {
    with_handles(outputs, [&](sluice_tensor** tensors, size_t n) { call(context, step, tensors, n, error.c_str()); });
  };
}

auto on_done_of(const sluice_step_options& options) {
  return [call = options.on_done, context = options.context](const std::vector<api::Tensor>& outputs,
                                                             const std::string& error) {
    with_handles(outputs, [&](sluice_tensor** tensors, size_t n) { call(context, tensors, n, error.c_str()); });
  };
}

// Options of C as those of C++; `what` is for errors.
void take_option(int32_t given, int& option, const char* /*where*/, const char* /*what*/) { option = given; }
void take_option(int64_t given, bool& option, const char* /*where*/, const char* /*what*/) { option = given != 0; }
void take_option(int64_t given, std::chrono::milliseconds& option, const char* where, const char* what) {
  option = timeout_of(given, where, what);
}
void take_option(int64_t given, std::chrono::microseconds& option, const char* /*where*/, const char* /*what*/) {
  option = std::chrono::microseconds(given);
}

api::SessionOptions options_of(const sluice_session_options* options, const char* where) {
  const sluice_session_options o = read_options(options, SLUICE_SESSION_OPTIONS_INIT, where);
  api::SessionOptions given;
#define OPTION(...)
#define OBJECT(...)
#define PUBLIC(type, name, c_name, ...) take_option(o.c_name, given.name, where, #c_name);
#include "runtime/options.inc"
  if (o.on_output != nullptr) given.on_output = on_output_of(o);
  if (o.arenas != nullptr) given.arenas = get<ArenasObject>(o.arenas, where, "arenas")->arenas;
  for (size_t i = 0; i < o.num_weights; ++i) {
    const char* const name = check_pointer(o.weight_names, where, "weight_names")[i];
    sluice_tensor* const weight = check_pointer(o.weights, where, "weights")[i];
    given.weights.push_back(
        {check_pointer(name, where, "a name of weight_names"), *get<api::Tensor>(weight, where, "a weight")});
  }
  for (size_t i = 0; i < o.num_data_roots; ++i) {
    const char* const* const pair = check_pointer(o.data_roots, where, "data_roots") + 2 * i;
    given.data_roots.push_back({check_pointer(pair[0], where, "a folder of data_roots"),
                                check_pointer(pair[1], where, "a folder of data_roots")});
  }
  return given;
}

void add_session(sluice_session** session, const std::shared_ptr<api::Engine>& engine, api::Session loaded) {
  *session = handles().add<sluice_session>(std::make_shared<SessionObject>(SessionObject{engine, std::move(loaded)}));
}

api::StepOptions options_of(const sluice_step_options* options, const char* where) {
  const sluice_step_options o = read_options(options, SLUICE_STEP_OPTIONS_INIT, where);
  api::StepOptions given;
  if (o.tag != nullptr) given.tag = o.tag;
  if (o.outputs != nullptr) given.outputs = tensors_in(o.outputs, o.num_outputs, where);
  if (o.on_done != nullptr) given.on_done = on_done_of(o);
  given.deadline = timeout_of(o.deadline_ms, where, "deadline_ms");
  given.priority = o.priority;
  return given;
}

// The frame of those that start a step. `start` gives a result, or nothing.
template <class Start>
sluice_status* start_step(const char* where, sluice_session* session, sluice_tensor* const* inputs, size_t num_inputs,
                          const sluice_step_options* options, sluice_step** step, Start&& start) {
  return guarded([&] {
    check_pointer(step, where, "step");
    auto object = get<SessionObject>(session, where, "a session");
    const api::StepOptions o = options_of(options, where);
    auto tensors = tensors_of(inputs, num_inputs, object->session.inputs().size(), where);
    auto made = std::make_shared<StepObject>(StepObject{object, {}});
    sluice_step* const handle = handles().add<sluice_step>(made);
    bool started = false;
    try {
      std::optional<api::Result> result = start(object->session, std::move(tensors), o);
      started = result.has_value();
      if (started) made->result = *std::move(result);
    } catch (...) {
      handles().remove(handle);
      throw;
    }
    if (!started) handles().remove(handle);
    *step = started ? handle : nullptr;
  });
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
    add_session(session, owner, api::Session::load(*owner, bundle, options_of(options, where)));
  });
}

sluice_status* sluice_session_load_memory(sluice_engine* engine, const void* archive, size_t bytes,
                                          void (*release)(void* context), void* context,
                                          const sluice_session_options* options, sluice_session** session) {
  return guarded([&] {
    const char* where = "sluice_session_load_memory";
    check_pointer(session, where, "session");
    const auto owner = get<api::Engine>(engine, where, "an engine");
    check_pointer(archive, where, "archive");
    // It is the engine's once it has been loaded, and not before.
    const auto call = std::make_shared<std::atomic<bool>>(false);
    const std::shared_ptr<const void> kept(archive, [call, release, context](const void*) {
      if (release != nullptr && *call) release(context);
    });
    api::Session loaded = api::Session::load(*owner, kept, bytes, options_of(options, where));
    add_session(session, owner, std::move(loaded));
    *call = true;
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

sluice_status* sluice_session_run_into(sluice_session* session, sluice_tensor* const* inputs, size_t num_inputs,
                                       sluice_tensor* const* outputs, size_t num_outputs) {
  return guarded([&] {
    const char* where = "sluice_session_run_into";
    const auto object = get<SessionObject>(session, where, "a session");
    const auto tensors = tensors_of(inputs, num_inputs, object->session.inputs().size(), where);
    if (num_outputs > 0) check_pointer(outputs, where, "outputs");
    object->session.run_into(tensors, tensors_in(outputs, num_outputs, where));
  });
}

sluice_status* sluice_session_submit(sluice_session* session, sluice_tensor* const* inputs, size_t num_inputs,
                                     sluice_step** step) {
  return sluice_session_submit_with(session, inputs, num_inputs, nullptr, step);
}
sluice_status* sluice_session_submit_with(sluice_session* session, sluice_tensor* const* inputs, size_t num_inputs,
                                          const sluice_step_options* options, sluice_step** step) {
  return start_step("sluice_session_submit", session, inputs, num_inputs, options, step,
                    [](api::Session& on, std::vector<api::Tensor> tensors, const api::StepOptions& o) {
                      return std::optional(on.submit(tensors, o));
                    });
}

sluice_status* sluice_session_try_submit(sluice_session* session, sluice_tensor* const* inputs, size_t num_inputs,
                                         sluice_step** step) {
  return sluice_session_try_submit_with(session, inputs, num_inputs, nullptr, step);
}
sluice_status* sluice_session_try_submit_with(sluice_session* session, sluice_tensor* const* inputs, size_t num_inputs,
                                              const sluice_step_options* options, sluice_step** step) {
  return start_step("sluice_session_try_submit", session, inputs, num_inputs, options, step,
                    [](api::Session& on, std::vector<api::Tensor> tensors, const api::StepOptions& o) {
                      return on.try_submit(tensors, o);
                    });
}

sluice_status* sluice_session_hand_over(sluice_session* session, sluice_tensor* const* inputs, size_t num_inputs,
                                        sluice_step** step) {
  return sluice_session_hand_over_with(session, inputs, num_inputs, nullptr, step);
}
sluice_status* sluice_session_hand_over_with(sluice_session* session, sluice_tensor* const* inputs, size_t num_inputs,
                                             const sluice_step_options* options, sluice_step** step) {
  sluice_status* const status =
      start_step("sluice_session_hand_over", session, inputs, num_inputs, options, step,
                 [](api::Session& on, std::vector<api::Tensor> tensors, const api::StepOptions& o) {
                   return std::optional(on.hand_over(std::move(tensors), o));
                 });
  for (size_t i = 0; status == nullptr && i < num_inputs; ++i) handles().remove(inputs[i]);
  return status;
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
sluice_status* sluice_step_cancel(sluice_step* step, int* cancelled) {
  return guarded([&] {
    const bool done = get<StepObject>(step, "sluice_step_cancel", "a step")->result.cancel();
    if (cancelled != nullptr) *cancelled = done ? 1 : 0;
  });
}
void sluice_step_destroy(sluice_step* step) { handles().remove(step); }
