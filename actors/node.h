#pragma once
// A plan's actor at run time: the firing rule, its links, and how it runs its program.
//
// Its messages and firings happen on its home stream's thread, or on the one that stands in for it while it is parked;
// what others may read is atomic.
#include <atomic>
#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "actors/run_state.h"
#include "actors/stream_executor.h"
#include "plan/firing/firing.h"
#include "plan/record/message_order.h"

namespace sluice {
class Meeting;
class PreparedKernel;
}  // namespace sluice

namespace sluice::actors {

// The places that take a register's slot address when the slot changes.
struct Patch {
  uint32_t pointer = 0;  // in NodeProgram::pointers
  int token = 0;         // of an input with take > 1
  uint64_t offset = 0;
  const std::vector<std::byte*>* slots = nullptr;  // addresses of the register's slots
};

// Kernels that follow each other without a message in between, as work that the stream may repeat.
struct KernelChain {
  size_t kernels = 0;
  std::unique_ptr<Chain> work;
  std::vector<uint32_t> varying;  // in NodeProgram::pointers: one per slot that its operands are in
  std::vector<int> fills;         // ports of registers whose tokens several firings write
  std::vector<int> voids;         // in NodeProgram::voids: of what it reads and has not written itself
  std::vector<void*> key;         // values of the pointers; of the ports, whether the firing is a token's first
  std::string context;
};

struct KernelRun {
  const PreparedKernel* kernel = nullptr;
  int index = 0;                     // in the plan
  uint32_t inputs = 0, outputs = 0;  // first operand in NodeProgram::pointers
  void* workspace = nullptr;
  int cores = 0;                                 // leased while it runs; 0: none may be held
  std::vector<int> writes;                       // variables
  int fills = -1;                                // port of a register whose tokens several firings write, or -1
  std::vector<int> void_inputs, void_outputs;    // per operand: in NodeProgram::voids, or -1; empty: none is ever void
  std::unique_ptr<bool[]> told = nullptr;        // of one with branches: per operand, whether it is void
  std::string context;                           // where it stands, for errors
  const Meeting* meeting = nullptr;              // the kernel, if it meets other ranks and can say whether it will wait
  std::unique_ptr<KernelChain> chain = nullptr;  // that it is the first of
};

struct InPort {
  int edge = 0, reg = 0, take = 1;
  bool poisons = true;                     // a failed token fails the firing
  bool waits = false;                      // its tokens have events to wait for
  std::vector<std::pair<int, int>> voids;  // token, and in NodeProgram::voids whether it is void
  std::vector<Patch> patches;
};
struct OutPort {
  int reg = 0;
  bool records = false;  // its slots have events that consumers wait for
  bool late = false;     // emitted after the firing, so that its failure stays behind
  bool spans = false;    // several firings of a device make a token: emitted after the last, with the failures of all
  bool in_place = false;
  std::vector<int> wait_edges;  // acks of these edges carry events
  std::vector<Patch> patches;
  Status status;   // of the slot being written
  int voids = -1;  // in NodeProgram::voids: whether it is void, or -1
  // A kernel has written it: in a firing before this one; in this one.
  bool filled = false, filling = false;
};

// The data of nodes that do more than pass tokens on; other nodes have none of it.
struct NodeProgram {
  std::vector<void*> pointers;  // operands of all kernels, then a sink's outputs
  std::vector<KernelRun> kernels;
  std::vector<InPort> ins;
  std::vector<OutPort> outs;
  // One entry for each place that may be void: it says whether the place holds a void token now.
  std::vector<NotTaken> voids;
  uint32_t sink_outputs = 0;    // first in `pointers`
  std::vector<int> sink_voids;  // per output: in `voids`, or -1
  bool touches_variables = false, writes_variables = false;
  bool asynchronous = false;  // the stream is
  bool brief = false;         // it waits for no device, and may run where its messages come from: Bindings::inline_ns
  bool tiny = false;          // it takes less than a wake-up: it holds no cores
  int64_t leasing_ns = 0;     // of this firing: how long it has waited for cores
  // The time in this firing, if it was read since the last message left and the last wait ended; else 0.
  int64_t clock_ns = 0;
};

class alignas(64) Node {
 public:
  struct Step {
    plan::InstrKind kind;
    int index;  // kRun: in NodeProgram::kernels, the first of a chain; kEmit, kRelease: port
  };
  using Steps = boost::container::small_vector<Step, 2>;
  Node(RunState& run, StreamExecutor& home, int actor);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  StreamExecutor& home() const { return *home_; }
  int actor() const { return actor_; }
  const plan::Plan& plan() const { return *run_->plan; }
  uint64_t firings() const { return published_firings_.load(std::memory_order_acquire); }
  uint64_t waits() const { return published_waits_.load(std::memory_order_relaxed); }
  // Spent in its kernels, and in what it tells about their results.
  int64_t busy_ns() const { return published_busy_ns_.load(std::memory_order_relaxed); }
  // How many kernels were left out, because an input was void.
  uint64_t left_out() const { return published_left_out_.load(std::memory_order_relaxed); }
  int peak_slots(int out_port) const { return rule_.peak_slots(out_port); }
  bool touches_variables() const { return program_ != nullptr && program_->touches_variables; }
  bool writes_variables() const { return program_ != nullptr && program_->writes_variables; }
  // The plan's kernel it is running, or kIdle, kWaiting (for a device), kLeasing (cores).
  static constexpr int kIdle = -1, kWaiting = -2, kLeasing = -3;
  int activity() const { return activity_.load(std::memory_order_relaxed); }
  // Home thread only.
  const plan::FiringRule& rule() const { return rule_; }
  // The first late failure since the last call that no sink will show; clears it. Waits for the device.
  Status take_unseen_failure();
  bool unseen() const { return run_->unseen_events[2 * static_cast<size_t>(actor_)].event != nullptr; }
  // Manual stepping: whose message a cell of this node is, or -1; the run's check, or null.
  int edge_of(const Cell& cell) const;
  Protocol* protocol() const { return run_->protocol.get(); }
  // The number of a message for this node in the run's log. REQUIRES: the run has one, and it is no call.
  uint32_t message_id(const Item& item) const;
  // Replay: the start that waits is that many starts. False when there are not so many yet.
  bool expect_starts(uint64_t starts);
  // Tests: the ack of a token on its way here, before it is due.
  void forge_ack(int edge, int slot) const;

  // Set-up, before any message.
  Steps& steps() { return steps_; }
  // Unless it is needed at once, the program waits for the day when failures travel.
  void set_program(std::unique_ptr<NodeProgram> program, bool needed);
  // Tells the listener of the first free input slots; fires what needs no message. On the home thread.
  void activate();

  // Any thread. REQUIRES: no start() after stop(), which comes once.
  void start(uint64_t credits);
  void stop();

  // Whether an ack of this stream may be counted in the reader's firing. Not if it makes this node do more than count:
  // acks that send acks (in place) would nest as deep as the plan is long.
  bool takes_acks_directly(int out_port) const;
  bool special() const { return special_; }
  // From a firing on its own stream.
  void take_ready(int port, int slot) {
    rule_.on_ready(port, slot, Host{*this});
    schedule(cause_of(TraceCause::Kind::kData, port));
  }
  void take_start() {
    rule_.on_start(taken_credits(plan::Handled::kCounted));
    schedule(cause_of(TraceCause::Kind::kStart));
  }
  void take_ack(int port, int slot) {
    rule_.on_ack(port, slot, Host{*this});
    if (receiving_ != nullptr) [[unlikely]]
      grant_slots();
    schedule(cause_of(TraceCause::Kind::kCredit, port));
  }

  // Another number of credits of a register circulates. On the home thread, between firings.
  void withhold(int out_port, int n);

  // Debugging: a message of any kind, which makes firings possible but runs none.
  void take(const Item& item);

  // It can fire, and that neither takes long nor waits for anybody.
  bool prompt() const;
  // Its acks do no more than count, and tell the caller of free slots of inputs.
  bool takes_acks_promptly() const { return program_ == nullptr || program_->brief; }
  // It may be prompt, or its next token may be one of several that it waits for.
  bool worth_counting() const;
  // One firing, of a kFire that has been taken. REQUIRES: prompt().
  void fire_once() {
    scheduled_ = false;
    fire();
    if (!rule_.can_fire()) count_wait();
    schedule(cause_of(TraceCause::Kind::kStream));
  }

  // Messages, on the home thread.
  void on_fire() {
    scheduled_ = false;
    fire_all();
  }
  void on_ready(int port, int slot) {
    rule_.on_ready(port, slot, Host{*this});
    fire_now(cause_of(TraceCause::Kind::kData, port));
  }
  void on_ack(int port, int slot) {
    if (special_) [[unlikely]]
      return on_ack_special(port, slot);
    rule_.on_ack(port, slot, Host{*this});
    if (receiving_ != nullptr) [[unlikely]]
      grant_slots();
    fire_now(cause_of(TraceCause::Kind::kCredit, port));
  }
  void on_end(int port);
  void on_start();
  void on_stop();

 private:
  struct Host {
    Node& node;
    void ready(int edge, int slot) const {
      const EdgeLink& link = node.run_->links[edge];
      if (link.ready_cells == nullptr) {
        link.consumer->take_ready(link.ready_port, slot);
      } else {
        post(*link.consumer, link.ready_cells[slot]);
      }
    }
    void ack(int edge, int slot) const {
      const EdgeLink& link = node.run_->links[edge];
      if (link.ack_direct) [[likely]] {
        link.producer->take_ack(link.ack_port, slot);
      } else {
        node.send_ack(edge, slot);
      }
    }
    void end(int edge) const { node.send_end(edge); }
  };

  // At most one kFire is under way per node, so that none is left when a node is done.
  void schedule(uint32_t cause) {
    if (!rule_.due() || scheduled_) return;
    scheduled_ = true;
    cause_ = cause;
    home_->post_local(Item::to(this, ItemKind::kFire));
  }
  // A message has come that may have made it ready. If it was ready before, its kFire is under way.
  void fire_now(uint32_t cause) {
    if (!scheduled_) cause_ = cause;
    fire_all();
  }
  void fire_all() {
    for (; rule_.can_fire(); cause_ = cause_of(TraceCause::Kind::kStream)) fire();
    count_wait();
    if (rule_.ended()) [[unlikely]]
      check_done();
  }
  // Once for each of those who call it: it is most of what an actor without kernels costs.
  [[gnu::always_inline]] void fire() {
    if (program_ != nullptr || run_->flags.load(std::memory_order_relaxed) != 0) return fire_program();
    rule_.begin();
    const Host host{*this};
    for (const Step& step : steps_) {
      if (step.kind == plan::InstrKind::kEmit) {
        rule_.emit(step.index, host);
      } else {
        rule_.release(step.index, host);
      }
    }
    rule_.finish(host);
    published_firings_.store(rule_.firings(), std::memory_order_release);
  }
  void count_wait() {
    published_waits_.store(published_waits_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // A cause in a word: the kind above the port.
  static constexpr int kCausePortBits = 24;
  static_assert(kMaxPorts <= 1 << kCausePortBits);
  static constexpr uint32_t cause_of(TraceCause::Kind kind, int port = 0) {
    return static_cast<uint32_t>(kind) << kCausePortBits | static_cast<uint32_t>(port);
  }

  // From now on a start has to be told again.
  uint64_t taken_credits(plan::Handled how) {
    if (run_->log != nullptr) [[unlikely]]
      return recorded_credits(how);
    return start_credits_.exchange(0, std::memory_order_acq_rel);
  }
  uint64_t recorded_credits(plan::Handled how);
  bool meets() const;
  bool gets_cores() const;
  void grant_slots();
  // The registers that are emitted behind the program: those that only order steps, so that they carry no failure, and
  // those whose tokens several firings make.
  struct Behind {
    bool late = false, spans = false;
  };
  void fire_program();
  // Steps of a firing, which stand inline in their one caller.
  inline Status begin_program(uint64_t step, uint32_t flags);
  inline bool run_program(uint64_t step, uint32_t flags, Status& status, Behind& behind);
  inline void run_step(const KernelRun& first, uint64_t step, uint32_t flags, Status& status);
  inline void emit_behind(uint64_t step, const Status& status, Behind behind);
  bool says_end_of_data(const Status& status) const;
  Status wait_event(SlotEvent& slot, uint32_t flags);
  void acquire_slots(uint32_t flags);
  Status take_tokens(uint32_t flags);
  void hold_cores(int cores, uint32_t flags);
  Status void_output() const;
  const NotTaken* void_input(const KernelRun& run) const;
  Status leave_out(const KernelRun& run, NotTaken not_taken, uint64_t step, uint32_t flags);
  void set_void(int place, NotTaken not_taken);
  void tell_voids(const KernelRun& run) const;
  void wrote(const KernelRun& run);
  Status in_firing(const Status& status, const std::string& context) const;
  void fail_firing(uint64_t step, const Status& status);
  Status give_up();
  Status run_chain(std::span<const KernelRun> runs, uint64_t step, uint32_t flags);
  Status run_kernels(std::span<const KernelRun> runs, KernelChain* chain, uint64_t step, uint32_t flags);
  void emit(int port, const Status& status);
  void emit_span(int port, const Status& status);
  void keep_unseen_failure(uint64_t step);
  void trace(TraceEvent event, int64_t end_ns = 0);
  void trace_wait(int64_t begin_ns, TraceCause::Kind what);
  void trace_firing(uint64_t step, int64_t begin_ns, uint32_t cause);
  void on_ack_special(int port, int slot);
  void count_ack_special(int port, int slot);
  void wait_for_readers(int port, int slot);
  void before_ack(int edge, int slot);
  void publish_input_slots(int port);
  [[gnu::noinline]] static void post(const Node& to, Cell& cell);
  void send_ack(int edge, int slot);
  void send_end(int edge);
  void check_done();
  NodeProgram& program() {
    if (program_ == nullptr) [[unlikely]]
      program_ = std::move(spare_program_);
    return *program_;
  }

  // First what messages and firings without kernels touch.
  plan::FiringRule rule_;
  RunState* run_;
  StreamExecutor* home_;
  Steps steps_;
  std::unique_ptr<NodeProgram> program_;
  bool special_ = false;    // feeds, and nodes whose acks carry events
  bool scheduled_ = false;  // a kFire is under way
  bool done_ = false;
  bool sent_ = false;        // the firing under way has emitted or released something
  bool end_told_ = false;    // of a sink, to the listener
  bool has_unseen_ = false;  // firings since take_unseen_failure() found one
  uint32_t cause_ = 0;       // of the next firing, or the one under way
  std::atomic<uint64_t> published_firings_{0};
  std::atomic<uint64_t> published_waits_{0};
  const Meeting* receiving_ = nullptr;  // its kernel, of a node whose free slots another rank may fill
  std::unique_ptr<NodeProgram> spare_program_;
  std::atomic<int64_t> published_busy_ns_{0};
  std::atomic<uint64_t> published_left_out_{0};
  const int actor_;
  int ends_due_ = 0;    // input edges that have not ended; and the stop of a source, which may end before it
  int freed_slot_ = 0;  // of the ack being handled
  std::atomic<int> activity_{kIdle};
  std::atomic<uint64_t> start_credits_{0};  // not 0: start_ is on its way
  Cell start_, stop_;
};
// A message among very many actors costs the memory that it fetches, so a node stays within five cache lines.
static_assert(sizeof(Node) <= 5 * 64 || sizeof(void*) != 8);

}  // namespace sluice::actors
