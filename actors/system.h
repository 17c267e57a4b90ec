#pragma once
// The control plane on CAF: every node has an identity there (a handle to monitor, link to, ask and end), ordinary
// actors supervise them and watch for stalls. The data plane never touches CAF.
//
// Thread safety: every method from any thread.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace caf {
class actor;
class actor_system;
}  // namespace caf

namespace sluice::actors {

class Node;

// A run, as the control plane sees it. Called on CAF's thread; must not call unregister_run().
class Supervised {
 public:
  virtual ~Supervised() = default;
  // A node was ended from outside.
  virtual void on_actor_down(int actor, const std::string& reason) = 0;
  virtual uint64_t firings() const = 0;
  // Steps are in flight.
  virtual bool busy() const = 0;
  // Nothing fired for so long although steps are in flight.
  virtual void on_stall(std::chrono::milliseconds idle) = 0;
};

// "0.17.6"
std::string caf_version();

class System {
 public:
  // `watchdog`: how long a busy run may fire nothing before on_stall; 0: for ever.
  explicit System(std::chrono::milliseconds watchdog);
  // REQUIRES: no run is registered.
  ~System();
  System(const System&) = delete;
  System& operator=(const System&) = delete;

  class Run;
  // Gives each node its identity and supervises them all. REQUIRES: `run` and the nodes live until unregister_run().
  std::shared_ptr<Run> register_run(Supervised& run, const std::vector<Node*>& nodes);
  // Ends the identities, normally. Nothing is called any more once this returns.
  void unregister_run(const std::shared_ptr<Run>& run);

  // For code that speaks CAF itself, on threads that end before this does: CAF keeps a reference to the system in
  // thread-local state of whoever makes an actor, and its end waits for that. A node answers the atom "status" with a
  // line of text and obeys exit messages: an exit of one node fails its run.
  caf::actor_system& caf();
  static const caf::actor& handle(const Run& run, int actor);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::actors
