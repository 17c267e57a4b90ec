#include "act/sluice_line.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "actors/stream_executor.h"
#include "streams/devices.h"

namespace sluice::bench {
namespace {

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

class SluiceLine::Stamp final : public PreparedKernel {
 public:
  explicit Stamp(std::atomic<int64_t>& at) : at_(at) {}
  void run(const KernelArgs&) const override { at_.store(now_ns(), std::memory_order_release); }

 private:
  std::atomic<int64_t>& at_;
};

class SluiceLine::Idle final : public PreparedKernel {
 public:
  void run(const KernelArgs&) const override {}
};

SluiceLine::SluiceLine(const LineOptions& options)
    : plan_(line_plan(options)),
      leases_(options.streams),
      device_(make_device(parse_device("cpu"))),
      stamps_ns_(plan_.kernels.size()) {
  for (const plan::Stream& stream : plan_.streams) {
    actors::StreamExecutor::Options executor;
    executor.name = stream.name;
    executor.leases = &leases_;
    executor.device = device_.get();
    streams_.push_back(
        std::make_unique<actors::StreamExecutor>(executor, device_->create_stream(stream.kind, stream.index)));
    bindings_.streams.push_back(streams_.back().get());
  }
  for (std::atomic<int64_t>& at : stamps_ns_) {
    if (options.stamps)
      kernels_.push_back(std::make_unique<Stamp>(at));
    else
      kernels_.push_back(std::make_unique<Idle>());
    bindings_.kernels.push_back(kernels_.back().get());
  }
}

SluiceLine::~SluiceLine() = default;

std::unique_ptr<actors::Runner> SluiceLine::activated() {
  actors::RunListener& listener = *this;
  auto runner = std::make_unique<actors::Runner>(plan_, bindings_, listener);
  runner->activate();
  return runner;
}

// A run of its own, whose end wakes us: polling would take a core from the streams.
double SluiceLine::ns_per_act(int steps) {
  const auto runner = activated();
  const int64_t begin = now_ns();
  runner->start(static_cast<uint64_t>(steps));
  runner->stop();
  while (!runner->wait_done(std::chrono::seconds(1))) {
  }
  const size_t acts = std::max(plan_.actors.size(), plan_.kernels.size());
  return static_cast<double>(now_ns() - begin) / (static_cast<double>(acts) * steps);
}

std::vector<double> SluiceLine::parked_hops_ns(int samples, int idle_us) {
  const auto runner = activated();
  std::vector<double> taken;
  for (int i = 0; i < samples; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(idle_us));
    runner->start(1);
    while (runner->firings(1) <= static_cast<uint64_t>(i)) std::this_thread::sleep_for(std::chrono::microseconds(50));
    taken.push_back(static_cast<double>(stamps_ns_[1].load() - stamps_ns_[0].load()));
  }
  runner->stop();
  while (!runner->wait_done(std::chrono::seconds(1))) {
  }
  return taken;
}

}  // namespace sluice::bench
