// Expected numbers are torch's, for the same seeds.
#include "tensor/random.h"

#include "tensor/tensor_fixture.h"

namespace sluice::test {
namespace {

using testing::FloatNear;
using testing::Pointwise;

class Random : public TensorTest {
 protected:
  // Equal to the last bit.
  static void expect_exact(const Tensor& got, const std::vector<float>& expected) {
    std::vector<float> head = values(got);
    head.resize(expected.size());
    EXPECT_EQ(head, expected);
  }
  // torch's vectorised logarithm and sines differ from the library's in the last bits.
  static void expect_near(const Tensor& got, const std::vector<float>& expected) {
    std::vector<float> head = values(got);
    head.resize(expected.size());
    EXPECT_THAT(head, Pointwise(FloatNear(1e-6f), expected));
  }
  Generator generator{42};
};

TEST_F(Random, UniformFollowsTorch) {
  expect_exact(generator.rand({DType::kFloat32, {4}}),
               {0.8822692632675171f, 0.9150039553642273f, 0.38286375999450684f, 0.9593056440353394f});
  expect_exact(generator.rand({DType::kFloat64, {2}}), {0.12358607277440903f, 0.05258016436107704f});
}

TEST_F(Random, FewNormalsFollowTorch) {
  expect_exact(generator.randn({DType::kFloat32, {3}}),
               {0.33669036626815796f, 0.12880940735340118f, 0.23446236550807953f});
  expect_exact(generator.randn({DType::kFloat32, {2}}), {0.23033303022384644f, -1.1228563785552979f});
}

TEST_F(Random, ManyNormalsFollowTorch) {
  expect_near(
      generator.randn({DType::kFloat32, {20}}),
      {1.9269152879714966f,  1.4872840642929077f,  0.9007171988487244f,  -2.1055209636688232f,  -0.7581311464309692f,
       1.078317642211914f,   0.8008005619049072f,  1.680620551109314f,   0.3558599054813385f,   -0.6866229772567749f,
       -0.4933563470840454f, 0.2414877861738205f,  -0.2316243201494217f, 0.041759490966796875f, -0.2515752911567688f,
       0.859858512878418f,   -0.3097267746925354f, -0.3957104980945587f, 0.8034093379974365f,   -0.6215953826904297f});
  generator.manual_seed(42);
  expect_near(generator.randn({DType::kFloat64, {18}}),
              {0.2995562877502637f, 0.24237779080894106f, 1.2715909667771088f});
}

TEST_F(Random, IntegersFollowTorch) {
  expect_exact(generator.randint({DType::kInt64, {6}}, -5, 100), {52, -3, 41, 14, 76, 75});
  const Tensor big = generator.randint({DType::kInt64, {2}}, 0, int64_t{1} << 40);
  EXPECT_EQ(static_cast<const int64_t*>(big.read())[0], 810017303572);
  EXPECT_EQ(static_cast<const int64_t*>(big.read())[1], 440001501305);
  expect_exact(generator.randperm(10), {8, 5, 4, 7, 3, 2, 9, 0, 6, 1});
  generator.manual_seed(42);
  const Tensor wide = generator.randint({DType::kInt64, {2}}, 0, (int64_t{1} << 28) + 3);
  EXPECT_EQ(static_cast<const int64_t*>(wide.read())[0], 26275276);
  EXPECT_EQ(static_cast<const int64_t*>(wide.read())[1], 211090518);
}

TEST_F(Random, FillsFollowTorch) {
  const Tensor t = Tensor::empty({DType::kFloat32, {3}});
  generator.uniform_(t, -2, 3);
  expect_exact(t, {2.411346435546875f, 2.5750198364257812f, -0.08568120002746582f});
}

TEST_F(Random, HalfPrecisionFollowsTorch) {
  generator.randint({DType::kInt64, {2}}, 0, (int64_t{1} << 28) + 3);
  expect_exact(generator.rand({DType::kBFloat16, {3}}), {0.390625f, 0.6015625f, 0.255859375f});
}

TEST_F(Random, StatesDifferFromCallToCall) {
  const auto a = generator.next(), b = generator.next();
  EXPECT_NE(values(a.state), values(b.state));
  generator.manual_seed(42);
  EXPECT_EQ(values(generator.next().state), values(a.state));
}

}  // namespace
}  // namespace sluice::test
