#pragma once
// Copies in few bits of what a graph trains: instead of casting a parameter in every step, the graph reads a variable
// that the parameter's update writes, too. Whoever submits a step first brings copies up to date of parameters that
// somebody else has written.
#include <cstdint>
#include <mutex>
#include <vector>

#include "tensor/eager.h"
#include "tensor/trace.h"

namespace sluice {

// Thread safety: refresh() and submitted(), from any thread.
class HalfCopies {
 public:
  // Gives the graph a variable for each dtype that it casts a parameter to, of which a step of an optimizer makes the
  // new content.
  void add_to(CapturedGraph& captured);
  bool any() const { return !copies_.empty(); }

  // Before a step is submitted: every copy shows what its parameter holds.
  void refresh(EagerExecutor& eager);
  // After it: the step itself writes both. Counts of writes that are not this step's alone are looked at by the next
  // refresh().
  void submitted();

 private:
  struct Copy {
    Tensor parameter, copy;
    uint64_t seen = UINT64_MAX;    // version of the parameter that the copy shows
    uint64_t before = UINT64_MAX;  // when the last refresh() was over
  };
  static constexpr uint64_t kWritesOfAStep = 2;  // one when it waits for others, one when it is submitted

  std::mutex mutex_;
  std::vector<Copy> copies_;
};

}  // namespace sluice
