#include "runtime/session/session_core.h"

#include <algorithm>
#include <climits>

#include "actors/stream_executor.h"
#include "base/log.h"
#include "runtime/session/dump.h"
#include "runtime/session/engine.h"
#include "runtime/session/shared_arenas.h"
#include "streams/stream.h"

namespace sluice {

using plan::ActorRole;

namespace {

std::shared_ptr<Turns> turns_of(const SessionCore::Loaded& loaded) {
  const auto& shared = loaded.arena_shared;
  const bool any = std::find(shared.begin(), shared.end(), true) != shared.end();
  return any ? loaded.options.arenas->turns() : nullptr;
}

// Of results, while they are copied.
constexpr double kBytesPerNs = 8;

// A step that takes longer is worth that its caller makes itself another team of threads, if it needs one again.
constexpr double kWorthATeamNs = 2e6;

// What the longest of its actors is predicted to compute on several cores.
double longest_on_several_cores_ns(const plan::Plan& plan) {
  double longest = 0;
  for (const plan::Actor& actor : plan.actors) {
    double cost_ns = 0;
    for (const plan::Instr& instr : actor.program)
      if (instr.kind == plan::InstrKind::kRun) cost_ns += plan.kernels[instr.index].cost_ns;
    if (plan.streams[actor.stream].cores > 1) longest = std::max(longest, cost_ns);
  }
  return longest;
}

}  // namespace

SessionCore::SessionCore(Engine& engine, std::unique_ptr<Loaded> loaded)
    : engine_(engine),
      results_memory_(engine.caching_allocator()),
      manual_(engine.options().manual_stepping),
      loaded_(std::move(loaded)),
      turns_(turns_of(*loaded_)),
      ports_(std::move(loaded_->ports)),
      short_wait_(engine.spins()) {
  const plan::Plan& plan = loaded_->plan;
  loaded_->bindings.chains = loaded_->options.cuda_graphs;
  loaded_->bindings.inline_ns = std::chrono::duration<double, std::nano>(loaded_->options.inline_up_to).count();
  loaded_->bindings.exchanged = loaded_->exchange.registers();
  runner_ = make_runner();
  int room = INT_MAX, ahead = INT_MAX;  // steps that have their slots, at feeds; at sources
  for (int a = 0; a < static_cast<int>(plan.actors.size()); ++a) {
    const plan::Actor& actor = plan.actors[a];
    if (actor.role == ActorRole::kSink) {
      sinks_.push_back({a, actors::outputs_of(plan, runner_->adjacency(), a),
                        static_cast<uint64_t>(firings_per_step(runner_->counts(), a))});
    }
    if (!is_started(actor)) continue;
    int& steps = actor.role == ActorRole::kFeed ? room : ahead;
    for (const int r : runner_->adjacency().out_registers[a]) {
      steps = std::min(steps, plan.registers[r].quota / actor.starts);
      if (actor.role == ActorRole::kFeed)
        fed_.push_back({r, static_cast<uint64_t>(actor.starts), static_cast<uint64_t>(plan.registers[r].quota)});
    }
  }
  if (room == INT_MAX) room = ahead == INT_MAX ? 1 : std::max(1, ahead);
  const int least = least_in_flight();
  const int asked = loaded_->options.max_in_flight;
  max_in_flight_ = asked > 0 ? asked : std::max(room, least);
  SLUICE_CHECK(max_in_flight_ >= least,
               "session '{}': max_in_flight: {}; the plan finishes a step only once {} are in flight, so it must be at "
               "least that",
               plan.name, max_in_flight_, least);
  pending_.resize(static_cast<size_t>(max_in_flight_));
  port_memory_ = std::make_unique<PortMemory>(engine, plan, ports_, std::move(loaded_->exchange), pending_.size());
  port_memory_->bind(*runner_);
  uint64_t bytes = 0;
  for (const plan::Output& output : plan.outputs) bytes += output.view.spec.extent_bytes();
  const SessionOptions& options = loaded_->options;
  brief_sinks_ = (!options.on_output || options.on_output_inline) &&
                 static_cast<double>(bytes) <= kBytesPerNs * loaded_->bindings.inline_ns;
  const double computes_ns = longest_on_several_cores_ns(plan);
  computes_elsewhere_ = !manual_ && computes_ns > loaded_->bindings.inline_ns;
  computes_long_ = computes_ns > kWorthATeamNs;
  lends_outputs_ = std::any_of(ports_.outputs.begin(), ports_.outputs.end(),
                               [](const PortInfo& port) { return port.copied.empty(); });
  if (!fed_.empty() && max_in_flight_ > room) {
    const auto waiting = static_cast<size_t>(max_in_flight_ - room);
    backlog_ = std::make_unique<Backlog>(waiting, ports_, results_memory_);
    in_backlog_.resize(waiting);
  }
  for (const actors::Node* node : runner_->nodes()) {
    if (node->touches_variables()) touching_.push_back(node->actor());
    if (node->writes_variables()) writing_.push_back(node->actor());
  }
}

std::shared_ptr<actors::Runner> SessionCore::make_runner() {
  auto runner = std::make_shared<actors::Runner>(plan(), loaded_->bindings, *this);
  const SessionOptions& options = loaded_->options;
  actors::KernelObservers observers;
  if (!options.dump.empty()) observers.push_back(std::make_shared<Dump>(parse_dump(options.dump)));  // also what is bad
  if (options.check_numerics) observers.push_back(std::make_shared<actors::NumericsCheck>(options.dump_dir));
  if (!observers.empty() || options.sync_check) runner->observe(std::move(observers));
  return runner;
}

void SessionCore::open() {
  variables_ = std::make_shared<const Variables>(Variables{loaded_->variables, loaded_->packed});
  for (size_t v = 0; v < loaded_->variables.size(); ++v) {
    loaded_->variables[v]->attach(weak_from_this(), loaded_->variable_written[v]);
  }
  for (const auto& copy : loaded_->packed) copy->memory()->attach(weak_from_this(), false);
  try {
    control_ = engine_.actor_system().register_run(*this, runner_->nodes());
    engine_.adopt(shared_from_this());
    if (loaded_->options.trace) runner_->set_trace(true);
    runner_->activate(wait_timeout());
  } catch (...) {
    never_active_ = !runner_->activated();
    throw;
  }
}

std::vector<PortInfo> SessionCore::inputs() const {
  std::vector<PortInfo> infos;
  for (const Ports::Input& port : ports_.inputs) infos.push_back(port.info);
  return infos;
}

std::vector<PortInfo> SessionCore::outputs() const { return ports_.outputs; }

void SessionCore::fail_timeout(const std::string& what, Timeout timeout) const {
  if (const RunnerInUse runner = this->runner(); runner != nullptr) {
    const std::string breach = runner->protocol_breach();
    SLUICE_CHECK_KIND(kRuntime, breach.empty(), "session '{}': protocol: {}", plan().name, breach);
  }
  const std::string report = wait_report();
  const std::string after =
      manual_ ? std::string("and nothing can happen any more")
              : fmt::format("after {} ms", std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count());
  fail(ErrorKind::kTimeout, "session '{}': {} {}; {}", plan().name, what, after,
       report.empty() ? "no actor of the plan is at work" : report);
}

namespace {

// Not a failure of the step: it did not happen.
bool is_end(const Status& status) {
  return status.kind() == ErrorKind::kCancelled || status.kind() == ErrorKind::kEndOfData;
}

}  // namespace

// What a step finds to be updated although it failed. A variable written by a later step too counts as well.
Status SessionCore::with_updates(const Status& status, uint64_t step) const {
  if (status.ok() || is_end(status)) return status;
  std::string names;
  for (size_t v = 0; v < plan().variables.size(); ++v) {
    if (runner_->variable_step(static_cast<int>(v)) <= step) continue;
    names += (names.empty() ? "" : ", ") + plan().variables[v].name;
  }
  return names.empty() ? status : status.with_context("already updated: " + names);
}

// How a step went, all told.
Status SessionCore::outcome(Status status, uint64_t step) {
  for (auto it = failures_.begin(); it != failures_.end() && it->first <= step; it = failures_.erase(it)) {
    // Of several ranks, the first failure here says more than what comes back of it from the others.
    if (status.ok() || (loaded_->world != nullptr && it->first == step)) status = it->second;
  }
  for (size_t f = 0; f < loaded_->files.size() && status.ok(); ++f) status = loaded_->files[f]->check();
  if (status.ok() && closing_ && sinks_.front().next_step <= step) {
    status = {ErrorKind::kCancelled,
              fmt::format("step {}: cancelled: the session was {}", step,
                          abandoned_ ? "destroyed, and abandoned, since it did not end" : "stopped")};
  }
  if (!status.ok() && !session_error_.ok()) status = session_error_;
  return with_updates(status, step);
}

// Called with the lock held; lets go of it while others are told.
StepState* SessionCore::finish_step(std::unique_lock<std::mutex>& lock, uint64_t step) {
  const std::shared_ptr<StepState> state = std::move(pending_[step % pending_.size()]);
  pending_[step % pending_.size()] = nullptr;
  Status status = state != nullptr ? state->pending : Status();
  try {
    status = outcome(std::move(status), step);
  } catch (...) {
    if (status.ok()) status = Status::from_current_exception();
  }
  if (state == nullptr && !status.ok() && !is_end(status) && late_error_.ok()) late_error_ = status;
  if (state != nullptr) status = tagged(status, state->tag);
  StepDone on_done = state != nullptr ? std::exchange(state->on_done, nullptr) : nullptr;
  if (state != nullptr && (loaded_->options.on_output || on_done)) {
    telling_ = state;
    lock.unlock();
    // It is the user's code, and may need what waits for cores.
    if (actors::StreamExecutor* const here = actors::StreamExecutor::current()) here->unlease();
    Status told;
    if (status.ok()) state->cut();
    try {
      if (loaded_->options.on_output) loaded_->options.on_output(step, status, state->outputs);
    } catch (...) {
      told = Status::from_current_exception().with_context("thrown by on_output, which must not throw");
    }
    try {
      if (on_done) on_done(status, state->outputs);
    } catch (...) {
      told = Status::from_current_exception().with_context("thrown by on_done, which must not throw");
    }
    if (on_done) --callbacks_;
    on_done = nullptr;  // what it holds may be anything of the caller's
    lock.lock();
    if (!told.ok() && late_error_.ok()) late_error_ = told;
    if (std::exchange(telling_, nullptr) == nullptr) return nullptr;  // abandoned meanwhile
  }
  conclude(state, status);
  return state != nullptr && state->pooled ? state.get() : nullptr;
}

// From here on callers see that the step is finished, so whoever is told of it has been told. REQUIRES: mutex_ held.
void SessionCore::conclude(const std::shared_ptr<StepState>& state, const Status& status) {
  ++finished_;
  failed_ += !status.ok() && status.kind() != ErrorKind::kEndOfData;
  if (finished_ >= wake_at_) {
    wake_at_ = UINT64_MAX;
    changed_.notify_all();
  }
  offer_room();
  if (state == nullptr) return;
  if (!state->done()) state->finish(status);  // it is, where its caller gave it up
  if (!state->pooled) state->tell();
}

// One thread at a time, so that steps are told of in order; it takes along what others deliver meanwhile.
void SessionCore::finish_delivered(std::unique_lock<std::mutex>& lock) {
  if (std::exchange(finishing_, true)) return;
  const auto delivered = [&] {
    uint64_t least = submitted_;
    for (const Sink& sink : sinks_) least = sink.ended ? least : std::min(least, sink.next_step);
    return least;
  };
  StepState* last = nullptr;
  while (finished_ < delivered()) {
    if (last != nullptr) last->tell();
    last = finish_step(lock, finished_);
  }
  finishing_ = false;
  if (last == nullptr) return;
  lock.unlock();
  last->tell();
}

// Steps that must be in flight, by this plan and, where it is one rank's part, by the whole.
int SessionCore::least_in_flight() const {
  uint64_t least = loaded_->least_in_flight;
  for (const Sink& sink : sinks_) least = std::max(least, runner_->counts().least_in_flight(sink.actor));
  return static_cast<int>(least);
}

// Keeps what an output of the plan says that is no result but how long some are.
Status SessionCore::read_extent(StepState& state, int output, const void* slot) const {
  if (ports_.varying == nullptr) return {};
  for (size_t v = 0; v < ports_.varying->size(); ++v) {
    const Ports::Varying& varying = (*ports_.varying)[v];
    if (varying.of_plan != output) continue;
    const plan::View& view = plan().outputs[output].view;
    const PortInfo& port = ports_.outputs[varying.port];
    int64_t extent = 0;
    try {
      port_memory_->copy_out(view.index, &extent, view.spec, slot, view.spec);
      SLUICE_CHECK(extent >= 0 && extent <= port.type.shape[varying.axis],
                   "session '{}': output '{}': dim '{}' is {} long; must be 0 to {}", plan().name, port.name,
                   varying.dim, extent, port.type.shape[varying.axis]);
    } catch (...) {
      return Status::from_current_exception();
    }
    state.extents[v] = extent;
  }
  return {};
}

void SessionCore::on_sink(int actor, uint64_t step, const Status& status, void* const* outputs) {
  Sink& sink = *std::find_if(sinks_.begin(), sinks_.end(), [&](const Sink& s) { return s.actor == actor; });
  const uint64_t firing = sink.fired++, part = firing % sink.per_step;
  if (sink.per_step > 1) {
    step = firing / sink.per_step;
  } else {
    // Of a period's steps each firing answers its share, also when a later step has made several possible at once.
    const uint64_t per_period = runner_->counts().per_period(actor);
    step = std::min(step, (sink.fired * period() + per_period - 1) / per_period - 1);
  }
  std::unique_lock lock = lock_soon(mutex_);
  for (uint64_t answered = sink.next_step; answered <= step; ++answered) {
    const std::shared_ptr<StepState> state = pending_[answered % pending_.size()];
    if (state == nullptr || !state->pending.ok()) continue;
    if (!status.ok()) {
      state->pending = status;
      continue;
    }
    lock.unlock();
    Status copied;
    for (size_t i = 0; i < sink.outputs.size(); ++i) {
      const int port = ports_.output_of[sink.outputs[i]];
      if (port < 0) {
        const Status read = read_extent(*state, sink.outputs[i], outputs[i]);
        if (copied.ok()) copied = read;
        continue;
      }
      if (ports_.outputs[port].copied.empty() && !state->given) {
        port_memory_->hand_out(port, firing, *runner_, state->outputs[port].storage);
        continue;
      }
      ++output_copies_;
      const TensorSpec& spec = plan().outputs[sink.outputs[i]].view.spec;
      const TensorSpec rows = TensorSpec::contiguous({spec.dtype, spec.shape});
      auto* const to = static_cast<std::byte*>(state->outputs[port].storage->data()) + part * rows.extent_bytes();
      try {
        port_memory_->copy_out(plan().outputs[sink.outputs[i]].view.index, to, rows, outputs[i], spec);
      } catch (...) {
        if (copied.ok()) copied = Status::from_current_exception();  // by a device
      }
    }
    lock.lock();
    if (state->pending.ok()) state->pending = copied;
  }
  if (part + 1 == sink.per_step) sink.next_step = std::max(sink.next_step, step + 1);
  finish_delivered(lock);
}

// What was submitted comes to its end, and no more is.
void SessionCore::on_data_end() {
  std::lock_guard lock(mutex_);
  data_ended_ = true;
  runner_->stop();
  wake_room_waiters();
  published_changed_.notify_all();
  changed_.notify_all();
}

// Of a session that goes on: the steps of which this sink has not given all never will be, for want of data.
void SessionCore::on_sink_end(int actor) {
  std::unique_lock lock(mutex_);
  if (closing_) return;
  Sink& sink = *std::find_if(sinks_.begin(), sinks_.end(), [&](const Sink& s) { return s.actor == actor; });
  sink.ended = true;
  for (uint64_t step = sink.next_step; step < submitted_; ++step) {
    const std::shared_ptr<StepState>& state = pending_[step % pending_.size()];
    if (state != nullptr && state->pending.ok()) state->pending = end_of_data(step);
  }
  finish_delivered(lock);
}

Status SessionCore::end_of_data(uint64_t step) const {
  try {
    return {
        ErrorKind::kEndOfData,
        fmt::format("session '{}': step {}: the data of a source has ended; reset() begins anew", plan().name, step)};
  } catch (const std::bad_alloc&) {
    return Status::from_current_exception();
  }
}

void SessionCore::on_input_slots(int reg, uint64_t writable) {
  FedRegister& fed = *std::find_if(fed_.begin(), fed_.end(), [&](const FedRegister& f) { return f.reg == reg; });
  // Let go of without the lock: it may be the last of what callers have handed over.
  const std::shared_ptr<Storage> done =
      writable > fed.quota ? port_memory_->release(reg, writable - fed.quota - 1) : nullptr;
  std::unique_lock lock = lock_soon(mutex_);
  fed.writable = writable;
  offer_room();
  lock.unlock();
  publish_backlog();
}

void SessionCore::offer_room() {
  if (!room_waiters_.empty() && has_capacity()) room_waiters_.front().changed.notify_one();
}

void SessionCore::wake_room_waiters() {
  for (RoomWaiter& waiter : room_waiters_) waiter.changed.notify_one();
}

// " ('name')" of a step that is under way and has a tag; else "".
std::string SessionCore::tag_of(uint64_t step) const {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<StepState>& state = pending_[step % pending_.size()];
  if (state == nullptr || state->step != step || state->tag.empty()) return "";
  try {
    return " ('" + state->tag + "')";
  } catch (const std::bad_alloc&) {
    return "";
  }
}

void SessionCore::on_failure(uint64_t step, const Status& status) {
  const std::string tag = tag_of(step);
  log(LogLevel::kInfo, LogArea::kRuntime, "session '{}': step {}{} failed: {}", plan().name, step, tag,
      status.message());
  std::lock_guard lock(mutex_);
  if (step >= finished_) {
    try {
      failures_.emplace(step, status);
    } catch (const std::bad_alloc&) {
      if (late_error_.ok()) late_error_ = status;  // it reaches wait_all(), if not its handle
    }
    return;
  }
  log(LogLevel::kError, LogArea::kRuntime, "session '{}': step {} had been finished: {}", plan().name, step,
      status.message());
  if (!late_error_.ok()) return;
  try {
    late_error_ = with_updates(status, step);
  } catch (const std::bad_alloc&) {
    late_error_ = status;
  }
}

void SessionCore::on_missed_collective(int kernel, const Status& status) {
  loaded_->communicators.at(plan().kernels[kernel].collective)->miss(status.message());
}

void SessionCore::on_variables_done(bool writes) {
  touches_.fetch_add(1);
  if (writes) write_touches_.fetch_add(1);
  if (idle_waiters_.load() == 0) return;
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void SessionCore::on_actor_down(int actor, const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (closing_ || runner_ == nullptr) return;
  session_error_ = {ErrorKind::kRuntime,
                    fmt::format("session '{}': actor '{}' was ended from outside: {}; load the plan again", plan().name,
                                plan().actors[actor].name, reason)};
  runner_->cancel();
  wake_room_waiters();
}

uint64_t SessionCore::firings() const {
  std::lock_guard lock(mutex_);
  return runner_ == nullptr ? 0 : runner_->total_firings();
}

bool SessionCore::busy() const {
  std::lock_guard lock(mutex_);
  return finished_ < submitted_;
}

void SessionCore::on_stall(std::chrono::milliseconds idle) {
  log(LogLevel::kWarn, LogArea::kRuntime, "session '{}': nothing has fired for {} ms:\n{}", plan().name, idle.count(),
      wait_report());
}

// Stepping cannot be nested, so there every stream's thread is one.
bool SessionCore::waits_for_itself() const {
  return manual_ ? engine_.on_stream_thread() : !closed_ && runner_ != nullptr && runner_->on_own_thread();
}

void SessionCore::check_process() const {
  SLUICE_CHECK_KIND(kRuntime, !forked(),
                    "session '{}': it was loaded before fork(), and threads do not survive that; load plans in the "
                    "process that runs them, or start processes by 'spawn' or 'forkserver'",
                    plan().name);
}

SessionCore::RunnerInUse SessionCore::runner() const {
  check_process();
  std::lock_guard lock(mutex_);
  if (closed_ || runner_ == nullptr) return nullptr;
  ++readers_;
  return {runner_.get(), EndUse{this}};
}

void SessionCore::EndUse::operator()(actors::Runner*) const {
  std::lock_guard lock(core->mutex_);
  if (--core->readers_ == 0) core->changed_.notify_all();
}

}  // namespace sluice
