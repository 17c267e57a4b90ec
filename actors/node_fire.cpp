// One firing of a node that runs kernels, delivers results, touches devices, or passes failures on.
#include <algorithm>
#include <functional>
#include <utility>

#include "actors/build.h"
#include "actors/node.h"
#include "actors/observer.h"
#include "base/core_offer.h"
#include "kernels/kernel.h"

namespace sluice::actors {

using plan::ActorRole;
using plan::InstrKind;

namespace {

// A firing as callers count: "step 3", and which of the actor's firings of it where there are several.
std::string step_str(const plan::FiringCounts& counts, int actor, uint64_t firing) {
  const uint64_t step = counts.step_of(actor, firing), before = counts.after(actor, step);
  const uint64_t firings = counts.after(actor, step + 1) - before;
  if (firings <= 1 || firing < before) return fmt::format("step {}", step);
  return fmt::format("step {}, micro-batch {} of {}", step, firing - before, firings);
}

Status cancelled(const plan::FiringCounts& counts, int actor, uint64_t firing, const char* why) {
  try {
    return {ErrorKind::kCancelled, fmt::format("{}: cancelled: {}", step_str(counts, actor, firing), why)};
  } catch (...) {
    return Status::from_current_exception();
  }
}

}  // namespace

Status Node::in_firing(const Status& status, const std::string& context) const {
  try {
    return status.with_context(fmt::format("{}, {}", context, step_str(run_->counts, actor_, rule_.firings())));
  } catch (const std::bad_alloc&) {
    return status;
  }
}

// No kernel of this firing is to start any more; as if one had failed.
Status Node::give_up() {
  Status status = cancelled(run_->counts, actor_, rule_.firings(), "its caller gave it up");
  run_->flags.fetch_or(kRunPoisoned, std::memory_order_acq_rel);
  if (program_->asynchronous) home_->stream().fail(status);
  return status;
}

// Before any token of this firing leaves, so that whoever gets one sees the flag.
void Node::fail_firing(uint64_t step, const Status& status) {
  run_->flags.fetch_or(kRunPoisoned, std::memory_order_acq_rel);
  if (program_->asynchronous) home_->stream().fail(status);
  run_->listener->on_failure(step, status);
}

// Takes the firing's tokens. Returns why no kernel of it is to run: a failure that they carry, or the session's end.
[[gnu::always_inline]] Status Node::begin_program(uint64_t step, uint32_t flags) {
  NodeProgram& program = *program_;
  // Only now: the failure of a reader, which its ack's event carries, must not fail the writer's next firing.
  if (program.asynchronous) home_->stream().begin_firing(step);
  Status status = take_tokens(flags);
  // A failure that surfaced late is passed on beside the slots from here: before any token of this firing leaves.
  if (!status.ok()) run_->flags.fetch_or(kRunPoisoned, std::memory_order_acq_rel);
  if ((flags & kRunCancelled) != 0)
    status = cancelled(run_->counts, actor_, rule_.firings(), "the session was stopped");
  if (!status.ok() && program.asynchronous) home_->stream().fail(status);
  home_->offer_lease();
  program.leasing_ns = 0;
  if (run_->plan->actors[actor_].role == ActorRole::kSink) {
    const Status told = status.ok() ? void_output() : status;
    run_->listener->on_sink(actor_, step, told, told.ok() ? program.pointers.data() + program.sink_outputs : nullptr);
  }
  return status;
}

// The kernels of one step of the program, unless `status` says that none is to run. It becomes their failure.
[[gnu::always_inline]] void Node::run_step(const KernelRun& first, uint64_t step, uint32_t flags, Status& status) {
  // Kernels that have not begun are skipped when the caller has given the step up.
  if (status.ok() && run_->given_up.contains(step)) status = give_up();
  if (status.ok()) {
    status = run_chain({&first, first.chain != nullptr ? first.chain->kernels : 1}, step, flags);
  } else if (run_->plan->kernels[first.index].collective >= 0) {
    // The other ranks would wait for this call in vain.
    run_->listener->on_missed_collective(first.index, status);
  }
}

// Runs the program. Returns false when a source ended instead: then nothing of this firing has left the node.
[[gnu::always_inline]] bool Node::run_program(uint64_t step, uint32_t flags, Status& status, Behind& behind) {
  NodeProgram& program = *program_;
  for (const Step& instr : steps_) {
    switch (instr.kind) {
      case InstrKind::kRun: {
        const bool runs = status.ok();
        run_step(program.kernels[instr.index], step, flags, status);
        if (runs && says_end_of_data(status)) return false;
        break;
      }
      case InstrKind::kEmit:
        sent_ = true;
        program.clock_ns = 0;
        if (program.outs[instr.index].late) {
          behind.late = true;
        } else if (program.outs[instr.index].spans) {
          behind.spans = true;
          home_->stream().record(*run_->span_events[2 * program.outs[instr.index].reg + 1].event);
        } else {
          emit(instr.index, status);
        }
        break;
      case InstrKind::kRelease:
        sent_ = true;
        program.clock_ns = 0;
        rule_.release(instr.index, Host{*this});
        break;
    }
  }
  return true;
}

// Emits what the program has left for behind it, and keeps a failure that no token shows.
[[gnu::always_inline]] void Node::emit_behind(uint64_t step, const Status& status, Behind behind) {
  NodeProgram& program = *program_;
  if (program.asynchronous && unseen()) {
    home_->stream().record(*run_->unseen_events[2 * static_cast<size_t>(actor_) + 1].event);
  }
  for (size_t p = 0; behind.spans && p < program.outs.size(); ++p) {
    if (!program.outs[p].spans) continue;
    home_->stream().begin_firing(step);
    emit_span(static_cast<int>(p), status);
  }
  if (behind.late) {
    // Feedback that only orders steps: this step's failure must not reach the next one.
    if (program.asynchronous) home_->stream().begin_firing(step);
    for (size_t p = 0; p < program.outs.size(); ++p) {
      if (program.outs[p].late) emit(static_cast<int>(p), Status());
    }
  }
  if (program.asynchronous && unseen()) keep_unseen_failure(step);
}

void Node::fire_program() {
  NodeProgram& program = this->program();
  const uint64_t step = run_->counts.step_of(actor_, rule_.firings());
  const uint32_t flags = run_->flags.load(std::memory_order_acquire);
  const int64_t begin_ns = (flags & kRunTraced) != 0 ? now_ns() : 0;
  const uint32_t cause = cause_;  // a message of this firing to itself may set the next one's
  const Host host{*this};
  rule_.begin();
  // The order of what follows matters: slots are acquired before the stream's firing begins, tokens are taken before
  // anything runs, and an emit or a release may start another actor at once, so each comes where the program has it.
  sent_ = false;
  acquire_slots(flags);
  Status status = begin_program(step, flags);
  const int64_t run_ns = program.kernels.empty() ? 0 : now_ns();
  program.clock_ns = run_ns;
  Behind behind;
  if (!run_program(step, flags, status, behind)) {
    run_->listener->on_data_end();  // before a sink can be told: no step is submitted after its end
    return rule_.abandon(host);
  }
  emit_behind(step, status, behind);
  if (!program.kernels.empty()) {
    const int64_t busy_ns = published_busy_ns_.load(std::memory_order_relaxed) + now_ns() - run_ns - program.leasing_ns;
    published_busy_ns_.store(busy_ns, std::memory_order_relaxed);
  }
  rule_.finish(host);
  if (receiving_ != nullptr) grant_slots();
  if ((flags & kRunTraced) != 0) trace_firing(step, begin_ns, cause);  // whoever sees the count sees the events
  published_firings_.store(rule_.firings(), std::memory_order_release);
  if (program.touches_variables) run_->listener->on_variables_done(program.writes_variables);
}

// Instead of a failure: once something has been told, or by others than sources, it is one like any other.
bool Node::says_end_of_data(const Status& status) const {
  return !status.ok() && status.kind() == ErrorKind::kEndOfData && run_->sources_end && !sent_ &&
         run_->plan->actors[actor_].role == ActorRole::kSource;
}

// Makes this firing, or on devices the stream, wait for `slot`'s event. Returns the failure seen, on the host.
Status Node::wait_event(SlotEvent& slot, uint32_t flags) {
  if (!slot.recorded) return {};
  if (program_->asynchronous) {
    home_->stream().wait(*slot.event);
    return {};
  }
  if (slot.event->complete()) return slot.event->wait();
  const int64_t begin_ns = (flags & kRunTraced) != 0 ? now_ns() : 0;
  home_->unlease();
  activity_.store(kWaiting, std::memory_order_relaxed);
  const BusyClock::Pause waiting(home_->clock());
  Status status = slot.event->wait();
  activity_.store(kIdle, std::memory_order_relaxed);
  if ((flags & kRunTraced) != 0) trace_wait(begin_ns, TraceCause::Kind::kDevice);
  return status;
}

void Node::acquire_slots(uint32_t flags) {
  NodeProgram& program = *program_;
  for (size_t p = 0; p < program.outs.size(); ++p) {
    OutPort& out = program.outs[p];
    if (!rule_.acquires_now(static_cast<int>(p))) continue;
    out.status = Status();
    out.filled = out.filling = false;
    if (out.voids >= 0) program.voids[out.voids] = {};
    const int slot = rule_.output_slot(static_cast<int>(p));
    for (const Patch& patch : out.patches) program.pointers[patch.pointer] = (*patch.slots)[slot] + patch.offset;
    // Readers on devices may have sent the ack long before they are through. A quota that is smaller than it might be
    // needs another slot back.
    const int freed = rule_.credit_slot(static_cast<int>(p));
    for (const int edge : out.wait_edges) {
      static_cast<void>(wait_event(run_->ack_events[run_->edge_slots[edge] + slot], flags));
      if (freed != slot) static_cast<void>(wait_event(run_->ack_events[run_->edge_slots[edge] + freed], flags));
    }
  }
}

// Returns the failure the tokens carry.
Status Node::take_tokens(uint32_t flags) {
  NodeProgram& program = *program_;
  Status status;
  for (size_t p = 0; p < program.ins.size(); ++p) {
    const InPort& in = program.ins[p];
    const int port = static_cast<int>(p);
    const int first = run_->register_slots[in.reg];
    if (rule_.takes_now(port)) {
      for (const Patch& patch : in.patches) {
        program.pointers[patch.pointer] = (*patch.slots)[rule_.input_slot(port, patch.token)] + patch.offset;
      }
      for (const auto& [token, at] : in.voids)
        program.voids[at] = run_->slot_states[first + rule_.input_slot(port, token)].not_taken;
    }
    // Every firing of a hold: each must see the failure of what it reads.
    for (int t = 0; in.waits && t < in.take; ++t) {
      Status waited = wait_event(run_->ready_events[first + rule_.input_slot(port, t)], flags);
      if (in.poisons && status.ok()) status = std::move(waited);
    }
    if ((flags & kRunPoisoned) == 0 || !in.poisons) continue;
    for (int t = 0; t < in.take && status.ok(); ++t) {
      status = run_->slot_states[first + rule_.input_slot(port, t)].failure;
    }
  }
  return status;
}

// A firing gives its cores back before a kernel that needs none, because that kernel may wait for something which needs
// them.
void Node::hold_cores(int cores, uint32_t flags) {
  if (cores == 0) return home_->unlease();
  activity_.store(kLeasing, std::memory_order_relaxed);
  const int64_t waited_ns = home_->lease(cores);
  if (waited_ns != 0) program_->clock_ns = 0;
  program_->leasing_ns += waited_ns;
  if (waited_ns != 0 && (flags & kRunTraced) != 0) trace_wait(now_ns() - waited_ns, TraceCause::Kind::kCores);
}

// One kernel, or a chain of them.
Status Node::run_chain(std::span<const KernelRun> runs, uint64_t step, uint32_t flags) {
  KernelChain* const chain = runs[0].chain.get();
  const bool some_void = chain == nullptr ? void_input(runs[0]) != nullptr
                                          : std::any_of(chain->voids.begin(), chain->voids.end(),
                                                        [&](int at) { return static_cast<bool>(program_->voids[at]); });
  if ((flags & kRunObserved) == 0 && !some_void) return run_kernels(runs, chain, step, flags);
  Status status;  // what a kernel has written is looked at before the next one runs
  for (size_t i = 0; i < runs.size() && status.ok(); ++i) {
    const NotTaken* const why = void_input(runs[i]);
    status =
        why != nullptr ? leave_out(runs[i], *why, step, flags) : run_kernels(runs.subspan(i, 1), nullptr, step, flags);
  }
  return status;
}

// `chain`: what repeats them, or null.
Status Node::run_kernels(std::span<const KernelRun> runs, KernelChain* chain, uint64_t step, uint32_t flags) {
  NodeProgram& program = *program_;
  const KernelRun* now = chain == nullptr ? &runs[0] : nullptr;
  const auto run_each = [&] {
    for (const KernelRun& run : runs) {
      now = &run;
      KernelArgs args;
      args.inputs = program.pointers.data() + run.inputs;
      args.outputs = program.pointers.data() + run.outputs;
      args.workspace = run.workspace;
      args.stream = &home_->stream();
      args.context = &run.context;
      args.first = run.fills < 0 || !program.outs[run.fills].filled;
      if (run.told != nullptr) {
        tell_voids(run);
        args.void_inputs = run.told.get();
        args.void_outputs = run.told.get() + run.void_inputs.size();
      }
      run.kernel->run(args);
      if ((flags & kRunObserved) != 0 && run.told == nullptr)  // branches choose values that were looked at
        observe(run_->observers, run_->plan->kernels[run.index], run.index, args.outputs, step, *home_);
    }
    now = nullptr;
  };
  int64_t begin_ns = 0;
  Status status;
  try {
    if (!program.tiny) hold_cores(runs[0].cores, flags);
    // The wait for cores is no part of the kernel. A kernel that follows another at once begins where that ends.
    if ((flags & kRunTraced) != 0) begin_ns = program.clock_ns != 0 ? program.clock_ns : now_ns();
    activity_.store(runs[0].index, std::memory_order_relaxed);
    if (chain != nullptr) {
      auto key = chain->key.begin();
      for (const uint32_t pointer : chain->varying) *key++ = program.pointers[pointer];
      for (const int port : chain->fills) *key++ = program.outs[port].filled ? nullptr : chain;
      chain->work->run(chain->key, std::cref(run_each));
    } else {
      run_each();
    }
  } catch (...) {
    status = Status::from_current_exception();
  }
  if (const int64_t waited_ns = CoreOffer::take_waited_ns(); waited_ns != 0) {
    program.leasing_ns += waited_ns;
    if (begin_ns != 0) {  // told as if it had waited before it began, so that kernels last as long as they compute
      run_->trace.add({.stream = run_->plan->actors[actor_].stream,
                       .actor = actor_,
                       .step = step,
                       .begin_ns = begin_ns,
                       .end_ns = begin_ns + waited_ns,
                       .wait = true,
                       .cause = {TraceCause::Kind::kCores, 0}});
      begin_ns += waited_ns;
    }
  }
  const size_t done = status.ok() ? runs.size() : now != nullptr ? static_cast<size_t>(now - runs.data()) : 0;
  for (const KernelRun& run : runs.first(done)) {
    for (const int v : run.writes) run_->variable_steps[v].store(step + 1, std::memory_order_release);
    wrote(run);
  }
  activity_.store(kIdle, std::memory_order_relaxed);
  if (begin_ns != 0) {
    program.clock_ns = now_ns();
    trace({.kernel = runs[0].index, .kernels = static_cast<int>(runs.size()), .step = step, .begin_ns = begin_ns},
          program.clock_ns);
  }
  if (status.ok() || says_end_of_data(status)) return status;
  status = in_firing(status, now != nullptr ? now->context : chain->context);
  fail_firing(step, status);
  return status;
}

// After the firing, with the stream cleared of its failure: adds it to those of the token's firings before it.
void Node::emit_span(int port, const Status& status) {
  const OutPort& out = program_->outs[port];
  Event& before = *run_->span_events[2 * out.reg].event;
  Stream& stream = home_->stream();
  if (!rule_.acquires_now(port)) stream.wait(before);
  stream.wait(*run_->span_events[2 * out.reg + 1].event);
  if (!rule_.emits_now(port)) stream.record(before);
  emit(port, status);
}

// Adds this firing's failure to those before it, for whoever asks.
void Node::keep_unseen_failure(uint64_t step) {
  Stream& stream = home_->stream();
  SlotEvent* const events = &run_->unseen_events[2 * static_cast<size_t>(actor_)];
  stream.begin_firing(step);
  if (has_unseen_) stream.wait(*events[0].event);
  stream.wait(*events[1].event);
  stream.record(*events[0].event);
  has_unseen_ = true;
}

Status Node::take_unseen_failure() {
  if (!has_unseen_) return {};
  Status status = run_->unseen_events[2 * static_cast<size_t>(actor_)].event->wait();
  has_unseen_ = status.ok();
  return status;
}

void Node::emit(int port, const Status& status) {
  OutPort& out = program_->outs[port];
  if (out.status.ok() && !status.ok()) out.status = status;
  out.filled |= std::exchange(out.filling, false);
  if (rule_.emits_now(port)) {
    const int slot = run_->register_slots[out.reg] + rule_.output_slot(port);
    if ((run_->flags.load(std::memory_order_relaxed) & kRunPoisoned) != 0) {
      run_->slot_states[slot].failure = out.status;
    }
    if (out.voids >= 0) run_->slot_states[slot].not_taken = program_->voids[out.voids];
    if (out.records) {
      SlotEvent& event = run_->ready_events[slot];
      home_->stream().record(*event.event);
      event.recorded = true;
    }
  }
  rule_.emit(port, Host{*this});
}

// An ack to another stream tells when this one is through with the slot; for a slot shared in place, when the readers
// of the register in its place are.
void Node::before_ack(int edge, int slot) {
  if (program_ == nullptr) return;
  for (size_t p = 0; p < program_->outs.size(); ++p) {
    const OutPort& out = program_->outs[p];
    if (!out.in_place || run_->plan->registers[out.reg].in_place_of != edge) continue;
    const int freed = rule_.in_firing() ? rule_.output_slot(static_cast<int>(p)) : freed_slot_;
    for (const int reader : out.wait_edges) {
      SlotEvent& event = run_->ack_events[run_->edge_slots[reader] + freed];
      if (!event.recorded) continue;
      if (program_->asynchronous) {
        home_->stream().wait(*event.event);
      } else if (event.event->complete()) {
        static_cast<void>(event.event->wait());
      } else {
        home_->unlease();  // the reader may need the cores this stream keeps
        static_cast<void>(event.event->wait());
      }
    }
  }
  SlotEvent& event = run_->ack_events[run_->edge_slots[edge] + slot];
  if (event.event == nullptr) return;
  if (rule_.ended()) {
    // Tokens that go back unread: nothing else keeps this recording behind the writer's look at the one before.
    SlotEvent& ready = run_->ready_events[run_->register_slots[run_->plan->edges[edge].reg] + slot];
    if (ready.recorded) home_->stream().wait(*ready.event);
  }
  home_->stream().record(*event.event);
  event.recorded = true;
}

// Records what has ended, now or at `end_ns`.
void Node::trace(TraceEvent event, int64_t end_ns) {
  event.stream = run_->plan->actors[actor_].stream;
  event.actor = actor_;
  event.end_ns = end_ns != 0 ? end_ns : now_ns();
  run_->trace.add(event);
}

void Node::trace_wait(int64_t begin_ns, TraceCause::Kind what) {
  const uint64_t step = run_->counts.step_of(actor_, rule_.firings());
  trace({.step = step, .begin_ns = begin_ns, .wait = true, .cause = {what, 0}});
}

// REQUIRES: the firing is counted.
void Node::trace_firing(uint64_t step, int64_t begin_ns, uint32_t cause) {
  const auto kind = static_cast<TraceCause::Kind>(cause >> kCausePortBits);
  const uint32_t port = cause & ((1u << kCausePortBits) - 1);
  TraceCause told{kind, 0};
  if (kind == TraceCause::Kind::kData) told.index = run_->adjacency.in_edges[actor_][port];
  if (kind == TraceCause::Kind::kCredit) told.index = run_->adjacency.out_registers[actor_][port];
  const uint64_t before = run_->counts.after(actor_, step), firing = rule_.firings() - 1;
  const int nth = firing >= before ? static_cast<int>(std::min<uint64_t>(firing - before, INT32_MAX)) : 0;
  trace({.step = step, .begin_ns = begin_ns, .firing = nth, .cause = told});
}

}  // namespace sluice::actors
