#pragma once
// A gRPC front end of a server that does what the test says, and a client of grpc++'s own.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "../fake_server.h"
#include "health.grpc.pb.h"
#include "inference.grpc.pb.h"
#include "serving/grpc/grpc_server.h"

namespace sluice::serving::test {

class Grpc : public testing::Test {
 protected:
  void start(const GrpcOptions& options = {}) {
    front = std::make_unique<GrpcServer>(server, options);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(front->port()),
                                        grpc::InsecureChannelCredentials(), arguments);
    stub = inference::GRPCInferenceService::NewStub(channel);
  }
  static std::unique_ptr<grpc::ClientContext> context() {
    auto made = std::make_unique<grpc::ClientContext>();
    made->set_deadline(std::chrono::system_clock::now() + kPatience);
    return made;
  }
  // The answer of ModelInfer.
  grpc::Status infer(const inference::ModelInferRequest& request, inference::ModelInferResponse* response = nullptr) {
    inference::ModelInferResponse mine;
    return stub->ModelInfer(context().get(), request, response != nullptr ? response : &mine);
  }

  FakeServer server;
  std::unique_ptr<GrpcServer> front;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<inference::GRPCInferenceService::Stub> stub;
};

// One input "x" of floats, as bytes.
inline inference::ModelInferRequest floats(const std::string& id, const std::vector<float>& values) {
  inference::ModelInferRequest request;
  request.set_model_name("echo");
  request.set_id(id);
  auto& input = *request.add_inputs();
  input.set_name("x");
  input.set_datatype("FP32");
  input.add_shape(static_cast<int64_t>(values.size()));
  request.add_raw_input_contents(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return request;
}
inline std::vector<float> floats_of(const inference::ModelInferResponse& response, int output = 0) {
  const std::string& raw = response.raw_output_contents(output);
  std::vector<float> values(raw.size() / sizeof(float));
  std::memcpy(values.data(), raw.data(), raw.size());
  return values;
}

}  // namespace sluice::serving::test
