#include "actors/runner.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "actors/message_log.h"
#include "actors/protocol.h"
#include "base/interrupt.h"
#include "kernels/kernel.h"
#include "plan/ranks.h"

namespace sluice::actors {

RunState::RunState(const plan::Plan& plan, RunListener& listener)
    : plan(&plan),
      adjacency(plan),
      counts(plan),
      listener(&listener),
      sources_end(!plan::together(plan)),
      variable_steps(plan.variables.size()) {}
RunState::~RunState() = default;

Runner::Runner(const plan::Plan& plan, Bindings bindings, RunListener& listener)
    : run_(plan, listener), bindings_(std::move(bindings)), quotas_(plan.registers.size()) {
  for (size_t s = 0; s < bindings_.streams.size(); ++s) {
    if (std::find(streams_.begin(), streams_.end(), bindings_.streams[s]) != streams_.end()) continue;
    streams_.push_back(bindings_.streams[s]);
    stream_lanes_.push_back(static_cast<int>(s));
  }
  build_tables(run_, bindings_);
  if (!streams_.empty()) run_.log = streams_.front()->message_log();
  if (run_.log != nullptr)
    run_.first_message = run_.log->add_plan(plan, 3 * plan.actors.size() + plan.edges.size() + run_.slot_states.size());
  for (size_t r = 0; r < quotas_.size(); ++r) quotas_[r] = plan.registers[r].quota;
  const size_t n = plan.actors.size();
  run_.completion = std::make_shared<Completion>(static_cast<int>(n));
  nodes_.reserve(n);
  storage_ = std::allocator<Node>().allocate(n);
  try {
    for (size_t a = 0; a < n; ++a) {
      const int actor = static_cast<int>(a);
      Node* node = std::construct_at(storage_ + a, run_, *bindings_.streams[plan.actors[a].stream], actor);
      nodes_.push_back(node);
      bool needed = false;
      std::unique_ptr<NodeProgram> program = make_program(run_, bindings_, actor, &needed);
      node->steps() = make_steps(run_, *program, actor);
      node->set_program(std::move(program), needed);
    }
    link();
  } catch (...) {
    destroy_nodes();
    throw;
  }
}

Runner::~Runner() {
  // Devices may still work on the last firings.
  for (StreamExecutor* stream : streams_) {
    if (stream->stream().asynchronous()) static_cast<void>(stream->stream().synchronize());
  }
  for (StreamExecutor* stream : streams_) stream->remove_tracer(&run_.trace);
  discard_messages();
  for (size_t s = 0; s < room_.size(); ++s) streams_[s]->release_room(room_[s]);
  destroy_nodes();
}

Status Runner::take_unseen_failure() {
  Status status;
  for (Node* node : nodes_) {
    if (!node->unseen() || !status.ok()) continue;
    node->home().run_sync([&] { status = node->take_unseen_failure(); });
  }
  return status;
}

std::string Runner::protocol_breach() {
  if (run_.protocol == nullptr) return "";
  run_.protocol->check_rest();
  return run_.protocol->breach();
}

std::vector<int> Runner::ready_actors() {
  for (bool any = true; any;) {
    any = false;
    for (StreamExecutor* stream : streams_) any |= stream->step_counts();
  }
  std::vector<int> ready;
  for (const Node* node : nodes_)
    if (node->rule().can_fire()) ready.push_back(node->actor());
  return ready;
}

void Runner::fire_once(int actor) { nodes_[actor]->home().step_firing(*nodes_[actor]); }

// Manual stepping needs this: a message that should not be there must not find its node gone.
void Runner::discard_messages() {
  MessageProbe* probe = nullptr;
  for (StreamExecutor* stream : streams_) {
    if (!stream->manual()) continue;
    probe = stream->probe();
    for (const PendingMessage& message : stream->take_pending(storage_, storage_ + nodes_.size())) {
      if (run_.protocol != nullptr && message.edge >= 0) run_.protocol->left_over(message);
    }
  }
  const std::string breach = protocol_breach();
  if (!breach.empty()) probe->breaches.push_back(breach);
}

void Runner::destroy_nodes() {
  for (Node* node : nodes_) std::destroy_at(node);
  std::allocator<Node>().deallocate(storage_, run_.plan->actors.size());
}

void Runner::link() {
  const plan::Plan& plan = *run_.plan;
  run_.links.resize(plan.edges.size());
  run_.end_cells.resize(plan.edges.size());
  const MessageProbe* const probe = streams_.empty() ? nullptr : streams_.front()->probe();
  const bool every_token = probe != nullptr && probe->every_token;
  if (every_token && probe->check) run_.protocol = std::make_unique<Protocol>(run_, nodes_);
  const auto travels = [&](int producer, int consumer) {
    return every_token || &nodes_[producer]->home() != &nodes_[consumer]->home();
  };
  size_t crossing_slots = 0;
  for (const plan::Edge& edge : plan.edges) {
    const plan::Register& reg = plan.registers[edge.reg];
    if (travels(reg.producer, edge.consumer)) crossing_slots += static_cast<size_t>(reg.quota);
  }
  cells_.resize(2 * crossing_slots);
  Cell* cell = cells_.data();
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    for (size_t p = 0; p < run_.adjacency.in_edges[a].size(); ++p) {
      EdgeLink& link = run_.links[run_.adjacency.in_edges[a][p]];
      link.consumer = nodes_[a];
      link.ready_port = static_cast<int>(p);
    }
    for (size_t p = 0; p < run_.adjacency.out_registers[a].size(); ++p) {
      for (const int e : run_.adjacency.register_edges[run_.adjacency.out_registers[a][p]]) {
        run_.links[e].producer = nodes_[a];
        run_.links[e].ack_port = static_cast<int>(p);
      }
    }
  }
  for (size_t e = 0; e < plan.edges.size(); ++e) {
    EdgeLink& link = run_.links[e];
    run_.end_cells[e].item = Item::to(link.consumer, ItemKind::kEnd, link.ready_port);
    if (!travels(link.producer->actor(), link.consumer->actor())) {
      link.ack_direct = !link.consumer->special() && link.producer->takes_acks_directly(link.ack_port);
      continue;
    }
    const int quota = plan.registers[plan.edges[e].reg].quota;
    link.ready_cells = cell;
    link.ack_cells = cell + quota;
    for (int slot = 0; slot < quota; ++slot) {
      link.ready_cells[slot].item = Item::to(link.consumer, ItemKind::kReady, link.ready_port, slot);
      link.ready_cells[slot].wakes = !link.consumer->worth_counting();
      link.ack_cells[slot].item = Item::to(link.producer, ItemKind::kAck, link.ack_port, slot);
    }
    cell += 2 * quota;
  }
}

// At most how many messages each stream can have pending: cells, and what nodes of one stream tell each other.
std::vector<size_t> Runner::messages_per_stream() const {
  std::vector<size_t> messages(streams_.size());
  const auto of = [&](const Node* node) -> size_t& {
    return messages[std::find(streams_.begin(), streams_.end(), &node->home()) - streams_.begin()];
  };
  for (const Node* node : nodes_) of(node) += 3;  // to fire, start, stop
  for (size_t e = 0; e < run_.links.size(); ++e) {
    const EdgeLink& link = run_.links[e];
    const auto quota = static_cast<size_t>(run_.plan->registers[run_.plan->edges[e].reg].quota);
    of(link.consumer) += 1 + (link.ready_cells != nullptr ? quota : 0);  // the end, tokens
    of(link.producer) += link.ack_direct ? 0 : quota;
  }
  return messages;
}

bool Runner::on_own_thread() const {
  return std::any_of(streams_.begin(), streams_.end(), [](const StreamExecutor* s) { return s->on_thread(); });
}

std::vector<StreamExecutor*> Runner::streams_at_work() const {
  std::vector<StreamExecutor*> busy;
  for (const Node* node : nodes_) {
    if (node->activity() == Node::kIdle || std::find(busy.begin(), busy.end(), &node->home()) != busy.end()) continue;
    busy.push_back(&node->home());
  }
  return busy;
}

void Runner::activate(std::chrono::nanoseconds timeout) {
  const std::vector<size_t> messages = messages_per_stream();
  room_.reserve(streams_.size());
  for (StreamExecutor* stream : streams_) {
    const bool done = stream->run_sync(
        [&] {
          stream->reserve_room(messages[room_.size()]);
          room_.push_back(messages[room_.size()]);
        },
        timeout);
    SLUICE_CHECK_KIND(kTimeout, done, "plan '{}': stream {} is kept busy by another plan; load it when that is done",
                      run_.plan->name, stream->name());
  }
  // All of them or none: once the first may fire, nothing here can fail.
  struct Progress {
    std::mutex mutex;
    std::condition_variable changed;
    size_t left = 0;
  };
  const auto progress = std::make_shared<Progress>();
  progress->left = streams_.size();
  // A recording has no line for an activation, so all actors are active before the first message is handled.
  const bool together = run_.log != nullptr;
  SLUICE_CHECK_KIND(kUnsupported, !together || !on_own_thread() || streams_.front()->manual(),
                    "record: plan '{}' is loaded by a function of another plan; load it before", run_.plan->name);
  std::unique_lock<std::mutex> alone;
  if (together) alone = std::unique_lock(run_.log->activation());
  std::vector<std::unique_ptr<Call>> calls;
  for (size_t s = 0; s < streams_.size(); ++s) {
    const StreamExecutor* stream = streams_[s];
    const bool in_turn = together && !stream->manual();
    calls.push_back(std::make_unique<Call>(Call{{}, [this, progress, stream, in_turn, turn = streams_.size() - s] {
                                                  std::unique_lock lock(progress->mutex);
                                                  const auto left = [&](size_t n) {
                                                    progress->changed.wait(lock, [&] { return progress->left <= n; });
                                                  };
                                                  if (in_turn) left(turn);
                                                  lock.unlock();
                                                  for (Node* node : nodes_) {
                                                    if (&node->home() == stream) node->activate();
                                                  }
                                                  lock.lock();
                                                  --progress->left;
                                                  progress->changed.notify_all();
                                                  if (in_turn) left(0);
                                                }}));
  }
  activated_ = true;
  for (size_t s = 0; s < streams_.size(); ++s) {
    if (streams_[s]->manual() || streams_[s]->on_thread()) {
      calls[s]->run();
    } else {
      streams_[s]->post_call(std::move(calls[s]));
    }
  }
  std::unique_lock lock(progress->mutex);
  interruptible_wait(lock, progress->changed, kWaitForever, [&] { return progress->left == 0; });
}

void Runner::start(uint64_t steps) {
  for (size_t a = 0; a < nodes_.size(); ++a) {
    const plan::Actor& actor = run_.plan->actors[a];
    if (is_started(actor)) nodes_[a]->start(steps * static_cast<uint64_t>(actor.starts));
  }
}

void Runner::stop() {
  if (stopped_.exchange(true)) return;
  if (run_.log != nullptr) run_.log->end();
  for (size_t a = 0; a < nodes_.size(); ++a) {
    if (is_started(run_.plan->actors[a])) nodes_[a]->stop();
  }
}

bool Runner::set_quota(int reg, int slots, std::chrono::nanoseconds timeout) {
  const int producer = run_.plan->registers[reg].producer;
  const std::vector<int>& registers = run_.adjacency.out_registers[producer];
  const auto port = static_cast<int>(std::find(registers.begin(), registers.end(), reg) - registers.begin());
  Node& node = *nodes_[producer];
  const MutexLock lock(quotas_mutex_);
  const int withheld = quotas_[reg] - slots;
  if (withheld == 0) return true;
  if (!node.home().run_sync([&] { node.withhold(port, withheld); }, timeout)) return false;
  quotas_[reg] = slots;
  return true;
}

void Runner::observe(KernelObservers observers) {
  run_.observers = std::move(observers);
  set_flag(kRunObserved, true);
}

void Runner::set_flag(uint32_t flag, bool on) {
  if (on) {
    run_.flags.fetch_or(flag, std::memory_order_acq_rel);
  } else {
    run_.flags.fetch_and(~flag, std::memory_order_acq_rel);
  }
}

uint64_t Runner::total_firings() const {
  uint64_t total = 0;
  for (const Node* node : nodes_) total += node->firings();
  return total;
}

void Runner::give_up(uint64_t step) {
  run_.given_up.forget_if([&](uint64_t known) { return has_fired(known + 1); });
  run_.given_up.add(step);
}

bool Runner::has_fired(uint64_t steps) const {
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [&](const Node* node) { return node->firings() >= run_.counts.after(node->actor(), steps); });
}

void Runner::set_trace(bool on, TraceBell* bell) {
  if (on == flag(kRunTraced)) return;
  if (on) run_.trace.start(run_.plan->streams.size(), bell);
  set_flag(kRunTraced, on);
  for (size_t s = 0; s < streams_.size(); ++s) {
    if (on) {
      streams_[s]->add_tracer(&run_.trace, stream_lanes_[s]);
    } else {
      streams_[s]->remove_tracer(&run_.trace);
    }
  }
}

bool Runner::end_trace(std::chrono::nanoseconds timeout) {
  bool ended = true;
  for (StreamExecutor* stream : streams_) ended &= stream->run_sync([] {}, timeout);
  return ended;
}

std::string Runner::describe(const Node& node, uint64_t due, bool on_home_thread) const {
  const plan::Plan& plan = *run_.plan;
  const int activity = node.activity();
  std::string what;
  if (activity >= 0) {
    const plan::Kernel& kernel = plan.kernels[activity];
    what = fmt::format("runs kernel '{}' ({}){}", kernel.name, kernel.op,
                       kernel.source.known() ? ", " + kernel.source.str() : std::string());
  } else if (activity == Node::kWaiting) {
    what = "waits for a device";
  } else if (activity == Node::kLeasing) {
    what = "waits for cores";
  } else if (on_home_thread) {
    for (const plan::FiringRule::Wait& wait : node.rule().waits()) {
      what += what.empty() ? "waits for " : " and ";
      what += wait.str(plan);
      if (wait.index < 0) continue;
      if (!wait.credit) {
        const plan::Register& reg = plan.registers[plan.edges[wait.index].reg];
        what += fmt::format(" from '{}'", plan.actors[reg.producer].name);
        continue;
      }
      for (const int e : run_.adjacency.register_edges[wait.index]) {
        what += fmt::format(", read by '{}'", plan.actors[plan.edges[e].consumer].name);
      }
    }
    if (what.empty()) what = "is about to fire";
  } else {
    what = "waits for its stream, which is busy";
  }
  return fmt::format("actor '{}' on {}: {} of {} firings, {}", plan.actors[node.actor()].name, node.home().name(),
                     node.firings(), due, what);
}

std::string Runner::wait_report(uint64_t steps, int max_lines) {
  // A stream answers for its nodes on its own thread; one that is busy is described from outside.
  struct Reports {
    std::mutex mutex;
    std::condition_variable changed;
    bool abandoned = false;
    size_t answered = 0;
    std::vector<std::string> lines;  // per actor
  };
  const auto reports = std::make_shared<Reports>();
  reports->lines.resize(nodes_.size());
  const auto describe_stream = [this, steps](const StreamExecutor* stream, std::vector<std::string>& lines,
                                             bool on_thread) {
    for (size_t a = 0; a < nodes_.size(); ++a) {
      if (&nodes_[a]->home() != stream || !lines[a].empty()) continue;
      const uint64_t due = run_.counts.after(static_cast<int>(a), steps);
      if (nodes_[a]->firings() < due || nodes_[a]->activity() != Node::kIdle) {
        lines[a] = describe(*nodes_[a], due, on_thread);
      }
    }
  };
  size_t asked = 0;
  for (StreamExecutor* stream : streams_) {
    if (stream->manual() || stream->on_thread()) {
      describe_stream(stream, reports->lines, true);
      continue;
    }
    ++asked;
    stream->call([reports, describe_stream, stream] {
      std::lock_guard lock(reports->mutex);
      if (reports->abandoned) return;
      describe_stream(stream, reports->lines, true);
      ++reports->answered;
      reports->changed.notify_all();
    });
  }
  std::unique_lock lock(reports->mutex);
  reports->changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return reports->answered == asked; });
  reports->abandoned = true;
  for (const StreamExecutor* stream : streams_) describe_stream(stream, reports->lines, false);
  // The nodes that are at work come first, because the others wait for them.
  std::vector<size_t> order;
  for (size_t a = 0; a < nodes_.size(); ++a) {
    if (!reports->lines[a].empty()) order.push_back(a);
  }
  std::stable_partition(order.begin(), order.end(), [&](size_t a) { return nodes_[a]->activity() != Node::kIdle; });
  std::string text;
  for (size_t i = 0; i < order.size(); ++i) {
    if (static_cast<int>(i) == max_lines) {
      text += fmt::format("\n... and {} more", order.size() - i);
      break;
    }
    text += (text.empty() ? "" : "\n") + reports->lines[order[i]];
  }
  return text;
}

}  // namespace sluice::actors
