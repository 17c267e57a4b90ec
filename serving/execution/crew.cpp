#include "serving/execution/crew.h"

#include <caf/all.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

namespace sluice::serving {

namespace {

using go_atom = caf::atom_constant<caf::atom("go")>;
using tick_atom = caf::atom_constant<caf::atom("tick")>;
using timer_atom = caf::atom_constant<caf::atom("timer")>;
constexpr caf::atom_value kCategory = caf::atom("serving");

caf::error error_of(const std::string& text) { return {1, kCategory, caf::make_message(text)}; }
std::string text_of(const caf::error& error) {
  return error.category() == kCategory && error.context().match_elements<std::string>()
             ? error.context().get_as<std::string>(0)
             : std::string("its actor ended");
}

}  // namespace

struct Crew::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<caf::actor> instances;
  caf::actor supervisor;
  bool ending = false;
  int alive = 0;  // instances that have not ended

  void left() {
    const std::lock_guard lock(mutex);
    --alive;
    changed.notify_all();
  }
};

namespace {

// Counts an actor as long as it lives, and lets go of the work before.
template <class State>
struct Presence {
  std::shared_ptr<State> crew;
  std::shared_ptr<CrewWork> work;
  int instance = -1;  // of the supervisor
  void begin(std::shared_ptr<State> of, std::shared_ptr<CrewWork> with, int number) {
    crew = std::move(of);
    work = std::move(with);
    instance = number;
  }
  ~Presence() {
    if (work != nullptr && instance >= 0) work->unload(instance);
    work = nullptr;
    if (crew != nullptr && instance >= 0) crew->left();
  }
  Clock::time_point armed = Clock::time_point::max();
  std::deque<Clock::time_point> restarts;
};

// One timer is under way at most, apart from later ones that an earlier one has overtaken.
template <class Self>
void come_again(Self* self, Clock::time_point& armed, std::optional<Clock::time_point> next) {
  if (!next || *next >= armed) return;
  armed = *next;
  self->delayed_send(self, std::max(Clock::duration::zero(), *next - Clock::now()), timer_atom::value);
}

template <class State>
caf::behavior instance_behavior(caf::stateful_actor<Presence<State>>* self, const std::shared_ptr<State>& crew,
                                const std::shared_ptr<CrewWork>& work, int instance, bool load) {
  self->state.begin(crew, work, instance);
  const auto guarded = [self](auto&& f) {
    try {
      f();
    } catch (const std::exception& error) {
      self->quit(error_of(error.what()));
    }
  };
  const auto serve = [self, guarded] {
    guarded([&] {
      auto& state = self->state;
      come_again(self, state.armed, state.work->serve(state.instance));
    });
  };
  if (load) {
    guarded([&] { work->load(instance); });
    self->send(self, go_atom::value);
  }
  return {[serve](go_atom) { serve(); },
          [self, serve](timer_atom) {
            self->state.armed = Clock::time_point::max();
            serve();
          }};
}

template <class State>
void hire(caf::actor_system& system, const std::shared_ptr<State>& crew, const std::shared_ptr<CrewWork>& work,
          int instance, bool load) {
  ++crew->alive;
  crew->instances[static_cast<size_t>(instance)] =
      system.spawn<caf::detached>(instance_behavior<State>, crew, work, instance, load);
}

template <class State>
caf::behavior supervisor_behavior(caf::stateful_actor<Presence<State>>* self, const std::shared_ptr<State>& crew,
                                  const std::shared_ptr<CrewWork>& work, const std::vector<caf::actor>& first,
                                  RestartPolicy policy) {
  self->state.begin(crew, work, -1);
  for (const caf::actor& instance : first) self->monitor(instance);
  self->set_down_handler([self, crew, policy](const caf::down_msg& down) {
    auto& state = self->state;
    int instance = -1;
    {
      const std::lock_guard lock(crew->mutex);
      for (size_t i = 0; i < crew->instances.size(); ++i)
        if (crew->instances[i] != nullptr && crew->instances[i].address() == down.source)
          instance = static_cast<int>(i);
      if (instance >= 0) crew->instances[static_cast<size_t>(instance)] = nullptr;
      if (instance < 0 || crew->ending) return;
    }
    const auto now = Clock::now();
    while (!state.restarts.empty() && now - state.restarts.front() > policy.window) state.restarts.pop_front();
    if (state.restarts.size() >= static_cast<size_t>(policy.most)) {
      state.work->gave_up(instance, text_of(down.reason));
      return;
    }
    state.restarts.push_back(now);
    const std::lock_guard lock(crew->mutex);
    if (crew->ending) return;
    hire(self->system(), crew, state.work, instance, true);
    self->monitor(crew->instances[static_cast<size_t>(instance)]);
  });
  const auto tick = [self] { come_again(self, self->state.armed, self->state.work->tick()); };
  return {[tick](tick_atom) { tick(); },
          [self, tick](timer_atom) {
            self->state.armed = Clock::time_point::max();
            tick();
          }};
}

}  // namespace

Crew::Crew(caf::actor_system& system, int instances, std::shared_ptr<CrewWork> work, RestartPolicy policy)
    : state_(std::make_shared<State>()) {
  state_->instances.resize(static_cast<size_t>(instances));
  const std::lock_guard lock(state_->mutex);
  for (int i = 0; i < instances; ++i) hire(system, state_, work, i, false);
  state_->supervisor = system.spawn(supervisor_behavior<State>, state_, work, state_->instances, policy);
}

Crew::~Crew() { end(); }

void Crew::wake(int instance) {
  caf::actor actor;
  {
    const std::lock_guard lock(state_->mutex);
    actor = state_->instances[static_cast<size_t>(instance)];
  }
  if (actor != nullptr) caf::anon_send(actor, go_atom::value);
}

void Crew::tick() {
  caf::actor actor;
  {
    const std::lock_guard lock(state_->mutex);
    actor = state_->supervisor;
  }
  if (actor != nullptr) caf::anon_send(actor, tick_atom::value);
}

void Crew::end() {
  std::vector<caf::actor> all;
  {
    const std::lock_guard lock(state_->mutex);
    if (std::exchange(state_->ending, true)) return;
    all = std::move(state_->instances);
    state_->instances.assign(all.size(), nullptr);
    all.push_back(std::move(state_->supervisor));
    state_->supervisor = nullptr;
  }
  for (const caf::actor& actor : all)
    if (actor != nullptr) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
}

void Crew::wait() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->alive == 0; });
}

}  // namespace sluice::serving
