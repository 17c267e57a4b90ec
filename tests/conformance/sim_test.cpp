// The sim device's additions to the conformance suite: its memory, its clock, its injected faults.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <numeric>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/kernel.h"
#include "kernels/sim/sim_kernels.h"
#include "memory/storage.h"
#include "streams/sim/sim_device.h"
#include "streams/sim/sim_stream.h"

namespace sluice {
namespace {

constexpr plan::Space kDeviceSpace{plan::SpaceKind::kDevice, {0, DeviceKind::kSim, 0}};

// A launch of a function on no operands.
template <class F>
SimLaunch launch_of(const F& f, const std::string& op) {
  SimLaunch launch;
  launch.op = &op;
  launch.run = [](const void* kernel, const SimOperands&) { (*static_cast<const F*>(kernel))(); };
  launch.kernel = &f;
  launch.duration_ns = 100;
  return launch;
}

class Sim : public testing::Test {
 protected:
  explicit Sim(DeviceOptions options = {.cores = 1}) : device(parse_device("sim:0"), options) {}
  std::unique_ptr<SimStream> stream(plan::StreamKind kind = plan::StreamKind::kCompute) {
    return std::unique_ptr<SimStream>(static_cast<SimStream*>(device.create_stream(kind, 0).release()));
  }
  SimDevice device;
  const std::string op = "work";
};

TEST_F(Sim, LaunchReturnsBeforeCompletion) {
  auto s = stream();
  auto event = s->create_event();
  std::atomic<bool> go{false};
  const auto wait = [&] { go.wait(false); };
  s->launch(launch_of(wait, op));
  s->record(*event);
  EXPECT_FALSE(event->complete());
  go = true;
  go.notify_all();
  EXPECT_TRUE(event->wait().ok());
  EXPECT_TRUE(event->complete());
}

TEST_F(Sim, AFullQueueHoldsTheHostBack) {
  auto s = stream();
  std::atomic<int> runs{0};
  const auto count = [&] { ++runs; };
  for (int i = 0; i < 10000; ++i) s->launch(launch_of(count, op));
  EXPECT_TRUE(s->synchronize().ok());
  EXPECT_EQ(runs.load(), 10000);
}

TEST_F(Sim, KnowsItsOwnMemory) {
  int on_host = 0;
  auto* data = static_cast<char*>(device.allocate(kDeviceSpace, 128));
  EXPECT_TRUE(device.owns(data));
  EXPECT_TRUE(device.owns(data + 127));
  EXPECT_FALSE(device.owns(&on_host));
  EXPECT_FALSE(device.describe().host_memory);
  try {
    device.copy_from_host(&on_host, data, 4);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("is not memory of sim:0; must be a device address"), std::string::npos);
  }
  device.deallocate(kDeviceSpace, data, 128);
  EXPECT_FALSE(device.owns(data));
  EXPECT_THROW(device.deallocate(kDeviceSpace, data, 128), Error);
}

TEST_F(Sim, AHostPointerOnAComputeStreamFailsLate) {
  auto s = stream();
  float on_host = 0;
  const void* inputs[] = {&on_host};
  const auto nothing = [] {};
  SimLaunch launch = launch_of(nothing, op);
  launch.operands.inputs = inputs;
  launch.num_inputs = 1;
  s->launch(launch);
  const Status status = s->synchronize();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("work: input 0 is not in the memory of sim:0: got "), std::string::npos)
      << status.message();
}

TEST_F(Sim, CopyStreamsCrossBetweenHostAndDevice) {
  auto copy_in = stream(plan::StreamKind::kCopyIn), copy_out = stream(plan::StreamKind::kCopyOut);
  auto* data = static_cast<float*>(device.allocate(kDeviceSpace, sizeof(float)));
  float from = 2.5f, to = 0;
  struct Copy {
    static void run(const void*, const SimOperands& o) {
      *static_cast<float*>(o.outputs[0]) = *static_cast<const float*>(o.inputs[0]);
    }
  };
  const auto copy = [&](SimStream& s, const float* source, float* target) {
    const void* inputs[] = {source};
    void* outputs[] = {target};
    SimLaunch launch;
    launch.op = &op;
    launch.run = Copy::run;
    launch.operands = {inputs, outputs, nullptr};
    launch.num_inputs = launch.num_outputs = 1;
    s.launch(launch);
  };
  auto there = copy_in->create_event();
  copy(*copy_in, &from, data);
  copy_in->record(*there);
  copy_out->wait(*there);
  copy(*copy_out, data, &to);
  EXPECT_TRUE(copy_out->synchronize().ok());
  EXPECT_EQ(to, 2.5f);
  copy_out->begin_firing(1);
  copy(*copy_out, data, data);  // the target must be the host's
  EXPECT_FALSE(copy_out->synchronize().ok());
  device.deallocate(kDeviceSpace, data, sizeof(float));
}

TEST_F(Sim, InjectedFaultsHitTheNthKernelOfAnOp) {
  auto s = stream();
  const std::string other = "other";
  std::atomic<int> runs{0};
  const auto count = [&] { ++runs; };
  device.fail_next("work", 2, Status(ErrorKind::kRuntime, "work: injected"));
  for (int step = 0; step < 3; ++step) {
    s->begin_firing(step);
    s->launch(launch_of(count, other));
    s->launch(launch_of(count, op));
    const Status status = s->synchronize();
    EXPECT_EQ(status.ok(), step != 1);
    if (step == 1) {
      EXPECT_EQ(status.message(), "work: injected");
    }
  }
  EXPECT_EQ(runs.load(), 5);
  EXPECT_THROW(device.fail_next("", 0, Status()), Error);
}

// Two streams overlap on the virtual clock; a wait joins them.
TEST_F(Sim, TheVirtualClockOverlapsStreams) {
  auto a = stream(), b = stream();
  auto event = a->create_event();
  const auto nothing = [] {};
  for (int i = 0; i < 5; ++i) a->launch(launch_of(nothing, op));
  a->record(*event);
  for (int i = 0; i < 3; ++i) b->launch(launch_of(nothing, op));
  EXPECT_TRUE(b->synchronize().ok());
  EXPECT_EQ(b->clock_ns(), 300);
  b->wait(*event);
  b->launch(launch_of(nothing, op));
  EXPECT_TRUE(b->synchronize().ok());
  EXPECT_EQ(a->clock_ns(), 500);
  EXPECT_EQ(b->clock_ns(), 600);
}

TEST_F(Sim, AWaitMeansTheRecordingBeforeIt) {
  auto a = stream(), b = stream();
  auto event = a->create_event();
  b->wait(*event);  // nothing recorded yet
  EXPECT_TRUE(b->synchronize().ok());
  EXPECT_TRUE(event->complete());
  EXPECT_TRUE(event->wait().ok());
}

TEST(SimCores, AreTakenAroundEveryKernel) {
  std::atomic<int> held{0}, most{0};
  DeviceOptions options{.cores = 2};
  options.acquire_cores = [&](int n) { most = std::max(most.load(), held += n); };
  options.release_cores = [&](int n) { held -= n; };
  SimDevice device(parse_device("sim"), options);
  auto stream = device.create_stream(plan::StreamKind::kCompute, 0);
  const std::string op = "work";
  const auto nothing = [] {};
  const auto broken = [] { fail(ErrorKind::kRuntime, "work: broken"); };
  SimLaunch launch = launch_of(nothing, op);
  launch.cores = 2;
  static_cast<SimStream&>(*stream).launch(launch);
  SimLaunch bad = launch_of(broken, op);
  static_cast<SimStream&>(*stream).launch(bad);
  EXPECT_FALSE(stream->synchronize().ok());
  EXPECT_EQ(held.load(), 0);
  EXPECT_EQ(most.load(), 2);
  options.release_cores = nullptr;
  EXPECT_THROW(SimDevice(parse_device("sim"), options), Error);
}

TEST(Devices, CoresFollowTheEnvironment) {
  setenv("SLUICE_CORES", "3", 1);
  EXPECT_EQ(make_device(parse_device("cpu"))->describe().cores, 3);
  EXPECT_EQ(make_device(parse_device("sim"), {.cores = 5})->describe().cores, 5);
  setenv("SLUICE_CORES", "none", 1);
  try {
    make_device(parse_device("cpu"));
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "SLUICE_CORES: bad number of cores: 'none'; must be a positive number");
  }
  unsetenv("SLUICE_CORES");
  EXPECT_GE(make_device(parse_device("cpu"))->describe().cores, 1);
}

// Every kernel of the cpu is one of sim, and says so when it is run on the wrong stream.
TEST(SimKernels, MirrorTheCpuTable) {
  KernelTable table;
  class Nothing final : public PreparedKernel {
    void run(const KernelArgs&) const override {}
  };
  KernelDef def;
  def.op = "nothing";
  def.prepare = [](const plan::KernelQuery&, const PrepareContext&) { return std::make_unique<Nothing>(); };
  def.in_place = {{0, 0}};
  table.add(DeviceKind::kCpu, def);
  add_sim_kernels(table);
  EXPECT_EQ(table.ops(DeviceKind::kSim), table.ops(DeviceKind::kCpu));
  const KernelDef& sim = table.get("nothing", DeviceKind::kSim);
  EXPECT_EQ(sim.in_place.size(), 1u);
  plan::KernelQuery query;
  query.op = "nothing";
  auto kernel = sim.prepare(query, {});
  kernel->run({});  // an eager call
  auto cpu = make_device(parse_device("cpu"));
  auto stream = cpu->create_stream(plan::StreamKind::kCompute, 0);
  KernelArgs args;
  args.stream = stream.get();
  try {
    kernel->run(args);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "nothing: a kernel of sim on a stream of cpu:0; give it a stream of its device");
  }
}

// The real table: every op of the cpu, and `copy` from the host to the device and back, changing the layout.
TEST(SimKernels, CopyMovesTensorsThereAndBack) {
  KernelTable table;
  add_cpu_kernels(table);
  add_sim_kernels(table);
  EXPECT_EQ(table.ops(DeviceKind::kSim), table.ops(DeviceKind::kCpu));

  const DeviceId sim = parse_device("sim");
  auto device = make_device(sim);
  auto copy_in = device->create_stream(plan::StreamKind::kCopyIn, 0);
  auto copy_out = device->create_stream(plan::StreamKind::kCopyOut, 0);
  const Shape shape{2, 3, 4, 5};
  const TensorSpec plain = TensorSpec::contiguous({DType::kInt32, shape});
  const TensorSpec channels_last{DType::kInt32, shape, channels_last_strides(shape)};
  const auto prepare = [&](const TensorSpec& from, const TensorSpec& to) {
    plan::KernelQuery query;
    query.op = "copy";
    query.inputs = {from};
    query.outputs = {to};
    query.device = sim;
    return table.get("copy", DeviceKind::kSim).prepare(query, {});
  };
  const auto there = prepare(plain, channels_last), back = prepare(channels_last, plain);

  std::vector<int32_t> from(120), to(120, -1);
  std::iota(from.begin(), from.end(), 0);
  auto allocator = make_device_allocator(*device, {plan::SpaceKind::kDevice, sim});
  Storage on_device(allocator, plain.extent_bytes(), {plan::SpaceKind::kDevice, sim});
  auto arrived = copy_in->create_event();
  const auto run = [](const PreparedKernel& kernel, Stream& stream, const void* in, void* out) {
    ASSERT_EQ(kernel.workspace_bytes(), 0u);
    kernel.run({&in, &out, nullptr, &stream});
  };
  run(*there, *copy_in, from.data(), on_device.data());
  copy_in->record(*arrived);
  copy_out->wait(*arrived);
  run(*back, *copy_out, on_device.data(), to.data());
  EXPECT_TRUE(copy_out->synchronize().ok());
  EXPECT_EQ(from, to);
}

}  // namespace
}  // namespace sluice
