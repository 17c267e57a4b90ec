// Several models as one: their graphs become one, and one plan runs it.
#include <gmock/gmock.h>

#include "fixture.h"
#include "serving/execution/merge.h"

namespace sluice::serving::test {
namespace {

class EnsembleTest : public ExecutionTest {
 protected:
  // Two steps: t = 2 x; y = t W.
  ExecutorSpec spec(const std::string& first, const std::string& second, const std::string& head) {
    ExecutorSpec spec;
    spec.config = config(head + R"(
      ensemble_scheduling {
        step { model_name: "product" model_version: -1
               input_map { key: "INPUT_0" value: "middle" } output_map { key: "y" value: "result" } }
        step { model_name: "twice" model_version: -1
               input_map { key: "x" value: "picture" } output_map { key: "y" value: "middle" } } })");
    spec.version = "1";
    spec.step = [=](const std::string& model, int64_t) {
      ExecutorSpec::Step step;
      const bool twice = model == "twice";
      step.bundle = twice ? first : second;
      const std::string batch = head.substr(0, head.find("input"));
      const std::string dims = batch.find("max_batch_size") != std::string::npos ? "[4]" : "[2, 4]";
      step.config = config(batch + "name: '" + model + "' input { name: '" + (twice ? "x" : "INPUT_0") +
                           "' data_type: TYPE_FP32 dims: " + dims +
                           " } output { name: 'y' data_type: TYPE_FP32 dims: " + dims + " }");
      return step;
    };
    return spec;
  }
  std::vector<NamedTensor> weights() {
    Floats w(16);
    for (int i = 0; i < 16; ++i) w[i] = static_cast<float>(i % 5) - 2;
    return {{"w", api::Tensor::from(w, {4, 4})}};
  }
  static std::string twice(int64_t rows) {
    const std::string type = "float32(" + std::to_string(rows) + ", 4)";
    return "graph \"twice\" {\n  %0 = input \"x\" : " + type +
           "\n  %1 = variable \"w\" : float32(4,)\n  %2 = add(%0, %1) : " + type + "\n  output \"y\" = %2\n}\n";
  }
  static std::vector<NamedTensor> ones() { return {{"w", api::Tensor::from(Floats{1, 2, 3, 4}, {4})}}; }
};

TEST_F(EnsembleTest, StepsBecomeOnePlan) {
  const std::string first = bundle("twice", twice(2), ones()), second = bundle("product", product(2), weights());
  const auto ensemble = make_executor(machine(), spec(first, second, R"(
    input { name: "picture" data_type: TYPE_FP32 dims: [2, 4] }
    output { name: "result" data_type: TYPE_FP32 dims: [2, 4] })"));
  const Floats x{1, 2, 3, 4, 5, 6, 7, 8};
  const Call call(*ensemble, request(floats("picture", {2, 4}, x)));
  api::Session one = api::Session::load(engine_, first), two = api::Session::load(engine_, second);
  const api::Tensor y = two.run(one.run({api::Tensor::from(x, {2, 4})}))[0];
  EXPECT_EQ(call.floats(), Floats(y.data<float>(), y.data<float>() + 8));
  EXPECT_EQ(call.get().outputs[0].name, "result");
  EXPECT_EQ(ensemble->statistics().execution_count(), 1u);
}

TEST_F(EnsembleTest, FamiliesBecomeOneFamily) {
  const std::string first = family("twice", twice, {1, 4}, 4, ones()),
                    second = family("product", product, {1, 4}, 4, weights());
  const auto ensemble = make_executor(machine(), spec(first, second, R"(max_batch_size: 4
    input { name: "picture" data_type: TYPE_FP32 dims: [4] }
    output { name: "result" data_type: TYPE_FP32 dims: [4] })"));
  api::Session one = api::Session::load(engine_, first), two = api::Session::load(engine_, second);
  for (const int64_t rows : {1, 3, 4}) {
    Floats x;
    for (int64_t i = 0; i < rows * 4; ++i) x.push_back(static_cast<float>(i));
    const api::Tensor y = two.run(one.run({api::Tensor::from(x, {rows, 4})}))[0];
    EXPECT_EQ(Call(*ensemble, request(floats("picture", {rows, 4}, x))).floats(),
              Floats(y.data<float>(), y.data<float>() + rows * 4));
  }
}

TEST_F(EnsembleTest, PlansTellTheSizesOfTheirFamily) {
  const api::Plan plan = api::Plan::load(family("twice", twice, {1, 4}, 4, ones()));
  EXPECT_EQ(plan.dims(), std::vector<std::string>{"batch"});
  EXPECT_EQ(plan.members(), (std::vector<std::vector<int64_t>>{{1}, {4}}));
  const api::Plan alone = api::Plan::load(bundle("alone", twice(2), ones()));
  EXPECT_EQ(alone.dims(), std::vector<std::string>{});
  EXPECT_EQ(alone.members(), (std::vector<std::vector<int64_t>>{{}}));
}

TEST_F(EnsembleTest, BundlesAreJoinedToAFamily) {
  const std::string like = family("twice", twice, {1, 4}, 4, ones());
  const api::Plan known = api::Plan::load(like);
  const std::string one = bundle("product_1", product(1), weights()),
                    four = bundle("product_4", product(4), {{"w", api::Tensor::from(Floats(16, 3.0f), {4, 4})}});
  const std::string to = dir_ / "joined";
  api::join({one, four}, like, known.inputs(), known.outputs(), to);
  const api::Plan joined = api::Plan::load(to);
  EXPECT_EQ(joined.verify(), "");
  EXPECT_EQ(joined.inputs()[0].str(), "x: float32(batch<=4, 4)");
  EXPECT_EQ(joined.outputs()[0].str(), "y: float32(batch<=4, 4)");
  // Each member has the weights it had.
  for (const auto& [bundle, rows] : {std::pair{one, 1}, std::pair{four, 4}}) {
    const api::Tensor x = api::Tensor::from(Floats(static_cast<size_t>(rows * 4), 2.0f), {rows, 4});
    const api::Tensor mine = api::Session::load(engine_, to).run({x})[0];
    const api::Tensor alone = api::Session::load(engine_, bundle).run({x})[0];
    EXPECT_EQ(std::memcmp(mine.raw(), alone.raw(), mine.bytes()), 0) << rows;
  }
  const auto refused = [&](const std::vector<std::string>& members, std::vector<api::Port> inputs) -> std::string {
    try {
      api::join(members, like, inputs, known.outputs(), to);
    } catch (const api::Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused({one}, known.inputs()), "join: 1 bundles; the family of '" + like + "' has 2 members");
  std::vector<api::Port> other = known.inputs();
  other[0].name = "z";
  EXPECT_EQ(refused({one, four}, other), "join: member 0 has no 'z'; all members need the same names");
  // In the wrong order they are of other sizes than the family's members.
  EXPECT_THAT(refused({four, one}, known.inputs()),
              ::testing::HasSubstr("member (1): input 'x' of the plan is float32(4, 4)"));
}

TEST_F(EnsembleTest, WhatDoesNotFitTogetherIsRefused) {
  std::function<void(inference::ModelConfig&)> of_step = [](inference::ModelConfig&) {};
  const auto refused = [&](const std::function<void(inference::ModelConfig&)>& change, int64_t rows = 2) {
    ExecutorSpec all =
        spec(bundle("twice", twice(2), ones()), bundle("product" + std::to_string(rows), product(rows), weights()), R"(
      input { name: "picture" data_type: TYPE_FP32 dims: [2, 4] }
      output { name: "result" data_type: TYPE_FP32 dims: [2, 4] })");
    change(all.config);
    all.step = [find = all.step, &of_step](const std::string& model, int64_t version) {
      ExecutorSpec::Step found = find(model, version);
      of_step(found.config);
      return found;
    };
    try {
      make_executor(machine(), all);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto step = [](inference::ModelConfig& config, int i) {
    return config.mutable_ensemble_scheduling()->mutable_step(i);
  };
  EXPECT_EQ(refused([&](auto& c) { (*step(c, 1)->mutable_input_map())["x"] = "nothing"; }),
            "ensemble: step 'twice': input 'x': 'nothing' is no input, and no step makes it");
  EXPECT_EQ(refused([&](auto& c) { (*step(c, 1)->mutable_input_map())["z"] = "picture"; }),
            "ensemble 'm': step 'twice': input 'z': the model has none of this name");
  EXPECT_EQ(refused([&](auto& c) { (*step(c, 1)->mutable_input_map())["x"] = "result"; }),
            "ensemble: its steps wait for each other in a circle");
  EXPECT_EQ(refused([&](auto& c) { (*step(c, 1)->mutable_output_map())["y"] = "result"; }),
            "ensemble: 'result' is made by two steps");
  EXPECT_EQ(refused([&](auto& c) { c.mutable_output(0)->set_name("other"); }),
            "ensemble: output 'other': no step makes it");
  const auto nothing = [](inference::ModelConfig&) {};
  of_step = [](auto& c) { c.mutable_model_transaction_policy()->set_decoupled(true); };
  EXPECT_EQ(refused(nothing),
            "ensemble 'm': step 'product': decoupled; the steps of an ensemble answer once. The ensemble itself may be "
            "decoupled, with its feedback from step to step");
  of_step = [](auto& c) { c.mutable_input(0)->set_allow_ragged_batch(true); };
  EXPECT_EQ(
      refused(nothing),
      "ensemble 'm': step 'product': input 'INPUT_0' has allow_ragged_batch; the steps of an ensemble take rows of "
      "one length");
}

// One that feeds itself: each step of a request goes through both models.
TEST_F(EnsembleTest, AnEnsembleMayAnswerInParts) {
  ExecutorSpec all = spec(bundle("twice", twice(2), ones()), bundle("product", product(2), weights()), R"(
    input { name: "picture" data_type: TYPE_FP32 dims: [2, 4] }
    output { name: "result" data_type: TYPE_FP32 dims: [2, 4] })");
  all.config.mutable_model_transaction_policy()->set_decoupled(true);
  (*all.config.mutable_parameters())["feedback"].set_string_value("result:picture");
  (*all.config.mutable_parameters())["max_responses"].set_string_value("3");
  const std::string first = bundle("twice", twice(2), ones()), second = bundle("product", product(2), weights());
  const auto ensemble = make_executor(machine(), all);
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Floats> parts;
  bool over = false;
  Floats x{1, 0, 0, 0, 0, 1, 0, 0};
  const auto handle = ensemble->infer(request(floats("picture", {2, 4}, x)), [&](InferResponse response, bool last) {
    const std::lock_guard lock(mutex);
    EXPECT_FALSE(response.error);
    if (!response.error) parts.push_back(values_of(response.outputs.at(0)));
    over = last;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return over; });
  ASSERT_EQ(parts.size(), 3u);
  api::Session one = api::Session::load(engine_, first), two = api::Session::load(engine_, second);
  for (const Floats& part : parts) {
    const api::Tensor y = two.run(one.run({api::Tensor::from(x, {2, 4})}))[0];
    x.assign(y.data<float>(), y.data<float>() + 8);
    EXPECT_EQ(part, x);
  }
}

TEST(MergeGraphs, TypesMustBeEqual) {
  const std::string a = "graph \"a\" {\n  %0 = input \"x\" : float32(2,)\n  output \"y\" = %0\n}\n";
  const std::string b = "graph \"b\" {\n  %0 = input \"x\" : float32(3,)\n  output \"y\" = %0\n}\n";
  try {
    merge_graphs("e", {{"a", a, {{"x", "in"}}, {{"y", "m"}}}, {"b", b, {{"x", "m"}}, {{"y", "out"}}}}, {"in"}, {"out"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "ensemble: step 'b': input 'x' takes float32(3,); 'm' is float32(2,)");
  }
}

// A picture of 8 x 8 pixels of about (200, 30, 60).
constexpr const char* kPicture =
    "ffd8ffe000104a46494600010100000100010000ffdb004300100b0c0e0c0a100e0d0e1211101318281a181616183123251d"
    "283a333d3c3933383740485c4e404457453738506d51575f626768673e4d71797064785c656763ffdb004301111212181518"
    "2f1a1a2f63423842636363636363636363636363636363636363636363636363636363636363636363636363636363636363"
    "6363636363636363ffc00011080008000803012200021101031101ffc4001500010100000000000000000000000000000005"
    "ffc40014100100000000000000000000000000000000ffc4001501010100000000000000000000000000000306ffc4001411"
    "0100000000000000000000000000000000ffda000c03010002110311003f00920014efffd9";

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}
// Elements of BYTES.
std::string elements(const std::vector<std::string>& all) {
  std::string bytes;
  for (const std::string& one : all) {
    const auto length = static_cast<uint32_t>(one.size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    bytes += one;
  }
  return bytes;
}

// From the content of JPEG files to the mean of each channel, by two models in one plan.
TEST_F(EnsembleTest, FilesGoInAndNumbersComeOut) {
  const std::string decode = bundle("decode", R"(graph "decode" {
  %0 = input "files" : uint8(4096,)
  %1 = decode_jpeg(%0, none, none) {count = 2, height = 4, width = 4, channels = 3} : uint8(2, 3, 4, 4)
  output "pixels" = %1
}
)");
  const std::string mean = bundle("mean", R"(graph "mean" {
  %0 = input "x" : uint8(2, 3, 4, 4)
  %1 = cast(%0) {dtype = float32} : float32(2, 3, 4, 4)
  %2 = mean(%1) {dim = [2, 3], keepdim = false} : float32(2, 3)
  output "y" = %2
}
)");
  ExecutorSpec spec;
  spec.config = config(R"(
    input { name: "files" data_type: TYPE_STRING dims: [-1] } output { name: "means" data_type: TYPE_FP32 dims: [2, 3] }
    ensemble_scheduling {
      step { model_name: "decode" input_map { key: "files" value: "files" } output_map { key: "pixels" value: "pixels" } }
      step { model_name: "mean" input_map { key: "x" value: "pixels" } output_map { key: "y" value: "means" } } })");
  spec.version = "1";
  spec.step = [&](const std::string& model, int64_t) {
    ExecutorSpec::Step step;
    step.bundle = model == "decode" ? decode : mean;
    step.config =
        config(model == "decode" ? R"(name: "decode" input { name: "files" data_type: TYPE_STRING dims: [-1] }
                                output { name: "pixels" data_type: TYPE_UINT8 dims: [2, 3, 4, 4] })"
                                 : R"(name: "mean" input { name: "x" data_type: TYPE_UINT8 dims: [2, 3, 4, 4] }
                                output { name: "y" data_type: TYPE_FP32 dims: [2, 3] })");
    return step;
  };
  const auto executor = make_executor(machine(), spec);
  const auto send = [&](const std::vector<std::string>& files) {
    const std::string bytes = elements(files);
    return Call(*executor, request(tensor("files", DataType::TYPE_STRING, {static_cast<int64_t>(files.size())},
                                          std::vector<char>(bytes.begin(), bytes.end()))));
  };
  const std::string picture = from_hex(kPicture);
  const Floats one = send({picture}).floats(), two = send({picture, picture}).floats();
  const float wanted[] = {200, 30, 57};
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(one[c], wanted[c], 2);
    EXPECT_EQ(one[c + 3], 0);  // no second picture
    EXPECT_NEAR(two[c + 3], wanted[c], 2);
  }
  EXPECT_EQ(send({picture, picture, picture}).error(),
            "infer: input 'files' for model 'm': 3 elements of shape [3]; it takes 1 to 2 files");
  EXPECT_EQ(send({""}).code(), Code::kInvalidArgument);
  EXPECT_EQ(send({std::string(5000, 'x')}).code(), Code::kInvalidArgument);
  EXPECT_EQ(send({"no picture"}).code(), Code::kInternal);
  // Raw bytes could name files of the server's.
  EXPECT_EQ(
      refusal(decode, R"(input { name: "files" data_type: TYPE_UINT8 dims: [4096] }
                               output { name: "pixels" data_type: TYPE_UINT8 dims: [2, 3, 4, 4] })"),
      "model 'm': input 'files': decode_jpeg reads it; its data_type must be TYPE_STRING, of the content of a file "
      "each");
}

}  // namespace
}  // namespace sluice::serving::test
