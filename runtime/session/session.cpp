#include "runtime/session/session.h"

#include <algorithm>

#include "runtime/session/load.h"
#include "runtime/session/session_core.h"

namespace sluice {

uint64_t StepHandle::step() const { return state_->step; }
bool StepHandle::done() const { return state_->done(); }

Status StepHandle::wait() {
  const std::shared_ptr<SessionCore> session = state_->session.lock();
  return session == nullptr ? state_->status() : session->wait_step(*state_, session->wait_timeout());
}

Status StepHandle::wait(Timeout timeout) {
  const std::shared_ptr<SessionCore> session = state_->session.lock();
  return session == nullptr ? state_->status() : session->wait_step(*state_, timeout);
}

const std::vector<OutputTensor>& StepHandle::outputs() {
  wait().throw_if_error();
  state_->cut();
  return state_->outputs;
}

Session Session::load(Engine& engine, plan::Plan plan, const VariableBindings& variables, SessionOptions options) {
  return Session(load_core(engine, std::move(plan), variables, std::move(options)));
}

Session::Session(Session&&) noexcept = default;

Session& Session::operator=(Session&& other) noexcept {
  if (this != &other) {
    if (core_ != nullptr) core_->end(core_->stop_timeout());
    core_ = std::move(other.core_);
  }
  return *this;
}

Session::~Session() {
  if (core_ != nullptr) core_->end(core_->stop_timeout());
}

void Session::stop() {
  if (core_ != nullptr) core_->stop(core_->stop_timeout());
}
void Session::stop(Timeout timeout) {
  if (core_ != nullptr) core_->stop(timeout);
}

const plan::Plan& Session::plan() const { return core_->plan(); }
std::vector<PortInfo> Session::inputs() const { return core_->inputs(); }
std::vector<PortInfo> Session::outputs() const { return core_->outputs(); }

bool StepHandle::cancel() {
  const std::shared_ptr<SessionCore> session = state_->session.lock();
  return session != nullptr && session->cancel_step(*state_);
}

void StepHandle::let_go_of_outputs() {
  if (!state_->given || !state_->done() || !state_->status().ok()) return;  // of one given up a sink may write there
  for (OutputTensor& output : state_->outputs) output.storage.reset();
}

StepHandle Session::submit(std::span<const InputTensor> inputs, const StepCall& call) {
  return *core_->submit(inputs, core_->submit_timeout(), false, call);
}
StepHandle Session::submit(std::span<const InputTensor> inputs, Timeout timeout) {
  return *core_->submit(inputs, timeout, false, {});
}
std::optional<StepHandle> Session::try_submit(std::span<const InputTensor> inputs, const StepCall& call) {
  return core_->submit(inputs, Timeout::zero(), true, call);
}

void Session::start(uint64_t n) { core_->start(n); }
void Session::wait_all() { core_->wait_all(core_->wait_timeout()); }
void Session::reset() { core_->reset(); }
void Session::wait_all(Timeout timeout) { core_->wait_all(timeout); }
void Session::set_quota(const std::string& reg, int slots) { core_->set_quota(reg, slots); }
SessionStats Session::stats() const { return core_->stats(); }
SessionMemory Session::memory() const { return core_->memory(); }
std::string Session::wait_report() const { return core_->wait_report(); }
void Session::set_trace(bool on, bool wait) { core_->set_trace(on, wait); }
bool Session::has_fired(uint64_t steps) const { return core_->has_fired(steps); }
Trace Session::take_trace() { return core_->take_trace(); }
Trace Session::take_trace_by_stream() { return core_->take_trace_by_stream(); }
actors::TraceBell& Session::trace_bell() { return core_->trace_bell(); }
TraceNames Session::trace_names() const { return core_->trace_names(); }

}  // namespace sluice
