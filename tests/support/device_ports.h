#pragma once
// Sessions of the public API whose inputs and outputs lie in the memory of a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "include/sluice/compile.h"
#include "include/sluice/sluice.hpp"
#include "support/what_of.h"

namespace sluice::api_test {  // whose names are the API's

inline constexpr int64_t kFloats = 256;

inline std::vector<float> row(float value) { return std::vector<float>(kFloats, value); }
inline api::Tensor tensor(float value) { return api::Tensor::from<float>(row(value), {kFloats}); }
inline std::vector<float> floats(const api::Tensor& host) {
  return {host.data<float>(), host.data<float>() + host.size()};
}

// A bundle of state - 0.5 * grad, with its ports on a device.
class DevicePortsBundle {
 public:
  DevicePortsBundle(api::Engine& engine, const std::string& device, bool donated)
      : path_((std::filesystem::temp_directory_path() / ("sluice_ports_" + std::to_string(getpid()))).string()) {
    api::CompileOptions options;
    options.device = device;
    options.device_ports = true;
    if (donated) options.donated = {"state"};
    api::compile(engine, R"(graph "update" {
  %0 = input "state" : float32(256,)
  %1 = input "grad" : float32(256,)
  %2 = variable "rate" : float32(256,)
  %3 = mul(%1, %2) : float32(256,)
  %4 = sub(%0, %3) : float32(256,)
  output "state" = %4
}
)",
                 {{"rate", tensor(0.5F)}}, path_, options);
  }
  ~DevicePortsBundle() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

// From step to step `state` stays on the device: once there, nothing is copied. `copies` tells how many tensors the
// device has copied so far.
template <class Copies>
void state_stays_there(const std::string& device, bool donated, Copies&& copies) {
  api::Engine engine({.cores = 2});
  const DevicePortsBundle bundle(engine, device, donated);
  api::Session session = api::Session::load(engine, bundle.path(), {.device_ports = true});
  for (const api::Port& port : {session.inputs()[0], session.inputs()[1], session.outputs()[0]}) {
    EXPECT_EQ(port.device, device);
    EXPECT_EQ(port.copied, "");
  }
  api::Tensor state = tensor(100).to(engine, device);
  const api::Tensor grad = tensor(1).to(engine, device);
  EXPECT_EQ(state.device(), device);
  const void* const memory = state.raw();
  const uint64_t before = copies();
  for (int i = 0; i < 20; ++i) {
    state = session.hand_over({std::move(state), grad}).get()[0];
    EXPECT_TRUE(!donated || state.raw() == memory);
  }
  session.wait_all();
  EXPECT_EQ(copies(), before);
  EXPECT_EQ(session.counters().input_copies, 0u);
  EXPECT_EQ(session.counters().output_copies, 0u);
  EXPECT_EQ(state.device(), device);
  EXPECT_EQ(floats(state.to(engine, "cpu")), row(90));
  EXPECT_EQ(floats(grad.to(engine, "cpu")), row(1)) << "nothing writes to it";
}

// The same bundle with host memory: handed over, borrowed, and in a session that keeps its ports with the host.
inline void host_memory_is_taken_too(const std::string& device) {
  api::Engine engine({.cores = 2});
  const DevicePortsBundle bundle(engine, device, false);
  api::Session there = api::Session::load(engine, bundle.path(), {.max_in_flight = 6, .device_ports = true});
  std::vector<api::Result> steps;
  for (int i = 0; i < 12; ++i) {
    const std::vector<api::Tensor> inputs{tensor(static_cast<float>(i)), tensor(2)};
    steps.push_back(i % 2 == 0 ? there.submit(inputs) : there.hand_over(inputs));
  }
  for (int i = 0; i < 12; ++i) EXPECT_EQ(floats(steps[i].get()[0].to(engine, "cpu")), row(static_cast<float>(i - 1)));
  there.wait_all();
  EXPECT_EQ(there.counters().input_copies, 24u);

  api::Session here = api::Session::load(engine, bundle.path());
  EXPECT_EQ(here.inputs()[0].device, "cpu:0");
  EXPECT_EQ(here.outputs()[0].device, "cpu:0");
  EXPECT_EQ(here.outputs()[0].copied, "the session copies at its ports");
  EXPECT_EQ(floats(here.run({tensor(3), tensor(2)})[0]), row(2));
  api::Tensor mine(api::DType::kFloat32, {kFloats});
  here.run_into({tensor(4), tensor(2)}, {mine});
  EXPECT_EQ(floats(mine), row(3));
}

inline void errors_say_where_it_lies(const std::string& device, const std::string& other) {
  using test::what_of;
  using testing::HasSubstr;
  api::Engine engine({.cores = 2});
  const DevicePortsBundle bundle(engine, device, false);
  api::Session there = api::Session::load(engine, bundle.path(), {.device_ports = true});
  const api::Tensor x = tensor(1).to(engine, device), elsewhere = tensor(1).to(engine, other);
  EXPECT_EQ(what_of([&] {
              there.submit({tensor(1), x});
            }),
            "session: input 'grad': float32(256,) on " + device +
                "; must lie in host memory, or be handed over by hand_over()");
  EXPECT_THAT(what_of([&] { there.run_into({x, x}, {tensor(1)}); }), HasSubstr("session: input 'state'"));
  EXPECT_EQ(what_of([&] {
              there.hand_over({elsewhere, x});
            }),
            "session 'update': input 'state': handed over in " + other + "; it must lie in " + device +
                ", contiguous at a multiple of 64 bytes, or in host memory");
  EXPECT_EQ(what_of([&] {
              there.submit({tensor(1), tensor(1)}, {.outputs = {tensor(1)}});
            }),
            "session 'update': output 'state': memory of a caller's in host; results lie in " + device +
                ": give no memory for them");
  api::Session here = api::Session::load(engine, bundle.path());
  EXPECT_EQ(what_of([&] {
              here.hand_over({x, x});
            }),
            "session 'update': input 'state': handed over in " + device +
                "; it must lie in host memory, since the session copies at its ports");
  EXPECT_EQ(what_of([&] {
              here.run_into({tensor(1), tensor(1)}, {x});
            }),
            "session 'update': output 'state': memory of a caller's in " + device + "; it must be the host's");
  EXPECT_EQ(what_of([&] { x.data<float>(); }),
            "tensor: float32(256,) on " + device +
                ": its elements are read here; must lie in host memory: to(engine, \"cpu\") copies it");
  EXPECT_THAT(what_of([&] { api::save_tensors("never", {{"x", x}}); }), HasSubstr("its elements are read here"));
  EXPECT_THAT(what_of([&] {
                api::Session::load(engine, bundle.path(), {.weights = {{"rate", x}}});
              }),
              HasSubstr("its elements are read here"));
  EXPECT_THAT(what_of([&] { tensor(1).to(engine, "tpu:0"); }), HasSubstr("tpu"));
  // It goes on.
  EXPECT_EQ(floats(there.hand_over({x, x}).get()[0].to(engine, "cpu")), row(0.5F));
}

}  // namespace sluice::api_test
