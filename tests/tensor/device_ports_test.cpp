// Device memory in and out of sessions of the public API, C++ and C, on the simulated device.
#include "support/device_ports.h"

#include "include/sluice/sluice.h"
#include "include/sluice/standard.h"

namespace sluice::api_test {
namespace {

using test::what_of;
using testing::HasSubstr;

constexpr auto kNotCounted = [] { return uint64_t{0}; };

TEST(DevicePorts, StateStaysOnItsDevice) {
  for (const bool donated : {false, true}) state_stays_there("sim:0", donated, kNotCounted);
}

TEST(DevicePorts, HostMemoryIsTakenToo) { host_memory_is_taken_too("sim:0"); }

TEST(DevicePorts, ErrorsSayWhereItLies) { errors_say_where_it_lies("sim:0", "sim:1"); }

// An input goes where it is read first, an output stays where it is made, unless it is read further.
TEST(DevicePorts, EachLiesWhereItIsUsed) {
  const std::string path = testing::TempDir() + "sluice_mixed_ports_" + std::to_string(getpid());
  api::Engine engine({.cores = 2});
  api::CompileOptions options;
  options.device_ports = true;
  api::compile(engine, R"(graph "mixed" {
  %0 = input "x" : float32(256,)
  %1 = input "h" : float32(256,)
  %2 = input "unused" : float32(256,)
  %3 = exp(%0) : float32(256,) [device "sim:1"]
  %4 = mul(%0, %1) : float32(256,) [device "cpu:0"]
  %5 = add(%3, %4) : float32(256,) [device "sim:0"]
  %6 = slice(%5) {starts = [0], stops = [128], steps = [1]} : float32(128,)
  output "a" = %4
  output "b" = %5
  output "c" = %0
  output "d" = %6
}
)",
               {}, path, options);
  const auto devices = [](const std::vector<api::Port>& ports) {
    std::string all;
    for (const api::Port& port : ports) all += port.name + " " + port.device + (port.copied.empty() ? "" : "!") + ", ";
    return all;
  };
  {
    api::Session session = api::Session::load(engine, path, {.zero_copy = true, .device_ports = true});
    EXPECT_EQ(devices(session.inputs()), "x sim:1, h cpu:0, unused cpu:0, ");
    EXPECT_EQ(devices(session.outputs()), "a cpu:0!, b cpu:0!, c sim:1, d sim:0, ");
    EXPECT_EQ(session.outputs()[1].copied, "its producer reads it after its emit");
    const api::Tensor x = tensor(0).to(engine, "sim:1");
    for (int i = 0; i < 5; ++i) {
      const std::vector<api::Tensor> y = session.hand_over({x, tensor(7), tensor(0)}).get();
      EXPECT_EQ(floats(y[0]), row(0));
      EXPECT_EQ(floats(y[1]), row(1));
      EXPECT_EQ(floats(y[2].to(engine, "cpu")), row(0));
      EXPECT_NE(y[2].raw(), x.raw());
      EXPECT_EQ(floats(y[3].to(engine, "cpu")), std::vector<float>(128, 1));
      EXPECT_EQ(y[3].to(engine, "sim:1").device(), "sim:1") << "by way of the host";
    }
    EXPECT_EQ(devices(api::Session::load(engine, path).inputs()), "x cpu:0!, h cpu:0!, unused cpu:0!, ");
  }
  std::filesystem::remove_all(path);
}

TEST(DevicePorts, MeshesKeepThemWithTheHost) {
  api::Engine engine({.cores = 2});
  api::CompileOptions options;
  options.device_ports = true;
  const std::string graph = R"text(graph "g" {
  %0 = input "x" : float32(4, 2)
  %1 = to_global(%0) {mesh = "sim:0,sim:1", sbp = "S(0)"} : float32(4, 2)
  %2 = exp(%1) : float32(4, 2)
  output "y" = %2
}
)text";
  EXPECT_THAT(what_of([&] { api::compile(engine, graph, {}, testing::TempDir() + "never", options); }),
              HasSubstr("lies on a mesh of devices; must be off, so that ports lie in host memory"));
}

// Memory of a caller's: its deleter runs once the step has read it.
TEST(DevicePorts, MemoryOfCallersComesBack) {
  api::Engine engine({.cores = 2});
  const DevicePortsBundle bundle(engine, "sim:0", false);
  std::atomic<int> freed = 0;
  {
    api::Session session = api::Session::load(engine, bundle.path(), {.device_ports = true});
    for (int i = 0; i < 10; ++i) {
      const api::Tensor block = tensor(3).to(engine, "sim:0");
      const std::shared_ptr<void> lent(block.raw(), [&freed, block](void*) { ++freed; });
      api::Tensor state(api::DType::kFloat32, {kFloats}, lent, "sim:0");
      EXPECT_EQ(state.device(), "sim:0");
      EXPECT_EQ(state.raw(), block.raw());
      EXPECT_EQ(floats(session.hand_over({std::move(state), tensor(2)}).get()[0].to(engine, "cpu")), row(2));
    }
  }
  EXPECT_EQ(freed, 10);
  EXPECT_EQ(api::Tensor(api::DType::kFloat32, {0}, nullptr, "sim:0").bytes(), 0u);
  EXPECT_THAT(what_of([] { api::Tensor(api::DType::kFloat32, {1}, nullptr, "sim:0"); }), HasSubstr("no data for"));
  EXPECT_THAT(what_of([] { api::Tensor(api::DType::kFloat32, {0}, nullptr, "no device!"); }), HasSubstr("device"));
  EXPECT_THAT(what_of([] { api::Tensor(api::DType::kFloat32, {0}, nullptr, "1/sim:0"); }), HasSubstr("another rank"));
}

std::string message(sluice_status* status) {
  const std::string text = sluice_status_message(status);
  sluice_status_destroy(status);
  return text;
}

TEST(DevicePorts, InC) {
  api::Engine compiling({.cores = 2});
  const DevicePortsBundle bundle(compiling, "sim:0", false);
  sluice_engine* engine = nullptr;
  sluice_session* session = nullptr;
  ASSERT_EQ(message(sluice_engine_create(nullptr, &engine)), "");
  sluice_session_options options = SLUICE_SESSION_OPTIONS_INIT;
  options.device_ports = 1;
  ASSERT_EQ(message(sluice_session_load(engine, bundle.path().c_str(), &options, &session)), "");
  sluice_port port = SLUICE_PORT_INIT;
  ASSERT_EQ(message(sluice_session_input(session, 0, &port)), "");
  EXPECT_STREQ(port.device, "sim:0");
  EXPECT_STREQ(port.copied, "");
  sluice_port shorter = {offsetof(sluice_port, device), nullptr, SLUICE_BOOL, 0, nullptr, nullptr, nullptr, "kept"};
  ASSERT_EQ(message(sluice_session_input(session, 0, &shorter)), "");
  EXPECT_STREQ(shorter.device, "kept") << "of a struct of an earlier version";

  const int64_t shape[] = {kFloats};
  const std::vector<float> values = row(8);
  sluice_tensor *host = nullptr, *there = nullptr, *lent = nullptr, *y = nullptr, *back = nullptr;
  ASSERT_EQ(message(sluice_tensor_from_data(SLUICE_FLOAT32, shape, 1, values.data(), kFloats * 4, &host)), "");
  ASSERT_EQ(message(sluice_tensor_to(host, engine, "sim:0", &there)), "");
  EXPECT_STREQ(sluice_tensor_device(host), "cpu:0");
  EXPECT_STREQ(sluice_tensor_device(there), "sim:0");
  EXPECT_STREQ(sluice_tensor_device(nullptr), "");
  int released = 0;
  const auto release = [](void* context) { ++*static_cast<int*>(context); };
  const auto lend = [&](const char* device, size_t bytes) {
    return message(sluice_tensor_from_device_memory(SLUICE_FLOAT32, shape, 1, sluice_tensor_data(there), bytes, device,
                                                    release, &released, &lent));
  };
  EXPECT_EQ(lend(nullptr, kFloats * 4), "sluice_tensor_from_device_memory: device is NULL; pass an address");
  EXPECT_EQ(lend("sim:0", 4), "sluice_tensor_from_device_memory: 4 bytes; float32(256,) has 1024");
  EXPECT_EQ(released, 0);
  ASSERT_EQ(lend("sim:0", kFloats * 4), "");
  EXPECT_EQ(sluice_tensor_data(lent), sluice_tensor_data(there));
  sluice_tensor* inputs[] = {lent, host};
  sluice_step* step = nullptr;
  EXPECT_THAT(message(sluice_session_run(session, inputs, 2, &y, 1)), HasSubstr("handed over by hand_over()"));
  ASSERT_EQ(message(sluice_session_hand_over(session, inputs, 2, &step)), "");
  ASSERT_EQ(message(sluice_step_outputs(step, &y, 1)), "");
  EXPECT_STREQ(sluice_tensor_device(y), "sim:0");
  ASSERT_EQ(message(sluice_tensor_to(y, engine, "cpu", &back)), "");
  EXPECT_EQ(static_cast<float*>(sluice_tensor_data(back))[kFloats - 1], 4);
  sluice_step_destroy(step);
  sluice_session_destroy(session);
  EXPECT_EQ(released, 1);
  for (sluice_tensor* tensor : {there, y, back}) sluice_tensor_destroy(tensor);
  sluice_engine_destroy(engine);
}

}  // namespace
}  // namespace sluice::api_test
