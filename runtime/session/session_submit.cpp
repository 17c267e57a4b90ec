// The callers' side of a session: submitting steps.
#include <algorithm>

#include "actors/stream_executor.h"
#include "runtime/session/deadlines.h"
#include "runtime/session/engine.h"
#include "runtime/session/session_core.h"
#include "runtime/session/strided_copy.h"

namespace sluice {
namespace {

std::string type_str(const TensorSpec& spec) { return TensorType{spec.dtype, spec.shape}.str(); }

}  // namespace

void SessionCore::check_inputs(std::span<const InputTensor> inputs) const {
  const std::vector<Ports::Input>& expected = ports_.inputs;
  SLUICE_CHECK(inputs.size() == expected.size(), "session '{}': got {} inputs; the plan takes {}", plan().name,
               inputs.size(), expected.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const PortInfo& port = expected[i].info;
    const TensorSpec& got = inputs[i].spec;
    SLUICE_CHECK_KIND(kType, got.dtype == port.type.dtype,
                      "session '{}': input '{}' has the wrong dtype: got {}; expected {}", plan().name, port.name,
                      type_str(got), port.type.str());
    SLUICE_CHECK(got.shape == port.type.shape && got.strides.rank() == got.shape.rank(),
                 "session '{}': input '{}' has the wrong shape: got {}; expected {}", plan().name, port.name,
                 type_str(got), port.type.str());
    SLUICE_CHECK(inputs[i].data != nullptr || numel(got.shape) == 0,
                 "session '{}': input '{}': got no data; expected {}", plan().name, port.name, port.type.str());
    if (inputs[i].storage != nullptr) check_handed_over(i, inputs[i]);
  }
}

void SessionCore::check_handed_over(size_t index, const InputTensor& input) const {
  const PortInfo& port = ports_.inputs[index].info;
  const Storage& storage = *input.storage;
  const auto start = reinterpret_cast<uintptr_t>(input.data) - reinterpret_cast<uintptr_t>(storage.data());
  const uint64_t bytes = input.spec.extent_bytes();
  SLUICE_CHECK(bytes == 0 || (start <= storage.bytes() && bytes <= storage.bytes() - start),
               "session '{}': input '{}': {} bytes at {} of the {} handed over; it must lie within them", plan().name,
               port.name, bytes, static_cast<int64_t>(start), storage.bytes());
  SLUICE_CHECK(storage.space().kind != plan::SpaceKind::kDevice || port_memory_->fits(index, input),
               "session '{}': input '{}': handed over in {}; it must lie in {}", plan().name, port.name,
               storage.space().str(),
               port.space.kind == plan::SpaceKind::kDevice
                   ? port.space.str() + ", contiguous at a multiple of 64 bytes, or in host memory"
                   : "host memory" + (port.copied.empty() ? "" : ", since " + port.copied));
}

void SessionCore::check_outputs(std::span<const OutputTensor> outputs) const {
  if (outputs.empty()) return;
  SLUICE_CHECK(outputs.size() == ports_.outputs.size(), "session '{}': memory for {} results; the plan gives {}",
               plan().name, outputs.size(), ports_.outputs.size());
  for (size_t o = 0; o < outputs.size(); ++o) {
    const PortInfo& port = ports_.outputs[o];
    const OutputTensor& given = outputs[o];
    SLUICE_CHECK(given.type == port.type, "session '{}': output '{}': memory for {}; it is {}", plan().name, port.name,
                 given.type.str(), port.type.str());
    SLUICE_CHECK(given.storage != nullptr &&
                     given.storage->bytes() >= checked_bytes(port.type.shape, dtype_size(port.type.dtype)),
                 "session '{}': output '{}': no memory for all of {}; give a tensor that has it", plan().name,
                 port.name, port.type.str());
    SLUICE_CHECK_KIND(
        kUnsupported, port.space.kind != plan::SpaceKind::kDevice,
        "session '{}': output '{}': memory of a caller's in {}; results lie in {}: give no memory for them",
        plan().name, port.name, given.storage->space().str(), port.space.str());
    SLUICE_CHECK_KIND(kUnsupported, given.storage->space().kind != plan::SpaceKind::kDevice,
                      "session '{}': output '{}': memory of a caller's in {}; it must be the host's", plan().name,
                      port.name, given.storage->space().str());
    const bool varies = ports_.varying != nullptr &&
                        std::any_of(ports_.varying->begin(), ports_.varying->end(),
                                    [&](const Ports::Varying& v) { return v.port == static_cast<int>(o); });
    SLUICE_CHECK_KIND(kUnsupported, !varies,
                      "session '{}': output '{}': its length differs from step to step; run() gives it as it is",
                      plan().name, port.name);
  }
}

// Each firing of a feed gets the next rows of an input, and the whole of a scalar.
void SessionCore::copy_inputs(uint64_t step, std::span<const InputTensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (ports_.inputs[i].info.copied.empty()) continue;
    ++input_copies_;
    TensorSpec part = inputs[i].spec;
    uint64_t part_bytes = 0;  // from one to the next
    const auto parts = static_cast<uint64_t>(ports_.inputs[i].parts);
    if (part.shape.rank() > 0) {
      part.shape[0] /= ports_.inputs[i].parts;
      part_bytes = static_cast<uint64_t>(part.shape[0] * part.strides[0]) * dtype_size(part.dtype);
    }
    for (size_t s = 0; s < ports_.inputs[i].shards.size(); ++s) {
      const plan::Input& input = plan().inputs[ports_.inputs[i].of_plan[s]];
      const plan::Window window = plan::window_of(ports_.inputs[i].shards[s], part);
      const std::vector<std::byte*>& slots = runner_->slots(input.reg);
      for (uint64_t b = 0; b < parts; ++b) {
        port_memory_->copy_in(input.reg, slots[(step * parts + b) % slots.size()], input.spec,
                              static_cast<const std::byte*>(inputs[i].data) + b * part_bytes + window.offset,
                              window.spec);
      }
    }
  }
}

// A device that fails to copy fails the step.
template <class Copy>
void SessionCore::copying(uint64_t step, Copy&& copy) {
  try {
    copy();
  } catch (...) {
    on_failure(step, Status::from_current_exception());
  }
}

void SessionCore::check_open() const {
  session_error_.throw_if_error();
  SLUICE_CHECK_KIND(kRuntime, !closing_, "session '{}' was stopped; load the plan again", plan().name);
  SLUICE_CHECK_KIND(kRuntime, !resetting_, "session '{}' is being reset; submit when that is done", plan().name);
  if (data_ended_) end_of_data(submitted_).throw_if_error();
}

bool SessionCore::has_slots(uint64_t step) const {
  return std::all_of(fed_.begin(), fed_.end(),
                     [&](const FedRegister& fed) { return (step + 1) * fed.starts <= fed.writable; });
}

bool SessionCore::has_capacity() const {
  if (submitted_ - finished_ >= static_cast<uint64_t>(max_in_flight_)) return false;
  return has_slots(submitted_) || (backlog_ != nullptr && submitted_ - published_ < backlog_->capacity());
}

bool SessionCore::may_enter(int priority) const {
  return has_capacity() && (room_waiters_.empty() || room_waiters_.front().priority < priority);
}

// Waits for its turn and for room, or until there will be none. False after `timeout`. REQUIRES: mutex_ held.
bool SessionCore::wait_for_room(std::unique_lock<std::mutex>& lock, int priority, Timeout timeout) {
  const auto ended = [&] { return closing_ || data_ended_ || resetting_ || !session_error_.ok(); };
  if (ended() || may_enter(priority)) return true;
  RoomWaiter self;
  self.priority = priority;
  room_waiters_.insert(std::find_if(room_waiters_.begin(), room_waiters_.end(),
                                    [&](const RoomWaiter& other) { return other.priority < priority; }),
                       self);
  bool room = false;
  const auto leave = [&] {
    room_waiters_.erase(room_waiters_.iterator_to(self));
    if (!room) offer_room();  // what it was woken for, another may have
  };
  try {
    room = wait_for(lock, self.changed, timeout,
                    [&] { return ended() || (&room_waiters_.front() == &self && has_capacity()); });
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    leave();
    throw;
  }
  leave();
  return room;
}

// A step that has no more data is over when the sinks say so.
void SessionCore::publish(uint64_t step) {
  published_ = step + 1;
  if (!data_ended_) runner_->start(1);
  published_changed_.notify_all();
  offer_room();
}

// No submission is under way. What waits in the backlog of a session that ends is never started.
bool SessionCore::none_is_published() const {
  if (publishing_) return false;
  for (uint64_t step = published_; step < submitted_; ++step)
    if (backlog_ == nullptr || !in_backlog_[step % backlog_->capacity()]) return false;
  return true;
}

// Starts what the backlog holds and the plan now has slots for. One thread at a time; it takes along what others bring.
void SessionCore::publish_backlog() {
  if (backlog_ == nullptr) return;
  std::unique_lock lock(mutex_);
  if (std::exchange(publishing_, true)) return;
  while (true) {
    const uint64_t step = published_;
    const size_t entry = step % backlog_->capacity();
    if (step == submitted_ || !in_backlog_[entry] || !has_slots(step) || closing_ || data_ended_) break;
    lock.unlock();
    copying(step, [&] { copy_inputs(step, backlog_->inputs(step)); });
    port_memory_->put(step, *runner_);
    {
      const actors::WakeLater after_the_lock;
      const std::lock_guard publishing(mutex_);
      if (!abandoned_) {
        in_backlog_[entry] = false;
        publish(step);
      }
    }
    lock.lock();
    if (abandoned_) break;
  }
  publishing_ = false;
  published_changed_.notify_all();
}

// Accesses of other sessions that were submitted before come first. Then packed copies show what those have written.
void SessionCore::order_variables() {
  std::unique_lock lock(mutex_);
  const auto variables = variables_;
  lock.unlock();
  if (variables == nullptr) return;
  for (size_t v = 0; v < variables->storages.size(); ++v) {
    if (loaded_->variable_written[v]) {
      variables->storages[v]->before_write(this);
    } else {
      variables->storages[v]->before_read(this);
    }
  }
  for (const auto& copy : variables->packed) copy->refresh();
}

// A caller that is no stream leaves the cores to the threads that compute.
void SessionCore::leave_team() const {
  if (computes_elsewhere_ && actors::StreamExecutor::current() == nullptr) engine_.workers().leave_team(computes_long_);
}

// Of steps that have just been submitted: who sees the new version also waits for them. REQUIRES: mutex_ held.
void SessionCore::count_writes() {
  for (size_t v = 0; v < loaded_->variables.size(); ++v) {
    if (loaded_->variable_written[v]) loaded_->variables[v]->count_write();
  }
}

// Results of states that nobody uses any more go back to where they came from. Without the lock: memory that callers
// have handed over goes as they said.
void SessionCore::let_go_of_results() {
  const auto find = [&]() -> std::shared_ptr<Storage> {
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<StepState>& pooled : pool_) {
      if (!sole_owner(pooled)) continue;
      for (size_t o = 0; o < pooled->outputs.size(); ++o) {
        if ((pooled->given || ports_.outputs[o].copied.empty()) && pooled->outputs[o].storage != nullptr)
          return std::move(pooled->outputs[o].storage);
      }
    }
    return nullptr;
  };
  while (find() != nullptr) {
  }
}

// A state nobody uses any more, or a new one; likewise its results' memory.
std::shared_ptr<StepState> SessionCore::new_state(const StepCall& call) {
  std::shared_ptr<StepState> state;
  for (const std::shared_ptr<StepState>& pooled : pool_) {
    if (!sole_owner(pooled)) continue;
    state = pooled;
    break;
  }
  if (state == nullptr) {
    state = std::make_shared<StepState>();
    state->session = weak_from_this();
    if (pool_.size() < static_cast<size_t>(max_in_flight_) + 2) {
      pool_.push_back(state);
      state->pooled = true;
    }
  }
  state->reset(submitted_);
  state->tag = call.tag;
  state->on_done = call.on_done;
  state->given = !call.outputs.empty();
  state->outputs.resize(ports_.outputs.size());
  state->varying = ports_.varying;
  state->extents.resize(ports_.varying == nullptr ? 0 : ports_.varying->size());
  for (size_t o = 0; o < ports_.outputs.size(); ++o) {
    OutputTensor& output = state->outputs[o];
    output.type = ports_.outputs[o].type;
    if (state->given) {
      output.storage = call.outputs[o].storage;
      continue;
    }
    if (ports_.outputs[o].copied.empty()) {
      output.storage = port_memory_->new_result(static_cast<int>(o));
      continue;
    }
    if (output.storage != nullptr && sole_owner(output.storage) && !output.storage->gone()) continue;
    const uint64_t bytes = checked_bytes(output.type.shape, dtype_size(output.type.dtype));
    output.storage = std::make_shared<Storage>(results_memory_, bytes);
  }
  return state;
}

std::optional<StepHandle> SessionCore::submit(std::span<const InputTensor> inputs, Timeout timeout, bool try_only,
                                              const StepCall& call) {
  check_process();
  check_inputs(inputs);
  check_outputs(call.outputs);
  {
    const std::unique_lock lock = lock_soon(mutex_);  // a stream thread may just be answering the step before
    check_open();
  }
  if (call.deadline != kNoDeadline) {
    check_may_cancel("a deadline");
    timeout = std::min(timeout, std::max(Timeout::zero(), Timeout(call.deadline - std::chrono::steady_clock::now())));
  }
  const Deadline deadline(timeout);
  const Turns::Inside turn = take_turn(timeout, try_only);
  if (turns_ != nullptr && !turn) return std::nullopt;
  order_variables();
  leave_team();
  if (lends_outputs_) let_go_of_results();
  if (!call.outputs.empty()) lends_outputs_ = true;
  std::unique_lock lock(mutex_);
  Timeout left = deadline.left();
  if (!may_enter(call.priority) && try_only) {
    // Once no step is in flight, slots of inputs are on their way back; that takes microseconds.
    if (finished_ < submitted_) return std::nullopt;
    left = std::chrono::milliseconds(20);
  }
  if (!wait_for_room(lock, call.priority, left)) {
    if (try_only) return std::nullopt;
    lock.unlock();
    fail_timeout(fmt::format("no room for another step, with {} in flight,", max_in_flight_), timeout);
  }
  check_open();
  std::shared_ptr<StepState> state;
  try {
    state = new_state(call);
    if (call.deadline != kNoDeadline) engine_.deadlines().watch(call.deadline, state);
    port_memory_->accept(submitted_, inputs);
  } catch (const Error& error) {
    if (state != nullptr) state->on_done = nullptr;
    if (error.kind() != ErrorKind::kMemory) throw;
    fail(ErrorKind::kMemory, "plan '{}': inputs and results of a step: {}", plan().name, error.what());
  }
  if (state->on_done) ++callbacks_;
  const uint64_t step = submitted_++;
  count_writes();
  pending_[step % pending_.size()] = state;
  const bool waits = !has_slots(step);
  offer_room();
  lock.unlock();
  if (waits) {
    backlog_->put(step, inputs);
    copying(step, [&] { input_copies_ += port_memory_->fill(step, inputs); });
    lock.lock();
    in_backlog_[step % backlog_->capacity()] = true;
    lock.unlock();
    publish_backlog();
    return StepHandle(state);
  }
  copying(step, [&] {
    copy_inputs(step, inputs);
    input_copies_ += port_memory_->fill(step, inputs);
  });
  port_memory_->put(step, *runner_);
  {
    const actors::WakeLater after_the_lock;
    std::unique_lock publishing(mutex_);
    published_changed_.wait(publishing, [&] { return published_ == step; });
    publish(step);
  }
  publish_backlog();
  return StepHandle(state);
}

void SessionCore::start(uint64_t n) {
  SLUICE_CHECK(plan().inputs.empty(), "session '{}': start() without inputs: the plan takes {}; submit them",
               plan().name, plan().inputs.size());
  check_process();
  {
    std::lock_guard lock(mutex_);
    check_open();
  }
  const Turns::Inside turn = take_turn(submit_timeout(), false);
  order_variables();
  leave_team();
  const actors::WakeLater after_the_lock;
  std::unique_lock lock(mutex_);
  check_open();
  published_changed_.wait(lock, [&] { return published_ == submitted_ || closing_ || data_ended_; });
  check_open();
  submitted_ += n;
  count_writes();
  published_ = submitted_;
  runner_->start(n);
}

// With sessions that share its arenas. Empty where nobody does, and where it would have to be waited for.
Turns::Inside SessionCore::take_turn(Timeout timeout, bool try_only) {
  return turns_ == nullptr ? Turns::Inside() : turns_->enter(shared_from_this(), timeout, try_only);
}

bool SessionCore::at_rest() const {
  std::lock_guard lock(mutex_);
  return finished_ == submitted_ && !abandoned_;
}

// The errors of its steps are its own callers' business.
void SessionCore::come_to_rest(Timeout timeout) {
  wait_finished(std::min(timeout, wait_timeout()));
  std::unique_lock lock(mutex_);
  const bool abandoned = abandoned_;
  lock.unlock();
  SLUICE_CHECK_KIND(kRuntime, !abandoned || actors_ended(),
                    "session '{}': was abandoned in a kernel that has not returned and uses the arenas it shares; load "
                    "others with arenas of their own",
                    plan().name);
}

}  // namespace sluice
