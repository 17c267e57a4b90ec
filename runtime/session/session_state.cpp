#include "runtime/session/session_state.h"

#include <algorithm>

#include "actors/stream_executor.h"
#include "runtime/session/dump.h"
#include "runtime/session/shared_arenas.h"

namespace sluice {
namespace {

std::shared_ptr<Turns> turns_of(const LoadedPlan& loaded) {
  const auto& shared = loaded.arena_shared;
  const bool any = std::find(shared.begin(), shared.end(), true) != shared.end();
  return any ? loaded.options.arenas->turns() : nullptr;
}

// Tells the bindings what the options say of how the plan's actors run.
std::unique_ptr<LoadedPlan> with_options(std::unique_ptr<LoadedPlan> loaded) {
  actors::Bindings& bindings = loaded->bindings;
  bindings.chains = loaded->options.cuda_graphs;
  bindings.inline_ns = std::chrono::duration<double, std::nano>(loaded->options.inline_up_to).count();
  bindings.exchanged = loaded->exchange.registers();
  return loaded;
}

}  // namespace

SessionState::SessionState(Engine& its_engine, std::unique_ptr<LoadedPlan> plan, actors::RunListener& listener)
    : engine(its_engine),
      manual(engine.options().manual_stepping),
      loaded(with_options(std::move(plan))),
      turns(turns_of(*loaded)),
      runner(mutex, changed, make_runner(listener)),
      shape(shape_of(*loaded, *runner.get(), manual)),
      ports(engine, loaded->plan, std::move(loaded->ports), std::move(loaded->exchange),
            {static_cast<size_t>(shape.max_in_flight), shape.backlog}),
      accesses(shape.touching, shape.writing),
      short_wait(engine.spins()),
      lifecycle(loaded->plan.name),
      admission(shape.fed, shape.max_in_flight, shape.backlog),
      sinks(shape.sinks, runner.get()->counts().period()),
      book(static_cast<size_t>(shape.max_in_flight)) {
  ports.memory().bind(*runner.get());
}

std::shared_ptr<actors::Runner> SessionState::make_runner(actors::RunListener& listener) const {
  auto made = std::make_shared<actors::Runner>(plan(), loaded->bindings, listener);
  actors::KernelObservers observers;
  if (!options().dump.empty())
    observers.push_back(std::make_shared<Dump>(parse_dump(options().dump)));  // also what is bad
  if (options().check_numerics) observers.push_back(std::make_shared<actors::NumericsCheck>(options().dump_dir));
  if (!observers.empty() || options().sync_check) made->observe(std::move(observers));
  return made;
}

void SessionState::check_process() const {
  SLUICE_CHECK_KIND(kRuntime, !forked(),
                    "session '{}': it was loaded before fork(), and threads do not survive that; load plans in the "
                    "process that runs them, or start processes by 'spawn' or 'forkserver'",
                    plan().name);
}

RunnerUse SessionState::use_runner() {
  check_process();
  const MutexLock lock(mutex);
  return lifecycle.closed() ? RunnerUse() : RunnerUse(runner);
}

bool SessionState::waits_for_itself() const {
  if (manual) return engine.on_stream_thread();
  return !lifecycle.closed() && runner.get() != nullptr && runner.get()->on_own_thread();
}

std::string SessionState::wait_report() {
  const RunnerUse used = use_runner();
  if (!used) return {};
  MutexLock lock(mutex);
  const uint64_t steps = admission.published();
  lock.unlock();
  return used->wait_report(steps);
}

void SessionState::fail_timeout(const std::string& what, Timeout timeout) {
  if (const RunnerUse used = use_runner()) {
    const std::string breach = used->protocol_breach();
    SLUICE_CHECK_KIND(kRuntime, breach.empty(), "session '{}': protocol: {}", plan().name, breach);
  }
  const std::string report = wait_report();
  const std::string after =
      manual ? std::string("and nothing can happen any more")
             : fmt::format("after {} ms", std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count());
  fail(ErrorKind::kTimeout, "session '{}': {} {}; {}", plan().name, what, after,
       report.empty() ? "no actor of the plan is at work" : report);
}

}  // namespace sluice
