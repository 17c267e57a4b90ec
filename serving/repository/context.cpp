#include "serving/repository/context.h"

#include <caf/atom.hpp>
#include <exception>
#include <thread>

namespace sluice::serving {

namespace {

constexpr size_t kThreads = 2;

}  // namespace

void ActorHome::on_own_thread(const std::function<void()>& body) {
  std::exception_ptr error;
  std::thread([&] {
    try {
      body();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

ActorHome::ActorHome() {
  on_own_thread([this] {
    config_ = std::make_unique<caf::actor_system_config>();
    config_->set("scheduler.max-threads", kThreads);
    config_->set("scheduler.policy", caf::atom("sharing"));
    system_ = std::make_unique<caf::actor_system>(*config_);
  });
}

ActorHome::~ActorHome() {
  on_own_thread([this] { system_ = nullptr; });
}

Context::Context(ServerOptions given, Executors with, const ActorHome& home)
    : options(std::move(given)),
      executors(std::move(with)),
      catalog(options),
      engine({.cores = options.cores}),
      ledger(options.memory_limit),
      shared(make_shared_resources(options)),
      actors(home.system()) {}

}  // namespace sluice::serving
