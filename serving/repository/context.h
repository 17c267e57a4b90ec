#pragma once
// The parts that the actors of a server share.
#include <atomic>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <set>

#include "serving/core/executor.h"
#include "serving/core/options.h"
#include "serving/repository/catalog.h"
#include "serving/repository/ledger.h"
#include "serving/repository/table.h"

namespace sluice::serving {

// How versions become executors; tests put others in their place.
struct Executors {
  std::function<std::shared_ptr<Executor>(const Machine&, ExecutorSpec)> make = make_executor;
  std::function<uint64_t(const ExecutorSpec&)> ledger = ledger_of;
};

// An actor system of few threads, which sleep while there is nothing to do. Made and ended on threads of their own: CAF
// leaves a reference to it in the thread that makes it, and its end waits until that is gone.
class ActorHome {
 public:
  ActorHome();
  ~ActorHome();
  ActorHome(const ActorHome&) = delete;
  ActorHome& operator=(const ActorHome&) = delete;
  caf::actor_system& system() const { return *system_; }
  // For a thread that is not one of its own, and makes actors.
  static void on_own_thread(const std::function<void()>& body);

 private:
  std::unique_ptr<caf::actor_system_config> config_;
  std::unique_ptr<caf::actor_system> system_;
};

// Executors that take no more requests, and have some under way.
class Leavers {
 public:
  void add(const std::shared_ptr<Executor>& executor) {
    const std::lock_guard lock(mutex_);
    all_.insert(executor);
  }
  void remove(const std::shared_ptr<Executor>& executor) {
    const std::lock_guard lock(mutex_);
    all_.erase(executor);
  }
  std::set<std::shared_ptr<Executor>> read() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::shared_ptr<Executor>> all_;
};

struct Context {
  Context(ServerOptions given, Executors with, const ActorHome& home);
  Machine machine() { return {engine, actors, options, shared}; }

  const ServerOptions options;
  const Executors executors;
  const Catalog catalog;
  api::Engine engine;
  Ledger ledger;
  const std::shared_ptr<SharedResources> shared;
  Table table;
  Leavers leavers;
  std::atomic<bool> stopping{false};  // no more is loaded
  caf::actor_system& actors;          // ends before the context does
};

}  // namespace sluice::serving
