#include "actors/stream_executor.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <future>

#include "actors/node.h"
#include "memory/core_lease.h"
#include "streams/stream.h"

namespace sluice::actors {
namespace {

thread_local const StreamExecutor* current = nullptr;

// A few microseconds: about what a wake-up costs. More would keep a core from kernels.
constexpr int kSpins = 60;
// How many messages of its own a stream handles before it looks for others'.
constexpr int kBatch = 64;

inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Messages of one edge in one direction keep their order; so do calls.
bool same_sequence(const Item& a, const Item& b) {
  const auto sequence = [](const Item& item) {
    const auto kind = static_cast<ItemKind>(item.kind);
    if (kind == ItemKind::kEnd) return ItemKind::kReady;
    return kind == ItemKind::kStop ? ItemKind::kStart : kind;
  };
  if (sequence(a) != sequence(b)) return false;
  return sequence(a) == ItemKind::kCall || (a.node == b.node && a.port == b.port);
}

}  // namespace

StreamExecutor::StreamExecutor(Options options, std::unique_ptr<Stream> stream)
    : options_(std::move(options)), stream_(std::move(stream)) {
  if (options_.manual) return;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), options_.name.substr(0, 15).c_str());
    current = this;
    run();
  });
}

StreamExecutor::~StreamExecutor() {
  if (thread_.joinable()) {
    call([this] { stopping_.store(true, std::memory_order_relaxed); });
    thread_.join();
    discard_rest();
  } else {
    std::mt19937_64 random;
    while (pending() > 0) step(random);
  }
}

bool StreamExecutor::on_thread() const { return current == this; }

void StreamExecutor::call(std::function<void()> run) {
  Call* call = new Call{{}, std::move(run)};
  call->cell.item.call = call;
  call->cell.item.kind = static_cast<uint32_t>(ItemKind::kCall);
  post(&call->cell);
}

void StreamExecutor::run_sync(const std::function<void()>& run) {
  if (options_.manual || on_thread()) return run();
  std::promise<void> done;
  call([&] {
    try {
      run();
      done.set_value();
    } catch (...) {
      done.set_exception(std::current_exception());
    }
  });
  done.get_future().get();
}

void StreamExecutor::lease(int cores) {
  if (leased_ != 0 && (leased_ != cores || options_.leases->contended())) unlease();
  if (leased_ != 0) return;
  options_.leases->acquire(cores);
  leased_ = cores;
}

void StreamExecutor::unlease() {
  if (leased_ == 0) return;
  options_.leases->release(leased_);
  leased_ = 0;
}

void StreamExecutor::add_tracer(TraceBuffer* buffer, int lane) {
  run_sync([&] { tracers_.push_back({buffer, lane}); });
}

void StreamExecutor::remove_tracer(TraceBuffer* buffer) {
  run_sync([&] { std::erase_if(tracers_, [&](const Tracer& t) { return t.buffer == buffer; }); });
}

void StreamExecutor::run() {
  int spins = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    for (int batch = 0; batch < kBatch && !ring_.empty(); ++batch) deliver(ring_.pop());
    if (!inbox_.empty()) {
      drain_inbox();
      spins = 0;
    } else if (ring_.empty()) {
      unlease();
      if (++spins < kSpins) {
        cpu_pause();
        continue;
      }
      spins = 0;
      const int64_t begin_ns = tracers_.empty() ? 0 : now_ns();
      inbox_.park();
      for (const Tracer& tracer : tracers_) {
        TraceEvent event;
        event.stream = tracer.lane;
        event.begin_ns = begin_ns;
        event.end_ns = now_ns();
        event.wait = true;
        tracer.buffer->add(event);
      }
    }
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

inline void StreamExecutor::deliver(const Item& item) {
  const auto kind = static_cast<ItemKind>(item.kind);
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
      call->run();
      break;
    }
  }
}

size_t StreamExecutor::pending() {
  drain_inbox();
  while (!ring_.empty()) choices_.push_back(ring_.pop());
  return choices_.size();
}

void StreamExecutor::step(std::mt19937_64& random) {
  if (pending() == 0) return;
  const Item chosen = choices_[random() % choices_.size()];
  const auto first =
      std::find_if(choices_.begin(), choices_.end(), [&](const Item& item) { return same_sequence(item, chosen); });
  const Item item = *first;
  choices_.erase(first);
  const StreamExecutor* outer = std::exchange(current, this);
  deliver(item);
  unlease();  // another stream steps next, on this same thread
  current = outer;
}

}  // namespace sluice::actors
