// With caf_scheduler.cpp the only file that knows CAF (0.17): all that would change for 1.x is there.
#include "actors/system.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <unordered_map>

#include "actors/caf_scheduler.h"
#include "actors/node.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "caf/actor.hpp"
#include "caf/actor_system.hpp"
#include "caf/actor_system_config.hpp"
#include "caf/config.hpp"
#include "caf/default_attachable.hpp"
#include "caf/event_based_actor.hpp"
#include "caf/make_actor.hpp"
#include "caf/monitorable_actor.hpp"
#include "caf/scheduler/abstract_coordinator.hpp"
#include "caf/send.hpp"
#include "caf/system_messages.hpp"

namespace sluice::actors {
namespace {

using StatusAtom = caf::atom_constant<caf::atom("status")>;
using TickAtom = caf::atom_constant<caf::atom("tick")>;

std::string status_line(const Node& node) {
  std::string text = fmt::format("{} firings", node.firings());
  for (const plan::FiringRule::Wait& wait : node.rule().waits()) text += ", waits for " + wait.str(node.plan());
  return text;
}

// A node's identity. Messages to it are handled on its home stream, behind those of the data plane.
class NodeIdentity : public caf::monitorable_actor {
 public:
  NodeIdentity(caf::actor_config& config, Node* node) : monitorable_actor(config), home_(&node->home()), node_(node) {}

  using abstract_actor::enqueue;
  void enqueue(caf::mailbox_element_ptr message, caf::execution_unit*) override {
    const MutexLock lock(mutex_);
    if (node_ == nullptr) return bounce(message);
    const caf::strong_actor_ptr self{ctrl()};
    // std::function wants copies; the message has one owner.
    const auto shared = std::make_shared<caf::mailbox_element_ptr>(std::move(message));
    home_->call([self, shared, this] { handle(*shared); });
  }
  const char* name() const override { return "sluice.node"; }
  void on_destroy() override {
    if (getf(is_cleaned_up_flag)) return;
    cleanup(caf::exit_reason::normal, nullptr);  // an error's text would need memory
    monitorable_actor::on_destroy();
  }
  // The same without a word to the supervisor.
  void leave(const caf::actor& supervisor) {
    detach(caf::default_attachable::observe_token{supervisor.address(), caf::default_attachable::monitor});
    try {
      end(caf::exit_reason::normal);
    } catch (const std::bad_alloc&) {
      // Monitors of others are not told, then.
    }
  }
  // After this no message reaches the node.
  void end(caf::error reason) {
    {
      const MutexLock lock(mutex_);
      node_ = nullptr;
    }
    cleanup(std::move(reason), nullptr);
  }

 private:
  void handle(caf::mailbox_element_ptr& message) {
    const auto& content = message->content();
    if (content.match_elements<caf::exit_msg>()) {
      end(content.get_as<caf::exit_msg>(0).reason);
      return;
    }
    const MutexLock lock(mutex_);
    if (node_ == nullptr || !content.match_elements<StatusAtom>() || !message->mid.is_request()) return bounce(message);
    if (message->sender == nullptr) return;
    message->sender->enqueue(ctrl(), message->mid.response_id(), caf::make_message(status_line(*node_)), nullptr);
  }

  StreamExecutor* const home_;
  Mutex mutex_;
  Node* node_ SLUICE_GUARDED_BY(mutex_);
};

}  // namespace

class System::Run {
 public:
  explicit Run(Supervised& its_supervised) : supervised(&its_supervised), last_progress_ns(now_ns()) {}

  Mutex mutex;                                      // held during calls of `supervised`
  Supervised* supervised SLUICE_GUARDED_BY(mutex);  // null once unregistered
  std::vector<caf::actor> handles;
  uint64_t last_firings SLUICE_GUARDED_BY(mutex) = 0;
  int64_t last_progress_ns SLUICE_GUARDED_BY(mutex);
};

struct System::Impl {
  struct Config : caf::actor_system_config {
    explicit Config(CafThreads& threads) {
      set("scheduler.max-threads", size_t{1});
      module_factories.push_back([&threads](caf::actor_system& system) -> caf::actor_system::module* {
        return make_caf_scheduler(system, threads);
      });
    }
  };

  explicit Impl(std::chrono::milliseconds watchdog) : watchdog(watchdog), config(threads), system(config) {
    // The functions take an argument because CAF refers to a null tuple when there is none.
    supervisor = system.spawn<caf::hidden>(
        [](caf::event_based_actor* self, Impl* impl) -> caf::behavior {
          self->set_down_handler([impl](caf::down_msg& down) { impl->node_down(down.source.id(), down.reason); });
          return {[](TickAtom) {}};
        },
        this);
    if (watchdog.count() == 0) return;
    watcher = system.spawn<caf::hidden>(
        [](caf::event_based_actor* self, Impl* impl) -> caf::behavior {
          self->delayed_send(self, impl->tick(), TickAtom::value);
          return {[impl, self](TickAtom) {
            impl->look_for_stalls();
            self->delayed_send(self, impl->tick(), TickAtom::value);
          }};
        },
        this);
  }
  ~Impl() {
    caf::anon_send_exit(supervisor, caf::exit_reason::user_shutdown);
    if (watcher) caf::anon_send_exit(watcher, caf::exit_reason::user_shutdown);
  }

  std::chrono::milliseconds tick() const { return std::max(watchdog / 4, std::chrono::milliseconds(1)); }

  void node_down(caf::actor_id id, const caf::error& reason) {
    std::shared_ptr<Run> run;
    int actor = 0;
    {
      const MutexLock lock(mutex);
      const auto it = nodes.find(id);
      if (it == nodes.end()) return;
      run = it->second.first.lock();
      actor = it->second.second;
      nodes.erase(it);
    }
    if (run == nullptr) return;
    const MutexLock lock(run->mutex);
    if (run->supervised != nullptr) run->supervised->on_actor_down(actor, system.render(reason));
  }

  void look_for_stalls() {
    std::vector<std::shared_ptr<Run>> all;
    {
      const MutexLock lock(mutex);
      all = runs;
    }
    for (const std::shared_ptr<Run>& run : all) {
      const MutexLock lock(run->mutex);
      if (run->supervised == nullptr) continue;
      const uint64_t firings = run->supervised->firings();
      if (firings != run->last_firings || !run->supervised->busy()) {
        run->last_firings = firings;
        run->last_progress_ns = now_ns();
        continue;
      }
      const std::chrono::nanoseconds idle(now_ns() - run->last_progress_ns);
      if (idle < watchdog) continue;
      run->supervised->on_stall(std::chrono::duration_cast<std::chrono::milliseconds>(idle));
      run->last_progress_ns = now_ns();
    }
  }

  const std::chrono::milliseconds watchdog;
  Mutex mutex;
  std::unordered_map<caf::actor_id, std::pair<std::weak_ptr<Run>, int>> nodes SLUICE_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<Run>> runs SLUICE_GUARDED_BY(mutex);
  CafThreads threads;
  // Last, so that its destructor joins CAF's threads, which use all of the above until then.
  Config config;
  caf::actor_system system;
  caf::actor supervisor, watcher;
};

std::string caf_version() {
  return fmt::format("{}.{}.{}", CAF_VERSION / 10000, CAF_VERSION / 100 % 100, CAF_VERSION % 100);
}

// CAF leaves a reference to the system in thread-local state of the thread that makes it, and ending it waits until
// that is gone. So it is made and ended on threads that are over at once: then engines may be destroyed on any thread,
// and after main(), when thread-local state has been destroyed.
System::System(std::chrono::milliseconds watchdog) {
  std::exception_ptr error;
  start_thread("engine: start of supervision", "caf.start", [&] {
    try {
      impl_ = std::make_unique<Impl>(watchdog);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

System::~System() {
  try {
    start_thread("engine: end of supervision", "caf.end", [this] { impl_.reset(); }).join();
  } catch (...) {
    impl_.reset();  // no thread to be had, or no memory for it
  }
}

std::shared_ptr<System::Run> System::register_run(Supervised& supervised, const std::vector<Node*>& nodes) {
  auto run = std::make_shared<Run>(supervised);
  caf::actor_system& system = impl_->system;
  for (Node* node : nodes) {
    caf::actor_config config;
    run->handles.push_back(
        caf::make_actor<NodeIdentity, caf::actor>(system.next_actor_id(), system.node(), &system, config, node));
  }
  try {
    {
      const MutexLock lock(impl_->mutex);
      impl_->runs.push_back(run);
      for (size_t i = 0; i < nodes.size(); ++i) impl_->nodes[run->handles[i].id()] = {run, static_cast<int>(i)};
    }
    for (const caf::actor& handle : run->handles) {
      caf::actor_cast<caf::abstract_actor*>(handle)->attach(
          caf::default_attachable::make_monitor(handle.address(), impl_->supervisor.address()));
    }
  } catch (...) {
    unregister_run(run);
    throw;
  }
  return run;
}

void System::unregister_run(const std::shared_ptr<Run>& run) {
  {
    const MutexLock lock(run->mutex);
    run->supervised = nullptr;
  }
  {
    const MutexLock lock(impl_->mutex);
    std::erase(impl_->runs, run);
    for (const caf::actor& handle : run->handles) impl_->nodes.erase(handle.id());
  }
  for (const caf::actor& handle : run->handles) {
    static_cast<NodeIdentity*>(caf::actor_cast<caf::abstract_actor*>(handle))->leave(impl_->supervisor);
  }
}

caf::actor_system& System::caf() { return impl_->system; }
const caf::actor& System::handle(const Run& run, int actor) { return run.handles.at(actor); }

}  // namespace sluice::actors
