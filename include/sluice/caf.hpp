#pragma once
// Sessions as actors of the C++ Actor Framework (CAF 0.17), for services that speak actors already. Needs CAF's headers
// and library besides Sluice's: the CMake target sluice::caf brings both.
//
//   sluice::api::Engine engine;                       // outlives the actors
//   ::caf::actor_system_config config;
//   sluice::caf::configure(config);
//   ::caf::actor_system system{config};
//   auto net = sluice::caf::spawn_session(system, sluice::caf::bundle(engine, "out/digits"));
//   self->request(net, ::caf::infinite, Tensors{{images}}).then([](Tensors& logits) { ... });
//
// A session actor takes requests of any number of senders, answers each with the outputs or an error, and pipelines
// them as the plan allows. Links, monitors and exit messages work as with every actor; its end cancels what is in
// flight.
#include <caf/all.hpp>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "error.h"
#include "session.h"
#include "tensor.h"

namespace sluice::caf {

// The inputs, or the outputs, of a step in the plan's order. Within a process tensors are shared, not copied.
struct Tensors {
  std::vector<api::Tensor> values;
};

namespace detail {

// A tensor on its way between processes.
struct Wire {
  uint8_t dtype = 0;
  std::vector<int64_t> shape;
  std::string bytes;
};
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Wire& wire) {
  return f(::caf::meta::type_name("sluice.tensor"), wire.dtype, wire.shape, wire.bytes);
}

// Are these the bytes of a tensor? Asked before memory is taken for one.
inline bool fits(const Wire& wire) {
  if (wire.dtype > static_cast<uint8_t>(api::DType::kComplex128)) return false;
  uint64_t bytes = api::dtype_size(static_cast<api::DType>(wire.dtype));
  for (const int64_t d : wire.shape)
    if (d < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(d), &bytes)) return false;
  return bytes == wire.bytes.size();
}

// A step of a session is over, as its engine says.
struct StepDone {
  uint64_t step = 0;
};
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, StepDone& done) {
  return f(::caf::meta::type_name("sluice.step_done"), done.step);
}

inline ::caf::atom_value category() { return ::caf::atom("sluice"); }

}  // namespace detail

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Tensors& tensors) {
  std::vector<detail::Wire> wires;
  for (const api::Tensor& tensor : tensors.values)
    wires.push_back({static_cast<uint8_t>(tensor.dtype()), tensor.shape(),
                     std::string(static_cast<const char*>(tensor.raw()), tensor.bytes())});
  const auto read = [&]() -> ::caf::error {
    tensors.values.clear();
    for (const detail::Wire& wire : wires) {
      if (!detail::fits(wire)) return ::caf::sec::invalid_argument;
      api::Tensor& tensor = tensors.values.emplace_back(static_cast<api::DType>(wire.dtype), wire.shape);
      std::memcpy(tensor.raw(), wire.bytes.data(), wire.bytes.size());
    }
    return ::caf::none;
  };
  return f(::caf::meta::type_name("sluice.tensors"), wires, ::caf::meta::load_callback(read));
}

// An error of Sluice's as CAF carries it: category "sluice", the kind as its code, the text as its context.
inline ::caf::error to_error(api::ErrorKind kind, const std::string& text) {
  return {static_cast<uint8_t>(static_cast<int>(kind) + 1), detail::category(), ::caf::make_message(text)};
}
inline bool is_sluice_error(const ::caf::error& error) { return error.category() == detail::category(); }
// REQUIRES: is_sluice_error(error).
inline api::ErrorKind kind_of(const ::caf::error& error) { return static_cast<api::ErrorKind>(error.code() - 1); }
inline std::string message_of(const ::caf::error& error) {
  return error.context().match_elements<std::string>() ? error.context().get_as<std::string>(0) : std::string();
}

// Lets a system show these errors as text, and send Tensors to other processes.
inline void configure(::caf::actor_system_config& config) {
  config.add_message_type<Tensors>("sluice.tensors");
  config.add_error_category(detail::category(), [](uint8_t, ::caf::atom_value, const ::caf::message& context) {
    return context.match_elements<std::string>() ? context.get_as<std::string>(0)
                                                 : std::string("sluice: unknown error");
  });
}

using SessionActor = ::caf::typed_actor<::caf::replies_to<Tensors>::with<Tensors>>;

// Makes a session with these options, of which on_output is taken. Called again for every restart.
using Loader = std::function<api::Session(api::SessionOptions)>;
inline Loader bundle(api::Engine& engine, std::string path) {
  return [&engine, path = std::move(path)](api::SessionOptions options) {
    return api::Session::load(engine, path, std::move(options));
  };
}

struct SessionActorOptions {
  api::SessionOptions session = {};  // on_output is the actor's own; device_ports must be off, since messages travel
  // Requests that may wait for a free place in the pipeline. One more is answered at once, with a kRuntime error.
  size_t max_waiting = 64;
  // After such an error of a step the session cannot go on: the actor ends with it.
  std::function<bool(const api::Error&)> fatal = [](const api::Error& error) {
    return error.kind() == api::ErrorKind::kDevice;
  };
};

namespace detail {

using SessionInside = ::caf::typed_actor<::caf::replies_to<Tensors>::with<Tensors>, ::caf::reacts_to<StepDone>>;
using Promise = ::caf::typed_response_promise<Tensors>;

// Where a session's engine leaves word of finished steps. Knows the actor by a weak pointer, for the actor owns the
// session, which owns this.
struct Door {
  std::mutex mutex;
  ::caf::weak_actor_ptr actor;
  void tell(uint64_t step) {
    ::caf::strong_actor_ptr to;
    {
      std::lock_guard lock(mutex);
      to = actor.lock();
    }
    if (to != nullptr) ::caf::anon_send(::caf::actor_cast<::caf::actor>(to), StepDone{step});
  }
};

// Ends as the actor does, before monitors are told.
struct SessionState {
  ~SessionState() { refuse_all(to_error(api::ErrorKind::kCancelled, "session actor: it has ended")); }

  std::unique_ptr<api::Session> session;
  SessionActorOptions options;
  std::deque<std::pair<Tensors, Promise>> waiting;
  std::map<uint64_t, std::pair<api::Result, Promise>> running;

  // False when it has to wait.
  bool start(const Tensors& inputs, Promise& promise) {
    try {
      // With no step at work there is a place, if not at once.
      std::optional<api::Result> result =
          running.empty() ? session->submit(inputs.values) : session->try_submit(inputs.values);
      if (!result) return false;
      running.emplace(result->step(), std::pair(*result, promise));
    } catch (const api::Error& error) {
      promise.deliver(to_error(error.kind(), error.what()));
    }
    return true;
  }
  void start_waiting() {
    while (!waiting.empty() && start(waiting.front().first, waiting.front().second)) waiting.pop_front();
  }
  // Everyone who still waits gets `error`.
  void refuse_all(const ::caf::error& error) {
    for (auto& [step, request] : running) request.second.deliver(error);
    for (auto& [inputs, promise] : waiting) promise.deliver(error);
    running.clear();
    waiting.clear();
  }
};

inline SessionInside::behavior_type session_behavior(SessionInside::stateful_pointer<SessionState> self,
                                                     const std::shared_ptr<api::Session>& session,
                                                     const SessionActorOptions& options) {
  SessionState& state = self->state;
  state.session = std::make_unique<api::Session>(std::move(*session));
  state.options = options;
  return {
      [self](Tensors& inputs) -> ::caf::result<Tensors> {
        SessionState& state = self->state;
        if (state.waiting.size() >= state.options.max_waiting)
          return to_error(api::ErrorKind::kRuntime, "session actor: " + std::to_string(state.waiting.size()) +
                                                        " requests wait already; at most max_waiting may");
        Promise promise = self->make_response_promise<Tensors>();
        if (!state.waiting.empty() || !state.start(inputs, promise))
          state.waiting.emplace_back(std::move(inputs), promise);
        return promise;
      },
      [self](const StepDone& done) {
        SessionState& state = self->state;
        auto node = state.running.extract(done.step);
        if (node.empty()) return;
        auto& [result, promise] = node.mapped();
        try {
          promise.deliver(Tensors{result.get()});
        } catch (const api::Error& error) {
          const ::caf::error reason = to_error(error.kind(), error.what());
          promise.deliver(reason);
          if (state.options.fatal(error)) {
            state.refuse_all(reason);
            self->quit(reason);
            return;
          }
        }
        state.start_waiting();
      },
  };
}

}  // namespace detail

// Loads a session on this thread, and gives it to a new actor. Throws what the loader throws; kUnsupported for
// device_ports.
inline SessionActor spawn_session(::caf::actor_system& system, const Loader& loader, SessionActorOptions options = {}) {
  if (options.session.device_ports)
    throw api::Error(api::ErrorKind::kUnsupported,
                     "session actor: device_ports: messages hold host memory; must be off");
  const auto door = std::make_shared<detail::Door>();
  options.session.on_output = [door](uint64_t step, const std::vector<api::Tensor>&, const std::string&) {
    door->tell(step);
  };
  const auto session = std::make_shared<api::Session>(loader(options.session));
  const auto actor = system.spawn(detail::session_behavior, session, options);
  std::lock_guard lock(door->mutex);
  door->actor = ::caf::actor_cast<::caf::weak_actor_ptr>(actor);
  return actor;
}

struct RestartPolicy {
  int max_restarts = 3;  // within the window; then the supervisor gives up, and ends with the reason
  std::chrono::seconds window{60};
};

namespace detail {

using SupervisorInside = ::caf::typed_actor<::caf::replies_to<Tensors>::with<Tensors>, ::caf::reacts_to<SessionActor>,
                                            ::caf::reacts_to<::caf::error>>;

struct SupervisorState {
  ~SupervisorState() {
    if (session != nullptr) ::caf::anon_send_exit(session, ::caf::exit_reason::user_shutdown);
  }

  SessionActor session;  // null while it is being restarted
  std::deque<std::chrono::steady_clock::time_point> restarts;
  ::caf::error last;
};

inline SupervisorInside::behavior_type supervisor_behavior(SupervisorInside::stateful_pointer<SupervisorState> self,
                                                           const SessionActor& first, const Loader& loader,
                                                           const SessionActorOptions& options,
                                                           const RestartPolicy& policy) {
  self->state.session = first;
  self->monitor(first);
  // On a thread of its own, since loading takes a while and this actor answers meanwhile.
  const auto restart = [self, loader, options, policy](const ::caf::error& reason) {
    SupervisorState& state = self->state;
    state.session = nullptr;
    state.last = reason;
    const auto now = std::chrono::steady_clock::now();
    while (!state.restarts.empty() && now - state.restarts.front() > policy.window) state.restarts.pop_front();
    if (state.restarts.size() >= static_cast<size_t>(policy.max_restarts)) return self->quit(reason);
    state.restarts.push_back(now);
    const SupervisorInside supervisor = self;
    self->system().template spawn<::caf::detached>([supervisor, loader, options](::caf::event_based_actor* helper) {
      try {
        helper->send(supervisor, spawn_session(helper->system(), loader, options));
      } catch (const api::Error& error) {
        helper->send(supervisor, to_error(error.kind(), error.what()));
      }
    });
  };
  self->set_down_handler([self, restart](const ::caf::down_msg& down) {
    if (self->state.session == nullptr || down.source != self->state.session.address()) return;
    const bool asked = !down.reason || down.reason == ::caf::exit_reason::user_shutdown;
    asked ? self->quit(down.reason) : restart(down.reason);
  });
  return {
      [self](Tensors& inputs) -> ::caf::result<Tensors> {
        SupervisorState& state = self->state;
        if (state.session == nullptr)
          return to_error(api::ErrorKind::kRuntime,
                          "session actor: it is being restarted after: " + message_of(state.last) + "; ask again");
        return self->delegate(state.session, std::move(inputs));
      },
      [self](const SessionActor& session) {
        self->state.session = session;
        self->monitor(session);
      },
      [restart](const ::caf::error& reason) { restart(reason); },
  };
}

}  // namespace detail

// The same with a supervisor before it, which loads the session anew, by `policy`, when it has ended with an error, and
// tells requests in the meantime so. The loader may choose another device then.
inline SessionActor spawn_supervised(::caf::actor_system& system, const Loader& loader,
                                     const SessionActorOptions& options = {}, const RestartPolicy& policy = {}) {
  return system.spawn(detail::supervisor_behavior, spawn_session(system, loader, options), loader, options, policy);
}

}  // namespace sluice::caf
