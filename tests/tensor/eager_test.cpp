#include <cstring>

#include "streams/stream.h"
#include "tensor/tensor_fixture.h"

namespace sluice::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Eager : public TensorTest {};

TEST_F(Eager, ItemGivesTheElement) {
  EXPECT_EQ(std::get<double>(Tensor::scalar(2.5, DType::kFloat32).item()), 2.5);
  EXPECT_EQ(std::get<int64_t>(Tensor::scalar(-3, DType::kInt8).item()), -3);
  EXPECT_EQ(std::get<bool>(Tensor::scalar(1, DType::kBool).item()), true);
  EXPECT_EQ(std::get<double>(Tensor::scalar(1.5, DType::kBFloat16).item()), 1.5);
  EXPECT_THAT(error_of([] {
                vec({1, 2}).item();
              }),
              HasSubstr("a Tensor with 2 elements cannot be converted to Scalar"));
}

TEST_F(Eager, BorrowedMemoryIsSharedAndReleased) {
  float data[] = {1, 2, 3, 4};
  bool released = false;
  {
    const Tensor t = Tensor::borrow({DType::kFloat32, {2, 2}, {1, 2}}, data, [&] { released = true; });
    EXPECT_THAT(values(t), ElementsAre(1, 3, 2, 4));
    const GradMode off(false);
    write_in_place(t, Tensor::scalar(9, DType::kFloat32));
  }
  EXPECT_EQ(data[3], 9);
  EXPECT_TRUE(released);
}

TEST_F(Eager, MovesBetweenDevices) {
  DeviceId sim{0, DeviceKind::kSim, 0};
  const Tensor x = vec({1, 2, 3}, true);
  const Tensor there = x.to(sim);
  EXPECT_EQ(there.device(), sim);
  EXPECT_THAT(error_of([&] { there.read(); }), HasSubstr("the host cannot address memory of sim:0"));
  EXPECT_EQ(ops::neg(there).device(), sim);
  EXPECT_EQ(error_of([&] { ops::add(x, there); }),
            "add: Expected all tensors to be on the same device, but found at least two devices, sim:0 and cpu!");
  const Tensor back = there.to(DeviceId{});
  EXPECT_THAT(values(back), ElementsAre(1, 2, 3));
  backward_from(ops::sum(back));
  EXPECT_THAT(grad_of(x), ElementsAre(1, 1, 1));
}

TEST_F(Eager, WritesInPlaceAcrossDevices) {
  const DeviceId sim{0, DeviceKind::kSim, 0};
  const Tensor here = vec({1, 2, 3}), there = vec({4, 5, 6}).to(sim);
  write_in_place(there, ops::mul(here, here));
  EXPECT_THAT(values(there.to(DeviceId{})), ElementsAre(1, 4, 9));
  write_in_place(there, Tensor::scalar(7, DType::kInt64));
  write_in_place(here, there);
  EXPECT_THAT(values(here), ElementsAre(7, 7, 7));
}

TEST_F(Eager, ErrorsNameTheOp) {
  EXPECT_THAT(error_of([] { ops::add(vec({1, 2}), vec({1, 2, 3})); }), HasSubstr("add:"));
}

TEST_F(Eager, ZeroSizedTensorsWork) {
  const Tensor x = Tensor::empty({DType::kFloat32, {0, 3}});
  EXPECT_EQ(Tensor(ops::add(x, x)).size(), 0);
  EXPECT_THAT(values(ops::sum(x, Ints{0})), ElementsAre(0, 0, 0));
}

TEST_F(Eager, MemoryIsReused) {
  const auto allocator = eager.engine().caching_allocator();
  for (int i = 0; i < 3; ++i) ops::add(vec({1, 2}), 1);
  const uint64_t current = allocator->stats().current_bytes;
  for (int i = 0; i < 100; ++i) ops::add(vec({1, 2}), 1);
  EXPECT_EQ(allocator->stats().current_bytes, current);
}

}  // namespace
}  // namespace sluice::test
