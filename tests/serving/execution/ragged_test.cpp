// Requests of different lengths in one step, without padding.
#include "serving/execution/ragged.h"

#include <gmock/gmock.h>

#include "fixture.h"

namespace sluice::serving::test {
namespace {

using testing::HasSubstr;

// y = 2 x of (tokens,), z = 2 m of (requests,).
std::string two_lengths(int64_t tokens, int64_t requests) {
  const std::string x = "float32(" + std::to_string(tokens) + ",)", m = "int32(" + std::to_string(requests) + ",)";
  return "graph \"ragged\" {\n  %0 = input \"x\" : " + x + "\n  %1 = input \"m\" : " + m +
         "\n  %2 = add(%0, %0) : " + x + "\n  %3 = add(%1, %1) : " + m +
         "\n  output \"y\" = %2\n  output \"z\" = %3\n}\n";
}

constexpr const char* kPorts = R"(max_batch_size: 4
  input { name: "x" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }
  output { name: "y" data_type: TYPE_FP32 dims: [-1] }
  output { name: "z" data_type: TYPE_INT32 dims: [] }
)";

std::string made_of(const std::string& kind) {
  return "batch_input { kind: " + kind + R"( target_name: "m" data_type: TYPE_INT32 source_input: "x" } )";
}

class RaggedTest : public ExecutionTest {
 protected:
  // Plans for 4 and 16 tokens, of 1 and 4 requests.
  std::string ragged_family() {
    const fs::path path = dir_ / "ragged";
    if (fs::exists(path)) return path;
    std::string members;
    int number = 0;
    for (const int64_t tokens : {4, 16}) {
      for (const int64_t requests : {1, 4}) {
        const fs::path member = bundle("member" + std::to_string(number), two_lengths(tokens, requests));
        const fs::path to = path / "members" / std::to_string(number);
        fs::create_directories(to);
        for (const char* file : {"plan.json", "graph.txt"}) fs::copy(member / file, to / file);
        if (number++ == 0) fs::copy(member / "weights.safetensors", path / "weights.safetensors");
        members += (members.empty() ? "[" : ", [") + std::to_string(tokens) + ", " + std::to_string(requests) + "]";
      }
    }
    std::ofstream(path / "meta.json") << "{}";
    std::ofstream(path / "family.json") << R"({"schema_version": 1, "name": "f", "dims": [
      {"name": "tokens", "min": 1, "max": 16, "fit": "exact"}, {"name": "requests", "min": 1, "max": 4, "fit": "exact"}],
      "inputs": [{"name": "x", "dtype": "float32", "shape": ["tokens"]}, {"name": "m", "dtype": "int32", "shape": ["requests"]}],
      "outputs": [{"name": "y", "dtype": "float32", "shape": ["tokens"]}, {"name": "z", "dtype": "int32", "shape": ["requests"]}],
      "members": [)" << members << "]}";
    return path;
  }
  static InferRequest of_length(size_t length, float from) {
    Floats values(length);
    for (size_t i = 0; i < length; ++i) values[i] = from + static_cast<float>(i);
    return request(floats("x", {1, static_cast<int64_t>(length)}, values));
  }
};

TEST_F(RaggedTest, LengthsOfThreeSevenAndFiveRunInOneExecution) {
  const auto batched = make(ragged_family(), kPorts + made_of("BATCH_ELEMENT_COUNT") +
                                                 "dynamic_batching { preferred_batch_size: [3] "
                                                 "max_queue_delay_microseconds: 600000000 }");
  const auto alone = make(ragged_family(), kPorts + made_of("BATCH_ELEMENT_COUNT"));
  std::vector<Call> calls;
  for (const size_t length : {3u, 7u, 5u})
    calls.emplace_back(*batched, of_length(length, 10.0f * static_cast<float>(length)));
  size_t number = 0;
  for (const size_t length : {3u, 7u, 5u}) {
    const Call one(*alone, of_length(length, 10.0f * static_cast<float>(length)));
    const InferResponse& together = calls[number++].get();
    ASSERT_EQ(one.error(), "");
    ASSERT_FALSE(together.error) << together.error->what();
    for (const size_t output : {0u, 1u}) EXPECT_EQ(together.outputs[output].shape, one.get().outputs[output].shape);
    EXPECT_EQ(together.outputs[0].shape, (std::vector<int64_t>{1, static_cast<int64_t>(length)}));
    EXPECT_EQ(values_of(together.outputs[0]), one.floats(0));
    EXPECT_EQ(one.floats(0).front(), 20.0f * static_cast<float>(length));
    EXPECT_EQ(values_of<int32_t>(together.outputs[1]), values_of<int32_t>(one.get().outputs[1]));
    EXPECT_EQ(values_of<int32_t>(together.outputs[1]), std::vector<int32_t>{static_cast<int32_t>(2 * length)});
  }
  EXPECT_EQ(batched->statistics().execution_count(), 1u);
  EXPECT_EQ(batched->statistics().inference_count(), 3u);
  EXPECT_EQ(alone->statistics().execution_count(), 3u);
}

TEST_F(RaggedTest, AStepTakesWhatItHasRoomFor) {
  const auto executor = make(ragged_family(), kPorts + made_of("BATCH_ACCUMULATED_ELEMENT_COUNT") +
                                                  "dynamic_batching { preferred_batch_size: [4] "
                                                  "max_queue_delay_microseconds: 600000000 }");
  const Call first(*executor, of_length(7, 0)), second(*executor, of_length(9, 0)), third(*executor, of_length(1, 0));
  EXPECT_EQ(values_of<int32_t>(first.get().outputs[1]), std::vector<int32_t>{14});
  EXPECT_EQ(values_of<int32_t>(second.get().outputs[1]), std::vector<int32_t>{32}) << "where its elements end";
  EXPECT_FALSE(third.answered()) << "there was room for 16";
  EXPECT_EQ(executor->statistics().execution_count(), 1u);
  third.cancel();
  EXPECT_EQ(third.code(), Code::kCancelled);
}

TEST_F(RaggedTest, APlanOfFixedSizesIsFilledUp) {
  const std::string config =
      std::string(kPorts) + made_of("BATCH_ACCUMULATED_ELEMENT_COUNT") +
      R"(batch_output { target_name: "y" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "x" })";
  const auto executor = make(bundle("fixed", two_lengths(16, 4)), config);
  const Call call(*executor, of_length(5, 1));
  EXPECT_EQ(call.floats(0), (Floats{2, 4, 6, 8, 10}));
  EXPECT_EQ(values_of<int32_t>(call.get().outputs[1]), std::vector<int32_t>{10});
}

TEST_F(RaggedTest, RequestsThatDoNotFitAreRefused) {
  const auto executor = make(ragged_family(), kPorts + made_of("BATCH_ELEMENT_COUNT"));
  const auto refused = [&](Tensor x) { return Call(*executor, request(std::move(x))).error(); };
  EXPECT_THAT(refused(floats("x", {1, 17}, Floats(17))), HasSubstr("takes at most 16 rows in a step"));
  EXPECT_THAT(refused(floats("x", {2, 3}, Floats(6))), HasSubstr("must be [1,-1]: one row, of any length"));
  EXPECT_THAT(refused(floats("x", {3}, Floats(3))), HasSubstr("shape is [3]; must be [1,-1]"));
  EXPECT_THAT(refused(floats("x", {1, 3}, Floats(2))), HasSubstr("8 bytes; shape [1,3] of FP32 has 12"));
  EXPECT_THAT(Call(*executor, request(tensor<int32_t>("m", DataType::TYPE_INT32, {1}, {3}))).error(),
              HasSubstr("unexpected input 'm'"));
  EXPECT_EQ(Call(*executor, of_length(0, 0)).get().outputs.at(0).shape, (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(Call(*executor, of_length(16, 0)).floats().size(), 16u);
}

TEST_F(RaggedTest, WhatContradictsTheBundleIsRefusedByName) {
  const std::string counts = made_of("BATCH_ELEMENT_COUNT");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string config = kPorts + counts;
    config.replace(config.find(from), from.size(), to);
    return refusal(ragged_family(), config);
  };
  EXPECT_THAT(with("target_name: \"m\"", "target_name: \"q\""), HasSubstr("batch_input 'q': the bundle has no input"));
  EXPECT_THAT(with("data_type: TYPE_INT32 source", "data_type: TYPE_INT64 source"),
              HasSubstr("batch_input 'm': data_type INT64; the bundle has m: int32(requests<=4)"));
  EXPECT_THAT(with("BATCH_ELEMENT_COUNT", "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO"),
              HasSubstr("batch_input 'm': a step needs up to 5 of it"));
  EXPECT_THAT(with("BATCH_ELEMENT_COUNT", "BATCH_ITEM_SHAPE"), HasSubstr("batch_input 'm': it has two axes"));
  EXPECT_THAT(with("allow_ragged_batch: true", ""), HasSubstr("dims [-1] behind the batch; the bundle has x: float32"));
  EXPECT_THAT(
      with("dims: [-1] allow", "dims: [-1, 4, -1] allow"),
      HasSubstr("output 'y': dims [-1]; they must be those of input 'x' and, behind them, the inner axes of y"));
  EXPECT_THAT(with("\"y\" data_type: TYPE_FP32 dims: [-1]", "\"y\" data_type: TYPE_FP32 dims: [-1, 2]"),
              HasSubstr("output 'y': dims [-1,2]; they must be those of input 'x'"));
  EXPECT_THAT(with(counts, counts + R"(batch_output { target_name: "z" source_input: "x" })"),
              HasSubstr("output 'z': the bundle has z: int32(requests<=4); its first axis must be that of input 'x'"));
  EXPECT_THAT(with(counts, counts + R"(batch_output { target_name: "w" source_input: "x" })"),
              HasSubstr("batch_output: target_name 'w'; the config has no such output"));
  EXPECT_THAT(refusal(bundle("fixed", two_lengths(16, 4)), kPorts + made_of("BATCH_MAX_ELEMENT_COUNT_AS_SHAPE")),
              HasSubstr("output 'y': dims [-1] behind the batch; the bundle has y: float32(16,)"));
}

// Requests of (2, 3) and (1, 2) show what each kind tells, and what stands where nobody is. Dims whose product does not
// fit an integer, of a request without elements.
TEST(RaggedBatch, HugeDimsOfNothingAreNoRows) {
  inference::ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(name: "m" max_batch_size: 3
      input { name: "x" data_type: TYPE_FP32 dims: [-1, -1, -1] allow_ragged_batch: true }
      output { name: "z" data_type: TYPE_FP32 dims: [1] })",
                                                            &config));
  api::Port x, z;
  x.name = "x";
  z.name = "z";
  x.dtype = z.dtype = api::DType::kFloat32;
  x.shape = {10};
  z.shape = {3, 1};
  const ModelPorts ports(config, {x}, {z}, "", PortRoles{});
  InferRequest request;
  request.inputs.push_back(floats("x", {1, int64_t{1} << 40, int64_t{1} << 40, 0}, {}));
  const ModelPorts::Prepared prepared = ports.prepare(request);
  ASSERT_EQ(prepared.ragged.size(), 1u);
  EXPECT_EQ(prepared.ragged[0].rows, 0);
}

TEST(RaggedBatch, EveryKindTellsWhoseElementsAreWhose) {
  const auto values = [](const std::string& kind, std::vector<int64_t> shape, const std::string& dim) {
    inference::ModelConfig config;
    const std::string text = R"(name: "m" max_batch_size: 3
      input { name: "x" data_type: TYPE_FP32 dims: [-1, -1] allow_ragged_batch: true }
      output { name: "z" data_type: TYPE_FP32 dims: [1] }
      batch_input { kind: )" +
                             kind + R"( target_name: "t" data_type: TYPE_INT64 source_input: "x" })";
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
    const auto port = [](const std::string& name, api::DType dtype, std::vector<int64_t> of, const std::string& first) {
      api::Port made;
      made.name = name;
      made.dtype = dtype;
      made.shape = std::move(of);
      if (!first.empty()) made.dims.assign(made.shape.size(), ""), made.dims[0] = first;
      return made;
    };
    const std::vector<api::Port> inputs = {port("x", api::DType::kFloat32, {10}, ""),
                                           port("t", api::DType::kInt64, std::move(shape), dim)};
    const std::vector<api::Port> outputs = {port("z", api::DType::kFloat32, {3, 1}, "")};
    const ModelPorts ports(config, inputs, outputs, "", PortRoles{RaggedBatch::made(config, inputs), {}});
    const RaggedBatch ragged(config, ports, {}, {});
    Batch batch;
    for (const auto& [rows, columns] : {std::pair{2, 3}, {1, 2}}) {
      InferRequest request;
      request.inputs.push_back(
          floats("x", {1, rows, columns}, Floats(static_cast<size_t>(rows * columns), static_cast<float>(columns))));
      ModelPorts::Prepared prepared = ports.prepare(request);
      const auto job = std::make_shared<Job>();
      job->inputs = std::move(prepared.inputs);
      job->ragged = std::move(prepared.ragged);
      batch.jobs.push_back(job);
    }
    BufferPool buffers(0);
    const std::vector<api::Tensor> made = ragged.gather(batch, buffers);
    EXPECT_THAT(std::vector<float>(made[0].data<float>(), made[0].data<float>() + 10),
                testing::ElementsAre(3, 3, 3, 3, 3, 3, 2, 2, 0, 0));
    EXPECT_EQ(batch.ragged_at, (std::vector<std::vector<int64_t>>{{0, 6}}));
    return std::vector<int64_t>(made[1].data<int64_t>(), made[1].data<int64_t>() + made[1].size());
  };
  using testing::ElementsAre;
  EXPECT_THAT(values("BATCH_ELEMENT_COUNT", {3}, ""), ElementsAre(6, 2, 0));
  EXPECT_THAT(values("BATCH_ELEMENT_COUNT", {3, 1}, ""), ElementsAre(6, 2, 0));
  EXPECT_THAT(values("BATCH_ACCUMULATED_ELEMENT_COUNT", {3}, ""), ElementsAre(6, 8, 8));
  EXPECT_THAT(values("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", {4}, ""), ElementsAre(0, 6, 8, 8));
  EXPECT_THAT(values("BATCH_ITEM_SHAPE", {3, 2}, ""), ElementsAre(2, 3, 1, 2, 0, 0));
  EXPECT_THAT(values("BATCH_ITEM_SHAPE_FLATTEN", {6}, ""), ElementsAre(2, 3, 1, 2, 0, 0));
  EXPECT_THAT(values("BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", {10}, "longest"), ElementsAre(0, 0, 0, 0, 0, 0));
}

}  // namespace
}  // namespace sluice::serving::test
