#pragma once
// The state of the fake driver: contexts, streams with their queues, events, and who may be executed next.
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <set>

#include "cuda/fake_driver/fake_driver.h"
#include "cuda/fake_driver/memory.h"
#include "cuda/fake_driver/races.h"

namespace fake_cuda {

struct Context {
  int device = 0;
  int retained = 0;
  CUresult broken = CUDA_SUCCESS;
};

struct EventState {
  Context* context = nullptr;
  bool alive = true;
  bool captured = false;                 // last recorded within a capture
  uint64_t recorded = 0, completed = 0;  // recordings queued, executed
  Clock clock;                           // of the last recording
};

enum class TaskKind : uint8_t { kKernel, kCopy, kSet, kRecord, kWait };

struct Task {
  TaskKind kind = TaskKind::kKernel;
  Function* function = nullptr;
  unsigned blocks = 1, threads = 1;
  std::vector<std::byte> values;  // of a kernel's parameters
  std::vector<void*> params;
  void* to = nullptr;
  const void* from = nullptr;
  uint64_t bytes = 0;
  unsigned char byte = 0;
  EventState* event = nullptr;
  uint64_t recording = 0;
};

// The work that was queued on a stream while it captured, in its order: streams of ours capture alone.
struct Graph {
  struct Node {
    Task task;
    std::vector<Access> accesses;
    std::string name;
  };
  std::shared_ptr<std::deque<Node>> nodes = std::make_shared<std::deque<Node>>();
};

// Tasks keep their memory when they are done, so a warm queue allocates nothing.
struct StreamState {
  StreamState();
  Context* context = nullptr;
  int index = 0;
  bool alive = true, busy = false;
  bool legacy = false;  // the context's own
  Clock clock;
  std::unique_ptr<Graph> capture;
  bool capture_broken = false;
  std::vector<Task> ring;
  uint64_t queued = 0, executed = 0;
  static constexpr uint64_t kRing = 1024;
};

// Invariant: what `mutex` guards changes under it alone; a kernel runs without it, with its stream busy.
class Machine {
 public:
  static Machine& get();

  std::mutex mutex;
  std::condition_variable changed;
  std::mt19937_64 random{1};
  bool lazy = false;
  Memory memory;
  Races races;
  Clock host;
  std::map<void*, uint64_t> pinned;
  std::vector<int> nodes;  // of devices
  bool refuses_policies = false;
  std::map<const void*, int> pinned_node;          // on which it lies
  std::vector<std::unique_ptr<Context>> contexts;  // per device
  std::vector<std::unique_ptr<StreamState>> streams;
  std::vector<std::unique_ptr<EventState>> events;
  std::vector<std::unique_ptr<Graph>> graphs;  // and executable ones
  struct Injected {
    std::string function;
    int countdown;
    CUresult result;
  };
  std::vector<Injected> injected;
  int break_countdown = 0;
  CUresult break_result = CUDA_SUCCESS;
  Counts counted;
  std::vector<std::string> violations;

  using Lock = std::unique_lock<std::mutex>;
  void violation(const std::string& text);
  // The result with which a call ends before it does anything: an injected result, a context that is broken or not
  // current.
  CUresult enter(const char* function, Context* context);
  StreamState* stream(CUstream handle);
  StreamState* new_stream();  // null when there are too many, or no current context
  EventState* event(CUevent handle);
  Graph* new_graph(Graph graph);
  CUresult destroy_graph(const void* handle);

  // Room for a task at the end of a stream's queue; counted by push().
  Task& next(Lock& lock, StreamState& stream);
  void push(StreamState& stream);
  void access(StreamState& stream, const Access& access, const char* name);
  // Executes until `done`; chosen by the seed.
  template <class Done>
  void run_until(Lock& lock, Done done) {
    while (!done()) {
      if (step(lock)) continue;
      if (none_busy()) {
        violation("deadlock: nothing that is queued can be executed");
        return;
      }
      changed.wait(lock);
    }
  }
  void some_progress(Lock& lock);

 private:
  bool step(Lock& lock);
  bool runnable(const StreamState& stream) const;
  bool none_busy() const;
  void execute(Lock& lock, StreamState& stream);
};

extern thread_local Context* current_context;
extern thread_local StreamState* capturing_stream;  // that the calling thread captures

}  // namespace fake_cuda
