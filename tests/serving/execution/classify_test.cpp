// The largest elements as text.
#include "serving/execution/classify.h"

#include <cmath>

#include "fixture.h"

namespace sluice::serving::test {
namespace {

std::vector<std::string> texts(const Tensor& tensor) {
  std::vector<std::string> all;
  const auto* data = static_cast<const char*>(tensor.data.get());
  for (size_t at = 0; at < tensor.bytes;) {
    uint32_t length = 0;
    std::memcpy(&length, data + at, 4);
    all.emplace_back(data + at + 4, length);
    at += 4 + length;
  }
  return all;
}
using Texts = std::vector<std::string>;

TEST(Classify, TheLargestComeFirst) {
  Tensor one = floats("y", {1, 4}, {1.5f, 3.630257f, -2, 3.25f});
  classify(one, 2, {"a", "b", "c", ""}, false);
  EXPECT_EQ(texts(one), (Texts{"3.630257:1:b", "3.250000:3"}));
  EXPECT_EQ(one.shape, (std::vector<int64_t>{2}));
  EXPECT_EQ(one.datatype, DataType::TYPE_STRING);
  Tensor rows = floats("y", {2, 2}, {1, 2, 4, 3});
  classify(rows, 9, {}, true);  // more than there are
  EXPECT_EQ(texts(rows), (Texts{"2.000000:1", "1.000000:0", "4.000000:0", "3.000000:1"}));
  EXPECT_EQ(rows.shape, (std::vector<int64_t>{2, 2}));
}

TEST(Classify, EqualOnesKeepTheirOrderAndNanIsLast) {
  Tensor one = floats("y", {5}, {NAN, 1, NAN, 1, INFINITY});
  classify(one, 5, {}, false);
  const Texts got = texts(one);
  EXPECT_EQ(Texts(got.begin(), got.begin() + 3), (Texts{"inf:4", "1.000000:1", "1.000000:3"}));
  EXPECT_TRUE(got[3].ends_with("nan:0") && got[4].ends_with("nan:2")) << got[3] << got[4];
}

TEST(Classify, OfEveryType) {
  Tensor u64 = tensor<uint64_t>("y", DataType::TYPE_UINT64, {2}, {1, ~uint64_t{0}});
  classify(u64, 1, {}, false);
  EXPECT_EQ(texts(u64), Texts{"18446744073709551615:1"});
  Tensor i8 = tensor<int8_t>("y", DataType::TYPE_INT8, {3}, {-1, -5, 0});
  classify(i8, 2, {}, false);
  EXPECT_EQ(texts(i8), (Texts{"0:2", "-1:0"}));
  Tensor half = tensor<uint16_t>("y", DataType::TYPE_FP16, {4}, {0x3c00, 0xc000, 0x3555, 0x0001});
  classify(half, 4, {}, false);
  EXPECT_EQ(texts(half), (Texts{"1.000000:0", "0.333252:2", "0.000000:3", "-2.000000:1"}));
  Tensor brain = tensor<uint16_t>("y", DataType::TYPE_BF16, {2}, {0x3f80, 0x4049});
  classify(brain, 1, {}, false);
  EXPECT_EQ(texts(brain), Texts{"3.140625:1"});
  Tensor text = tensor<char>("y", DataType::TYPE_STRING, {1}, {0, 0, 0, 0});
  EXPECT_THROW(classify(text, 1, {}, false), Error);
  Tensor large = tensor<uint8_t>("y", DataType::TYPE_UINT8, {1000001}, std::vector<uint8_t>(1000001));
  EXPECT_THROW(classify(large, 1, {}, false), Error);
}

class ClassifyTest : public ExecutionTest {};

TEST_F(ClassifyTest, OutputsAreClassified) {
  std::ofstream(dir_ / "labels.txt") << "cat\ndog\r\nbird\n";
  const auto executor = make(family("d", doubling, {1, 4}, 3), R"(max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [3] }
    output { name: "y" data_type: TYPE_FP32 dims: [3] label_filename: "labels.txt" })");
  InferRequest one = request(floats("x", {4, 3}, {1, 2, 3, 6, 5, 4, 7, 9, 8, 0, -1, 0}));
  one.outputs.push_back({"y", 3, {}});
  const Call call(*executor, std::move(one));
  ASSERT_EQ(call.error(), "");
  EXPECT_EQ(call.get().outputs[0].shape, (std::vector<int64_t>{4, 3}));
  const Texts got = texts(call.get().outputs[0]);
  EXPECT_EQ(Texts(got.begin(), got.begin() + 3), (Texts{"6.000000:2:bird", "4.000000:1:dog", "2.000000:0:cat"}));
  EXPECT_EQ(got[9], "0.000000:0:cat");
  EXPECT_EQ(got[10], "0.000000:2:bird");
  EXPECT_NE(refusal(bundle("b", doubling(4)), R"(max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [3] }
    output { name: "y" data_type: TYPE_FP32 dims: [3] label_filename: "../labels.txt" })"),
            "");
}

}  // namespace
}  // namespace sluice::serving::test
