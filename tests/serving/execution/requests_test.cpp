// One request at a time: checks, names, types, shapes, statistics.
#include <gmock/gmock.h>

#include "fixture.h"
#include "serving/core/request_log.h"
#include "serving/core/trace.h"
#include "serving/execution/metrics.h"
#include "support/threads.h"

namespace sluice::serving::test {
namespace {

constexpr const char* kPlain = R"(
  input { name: "x" data_type: TYPE_FP32 dims: [2, 3] }
  output { name: "y" data_type: TYPE_FP32 dims: [2, 3] })";

constexpr const char* kConvolution = R"(
  input { name: "x" data_type: TYPE_FP32 dims: [1, 64, 2, 2] }
  output { name: "y" data_type: TYPE_FP32 dims: [1, 64, 2, 2] })";
constexpr uint64_t kWeightBytes = 64 * 64 * 3 * 3 * sizeof(float);

// Its kernel reads a packed copy of w.
std::string convolution() {
  return R"(graph "convolution" {
  %0 = input "x" : float32(1, 64, 2, 2)
  %1 = variable "w" : float32(64, 64, 3, 3)
  %2 = conv(%0, %1) {stride = [1, 1], padding = [1, 1], dilation = [1, 1], groups = 1} : float32(1, 64, 2, 2)
  output "y" = %2
}
)";
}
api::Tensor ones(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return api::Tensor::from<float>(Floats(static_cast<size_t>(count), 1), shape);
}

using RequestsTest = ExecutionTest;

TEST_F(RequestsTest, ARequestIsAnswered) {
  const auto executor = make(bundle("b", doubling(2)), kPlain);
  InferRequest one = request(floats("x", {2, 3}, {1, 2, 3, 4, 5, 6}));
  one.id = "seven";
  const Call call(*executor, std::move(one));
  EXPECT_EQ(call.floats(), (Floats{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(call.get().model, "m");
  EXPECT_EQ(call.get().version, "1");
  EXPECT_EQ(call.get().id, "seven");
  EXPECT_EQ(call.get().outputs[0].name, "y");
  EXPECT_EQ(call.get().outputs[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(executor->pending(), 0u);
  EXPECT_TRUE(executor->ready());
}

TEST_F(RequestsTest, APlanOfAnotherMachineIsMadeAnew) {
  const fs::path path = bundle("b", doubling(2));
  std::ofstream(path / "meta.json") << "{}";  // without a digest, since its texts are changed
  const auto rename = [&](const char* file, const std::string& from, const std::string& to) {
    std::string text = read_file(path / file);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << text;
    std::ofstream(path / file, std::ios::binary) << text.replace(at, from.size(), to);
  };
  rename("plan.json", R"("op": ")", R"("op": "elsewhere_)");  // a kernel that there is not here
  const auto executor = make(path, kPlain);
  const Call call(*executor, request(floats("x", {2, 3}, {1, 2, 3, 4, 5, 6})));
  EXPECT_EQ(call.floats(), (Floats{2, 4, 6, 8, 10, 12}));
  // Nor can be made: the error is that of the plan.
  rename("graph.txt", "add(", "elsewhere_add(");
  EXPECT_THAT(refusal(path, kPlain), ::testing::HasSubstr("no kernel on cpu"));
}

TEST_F(RequestsTest, ManyThreadsAreAnswered) {
  const auto executor = make(bundle("b", doubling(2)), kPlain);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const float x = static_cast<float>(t * 1000 + i);
        const Call call(*executor, request(floats("x", {2, 3}, {x, 0, 0, 0, 0, x})));
        ASSERT_EQ(call.floats(), (Floats{2 * x, 0, 0, 0, 0, 2 * x}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const inference::ModelStatistics stats = executor->statistics();
  EXPECT_EQ(stats.inference_count(), 800u);
  EXPECT_EQ(stats.execution_count(), 800u);
  EXPECT_EQ(stats.inference_stats().success().count(), 800u);
}

TEST_F(RequestsTest, WhatIsWrongWithARequestIsNamed) {
  const auto executor = make(bundle("b", doubling(2)), kPlain);
  const auto refused = [&](const std::function<void(InferRequest&)>& change) {
    InferRequest one = request(floats("x", {2, 3}, Floats(6, 1)));
    change(one);
    const Call call(*executor, std::move(one));
    EXPECT_EQ(call.code(), Code::kInvalidArgument);
    return call.error();
  };
  EXPECT_EQ(refused([](auto& r) { r.inputs.clear(); }),
            "infer: expected 1 inputs but got 0 inputs for model 'm': 'x' is missing");
  EXPECT_EQ(refused([](auto& r) { r.inputs[0].name = "z"; }), "infer: unexpected input 'z' for model 'm'");
  EXPECT_EQ(refused([](auto& r) { r.inputs.push_back(r.inputs[0]); }), "infer: input 'x' for model 'm' is given twice");
  EXPECT_EQ(refused([](auto& r) { r.inputs[0].datatype = DataType::TYPE_INT32; }),
            "infer: input 'x' for model 'm': datatype is INT32; must be FP32");
  EXPECT_EQ(refused([](auto& r) {
              r.inputs[0].shape = {3, 2};
            }),
            "infer: input 'x' for model 'm': shape is [3,2]; must be [2,3]");
  EXPECT_EQ(refused([](auto& r) {
              r.inputs[0].shape = {-2, -3};
            }),
            "infer: input 'x' for model 'm': shape [-2,-3]; dims must not be negative");
  EXPECT_EQ(refused([](auto& r) { r.inputs[0].bytes = 20; }),
            "infer: input 'x' for model 'm': 20 bytes; shape [2,3] of FP32 has 24");
  EXPECT_EQ(refused([](auto& r) {
              r.outputs = {{"z", 0, {}}};
            }),
            "infer: unexpected inference output 'z' for model 'm'");
  EXPECT_EQ(refused([](auto& r) {
              r.outputs = {{"y", 0, {}}, {"OUTPUT_0", 0, {}}};
            }),
            "infer: unexpected inference output 'OUTPUT_0' for model 'm'");
  EXPECT_EQ(refused([](auto& r) {
              r.outputs = {{"y", 0, {}}, {"y", 0, {}}};
            }),
            "infer: output 'y' of model 'm' is asked for twice");
  EXPECT_EQ(refused([](auto& r) { r.parameters["priority"] = true; }),
            "infer: parameter 'priority' must be a number that is not negative");
  InferRequest huge = request(floats("x", {2, 3}, Floats(6, 1)));
  huge.inputs[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_EQ(Call(*executor, std::move(huge)).code(), Code::kTooLarge);
  EXPECT_EQ(Call(*executor, request(floats("x", {2, 3}, Floats(6, 1)))).floats(), Floats(6, 2));
  EXPECT_EQ(executor->failures().at("OTHER"), 12u);
}

// y0 = a - b, y1 = b - a.
constexpr const char* kTwo = R"(graph "two" {
  %0 = input "a" : float32(2,)
  %1 = input "b" : float32(2,)
  %2 = sub(%0, %1) : float32(2,)
  %3 = sub(%1, %0) : float32(2,)
  output "ab" = %2
  output "ba" = %3
}
)";

TEST_F(RequestsTest, NumbersNameInputsAndOutputsInTheirOrder) {
  const auto executor = make(bundle("two", kTwo), R"(
    input { name: "INPUT_1" data_type: TYPE_FP32 dims: [2] } input { name: "INPUT_0" data_type: TYPE_FP32 dims: [2] }
    output { name: "OUTPUT_0" data_type: TYPE_FP32 dims: [2] } output { name: "OUTPUT_1" data_type: TYPE_FP32 dims: [2] })");
  const auto send = [&](const char* first, const char* second, std::vector<RequestedOutput> outputs) {
    InferRequest one;
    one.inputs = {floats(second, {2}, {1, 2}), floats(first, {2}, {10, 20})};
    one.outputs = std::move(outputs);
    return Call(*executor, std::move(one));
  };
  const Call all = send("INPUT_0", "INPUT_1", {});
  EXPECT_EQ(all.floats(0), (Floats{9, 18}));
  EXPECT_EQ(all.floats(1), (Floats{-9, -18}));
  EXPECT_EQ(all.get().outputs[1].name, "OUTPUT_1");
  // The bundle's names, too; outputs in the order asked for.
  const Call some = send("a", "b", {{"ba", 0, {}}, {"OUTPUT_0", 0, {}}});
  EXPECT_EQ(some.floats(0), (Floats{-9, -18}));
  EXPECT_EQ(some.get().outputs[0].name, "ba");
  EXPECT_EQ(some.floats(1), (Floats{9, 18}));
  EXPECT_EQ(send("a", "b", {{"ba", 0, {}}}).get().outputs.size(), 1u);
}

TEST_F(RequestsTest, EveryDatatypeGoesThroughAsBits) {
  const std::pair<const char*, std::vector<const char*>> types[] = {{"bool", {"BOOL"}},
                                                                    {"uint8", {"UINT8"}},
                                                                    {"int8", {"INT8"}},
                                                                    {"int16", {"INT16", "UINT16"}},
                                                                    {"int32", {"INT32", "UINT32"}},
                                                                    {"int64", {"INT64", "UINT64"}},
                                                                    {"float16", {"FP16"}},
                                                                    {"bfloat16", {"BF16"}},
                                                                    {"float32", {"FP32"}},
                                                                    {"float64", {"FP64"}}};
  for (const auto& [dtype, names] : types) {
    const std::string type = std::string(dtype) + "(4,)";
    const std::string path =
        bundle(dtype, "graph \"echo\" {\n  %0 = input \"x\" : " + type + "\n  output \"y\" = %0\n}\n");
    for (const char* name : names) {
      const std::string of = std::string("data_type: TYPE_") + name + " dims: [4] }";
      const auto executor = make(path, "input { name: 'x' " + of + " output { name: 'y' " + of);
      std::vector<uint8_t> bits(4 * datatype_size(datatype_of(name)));
      for (size_t i = 0; i < bits.size(); ++i)
        bits[i] = std::string(name) == "BOOL" ? i % 2 : static_cast<uint8_t>(0x81 + 7 * i);
      const Call call(*executor, request(tensor("x", datatype_of(name), {4}, bits)));
      ASSERT_EQ(call.error(), "") << name;
      EXPECT_EQ(values_of<uint8_t>(call.get().outputs[0]), bits) << name;
      EXPECT_EQ(call.get().outputs[0].datatype, datatype_of(name));
    }
  }
}

TEST_F(RequestsTest, BytesAreTheContentOfUint8) {
  const auto executor = make(
      bundle("text", "graph \"echo\" {\n  %0 = input \"x\" : uint8(5,)\n  output \"y\" = %0\n}\n"),
      "input { name: 'x' data_type: TYPE_STRING dims: [1] } output { name: 'y' data_type: TYPE_STRING dims: [1] }");
  const auto send = [&](const std::string& bytes, std::vector<int64_t> shape) {
    return Call(*executor, request(tensor("x", DataType::TYPE_STRING, std::move(shape),
                                          std::vector<char>(bytes.begin(), bytes.end()))));
  };
  const std::string hello("\5\0\0\0hello", 9);
  const Call call = send(hello, {1});
  ASSERT_EQ(call.error(), "");
  EXPECT_EQ(values_of<char>(call.get().outputs[0]), std::vector<char>(hello.begin(), hello.end()));
  EXPECT_EQ(call.get().outputs[0].shape, (std::vector<int64_t>{1}));
  EXPECT_EQ(send(std::string("\5\0\0\0hel", 7), {1}).error(),
            "infer: input 'x' for model 'm': its bytes end within an element");
  EXPECT_EQ(send(std::string("\5\0", 2), {1}).error(),
            "infer: input 'x' for model 'm': its bytes end within the length of an element");
  EXPECT_EQ(send(std::string("\6\0\0\0helloo", 10), {1}).error(),
            "infer: input 'x' for model 'm': an element of 6 bytes; at most 5 are allowed");
  EXPECT_EQ(send(hello + hello, {1}).error(), "infer: input 'x' for model 'm': 2 elements of shape [1]; it takes one");
}

std::string strings(const std::vector<std::string>& all) {
  std::string bytes;
  for (const std::string& one : all) {
    const auto length = static_cast<uint32_t>(one.size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    bytes += one;
  }
  return bytes;
}

TEST_F(RequestsTest, StringsHaveTheirLengthBesideThem) {
  for (const char* type : {"int32", "int64"}) {
    const std::string graph = std::string("graph \"echo\" {\n  %0 = input \"x\" : uint8(3, 5)\n  %1 = input \"n\" : ") +
                              type + "(3,)\n  output \"y\" = %0\n  output \"m\" = %1\n}\n";
    const auto executor = make(bundle(std::string("text_") + type, graph), R"(max_batch_size: 3
      input { name: 'x' data_type: TYPE_STRING dims: [1] } output { name: 'y' data_type: TYPE_STRING dims: [1] }
      parameters { key: 'string_lengths' value { string_value: 'x:n, y:m' } })");
    for (const std::vector<std::string>& all :
         {std::vector<std::string>{"hello", "", "a"}, {std::string("a\0\xff\0", 4)}, {""}, {"ab", "cdefg"}}) {
      const std::string bytes = strings(all);
      const Call call(*executor, request(tensor("x", DataType::TYPE_STRING, {static_cast<int64_t>(all.size()), 1},
                                                std::vector<char>(bytes.begin(), bytes.end()))));
      ASSERT_EQ(call.error(), "");
      const std::vector<char> got = values_of<char>(call.get().outputs.at(0));
      EXPECT_EQ(std::string(got.begin(), got.end()), bytes);
      EXPECT_EQ(call.get().outputs[0].shape, (std::vector<int64_t>{static_cast<int64_t>(all.size()), 1}));
    }
  }
}

TEST_F(RequestsTest, LengthsThatAreNoneAreRefusedByName) {
  const std::string graph =
      "graph \"g\" {\n  %0 = input \"x\" : uint8(5,)\n  %1 = input \"n\" : int32(1,)\n  %2 = input \"f\" : "
      "float32(1,)\n"
      "  output \"y\" = %0\n  output \"m\" = %1\n  output \"g\" = %2\n}\n";
  const auto refused = [&](const std::string& lengths, const std::string& more = "") {
    return refusal(bundle("g", graph),
                   "input { name: 'x' data_type: TYPE_STRING dims: [1] } output { name: 'y' "
                   "data_type: TYPE_STRING dims: [1] } parameters { key: 'string_lengths' value { "
                   "string_value: '" +
                       lengths + "' } } " + more);
  };
  const std::string f = "input { name: 'f' data_type: TYPE_FP32 dims: [1] }",
                    here = "model 'm': parameters.string_lengths";
  EXPECT_EQ(refused("x", f), here + ": 'x'; must be like 'text:text_lengths'");
  EXPECT_EQ(refused("z:n", f), here + ": 'z:n': the model has no input or output of the first name");
  EXPECT_EQ(refused("f:n", f), here + ": 'f:n': the first must be of TYPE_STRING, and no files");
  EXPECT_EQ(refused("x:z", f), here + ": 'x:z': the bundle has no input 'z'");
  EXPECT_EQ(refused("y:n", f), here + ": 'y:n': the bundle has no output 'n'");
  EXPECT_NE(refused("x:f").find("it must be of int32 or int64, with one element"), std::string::npos);
  EXPECT_EQ(refused("x:n", f + " input { name: 'n' data_type: TYPE_INT32 dims: [1] }"),
            here + ": 'x:n': 'n' is an input of clients, too");
  EXPECT_EQ(refused("x:n,y:m", f), "");
}

TEST_F(RequestsTest, ALengthThatTheBundleMakesUpFailsTheRequest) {
  const std::string graph =
      "graph \"g\" {\n  %0 = input \"x\" : uint8(5,)\n  %1 = input \"n\" : int32(1,)\n  output \"y\" = %0\n"
      "  output \"m\" = %1\n}\n";
  const auto executor = make(bundle("made_up", graph), R"(
    input { name: 'x' data_type: TYPE_STRING dims: [1] } input { name: 'n' data_type: TYPE_INT32 dims: [1] }
    output { name: 'y' data_type: TYPE_STRING dims: [1] }
    parameters { key: 'string_lengths' value { string_value: 'y:m' } })");
  const auto send = [&](int32_t length) {
    const std::string bytes = strings({"hello"});
    InferRequest asked =
        request(tensor("x", DataType::TYPE_STRING, {1}, std::vector<char>(bytes.begin(), bytes.end())));
    asked.inputs.push_back(tensor("n", DataType::TYPE_INT32, {1}, std::vector<int32_t>{length}));
    return Call(*executor, std::move(asked));
  };
  EXPECT_EQ(values_of<char>(send(2).get().outputs.at(0)), (std::vector<char>{2, 0, 0, 0, 'h', 'e'}));
  for (const int32_t length : {-1, 6})
    EXPECT_EQ(send(length).error(), "infer: output 'y' of model 'm': the bundle tells that a string has " +
                                        std::to_string(length) + " bytes; its row has 5");
}

TEST_F(RequestsTest, ShapesAreShownOtherwise) {
  const auto executor = make(bundle("b", doubling(2)), R"(
    input { name: "x" data_type: TYPE_FP32 dims: [6] reshape { shape: [2, 3] } }
    output { name: "y" data_type: TYPE_FP32 dims: [3, 1, 2] reshape { shape: [2, 3] } })");
  const Call call(*executor, request(floats("x", {6}, {1, 2, 3, 4, 5, 6})));
  EXPECT_EQ(call.floats(), (Floats{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(call.get().outputs[0].shape, (std::vector<int64_t>{3, 1, 2}));
}

TEST_F(RequestsTest, ConfigsThatContradictTheBundleAreRefused) {
  const auto refused = [&](const std::string& text) { return refusal(bundle("b", doubling(2)), text); };
  const std::string y = "output { name: 'y' data_type: TYPE_FP32 dims: [2, 3] }";
  EXPECT_EQ(refused(y), "model 'm': the bundle takes x: float32(2, 3); the config has no input for it");
  EXPECT_EQ(refused("input { name: 'x' data_type: TYPE_INT8 dims: [2, 3] }" + y),
            "model 'm': input 'x': data_type INT8; the bundle has float32");
  EXPECT_EQ(refused("input { name: 'x' data_type: TYPE_FP32 dims: [-1, 3] }" + y),
            "model 'm': input 'x': dims [-1,3]; the bundle has x: float32(2, 3)");
  EXPECT_EQ(refused("input { name: 'q' data_type: TYPE_FP32 dims: [2, 3] }" + y),
            "model 'm': input 'q': the bundle has none of this name: 'x'");
  EXPECT_EQ(refused("input { name: 'x' data_type: TYPE_FP32 dims: [2, 3] optional: true }" + y),
            "model 'm': input 'x': optional; the bundle's plan reads it in every step");
  EXPECT_EQ(refused("input { name: 'x' data_type: TYPE_FP32 dims: [7] reshape { shape: [2, 3] } }" + y),
            "model 'm': input 'x': reshape [2,3]; it must have as many elements as dims [7], and as many open dims");
  EXPECT_EQ(refused("input { name: 'x' data_type: TYPE_FP32 dims: [2, 3] }"), "model 'm': the config has no output");
  EXPECT_NE(refusal(dir_ / "nothing", kPlain), "");
}

// Then nobody else is woken for it.
TEST_F(RequestsTest, AShortStepRunsInTheThreadThatBringsItsRequest) {
  const auto executor = make(bundle("b", doubling(2)), kPlain);
  bool at_once = false;
  for (int i = 0; i < 100 && !at_once;
       ++i) {  // a machine may be so busy that the stream has not parked where it blocks
    ASSERT_TRUE(sluice::test::others_fall_asleep());
    const Call call(*executor, request(floats("x", {2, 3}, {1, 2, 3, 4, 5, 6})));
    at_once = call.answered() && call.answered_by() == std::this_thread::get_id();
    ASSERT_EQ(call.floats(), (Floats{2, 4, 6, 8, 10, 12}));
  }
  EXPECT_TRUE(at_once);
}

TEST_F(RequestsTest, StatisticsAddUp) {
  const auto executor = make(family("d", doubling, {4}, 3), R"(max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [3] } output { name: "y" data_type: TYPE_FP32 dims: [3] })");
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(Call(*executor, request(floats("x", {4, 3}, Floats(12, 1)))).floats(), Floats(12, 2));
  const inference::ModelStatistics stats = executor->statistics();
  EXPECT_EQ(stats.name(), "m");
  EXPECT_EQ(stats.version(), "1");
  EXPECT_EQ(stats.inference_count(), 40u);
  EXPECT_EQ(stats.execution_count(), 10u);
  EXPECT_EQ(stats.inference_stats().success().count(), 10u);
  ASSERT_EQ(stats.batch_stats_size(), 1);
  EXPECT_EQ(stats.batch_stats(0).batch_size(), 4u);
  EXPECT_EQ(stats.batch_stats(0).compute_infer().count(), 10u);
  EXPECT_GT(stats.last_inference(), 0u);
  ASSERT_EQ(stats.memory_usage_size(), 1);
  EXPECT_EQ(stats.memory_usage(0).byte_size(), executor->memory_bytes());
  EXPECT_GT(executor->memory_bytes(), 0u);
  const auto& times = stats.inference_stats();
  EXPECT_LE(times.queue().ns() + times.compute_input().ns() + times.compute_infer().ns() + times.compute_output().ns(),
            times.success().ns());
  const std::string text = metrics_text({{stats, 3, {{"REJECTED", 7}}}});
  for (const char* line : {
           "# TYPE nv_inference_request_success counter\nnv_inference_request_success{model=\"m\",version=\"1\"} 10\n",
           "nv_inference_request_failure{model=\"m\",version=\"1\",reason=\"REJECTED\"} 7\n",
           "nv_inference_request_failure{model=\"m\",version=\"1\",reason=\"BACKEND\"} 0\n",
           "nv_inference_count{model=\"m\",version=\"1\"} 40\n",
           "nv_inference_exec_count{model=\"m\",version=\"1\"} 10\n",
           "# TYPE nv_inference_pending_request_count gauge\n",
           "nv_inference_pending_request_count{model=\"m\",version=\"1\"} 3\n",
       })
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST_F(RequestsTest, WarmUpRunsBeforeItIsThere) {
  fs::create_directories(dir_ / "warmup");
  std::ofstream(dir_ / "warmup" / "row") << std::string(12, '\0');
  const std::string text = R"(max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [3] } output { name: "y" data_type: TYPE_FP32 dims: [3] }
    model_warmup { name: "w" batch_size: %s count: 2 inputs { key: "x" value { data_type: TYPE_FP32 dims: [3] %s } } })";
  const auto with = [&](const char* batch, const char* data) {
    std::string with = text;
    with.replace(with.find("%s"), 2, batch);
    return with.replace(with.find("%s"), 2, data);
  };
  const std::string path = family("d", doubling, {1, 4}, 3);
  for (const char* data : {"zero_data: true", "random_data: true", "input_data_file: 'row'"}) {
    const auto executor = make(path, with("3", data));
    EXPECT_EQ(executor->statistics().execution_count(), 0u);
    EXPECT_EQ(Call(*executor, request(floats("x", {1, 3}, {1, 2, 3}))).floats(), (Floats{2, 4, 6}));
  }
  EXPECT_EQ(refusal(path, with("5", "zero_data: true")), "model 'm': model_warmup 'w': batch_size: 5; at most 4");
  EXPECT_EQ(refusal(path, with("1", "input_data_file: '../row'")),
            "model 'm': model_warmup 'w': input 'x': input_data_file '../row'; it must be a file in warmup/");
  EXPECT_EQ(refusal(path, with("1", "input_data_file: 'gone'")),
            "model 'm': model_warmup 'w': input 'x': input_data_file 'gone': no such file in warmup/");
}

TEST_F(RequestsTest, RequestsStoredWithTheModelAreReplayedInEachInstance) {
  fs::create_directories(dir_ / "warmup");
  std::ofstream(dir_ / "warmup" / "requests.log") << request_record(request(floats("x", {1, 3}, {1, 2, 3})))
                                                  << request_record(request(floats("x", {3, 3}, Floats(9, 1))))
                                                  << request_record(request(floats("x", {1, 3}, {4, 5, 6})));
  const auto executor = make(family("d", doubling, {1, 4}, 3), R"(max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [3] } output { name: "y" data_type: TYPE_FP32 dims: [3] })");
  EXPECT_EQ(executor->statistics().execution_count(), 0u);  // they are nobody's
  // The first of a client is the fourth step of its session: what the first steps do is done.
  InferRequest first = request(floats("x", {1, 3}, {1, 2, 3}));
  first.trace = std::make_shared<RequestTrace>(1, Transport::kInProcess, [](const RequestTrace&) {});
  const std::shared_ptr<RequestTrace> trace = first.trace;
  EXPECT_EQ(Call(*executor, std::move(first)).floats(), (Floats{2, 4, 6}));
  EXPECT_EQ(trace->step(), 3);
}

TEST_F(RequestsTest, StoredRequestsThatDoNotFitAreRefusedByNumber) {
  fs::create_directories(dir_ / "warmup");
  const std::string good = request_record(request(floats("x", {1, 3}, {1, 2, 3})));
  const auto refused = [&](const std::string& log) {
    std::ofstream(dir_ / "warmup" / "requests.log", std::ios::trunc) << log;
    return refusal(bundle("b1", doubling(1)), R"(input { name: "x" data_type: TYPE_FP32 dims: [1, 3] }
      output { name: "y" data_type: TYPE_FP32 dims: [1, 3] })");
  };
  EXPECT_EQ(refused(good + good), "");
  const std::string here = "model 'm': warmup/requests.log: request ";
  EXPECT_NE(refused(good + request_record(request(floats("x", {2}, {1, 2})))).find(here + "2: infer: input 'x'"),
            std::string::npos);
  EXPECT_EQ(refused(good + good.substr(0, good.size() - 5)), here + "2: it is cut off");
  EXPECT_EQ(refused(good + "{}"), here + "2: its line does not end");
  EXPECT_NE(refused("{}\n").find(here + "1: "), std::string::npos);
  EXPECT_NE(refused("{\"header_bytes\":18446744073709551615,\"bytes\":18446744073709551615}\n").find(here + "1: "),
            std::string::npos);
}

TEST_F(RequestsTest, TheLedgerCountsInstances) {
  ExecutorSpec spec;
  spec.config = config(kPlain);
  spec.bundle = bundle("b", convolution(), {{"w", ones({64, 64, 3, 3})}});
  EXPECT_EQ(ledger_of(spec), api::Plan::load(spec.bundle).memory_bytes());
  spec.config.add_instance_group()->set_count(3);
  EXPECT_EQ(ledger_of(spec), api::Plan::load(spec.bundle).memory_bytes(3));
}

// The weights, which are mapped, and their packed copy are there once: an instance more takes its own arenas.
TEST_F(RequestsTest, InstancesShareWeightsAndPackedCopies) {
  const std::string path = bundle("b", convolution(), {{"w", ones({64, 64, 3, 3})}});
  const auto instances = [&](int count) {
    return make(path, std::string(kConvolution) + "instance_group { count: " + std::to_string(count) + " }");
  };
  const auto ledger = [&](int count) { return api::Plan::load(path).memory_bytes(count); };
  const uint64_t before = engine_.memory_bytes();
  auto executor = instances(1);
  const uint64_t one = engine_.memory_bytes() - before, told = executor->memory_bytes();
  ASSERT_GT(one, kWeightBytes);  // that of the packed copy
  executor = nullptr;
  ASSERT_EQ(engine_.memory_bytes(), before);
  executor = instances(3);
  // Slots of inputs and outputs are the callers' memory here, which the ledger cannot know.
  EXPECT_LE(engine_.memory_bytes() - before - one, ledger(3) - ledger(1));
  EXPECT_LE(executor->memory_bytes() - told, ledger(3) - ledger(1));
  EXPECT_LT(ledger(3) - ledger(1), kWeightBytes);
}

// Planning computes with tensors as large as the weights, whose memory the engine would keep for tensors to come.
TEST_F(RequestsTest, PlanningForInstancesKeepsNoMemory) {
  std::atomic<uint64_t> held{0};
  api::HostMemory memory;
  memory.allocate = [&](size_t bytes, size_t alignment) {
    held += bytes;
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  };
  memory.release = [&](void* data, size_t bytes) {
    held -= bytes;
    std::free(data);
  };
  api::Engine engine({.cores = 2, .memory = memory});
  ExecutorSpec spec;
  spec.config = config(std::string(kConvolution) + "instance_group { count: 2 }");
  spec.version = "1";
  spec.bundle = bundle("b", convolution(), {{"w", ones({64, 64, 3, 3})}});
  const auto executor = make_executor({engine, actors_, options_}, std::move(spec));
  EXPECT_LT(held - engine.memory_bytes(), kWeightBytes);
}

}  // namespace
}  // namespace sluice::serving::test
