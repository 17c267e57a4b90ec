#include "actors/node.h"

#include <algorithm>

#include "actors/message_log.h"
#include "kernels/meeting.h"

namespace sluice::actors {

using plan::ActorRole;

Node::Node(RunState& run, StreamExecutor& home, int actor)
    : rule_(*run.plan, run.adjacency, actor), run_(&run), home_(&home), actor_(actor) {
  ends_due_ = static_cast<int>(run.adjacency.in_edges[actor].size()) + (is_started(run.plan->actors[actor]) ? 1 : 0);
  special_ = run.plan->actors[actor].role == ActorRole::kFeed;
  start_.item = Item::to(this, ItemKind::kStart);
  stop_.item = Item::to(this, ItemKind::kStop);
}

// The slots may go from now on, so nobody else writes to them.
Node::~Node() {
  if (receiving_ != nullptr) receiving_->take_back();
}

void Node::set_program(std::unique_ptr<NodeProgram> program, bool needed) {
  (needed ? program_ : spare_program_) = std::move(program);
  if (!needed) return;
  special_ |= program_->asynchronous;
  for (const OutPort& out : program_->outs) special_ |= out.in_place && !out.wait_edges.empty();
  if (special_ || program_->kernels.size() != 1 || program_->outs.size() != 1) return;
  const Meeting* const meeting = program_->kernels[0].meeting;
  const OutPort& out = program_->outs[0];
  // A slot that is free may still be read where readers are on devices.
  const bool free_is_writable = out.wait_edges.empty() && !out.in_place;
  if (meeting == nullptr || !meeting->receives() || !free_is_writable) return;
  if (run_->plan->registers[out.reg].emit_every == 1) receiving_ = meeting;
}

// Tells the rank that sends where its next tokens go, for as many as there are free slots: then they may come before
// the firings that take them, and what tells of a slot is not on the way of the token that waits for it.
void Node::grant_slots() {
  if (rule_.in_firing() || rule_.ended() || (run_->flags.load(std::memory_order_relaxed) & kRunCancelled) != 0) return;
  const OutPort& out = program_->outs[0];
  const int quota = run_->plan->registers[out.reg].quota, free = rule_.free_slots(0);
  for (int granted = receiving_->granted(); granted < free; ++granted) {
    void* slot = nullptr;
    if (!out.patches.empty()) {
      const Patch& patch = out.patches[0];
      slot = (*patch.slots)[(rule_.next_slot(0) + granted) % quota] + patch.offset;
    }
    if (!receiving_->grant(slot)) return;
  }
}

bool Node::takes_acks_directly(int out_port) const {
  return !special_ && run_->plan->registers[run_->adjacency.out_registers[actor_][out_port]].in_place_of < 0;
}

bool Node::prompt() const {
  if (!rule_.can_fire()) return false;
  if (program_ == nullptr) return true;
  if (program_->brief) {
    const bool delivers = program_->pointers.size() > program_->sink_outputs;
    return (!delivers || run_->listener->sinks_are_brief()) && gets_cores();
  }
  return meets() && !program_->kernels[0].meeting->waits();
}

// Only a stream's own thread may wait for cores.
bool Node::gets_cores() const {
  if (program_->tiny) return true;
  for (const KernelRun& run : program_->kernels)
    if (run.cores > 0) return home_->try_lease(run.cores);
  return true;
}

bool Node::meets() const {
  return !program_->asynchronous && program_->kernels.size() == 1 && program_->kernels[0].meeting != nullptr;
}

bool Node::worth_counting() const {
  if (run_->adjacency.in_edges[actor_].size() != 1 || run_->plan->edges[run_->adjacency.in_edges[actor_][0]].take > 1)
    return true;
  return program_ == nullptr || program_->brief || meets();
}

void Node::activate() {
  const bool feed = run_->plan->actors[actor_].role == ActorRole::kFeed;
  for (size_t p = 0; feed && p < run_->adjacency.out_registers[actor_].size(); ++p)
    publish_input_slots(static_cast<int>(p));
  if (receiving_ != nullptr) grant_slots();
  if (rule_.can_fire()) fire_all();
}

void Node::start(uint64_t credits) {
  if (credits != 0 && start_credits_.fetch_add(credits, std::memory_order_acq_rel) == 0) home_->post(&start_);
}

// A message of its own, behind all starts: once it has been handled, no other can come from outside.
void Node::stop() { home_->post(&stop_); }

void Node::on_start() {
  rule_.on_start(taken_credits(plan::Handled::kDelivered));
  fire_now(cause_of(TraceCause::Kind::kStart));
}

// Fewer are taken than there are where the log says so: the rest is a message again.
uint64_t Node::recorded_credits(plan::Handled how) {
  uint64_t credits = run_->expected_starts;
  if (credits == 0) {
    credits = start_credits_.exchange(0, std::memory_order_acq_rel);
  } else if (start_credits_.fetch_sub(credits, std::memory_order_acq_rel) != credits) {
    home_->post(&start_);
  }
  run_->expected_starts = 0;
  run_->log->record(message_id(start_.item), how, credits);
  return credits;
}

bool Node::expect_starts(uint64_t starts) {
  if (start_credits_.load(std::memory_order_acquire) < starts) return false;
  run_->expected_starts = starts;
  return true;
}

// First the numbers of actors, of three kinds; then of edges; then of slots. Acks of one slot by several readers have
// one number, because the firing rule counts them alike.
uint32_t Node::message_id(const Item& item) const {
  const auto actors = static_cast<uint32_t>(run_->plan->actors.size());
  const auto edges = static_cast<uint32_t>(run_->plan->edges.size());
  const auto actor = static_cast<uint32_t>(actor_);
  const uint32_t first = run_->first_message;
  switch (static_cast<ItemKind>(item.kind)) {
    case ItemKind::kFire:
    case ItemKind::kCall: return first + actor;
    case ItemKind::kStart: return first + actors + actor;
    case ItemKind::kStop: return first + 2 * actors + actor;
    case ItemKind::kReady:
    case ItemKind::kEnd: return first + 3 * actors + static_cast<uint32_t>(run_->adjacency.in_edges[actor_][item.port]);
    case ItemKind::kAck: {
      const int reg = run_->adjacency.out_registers[actor_][item.port];
      return first + 3 * actors + edges + static_cast<uint32_t>(run_->register_slots[reg]) + item.slot;
    }
  }
  return first;
}

void Node::on_stop() {
  --ends_due_;
  rule_.on_stop(Host{*this});
  fire_all();
}

void Node::on_end(int port) {
  --ends_due_;
  rule_.on_end(port, Host{*this});
  fire_all();
}

void Node::post(const Node& to, Cell& cell) { to.home_->post(&cell); }

void Node::send_ack(int edge, int slot) {
  if (special_) before_ack(edge, slot);
  const EdgeLink& link = run_->links[edge];
  if (link.ack_cells != nullptr) {
    link.producer->home_->post(&link.ack_cells[slot]);
  } else {
    home_->post_local(Item::to(link.producer, ItemKind::kAck, link.ack_port, slot));
  }
}

void Node::send_end(int edge) {
  const EdgeLink& link = run_->links[edge];
  if (link.ready_cells == nullptr) {
    home_->post_local(Item::to(link.consumer, ItemKind::kEnd, link.ready_port));
  } else {
    link.consumer->home_->post(&run_->end_cells[edge]);
  }
}

int Node::edge_of(const Cell& cell) const {
  const auto port = static_cast<int>(cell.item.port);
  switch (static_cast<ItemKind>(cell.item.kind)) {
    case ItemKind::kReady:
    case ItemKind::kEnd: return run_->adjacency.in_edges[actor_][port];
    case ItemKind::kAck:
      for (const int e : run_->adjacency.register_edges[run_->adjacency.out_registers[actor_][port]]) {
        if (&cell == &run_->links[e].ack_cells[cell.item.slot]) return e;
      }
      return -1;
    default: return -1;
  }
}

void Node::forge_ack(int edge, int slot) const {
  const EdgeLink& link = run_->links[edge];
  link.producer->home_->add_pending({link.ack_cells[slot].item, edge});
}

void Node::on_ack_special(int port, int slot) {
  count_ack_special(port, slot);
  fire_now(cause_of(TraceCause::Kind::kCredit, port));
}

void Node::withhold(int out_port, int n) {
  rule_.withhold(out_port, n);
  if (n > 0) return;
  if (receiving_ != nullptr) grant_slots();
  schedule(cause_of(TraceCause::Kind::kCredit, out_port));
}

void Node::take(const Item& item) {
  const auto port = static_cast<int>(item.port), slot = static_cast<int>(item.slot);
  switch (static_cast<ItemKind>(item.kind)) {
    case ItemKind::kReady: return take_ready(port, slot);
    case ItemKind::kStart: return take_start();
    case ItemKind::kAck:
      if (!special_) return take_ack(port, slot);
      count_ack_special(port, slot);
      return schedule(cause_of(TraceCause::Kind::kCredit, port));
    case ItemKind::kEnd:
      --ends_due_;
      rule_.on_end(port, Host{*this});
      return schedule(cause_of(TraceCause::Kind::kData, port));
    case ItemKind::kStop:
      --ends_due_;
      rule_.on_stop(Host{*this});
      return schedule(cause_of(TraceCause::Kind::kStart));
    case ItemKind::kFire:
    case ItemKind::kCall: break;
  }
}

void Node::count_ack_special(int port, int slot) {
  freed_slot_ = slot;
  const int free = rule_.free_slots(port);
  rule_.on_ack(port, slot, Host{*this});
  if (run_->plan->actors[actor_].role == ActorRole::kFeed && rule_.free_slots(port) > free) {
    wait_for_readers(port, slot);
    publish_input_slots(port);
  }
}

// The caller writes the slot next, on the host: readers on devices must be through. All of them have acked, so their
// events are recorded, and no stream records them again before the slot has been written.
void Node::wait_for_readers(int port, int slot) {
  if (program_ == nullptr) return;
  for (const int edge : program_->outs[port].wait_edges) {
    SlotEvent& event = run_->ack_events[run_->edge_slots[edge] + slot];
    if (!event.recorded) continue;
    if (!event.event->complete()) home_->unlease();  // the readers may need the cores this stream keeps
    static_cast<void>(event.event->wait());          // a failure has reached the step by its tokens
  }
}

void Node::publish_input_slots(int port) {
  const uint64_t writable = rule_.firings() + static_cast<uint64_t>(rule_.free_slots(port));
  run_->listener->on_input_slots(run_->adjacency.out_registers[actor_][port], writable);
}

// Every message this node can ever get has come: its inputs have ended, its slots are back, its source was stopped.
void Node::check_done() {
  if (!end_told_ && run_->plan->actors[actor_].role == ActorRole::kSink) {
    end_told_ = true;
    run_->listener->on_sink_end(actor_);
  }
  if (done_ || scheduled_ || ends_due_ != 0 || !rule_.quiescent()) return;
  done_ = true;
  const std::shared_ptr<Completion> completion = run_->completion;
  completion->node_done();  // the run may be gone after this
}

}  // namespace sluice::actors
