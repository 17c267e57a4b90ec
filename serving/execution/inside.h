#pragma once
// Threads that must not wait for an executor's actors, nor submit to its sessions: those that run one's callbacks.

namespace sluice::serving {

class Inside {
 public:
  Inside() { ++depth(); }
  ~Inside() { --depth(); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  friend bool is_inside();
  static int& depth() {
    thread_local int count = 0;
    return count;
  }
};
inline bool is_inside() { return Inside::depth() > 0; }

}  // namespace sluice::serving
