// Tensors that C++ programs compute with now (include/sluice/eager.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <tuple>

#include "include/sluice/eager.h"
#include "include/sluice/sluice_eager.h"
#include "support/what_of.h"

namespace sluice::api_test {  // whose names are the API's
namespace {

using api::DeviceTensor;
using api::DType;
using test::what_of;
using testing::HasSubstr;

std::vector<float> values(const DeviceTensor& tensor) {
  const api::Tensor host = tensor.host();
  return {host.data<float>(), host.data<float>() + host.size()};
}

class ApiEager : public testing::Test {
 protected:
  DeviceTensor tensor(const std::vector<int64_t>& shape, const std::vector<float>& values, const char* device = "cpu") {
    return eager_.from_buffer(DType::kFloat32, shape, values.data(), values.size() * 4, device);
  }
  api::Engine engine_{{.cores = 1}};
  api::Eager eager_{engine_};
};

TEST_F(ApiEager, ComputesOnEachDevice) {
  for (const char* device : {"cpu", "sim:0"}) {
    const DeviceTensor a = tensor({2, 2}, {1, -2, 3, -4}, device), b = tensor({2, 2}, {1, 1, 0, 1}, device);
    EXPECT_EQ(values(matmul(a, b)), (std::vector<float>{1, -1, 3, -1})) << device;
    EXPECT_EQ(values(relu(matmul(a, b))), (std::vector<float>{1, 0, 3, 0})) << device;
    EXPECT_EQ(values(sub(mul(a, b), div(a, a))), (std::vector<float>{0, -3, -1, -5})) << device;
    EXPECT_EQ(values(add(a, eager_.zeros(DType::kFloat32, {2, 2}, device))), values(a)) << device;
    EXPECT_FLOAT_EQ(values(tanh(a))[0], std::tanh(1.F));
    EXPECT_FLOAT_EQ(values(sigmoid(a))[0], 1 / (1 + std::exp(-1.F)));
  }
}

TEST_F(ApiEager, MovesBetweenDevices) {
  const DeviceTensor here = tensor({2}, {1, 2}), there = here.to("sim:0");
  EXPECT_EQ(here.str(), "float32(2,) on cpu:0");
  EXPECT_EQ(there.device(), "sim:0");
  EXPECT_EQ(values(relu(there).to("cpu")), values(here));
  EXPECT_EQ(eager_.from(here.host(), "sim:0").shape(), (std::vector<int64_t>{2}));
}

TEST_F(ApiEager, CallsAnyOpByName) {
  const DeviceTensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto sum = api::call1("sum", {x}, {{"dim", std::vector<int64_t>{1}}});
  EXPECT_EQ(values(sum), (std::vector<float>{6, 15}));
}

TEST_F(ApiEager, ErrorsSayWhatIsWrong) {
  const DeviceTensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(what_of([&] { matmul(x, x); }), HasSubstr("matmul"));
  EXPECT_THAT(what_of([&] { api::call("no_such_op", {x}); }), HasSubstr("no_such_op"));
  EXPECT_THAT(what_of([&] { api::call("relu", {}); }),
              HasSubstr("relu: no input; Eager::call() calls ops without any"));
  EXPECT_THAT(what_of([&] { tensor({3}, {1, 2}); }), HasSubstr("8 bytes of values; float32(3,) needs 12"));
  EXPECT_THAT(what_of([&] { x.to("tpu:0"); }), HasSubstr("tpu"));
  EXPECT_THAT(what_of([&] { static_cast<void>(DeviceTensor().host()); }), HasSubstr("it is empty"));
}

TEST_F(ApiEager, TensorsOutliveWhatMadeThem) {
  DeviceTensor kept;
  {
    api::Eager other(engine_);
    kept = other.zeros(DType::kFloat32, {2});
  }
  EXPECT_EQ(values(relu(kept)), (std::vector<float>{0, 0}));
}

TEST_F(ApiEager, InCTheSame) {
  sluice_engine* engine = nullptr;
  sluice_eager* eager = nullptr;
  ASSERT_EQ(sluice_engine_create(nullptr, &engine), nullptr);
  ASSERT_EQ(sluice_eager_create(engine, &eager), nullptr);
  const int64_t shape[] = {2, 2};
  const float numbers[] = {1, -2, 3, -4};
  sluice_device_tensor* inputs[2] = {};
  sluice_device_tensor *product = nullptr, *sum = nullptr, *there = nullptr;
  ASSERT_EQ(sluice_eager_from_data(eager, SLUICE_FLOAT32, shape, 2, numbers, sizeof numbers, nullptr, &inputs[0]),
            nullptr);
  ASSERT_EQ(sluice_eager_zeros(eager, SLUICE_FLOAT32, shape, 2, "cpu", &inputs[1]), nullptr);
  ASSERT_EQ(sluice_eager_call(eager, "add", inputs, 2, nullptr, &product, 1), nullptr);
  ASSERT_EQ(sluice_device_tensor_to(product, "sim:0", &there), nullptr);
  EXPECT_STREQ(sluice_device_tensor_device(there), "sim:0");
  ASSERT_EQ(sluice_eager_call(eager, "sum", &there, 1, "dim = [1], keepdim = true", &sum, 1), nullptr);
  EXPECT_EQ(sluice_device_tensor_rank(sum), 2);
  EXPECT_EQ(sluice_device_tensor_shape(sum)[1], 1);
  EXPECT_EQ(sluice_device_tensor_dtype(sum), SLUICE_FLOAT32);
  sluice_tensor* host = nullptr;
  ASSERT_EQ(sluice_device_tensor_host(sum, &host), nullptr);
  EXPECT_EQ(static_cast<float*>(sluice_tensor_data(host))[1], -1);
  sluice_device_tensor* again = nullptr;
  ASSERT_EQ(sluice_eager_from_tensor(eager, host, nullptr, &again), nullptr);
  for (const auto& [op, attributes, told] :
       {std::tuple("sum", "dim = [", "attributes"), std::tuple("no_such_op", "", "no_such_op"),
        std::tuple("relu", "slope = 1.0", "slope")}) {
    sluice_device_tensor* none = nullptr;
    sluice_status* status = sluice_eager_call(eager, op, &there, 1, attributes, &none, 1);
    EXPECT_THAT(sluice_status_message(status), HasSubstr(told));
    sluice_status_destroy(status);
  }
  sluice_engine_destroy(engine);  // in any order
  sluice_eager_destroy(eager);
  for (sluice_device_tensor* tensor : {inputs[0], inputs[1], product, sum, there, again})
    sluice_device_tensor_destroy(tensor);
  sluice_tensor_destroy(host);
  EXPECT_EQ(sluice_device_tensor_rank(sum), 0) << "a destroyed handle is an error, not a crash";
}

}  // namespace
}  // namespace sluice::api_test
