// A CUDA device's additions to the conformance suite: limits of memory, poison, nothing left behind.
#include <gmock/gmock.h>
#include <linux/mempolicy.h>

#include "conformance/fixture.h"
#include "cuda/fake_driver/fake_driver.h"
#include "support/error_of.h"

namespace sluice::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class CudaDevice : public Conformance {
 protected:
  void TearDown() override { EXPECT_THAT(fake_cuda::take_violations(), IsEmpty()); }
};

TEST_P(CudaDevice, RunsOutOfMemoryByName) {
  const plan::Space space{plan::SpaceKind::kDevice, id()};
  EXPECT_EQ(
      error_of([&] { device().allocate(space, uint64_t{1} << 40); }),
      "memory: memory: out of memory in cuda:0: 1099511627776 bytes requested, 8589934592 of 8589934592 free, other "
      "processes counted; free tensors or use a smaller batch");
}

TEST_P(CudaDevice, PinnedMemoryHasAQuota) {
  const auto small = make_device(id(), {.cores = 1, .pinned_bytes = 4096});
  const plan::Space pinned{plan::SpaceKind::kPinned, id()};
  void* most = small->allocate(pinned, 4000);
  EXPECT_EQ(
      error_of([&] { small->allocate(pinned, 100); }),
      "memory: memory: out of pinned host memory for cuda:0: 100 bytes requested, 4000 of 4096 in use; use a smaller "
      "batch or lower quotas");
  small->deallocate(pinned, most, 4000);
  small->deallocate(pinned, small->allocate(pinned, 100), 100);
}

// On a machine of two nodes, which is the fake driver's, as are the system calls that ask for one.
TEST_P(CudaDevice, PinnedMemoryLiesNextToTheDevice) {  // ACT-21
  const auto node_of = [](const char* name) {
    const auto device = make_device(parse_device(name), {.cores = 1});
    const plan::Space pinned{plan::SpaceKind::kPinned, parse_device(name)};
    void* const data = device->allocate(pinned, 1 << 16);
    const int node = fake_cuda::node_of(data);
    device->deallocate(pinned, data, 1 << 16);
    return node;
  };
  const auto wish = [] {
    int mode = -1;
    unsigned long nodes[1] = {};
    EXPECT_TRUE(fake_cuda::get_policy(&mode, nodes, 8 * sizeof(nodes)));
    return std::pair<int, unsigned long>(mode, nodes[0]);
  };
  const std::pair<int, unsigned long> none(MPOL_DEFAULT, 0), interleaved(MPOL_INTERLEAVE, 3);
  fake_cuda::set_nodes({1, 0});
  EXPECT_EQ(node_of("cuda:0"), 1);
  EXPECT_EQ(node_of("cuda:1"), 0);
  EXPECT_EQ(wish(), none);  // a wish of the thread's own is as it was
  ASSERT_TRUE(fake_cuda::set_policy(interleaved.first, &interleaved.second, 8 * sizeof(unsigned long)));
  EXPECT_EQ(node_of("cuda:0"), 1);
  EXPECT_EQ(wish(), interleaved);
  ASSERT_TRUE(fake_cuda::set_policy(MPOL_DEFAULT, nullptr, 0));
  fake_cuda::set_nodes({1});
  EXPECT_EQ(node_of("cuda:1"), 0);  // of which the driver says nothing: where the thread is
  fake_cuda::set_nodes({});
  EXPECT_EQ(node_of("cuda:0"), 0);  // a machine without nodes, whose driver knows nothing of them
}

TEST_P(CudaDevice, PinnedMemoryIsThereWhereTheSystemRefusesToSayWhere) {
  fake_cuda::set_nodes({1});
  fake_cuda::refuse_policies(true);
  const plan::Space pinned{plan::SpaceKind::kPinned, id()};
  void* const data = device().allocate(pinned, 4096);
  EXPECT_EQ(fake_cuda::node_of(data), 0);
  device().deallocate(pinned, data, 4096);
  fake_cuda::refuse_policies(false);
  fake_cuda::set_nodes({});
}

TEST_P(CudaDevice, TellsItsMemoryFromOthers) {
  float host = 1;
  EXPECT_THAT(error_of([&] { device().copy_to_host(&host, &host, 4); }),
              HasSubstr("is not memory of cuda:0; must be a device address"));
  EXPECT_THAT(error_of([&] { device().copy_from_host(&host, &host, 4); }),
              HasSubstr("is not memory of cuda:0; must be a device address"));
  EXPECT_THAT(error_of([&] {
                device().deallocate({plan::SpaceKind::kDevice, id()}, &host, 4);
              }),
              HasSubstr("cuda:0 does not own"));
}

// Streams that wait for each other have nothing to hide; ones that do not are found.
TEST_P(CudaDevice, AMissingWaitIsFound) {
  auto producer = compute_stream(), consumer = compute_stream();
  auto x = buffer(64), y = buffer(64);
  producer->begin_firing(0);
  fill(*producer, x, 1);
  consumer->begin_firing(0);
  copy(*consumer, x, y);
  EXPECT_THAT(fake_cuda::take_violations(), testing::ElementsAre(HasSubstr("neither waits for the other")));
  EXPECT_TRUE(producer->synchronize().ok());
  EXPECT_TRUE(consumer->synchronize().ok());
}

// A failure that a running kernel finds follows its data through three streams, past firings that do not use it.
TEST_P(CudaDevice, LateFailuresFollowTheDataAlone) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    fake_cuda::seed(seed);
    auto a = compute_stream(), b = compute_stream(), c = compute_stream();
    auto x = buffer(8), y = buffer(8), z = buffer(8), other = buffer(8);
    auto from_a = a->create_event(), from_b = b->create_event(), from_c = c->create_event();
    a->begin_firing(0);
    fail_kernel(*a, x);
    a->record(*from_a);
    b->begin_firing(0);
    b->wait(*from_a);
    fill(*b, y, 2);  // skipped
    b->record(*from_b);
    b->begin_firing(1);  // has nothing to do with it
    fill(*b, other, 3);
    c->begin_firing(0);
    c->wait(*from_b);
    fill(*c, z, 4);  // skipped
    c->record(*from_c);
    EXPECT_EQ(from_c->wait().message(), "broken: this kernel always fails  (op 'bad', train.py:41)");
    EXPECT_TRUE(b->synchronize().ok());
    EXPECT_EQ(read(other)[0], 3);
    EXPECT_NE(read(z)[0], 4);
    EXPECT_NE(read(y)[0], 2);
    EXPECT_TRUE(a->synchronize().message().starts_with("broken"));
    a->begin_firing(1);
    fill(*a, x, 1);
    a->record(*from_a);
    EXPECT_TRUE(from_a->wait().ok());
  }
}

// An error of the hardware or of an address makes the context unusable. The process and other devices go on.
TEST_P(CudaDevice, AStickyErrorPoisonsTheDeviceAlone) {
  const std::string poison =
      "cuda:0: the device is poisoned: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered), told by "
      "cuEventSynchronize; its stream had launched last: op 'bad', train.py:41; it can be used again by a new process "
      "only";
  {
    const auto device = make_device(id(), {.cores = 1});
    auto stream = compute_stream();
    auto x = buffer(8);
    auto event = stream->create_event();
    fake_cuda::break_kernel(1, CUDA_ERROR_ILLEGAL_ADDRESS);
    stream->begin_firing(0);
    fail_kernel(*stream, x);
    stream->record(*event);
    EXPECT_EQ(event->wait().message(), poison);
    EXPECT_TRUE(event->complete());
    EXPECT_EQ(stream->synchronize().message(), poison);
    stream->begin_firing(1);
    fill(*stream, x, 1);
    stream->record(*event);
    EXPECT_EQ(event->wait().message(), poison);
    EXPECT_EQ(error_of([&] { read(x); }), "device: " + poison);
    EXPECT_EQ(error_of([&] { buffer(8); }), "device: " + poison);
    EXPECT_EQ(error_of([&] { compute_stream(); }), "device: " + poison);

    const auto other = make_device(parse_device("cuda:1"), {.cores = 1});
    const plan::Space space{plan::SpaceKind::kDevice, parse_device("cuda:1")};
    void* data = other->allocate(space, 8);
    const double in = 2.5;
    double out = 0;
    other->copy_from_host(data, &in, 8);
    other->copy_to_host(&out, data, 8);
    EXPECT_EQ(out, 2.5);
    other->deallocate(space, data, 8);
  }
  fake_cuda::repair();
}

INSTANTIATE_TEST_SUITE_P(Fake, CudaDevice, testing::Values("cuda"), [](const auto&) { return "cuda"; });

}  // namespace
}  // namespace sluice::test
