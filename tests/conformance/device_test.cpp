// Every kind of device owes this to its users. Run unchanged on each.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <latch>
#include <thread>
#include <vector>

#include "conformance/fixture.h"
#include "support/alloc_counter.h"

namespace sluice {
namespace {

using test::Conformance;

TEST_P(Conformance, DescribesItself) {
  const plan::DeviceDesc desc = device().describe();
  EXPECT_EQ(desc.device, id());
  EXPECT_GE(desc.cores, 1);
  auto stream = device().create_stream(plan::StreamKind::kCompute, 0);
  EXPECT_EQ(stream->device(), id());
  EXPECT_EQ(stream->kind(), plan::StreamKind::kCompute);
  EXPECT_EQ(stream->asynchronous(), desc.asynchronous);
  EXPECT_EQ(stream->create_event() != nullptr, desc.asynchronous);
}

TEST_P(Conformance, MemoryIsAlignedAndKeepsBytes) {
  std::vector<char> in(1000), out(1000, 0);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<char>(i * 7);
  for (int round = 0; round < 2; ++round) {
    const plan::Space space{plan::SpaceKind::kDevice, id()};
    void* data = device().allocate(space, in.size());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % plan::kAlignment, 0u);
    device().copy_from_host(data, in.data(), in.size());
    device().copy_to_host(out.data(), data, out.size());
    EXPECT_EQ(in, out);
    device().deallocate(space, data, in.size());
  }
  const plan::Space pinned{plan::SpaceKind::kPinned, id()};
  void* data = device().allocate(pinned, 64);
  std::memset(data, 1, 64);  // the host may touch it
  device().deallocate(pinned, data, 64);
}

TEST_P(Conformance, ImpossibleRequestsAreErrors) {
  try {
    device().allocate({plan::SpaceKind::kDevice, id()}, ~uint64_t{0});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kMemory);
    EXPECT_NE(std::string(e.what()).find("18446744073709551615 bytes requested"), std::string::npos) << e.what();
  }
}

TEST_P(Conformance, KernelsRunInOrder) {
  auto stream = compute_stream();
  auto x = buffer(1);
  stream->begin_firing(0);
  fill(*stream, x, 1);
  for (int i = 0; i < 5000; ++i) {
    scale(*stream, x, x, 1, 1);  // x += 1
    if (i % 2 == 0) scale(*stream, x, x, 1, -1);
  }
  EXPECT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(read(x)[0], 1 + 5000 - 2500);
}

// The consumer waits for the producer on the device, the producer for the consumer's reads: no value is lost, none
// is seen twice.
TEST_P(Conformance, EventsOrderStreamsBothWays) {
  auto producer = compute_stream(), consumer = compute_stream();
  auto slot = buffer(64), total = buffer(64);
  auto ready = producer->create_event(), ack = consumer->create_event();
  fill(*consumer, total, 0);
  constexpr int kSteps = 300;
  for (int step = 0; step < kSteps; ++step) {
    producer->begin_firing(step);
    if (ack != nullptr) producer->wait(*ack);  // write after read
    fill(*producer, slot, static_cast<float>(step));
    if (ready != nullptr) producer->record(*ready);
    consumer->begin_firing(step);
    if (ready != nullptr) consumer->wait(*ready);
    add(*consumer, total, slot, total);
    if (ack != nullptr) consumer->record(*ack);
  }
  EXPECT_TRUE(consumer->synchronize().ok());
  for (const float value : read(total)) EXPECT_EQ(value, kSteps * (kSteps - 1) / 2);
  EXPECT_TRUE(producer->synchronize().ok());
}

TEST_P(Conformance, AFailureSkipsTheRestOfItsFiring) {
  auto stream = compute_stream();
  auto x = buffer(1);
  fill(*stream, x, 1);
  stream->begin_firing(1);
  fail_kernel(*stream, x);
  if (stream->asynchronous()) fill(*stream, x, 7);  // skipped
  const Status status = stream->synchronize();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.kind(), ErrorKind::kRuntime);
  EXPECT_EQ(status.message(), "broken: this kernel always fails  (op 'bad', train.py:41)");
  EXPECT_EQ(read(x)[0], 1);
}

TEST_P(Conformance, TheNextFiringForgetsTheFailure) {
  auto stream = compute_stream();
  auto x = buffer(1);
  stream->begin_firing(1);
  fail_kernel(*stream, x);
  EXPECT_FALSE(stream->synchronize().ok());
  stream->begin_firing(2);
  fill(*stream, x, 5);
  EXPECT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(read(x)[0], 5);
}

TEST_P(Conformance, TheFirstFailureOfAFiringStays) {
  auto stream = compute_stream();
  stream->begin_firing(1);
  stream->fail(Status(ErrorKind::kCancelled, "first"));
  stream->fail(Status(ErrorKind::kRuntime, "second"));
  stream->fail(Status());
  EXPECT_EQ(stream->synchronize().message(), "first");
}

// Late: the producer's failure reaches the host only through the event, by way of the dependent stream.
TEST_P(Conformance, FailuresTravelWithEvents) {
  auto producer = compute_stream(), consumer = compute_stream();
  auto x = buffer(1), y = buffer(1);
  auto ready = producer->create_event(), done = consumer->create_event();
  if (ready == nullptr) {  // a host stream hears of another's failure from the actor that failed
    fill(*consumer, y, 3);
    consumer->begin_firing(1);
    consumer->fail(Status(ErrorKind::kRuntime, "broken: from elsewhere"));
    EXPECT_EQ(consumer->synchronize().message(), "broken: from elsewhere");
    return;
  }
  fill(*consumer, y, 3);
  for (int step = 1; step <= 3; ++step) {
    producer->begin_firing(step);
    if (step == 2) {
      fail_kernel(*producer, x);
    } else {
      fill(*producer, x, static_cast<float>(step));
    }
    producer->record(*ready);
    consumer->begin_firing(step);
    consumer->wait(*ready);
    copy(*consumer, x, y);
    consumer->record(*done);
    const Status status = done->wait();
    EXPECT_TRUE(done->complete());
    EXPECT_EQ(status.ok(), step != 2);
    EXPECT_EQ(ready->wait().ok(), step != 2);
    EXPECT_EQ(read(y)[0], step == 3 ? 3 : 1);  // step 2 left y alone
  }
}

TEST_P(Conformance, AHostStreamWaitsForAnEventOfTheDevice) {
  auto stream = compute_stream();
  auto ready = stream->create_event();
  if (ready == nullptr) GTEST_SKIP() << "no events on " << id().str();
  auto host = make_device(parse_device("cpu"));
  auto host_stream = host->create_stream(plan::StreamKind::kHost, 0);
  auto x = buffer(1);
  stream->begin_firing(0);
  fail_kernel(*stream, x);
  stream->record(*ready);
  host_stream->begin_firing(0);
  host_stream->wait(*ready);
  EXPECT_FALSE(host_stream->synchronize().ok());
  host_stream->begin_firing(1);
  EXPECT_TRUE(host_stream->synchronize().ok());
}

TEST_P(Conformance, DestroyingAStreamFinishesItsWork) {
  auto x = buffer(1);
  auto stream = compute_stream();
  stream->begin_firing(0);
  fill(*stream, x, 0);
  for (int i = 0; i < 500; ++i) scale(*stream, x, x, 1, 1);
  stream.reset();
  EXPECT_EQ(read(x)[0], 500);
}

TEST_P(Conformance, AnyThreadMaySynchronize) {
  auto stream = compute_stream();
  auto x = buffer(16);
  std::atomic<bool> stop{false};
  std::latch started(2);
  std::thread other([&] {
    started.arrive_and_wait();
    while (!stop) EXPECT_TRUE(stream->synchronize().ok());
  });
  started.arrive_and_wait();
  fill(*stream, x, 0);
  for (int i = 0; i < 2000; ++i) {
    stream->begin_firing(i);
    scale(*stream, x, x, 1, 1);
  }
  EXPECT_TRUE(stream->synchronize().ok());
  stop = true;
  other.join();
  EXPECT_EQ(read(x)[0], 2000);
}

TEST_P(Conformance, SteadyStateAllocatesNothing) {
  auto a = compute_stream(), b = compute_stream();
  auto x = buffer(16), y = buffer(16);
  auto ready = a->create_event(), ack = b->create_event();
  const auto step = [&](int i) {
    a->begin_firing(i);
    if (ack != nullptr) a->wait(*ack);
    fill(*a, x, 1);
    if (ready != nullptr) a->record(*ready);
    b->begin_firing(i);
    if (ready != nullptr) b->wait(*ready);
    copy(*b, x, y);
    if (ack != nullptr) b->record(*ack);
  };
  const auto drain = [&] {
    EXPECT_TRUE(a->synchronize().ok());
    EXPECT_TRUE(b->synchronize().ok());
  };
  for (int i = 0; i < 50; ++i) step(i);
  drain();
  const uint64_t before = test::allocations();
  for (int i = 0; i < 2000; ++i) step(i);
  drain();
  EXPECT_EQ(test::allocations() - before, 0u);
  EXPECT_GT(before, 0u);  // the counter counts
}

// Work that a stream repeats gives the same as running it, whichever slot it is for; once warm, it allocates nothing.
TEST_P(Conformance, AChainGivesWhatItsWorkGives) {
  auto stream = compute_stream();
  const auto chain = stream->create_chain("two kernels");
  if (chain == nullptr) GTEST_SKIP() << "nothing is gained here by repeating";
  const test::Floats slots[] = {buffer(16), buffer(16), buffer(16)};
  auto last = buffer(16);
  stream->begin_firing(0);
  for (const test::Floats& slot : slots) fill(*stream, slot, 0);
  int called = 0;
  const auto step = [&](int i) {
    const test::Floats& x = slots[i % 3];
    void* const key[] = {x.data()};
    const auto work = [&] {
      ++called;
      scale(*stream, x, x, 1, 1);
      scale(*stream, x, last, 2, 0);
    };
    stream->begin_firing(i);
    chain->run(key, std::cref(work));
  };
  for (int i = 0; i < 60; ++i) step(i);
  EXPECT_TRUE(stream->synchronize().ok());
  EXPECT_LT(called, 60);
  const uint64_t before = test::allocations();
  for (int i = 60; i < 600; ++i) step(i);
  EXPECT_TRUE(stream->synchronize().ok());
  EXPECT_EQ(test::allocations() - before, 0u);
  for (const test::Floats& slot : slots) EXPECT_EQ(read(slot), std::vector<float>(16, 200));
  EXPECT_EQ(read(last)[0], 400);
}

// And of whatever kind SLUICE_TEST_DEVICE is.
std::vector<std::string> devices() {
  std::vector<std::string> names = {"cpu", "sim"};
#ifdef FAKE_CUDA_BACKEND
  names.push_back("cuda");
#endif
  const std::string asked = test::accelerator().kind.str();
  if (std::find(names.begin(), names.end(), asked) == names.end()) names.push_back(asked);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Devices, Conformance, testing::ValuesIn(devices()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace sluice
