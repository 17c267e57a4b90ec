#pragma once
// The instances of a model: each is a session and the steps that it runs.
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serving/execution/limiter.h"
#include "serving/execution/model/flight.h"
#include "serving/execution/model/step_pace.h"
#include "serving/execution/step_recorder.h"
#include "sluice/session.h"

namespace sluice::serving {

// The session of an instance, which may be replaced, and the recorder of its steps.
//
// Thread-safe, as the notes of functions say: the instance's own thread replaces the session and takes it away; others
// submit and read.
// Invariant: one submission comes after another, so that the steps of `flight_` are in the session's order.
class InstanceSession {
 public:
  // On the instance's thread, or before anybody knows the instance.
  void put(std::shared_ptr<api::Session> session, std::shared_ptr<Flight> flight);
  // Submits a step. Throws api::Error, and kUnavailable where there is no session; then the step has not taken off.
  // `where`: for errors. Any thread; it may wait for the submissions of others.
  void submit(int instance, const BatchPtr& batch, std::vector<api::Tensor> inputs, const std::string& where);
  // Says when to come again for records of traced requests, and whether steps wait for theirs.
  struct Traces {
    std::optional<Clock::time_point> next;
    bool wait = false;
  };
  // Takes what the engine did for traced requests. On the instance's thread.
  Traces collect_traces();
  // A step that failed, whose result is there; null: none did. On the instance's thread.
  BatchPtr next_failed();
  // Ends the session, and what is under way. False where a kernel does not return: the engine keeps what it uses. On
  // the instance's thread.
  bool stop() noexcept;
  // Lets go of the session, and returns its steps; null where there is none. On the instance's thread.
  std::shared_ptr<Flight> take_away();
  // The counters of the session; none where there is no session. Any thread.
  std::optional<api::Counters> counters() const;
  // Runs a step, and waits for it. REQUIRES: nobody else knows the instance.
  void run(std::vector<api::Tensor> inputs) { session_->hand_over(std::move(inputs)).get(); }

 private:
  mutable std::mutex submit_;  // guards what follows
  std::shared_ptr<api::Session> session_;
  std::shared_ptr<Flight> flight_;
  StepRecorder recorder_;
  std::atomic<bool> records_{false};  // it has something to do
};

struct Instance {
  enum class State { kUp, kDown, kGone };
  // The executor's lock guards what stands here.
  State state = State::kUp;
  int running = 0;                                     // steps taken and not over
  Clock::time_point busy_since;                        // the oldest of them, or the end of the one before it
  std::shared_ptr<Flight> flying;                      // of its session
  bool woken = false;                                  // it will look for requests
  Clock::time_point armed = Clock::time_point::max();  // when it will look by itself
  std::string broken;                                  // why it has to end, once it has to
  bool suspect = false;  // it may share a thread that is lost: until it has done a step, none may take long

  // These are set while the executor opens.
  std::shared_ptr<RateLimiter::Client> limits;  // null: none
  int number = 0;
  int depth = 1;  // steps that it may have under way

  InstanceSession session;

  bool up() const { return state == State::kUp; }
  bool has_room() const { return up() && running < depth; }
  void begins_step(Clock::time_point now) {
    if (running++ == 0) busy_since = now;
  }
  void ends_step(Clock::time_point now) {
    --running;
    busy_since = now;
  }
  void breaks(const std::string& why) {
    if (broken.empty()) broken = why;
  }
  // It has a session again.
  void starts_anew(std::shared_ptr<Flight> flight);
};

// Not thread-safe: the executor's lock guards the fields that Instance names.
class Instances {
 public:
  // Instances are added while the executor opens, and stay.
  Instance& add(std::shared_ptr<api::Session> session, std::shared_ptr<Flight> flight);
  Instance& operator[](int number) { return *all_[static_cast<size_t>(number)]; }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

  size_t up() const;
  bool any_up() const;
  bool any_left() const;  // that was not given up
  // One that may have a step more, and that nobody looks after; null: none.
  Instance* least_busy() const;
  // Steps that take too long break their instances: returns their requests, which are over. `next`: when the next one
  // will have.
  std::vector<JobPtr> break_stuck(const StepPace& pace, Clock::time_point now, Clock::time_point& next);
  // Those that are up and have to end.
  std::vector<int> broken() const;
  // The requests of all steps under way.
  std::vector<JobPtr> jobs() const;

 private:
  std::vector<std::unique_ptr<Instance>> all_;
};

}  // namespace sluice::serving
