// A kind of device that is not the cpu and computes in the host's memory (host_kind.cpp).
#include "streams/backend.h"
#include "tensor/session/graph_session.h"
#include "tensor/tensor_fixture.h"

namespace sluice::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class DeviceKinds : public TensorTest {
 protected:
  static void SetUpTestSuite() {
    TensorTest::SetUpTestSuite();
    load_backend(HOST_KIND);
  }
  const DeviceId hosted = parse_device("hosted:0");
};

TEST_F(DeviceKinds, TheHostAddressesTensorsOfItsMemory) {
  const Tensor here = vec({1, 2, 3}), there = here.to(hosted);
  EXPECT_EQ(there.device(), hosted);
  EXPECT_EQ(static_cast<const float*>(there.read())[2], 3);
  EXPECT_THAT(values(there), ElementsAre(1, 2, 3));
  EXPECT_THAT(values(there.to(DeviceId{})), ElementsAre(1, 2, 3));
  EXPECT_THAT(values(there.to(parse_device("sim:0")).to(hosted)), ElementsAre(1, 2, 3));
  write_in_place(there, vec({4, 5, 6}));
  write_in_place(here, there);
  EXPECT_THAT(values(here), ElementsAre(4, 5, 6));
}

TEST_F(DeviceKinds, EagerOpsRunThere) {
  const Tensor there = vec({1, 2, 3}).to(hosted);
  const Value sum = ops::add(ops::mul(there, there), 1);
  EXPECT_EQ(sum.device(), hosted);
  EXPECT_EQ(static_cast<const float*>(Tensor(sum).read())[2], 10);
  const Tensor turned = ops::permute(ops::reshape(there, {3, 1}), {1, 0});  // its kernels ask for contiguous operands
  EXPECT_THAT(values(ops::neg(turned)), ElementsAre(-1, -2, -3));
  EXPECT_THAT(error_of([&] {
                ops::add(there, vec({1, 2, 3}));
              }),
              HasSubstr("found at least two devices, hosted:0 and cpu!"));
}

TEST_F(DeviceKinds, AGraphRunsThereWithoutCopies) {
  TraceScope trace(eager, "g");
  const Tensor x = trace.add_input("x", {DType::kFloat32, {3}});
  const Value y = ops::add(ops::mul(x, x), 1);
  GraphSessionOptions options;
  options.compile.device = hosted;
  GraphSession session(eager, trace.finish({{"y", y}}), options);
  EXPECT_THAT(values(session.call({vec({1, 2, 3})})[0]), ElementsAre(2, 5, 10));
  const plan::Plan& plan = session.compiled().plan;
  bool computes = false;
  for (const plan::Stream& stream : plan.streams) {
    EXPECT_NE(stream.kind, plan::StreamKind::kCopyIn);
    EXPECT_NE(stream.kind, plan::StreamKind::kCopyOut);
    computes = computes || stream.device == hosted;
  }
  EXPECT_TRUE(computes);
  for (const plan::Space& space : plan.spaces) EXPECT_EQ(space.kind, plan::SpaceKind::kHost);
}

}  // namespace
}  // namespace sluice::test
