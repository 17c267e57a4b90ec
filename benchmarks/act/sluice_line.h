#pragma once
// A line of actors on the real runner and its stream threads.
#include <atomic>
#include <memory>
#include <vector>

#include "act/line_plan.h"
#include "actors/runner.h"
#include "kernels/kernel.h"
#include "memory/core_lease.h"
#include "streams/stream.h"

namespace sluice::bench {

class SluiceLine : private actors::RunListener {
 public:
  explicit SluiceLine(const LineOptions& options);
  ~SluiceLine() override;
  // Sends `steps` tokens through; nanoseconds per actor and step, or per kernel where actors have several.
  double ns_per_act(int steps);
  // Nanoseconds from the first actor's kernel to the second's, the streams idle for `idle_us` before; one figure per
  // sample. REQUIRES: options.stamps.
  std::vector<double> parked_hops_ns(int samples, int idle_us);

 private:
  class Stamp;
  class Idle;
  void on_sink(int, uint64_t, const Status&, void* const*) override {}
  void on_input_slots(int, uint64_t) override {}
  void on_failure(uint64_t, const Status&) override {}
  void on_variables_done(bool) override {}
  std::unique_ptr<actors::Runner> activated();

  const plan::Plan plan_;
  CoreLeases leases_;
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<actors::StreamExecutor>> streams_;
  std::vector<std::unique_ptr<PreparedKernel>> kernels_;
  std::vector<std::atomic<int64_t>> stamps_ns_;
  actors::Bindings bindings_;
};

}  // namespace sluice::bench
