// A stream has a part: to count the messages that it gets and to run the nodes that they make ready. One thread at a
// time has that part. Usually it is the stream's own, but to wake a thread costs more than most messages are worth, so
// a thread that brings a message to a stream that sleeps may take its part for a moment.
//
//   state     who has the part                               what happens to a message that comes
//   running   the stream's thread, in run()                  it is linked into the inbox
//   looking   the stream's thread, in rest()                 it is linked, and the thread sees it
//   parked    nobody: the stream's thread sleeps in rest()   the thread whose push finds the stream parked decides
//   stood in  that thread, in stand_in()                     it is linked into the inbox
//
//   from      to        when                                                                   strategy
//   running   looking   ring and inbox are empty, and short waits have paid off of late        look before sleep
//   looking   running   there is a message
//   running   parked    ring and inbox are empty, and looking does not pay                     sleep
//   looking   parked    the look was in vain
//   parked    running   the message lets an actor fire that needs the stream's thread anyway   wake at once
//   parked    parked    the thread holds a lock that the woken thread would need               wake later
//   parked    stood in  any other message                                                      stand in
//   stood in  parked    all messages are counted, and all actors that could fire have fired
//   stood in  running   an actor that is not prompt could fire, or too many have fired         wake at once
//
// Look before sleep: the thread polls the inbox while it gives way to others (ShortWait); who finds its look in vain
// stops looking for a while. The reasons are in ADR 26 and 35.
// Wake at once: the message says so (Cell::wakes, ADR 31), because to count for a thread that runs next would take its
// memory to another core and back.
// Wake later: a WakeLater keeps the streams that its thread has found parked, and decides about them when its locks are
// free (ADR 26). They stay parked meanwhile. What does not fit into it is woken at once.
// Stand in: the thread counts what it has brought, and fires actors that are prompt: they neither take long nor wait
// (ADR 26, 34). It takes cores where they are free and never waits for them (ADR 36). It fires at most kMostFirings,
// and stands in at most kMostDeep streams deep, for those that get messages of the actors that it fires.
//
// With manual stepping a stream has no thread and none of these states: step() delivers what it chooses of all that is
// pending.
#include "actors/stream_executor.h"

#include <algorithm>
#include <exception>
#include <mutex>

#include "actors/message_log.h"
#include "actors/node.h"
#include "base/core_offer.h"
#include "base/log.h"
#include "base/thread.h"
#include "kernels/worker_threads.h"
#include "memory/core_lease.h"
#include "streams/cores.h"
#include "streams/stream.h"

namespace sluice::actors {
namespace {

thread_local StreamExecutor* current_executor = nullptr;
thread_local int standing_in = 0;
thread_local WakeLater* wake_later = nullptr;

// How often it looks for messages before it does so by the clock: those of streams that take turns come sooner.
constexpr int kSpins = 60;
// A kernel that could give its cores back computes so long first.
constexpr int64_t kTurnNs = 1'000'000;
// How many messages of its own a stream handles before it looks for others'.
constexpr int kBatch = 64;
// Who stands in for a stream fires so many actors: it has messages of its own, and they could have run meanwhile.
constexpr int kMostFirings = 8;
// And while it does, it may do so for those that get messages of these: one that computes, and one that sends.
constexpr int kMostDeep = 3;

}  // namespace

StreamExecutor::StreamExecutor(Options options, std::unique_ptr<Stream> stream)
    : options_(std::move(options)), stream_(std::move(stream)), short_wait_(options_.spins) {
  if (options_.manual) return;
  last_call_ = std::make_unique<Call>(Call{{}, [this] { stopping_.store(true, std::memory_order_relaxed); }});
  thread_ = start_thread(fmt::format("stream '{}'", options_.name), options_.name.substr(0, 15).c_str(), [this] {
    current_executor = this;
    if (!options_.cpus.empty()) run_on(options_.cpus);
    log(LogLevel::kDebug, LogArea::kActors, "stream {}: thread started", options_.name);
    run();
    log(LogLevel::kDebug, LogArea::kActors, "stream {}: thread ends", options_.name);
  });
}

StreamExecutor::~StreamExecutor() {
  if (thread_.joinable()) {
    post_call(std::move(last_call_));
    thread_.join();
    discard_rest();
  } else {
    std::mt19937_64 random;
    while (pending() > 0) step(random);
  }
}

bool StreamExecutor::on_thread() const { return current_executor == this; }
StreamExecutor* StreamExecutor::current() { return current_executor; }

WakeLater::WakeLater() : outer_(std::exchange(wake_later, this)) {}

WakeLater::~WakeLater() {
  wake_later = outer_;
  for (size_t i = 0; i < size_; ++i) parked_[i].stream->on_parked(parked_[i].wakes);
}

// This thread's message has found the stream parked.
void StreamExecutor::on_parked(bool wakes) {
  if (wake_later != nullptr && wake_later->add(this, wakes)) return;
  if (wakes || wake_later != nullptr || !stand_in()) inbox_.wake();
}

// A wake-up costs more than most messages are worth. So who brings one to a parked stream counts it itself, and, where
// that lets actors fire, runs their firings as far as they are short and wait for nobody. False when the stream's own
// thread has to go on.
bool StreamExecutor::stand_in() {
  if (standing_in == kMostDeep) return false;
  StreamExecutor* const self = std::exchange(current_executor, this);
  ++standing_in;
  bool parked = false;
  int firings = 0;
  do {
    for (Cell* cell = inbox_.take(); cell != nullptr;) {
      Cell* next = cell->next;
      count(cell->item);
      cell = next;
    }
    if (!ring_.empty() && !handle_promptly(firings)) break;
    parked = inbox_.park_again();
  } while (!parked);
  --standing_in;
  current_executor = self;
  return parked;
}

// What is more than counting is left on the ring, and so is what it makes possible.
void StreamExecutor::count(const Item& item) {
  const auto kind = static_cast<ItemKind>(item.kind);
  const auto port = static_cast<int>(item.port), slot = static_cast<int>(item.slot);
  const bool direct = kind == ItemKind::kAck && item.node->takes_acks_directly(port);
  if (options_.log != nullptr && (kind == ItemKind::kReady || direct)) [[unlikely]]
    record(item, plan::Handled::kCounted);
  if (kind == ItemKind::kReady) {
    item.node->take_ready(port, slot);
  } else if (kind == ItemKind::kStart) {
    item.node->take_start();
  } else if (direct) {
    item.node->take_ack(port, slot);
  } else {
    ring_.push(item);
  }
}

// False when something is left that is not prompt, or too much.
bool StreamExecutor::handle_promptly(int& firings) {
  const auto prompt = [](const Item& item) {
    const auto kind = static_cast<ItemKind>(item.kind);
    if (kind == ItemKind::kAck) return item.node->takes_acks_promptly();
    return kind == ItemKind::kFire && item.node->prompt();
  };
  if (!prompt(ring_.front())) return false;
  add_wait(rest_begin_ns_, clock_.resume());
  for (; !ring_.empty() && firings < kMostFirings && prompt(ring_.front()); ++firings) {
    const Item item = ring_.pop();
    if (static_cast<ItemKind>(item.kind) == ItemKind::kFire) {
      if (options_.log != nullptr) [[unlikely]]
        record(item, plan::Handled::kFiredOnce);
      item.node->fire_once();
    } else {
      deliver(item);
    }
  }
  if (ring_.empty()) unlease();
  rest_begin_ns_ = clock_.stop();
  return ring_.empty();
}

void StreamExecutor::call(std::function<void()> run) { post_call(std::make_unique<Call>(Call{{}, std::move(run)})); }

void StreamExecutor::post_call(std::unique_ptr<Call> call) {
  // Who makes a call may wait for it: nobody is woken later than now.
  WakeLater* const later = std::exchange(wake_later, nullptr);
  for (; later != nullptr && later->size_ > 0; --later->size_) later->parked_[later->size_ - 1].stream->inbox_.wake();
  call->cell.item.call = call.get();
  call->cell.item.kind = static_cast<uint32_t>(ItemKind::kCall);
  post(&call.release()->cell);
  wake_later = later;
}

bool StreamExecutor::run_sync(const std::function<void()>& run, std::chrono::nanoseconds timeout) {
  if (options_.manual || on_thread()) {
    run();
    return true;
  }
  // Shared, because a caller may leave early; what it asked for is not begun then, but awaited once it has been.
  struct Request {
    std::mutex mutex;
    std::condition_variable changed;
    bool begun = false, done = false, withdrawn = false;
    std::exception_ptr error;
  };
  const auto request = std::make_shared<Request>();
  call([request, &run] {
    std::unique_lock lock(request->mutex);
    if (request->withdrawn) return;
    request->begun = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      run();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    request->error = std::move(error);
    request->done = true;
    request->changed.notify_all();
  });
  std::unique_lock lock(request->mutex);
  const auto leave = [&] {
    request->withdrawn = !request->begun;
    if (request->begun) request->changed.wait(lock, [&] { return request->done; });
  };
  try {
    constexpr std::chrono::nanoseconds kSlice = std::chrono::milliseconds(50);  // to see that it has been left behind
    const Deadline deadline(timeout);
    const auto wait = [&] {
      const auto left = std::min(deadline.left(), kSlice);
      return interruptible_wait(lock, request->changed, left, [&] { return request->done; });
    };
    while (!wait() && deadline.left() > std::chrono::nanoseconds::zero() && !left_behind()) {
    }
    if (!request->done) leave();
  } catch (...) {
    leave();
    throw;
  }
  if (request->withdrawn) return false;
  // Taken out, so that the caller, who reads it, is who destroys it.
  if (std::exception_ptr error = std::move(request->error)) std::rethrow_exception(std::move(error));
  return true;
}

bool StreamExecutor::try_lease(int cores) {
  const int held = leased_.load(std::memory_order_relaxed);
  if (held == cores) return true;
  if (held != 0) unlease();
  if (cores > 1 && options_.workers != nullptr) options_.workers->look();
  if (!options_.leases->try_acquire(cores)) return false;
  leased_.store(cores, std::memory_order_relaxed);
  return true;
}

int64_t StreamExecutor::lease(int cores) {
  if (try_lease(cores)) return 0;
  const BusyClock::Pause waiting(clock_);
  const int64_t begin_ns = now_ns();
  options_.leases->acquire(cores);
  leased_.store(cores, std::memory_order_relaxed);
  return now_ns() - begin_ns;
}

void StreamExecutor::offer_lease() {
  const int held = leased_.load(std::memory_order_relaxed);
  if (held > 1 && options_.workers != nullptr) options_.workers->look();
  // Who stands in is soon done, and must not wait to get them back.
  if (held != 0 && standing_in == 0 && options_.leases->contended()) give_up_lease();
}

void StreamExecutor::unlease() {
  if (leased_.load(std::memory_order_relaxed) != 0) give_up_lease();
}

void StreamExecutor::give_up_lease() {
  const int held = leased_.exchange(0, std::memory_order_acq_rel);
  if (held != 0) options_.leases->release(held);
}

void StreamExecutor::add_tracer(TraceRings* rings, int lane) {
  const MutexLock lock(tracers_mutex_);
  tracers_.push_back({rings, lane});
}

void StreamExecutor::remove_tracer(TraceRings* rings) {
  const MutexLock lock(tracers_mutex_);
  std::erase_if(tracers_, [&](const Tracer& t) { return t.rings == rings; });
}

void StreamExecutor::run() {
  // Its kernels see its lease as this.
  class Offer final : public CoreOffer {
   public:
    explicit Offer(StreamExecutor& executor) : CoreOffer(kTurnNs), executor_(executor) {}
    bool wanted() const override {
      return executor_.leased_.load(std::memory_order_relaxed) != 0 && executor_.options_.leases->contended();
    }

   private:
    int64_t give() override {
      const int held = executor_.leased_.load(std::memory_order_relaxed);
      if (held == 0 || standing_in != 0) return 0;
      const int64_t begin_ns = now_ns();
      executor_.give_up_lease();
      executor_.lease(held);  // without a wait where others had their turn before this thread went on
      return now_ns() - begin_ns;
    }
    StreamExecutor& executor_;
  } offer(*this);
  const CoreOffer::Scope offered(offer);
  int spins = 0;
  clock_.resume();
  while (!stopping_.load(std::memory_order_relaxed)) {
    for (int batch = 0; batch < kBatch && !ring_.empty(); ++batch) deliver(ring_.pop());
    if (!inbox_.empty()) {
      drain_inbox();
      spins = 0;
    } else if (ring_.empty() && !stopping_.load(std::memory_order_relaxed)) {  // a call of this round may have ended it
      unlease();
      if (short_wait_.looks() && ++spins < kSpins) {
        cpu_pause();
        continue;
      }
      spins = 0;
      rest();
    }
  }
}

// Until there are messages. It spins no more than kernels' threads may.
void StreamExecutor::rest() {
  const int64_t begin_ns = clock_.pause();
  rest_begin_ns_ = begin_ns;
  const bool may_look = options_.workers == nullptr || options_.workers->spins();
  const bool found = may_look && short_wait_.look([this] { return !inbox_.empty(); });
  if (!found) inbox_.park();
  const int64_t end_ns = clock_.resume();
  if (!found) short_wait_.slept(end_ns - begin_ns);
  add_wait(rest_begin_ns_, end_ns);
}

void StreamExecutor::add_wait(int64_t begin_ns, int64_t end_ns) {
  const MutexLock lock(tracers_mutex_);
  for (const Tracer& tracer : tracers_) {
    TraceEvent event;
    event.stream = tracer.lane;
    event.begin_ns = begin_ns;
    event.end_ns = end_ns;
    event.wait = true;
    tracer.rings->add(event);
  }
}

// What is left at the end can only be calls nobody waits for.
void StreamExecutor::discard_rest() {
  drain_inbox();
  while (!ring_.empty()) {
    const Item item = ring_.pop();
    if (static_cast<ItemKind>(item.kind) == ItemKind::kCall) delete item.call;
  }
}

void StreamExecutor::drain_inbox() {
  for (Cell* cell = inbox_.take(); cell != nullptr;) {
    Cell* next = cell->next;
    ring_.push(cell->item);
    cell = next;
  }
}

[[gnu::always_inline]] inline void StreamExecutor::deliver(const Item& item) {
  const auto kind = static_cast<ItemKind>(item.kind);
  if (options_.log != nullptr) [[unlikely]]
    record(item, plan::Handled::kDelivered);
  if (kind == ItemKind::kFire) [[likely]]
    return item.node->on_fire();
  switch (kind) {
    case ItemKind::kFire: break;
    case ItemKind::kReady: item.node->on_ready(static_cast<int>(item.port), static_cast<int>(item.slot)); break;
    case ItemKind::kAck: item.node->on_ack(static_cast<int>(item.port), static_cast<int>(item.slot)); break;
    case ItemKind::kEnd: item.node->on_end(static_cast<int>(item.port)); break;
    case ItemKind::kStart: item.node->on_start(); break;
    case ItemKind::kStop: item.node->on_stop(); break;
    case ItemKind::kCall: {
      const std::unique_ptr<Call> call(item.call);
      try {
        call->run();
      } catch (...) {  // whoever waits for a call catches in it
        log(LogLevel::kError, LogArea::kActors, "stream '{}': {}", options_.name,
            Status::from_current_exception().message());
      }
      break;
    }
  }
}

// Starts are recorded by their node, which knows how many they are; calls not at all.
void StreamExecutor::record(const Item& item, plan::Handled how) {
  const auto kind = static_cast<ItemKind>(item.kind);
  if (kind != ItemKind::kCall && kind != ItemKind::kStart) options_.log->record(item.node->message_id(item), how);
}

void StreamExecutor::step(std::mt19937_64& random) {
  if (pending() > 0) handle_chosen(choose(random), plan::Handled::kDelivered);
}

bool StreamExecutor::step_call() {
  pending();
  const auto call = std::find_if(choices_.begin(), choices_.end(), [](const PendingMessage& message) {
    return static_cast<ItemKind>(message.item.kind) == ItemKind::kCall;
  });
  if (call == choices_.end()) return false;
  handle_chosen(call, plan::Handled::kDelivered);
  return true;
}

bool StreamExecutor::step_recorded(uint32_t id, plan::Handled how, uint64_t starts) {
  pending();
  const auto chosen = std::find_if(choices_.begin(), choices_.end(), [&](const PendingMessage& message) {
    const auto kind = static_cast<ItemKind>(message.item.kind);
    if (kind == ItemKind::kCall || message.item.node->message_id(message.item) != id) return false;
    return kind != ItemKind::kStart || message.item.node->expect_starts(starts);
  });
  if (chosen == choices_.end()) return false;
  handle_chosen(chosen, how);
  return true;
}

template <class Handle>
void StreamExecutor::take_turn(std::vector<PendingMessage>::iterator chosen, Handle&& handle) {
  const PendingMessage message = *chosen;
  choices_.erase(chosen);
  if (options_.probe != nullptr && !options_.probe->admit(message)) return;
  StreamExecutor* outer = std::exchange(current_executor, this);
  clock_.resume();
  handle(message.item);
  clock_.pause();
  unlease();  // another stream steps next, on this same thread
  current_executor = outer;
}

void StreamExecutor::handle_chosen(std::vector<PendingMessage>::iterator chosen, plan::Handled how) {
  take_turn(chosen, [&](const Item& item) {
    if (how == plan::Handled::kCounted) {
      count(item);
    } else if (how == plan::Handled::kFiredOnce && static_cast<ItemKind>(item.kind) == ItemKind::kFire &&
               item.node->rule().can_fire()) {
      if (options_.log != nullptr) record(item, how);
      item.node->fire_once();
    } else {
      deliver(item);
    }
  });
}

bool StreamExecutor::step_counts() {
  // A node that has ended is told so by a kFire, too, and does not fire.
  const auto fires = [](const PendingMessage& message) {
    return static_cast<ItemKind>(message.item.kind) == ItemKind::kFire && message.item.node->rule().can_fire();
  };
  for (bool any = false;; any = true) {
    pending();
    const auto chosen = std::find_if_not(choices_.begin(), choices_.end(), fires);
    if (chosen == choices_.end()) return any;
    take_turn(chosen, [this](const Item& item) {
      const auto kind = static_cast<ItemKind>(item.kind);
      if (kind == ItemKind::kCall || kind == ItemKind::kFire) return deliver(item);
      item.node->take(item);
    });
  }
}

void StreamExecutor::step_firing(const Node& node) {
  pending();
  const auto chosen = std::find_if(choices_.begin(), choices_.end(), [&](const PendingMessage& message) {
    return static_cast<ItemKind>(message.item.kind) == ItemKind::kFire && message.item.node == &node;
  });
  if (chosen != choices_.end()) handle_chosen(chosen, plan::Handled::kFiredOnce);
}

}  // namespace sluice::actors
