// Tests what gRPC's clients make the server hold, and what holds up its end.
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <grpcpp/generic/generic_stub.h>

#include <random>

#include "serving/grpc/fixture.h"
#include "serving/grpc/message_memory.h"

namespace sluice::serving::test {
namespace {

using google::protobuf::io::ArrayInputStream;

std::optional<uint64_t> memory_of(
    const std::string& bytes, const google::protobuf::Descriptor& type = *inference::ModelInferRequest::descriptor()) {
  ArrayInputStream in(bytes.data(), static_cast<int>(bytes.size()), 7);  // in small pieces
  return memory_of_message(in, type);
}

std::string text(std::mt19937& random, size_t most) { return std::string(random() % (most + 1), 'x'); }

inference::ModelInferRequest some_request(std::mt19937& random) {
  inference::ModelInferRequest request;
  request.set_model_name(text(random, 40));
  request.set_id(text(random, 500));
  const auto some = [&] { return static_cast<int>(random() % 5 == 0 ? random() % 300 : random() % 4); };
  for (int i = some(); i > 0; --i) {
    auto& parameter = (*request.mutable_parameters())[std::to_string(i) + text(random, 30)];
    if (i % 3 == 0) parameter.set_string_param(text(random, 100));
    if (i % 3 == 1) parameter.set_int64_param(i);
  }
  for (int i = some(); i > 0; --i) {
    auto& input = *request.add_inputs();
    if (i % 2 == 0) continue;  // an empty one
    input.set_name(text(random, 20));
    for (int d = some(); d > 0; --d) input.add_shape(d % 2 == 0 ? 1 : int64_t{1} << 40);
    auto& contents = *input.mutable_contents();
    for (int n = some(); n > 0; --n) contents.add_int64_contents(n);
    for (int n = some(); n > 0; --n) contents.add_fp32_contents(1);
    for (int n = some(); n > 0; --n) contents.add_bool_contents(true);
    for (int n = some(); n > 0; --n) contents.add_bytes_contents(text(random, 10));
  }
  for (int i = some(); i > 0; --i) request.add_outputs();
  for (int i = some(); i > 0; --i) request.add_raw_input_contents(text(random, 2000));
  return request;
}

TEST(MessageMemory, IsAnUpperBoundForEveryMessage) {
  std::mt19937 random(7);
  double most = 0;
  constexpr int kCount = 2000;
  for (int i = 0; i < kCount; ++i) {
    const inference::ModelInferRequest request = some_request(random);
    const std::string bytes = request.SerializeAsString();
    const auto bound = memory_of(bytes);
    ASSERT_TRUE(bound.has_value());
    inference::ModelInferRequest parsed;
    ASSERT_TRUE(parsed.ParseFromString(bytes));
    ASSERT_LE(parsed.SpaceUsedLong(), *bound) << request.ShortDebugString().substr(0, 2000);
    most = std::max(most, static_cast<double>(*bound) / static_cast<double>(parsed.SpaceUsedLong()));
    // As another type its fields are unknown, and stay.
    const auto unknown = memory_of(bytes, *inference::ModelConfigRequest::descriptor());
    inference::ModelConfigRequest other;
    if (!other.ParseFromString(bytes)) continue;
    ASSERT_TRUE(unknown.has_value());
    ASSERT_LE(other.SpaceUsedLong(), *unknown);
  }
  std::printf("count: %d messages, the bound at most %.1f times what they take\n", kCount, most);
  EXPECT_LE(most, 8);
}

TEST(MessageMemory, BrokenBytesAreNoMessage) {
  google::protobuf::LogSilencer quiet;
  std::mt19937 random(7);
  const std::string bytes = some_request(random).SerializeAsString();
  EXPECT_FALSE(memory_of(std::string("\x0a\x7f", 2)).has_value());                // a text that ends too early
  EXPECT_FALSE(memory_of(std::string("\x2a\x02\x0a\x05", 4)).has_value());        // within a message
  EXPECT_FALSE(memory_of(std::string(3000, '\x0b')).has_value());                 // groups without an end
  EXPECT_FALSE(memory_of(std::string("\x0c", 1)).has_value());                    // an end without a group
  EXPECT_FALSE(memory_of("\x0a" + std::string(9, '\xff') + "\x01").has_value());  // a length of 2^63
  for (int i = 0; i < 2000; ++i) {
    std::string broken = bytes;
    for (int n = 0; n < 3; ++n) broken[random() % broken.size()] = static_cast<char>(random());
    inference::ModelInferRequest parsed;
    const auto bound = memory_of(broken);
    if (parsed.ParseFromString(broken)) {
      ASSERT_TRUE(bound.has_value());
      ASSERT_LE(parsed.SpaceUsedLong(), *bound);
    }
  }
}

class GrpcMemory : public Grpc {
 protected:
  void with_memory(uint64_t bytes) {
    GrpcOptions options;
    options.memory = memory = std::make_shared<MemoryBudget>(bytes);
    options.half_timeout = milliseconds(20);
    start(options);
  }
  void wait_until_nothing_is_held() {
    const auto until = Clock::now() + kPatience;
    while (memory->held() > 0 && Clock::now() < until) std::this_thread::yield();
    EXPECT_EQ(memory->held(), 0u);
  }
  std::shared_ptr<MemoryBudget> memory;
};

// A few bytes may say "an empty tensor" a million times.
TEST_F(GrpcMemory, WhatAMessageWouldBecomeIsCountedBeforeItIsRead) {
  server.at_once = echo;
  with_memory(uint64_t{16} << 20);
  inference::ModelInferRequest bomb;
  bomb.set_model_name("echo");
  for (int i = 0; i < 500000; ++i) bomb.add_inputs();
  EXPECT_LT(bomb.ByteSizeLong(), size_t{2} << 20);
  EXPECT_EQ(infer(bomb).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  wait_until_nothing_is_held();
  auto many = floats("", {1});
  for (int i = 0; i < 5000; ++i) many.add_outputs()->set_name("y");
  EXPECT_EQ(infer(many).error_message(), "infer: 5000 outputs; at most 4096 are allowed");
  EXPECT_TRUE(infer(floats("", {1})).ok());
  wait_until_nothing_is_held();
}

TEST_F(GrpcMemory, SharedMemoryIsCheckedBeforeItIsCopied) {
  server.at_once = echo;
  with_memory(uint64_t{1} << 20);
  std::atomic<int> copied{0};
  server.region_asked = [&] { ++copied; };
  const auto input = [&](int64_t dim, uint64_t bytes) {
    auto request = floats("", {});
    request.clear_raw_input_contents();
    request.mutable_inputs(0)->set_shape(0, dim);
    auto& parameters = *request.mutable_inputs(0)->mutable_parameters();
    parameters["shared_memory_region"].set_string_param("known");
    parameters["shared_memory_byte_size"].set_uint64_param(bytes);
    return infer(request);
  };
  EXPECT_EQ(input(2, uint64_t{1} << 40).error_message(),
            "infer: input 'x': 1099511627776 bytes in shared memory; shape and datatype have 8");
  EXPECT_EQ(copied, 0);
  EXPECT_EQ(input(1000000000, 4000000000).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(input(2, 8).ok());
  wait_until_nothing_is_held();
}

TEST_F(GrpcMemory, HealthIsAnsweredWhateverRequestsHold) {
  with_memory(60000);
  const auto first = context();
  inference::ModelInferResponse response;
  grpc::Status status;
  std::thread call([&] { status = stub->ModelInfer(first.get(), floats("1", std::vector<float>(4000)), &response); });
  auto asked = server.take(1);
  EXPECT_EQ(infer(floats("2", std::vector<float>(6000))).error_code(), grpc::StatusCode::UNAVAILABLE);
  inference::ServerLiveResponse live;
  EXPECT_TRUE(stub->ServerLive(context().get(), {}, &live).ok() && live.live());
  answer(server, *asked[0]);
  asked.clear();
  call.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
  wait_until_nothing_is_held();
}

// gRPC's library alone knows of a call whose message has not come.
TEST_F(GrpcMemory, ACallWithoutItsMessageDoesNotHoldUpTheEnd) {
  with_memory(uint64_t{1} << 20);
  grpc::GenericStub generic(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext half_context;
  const auto half = generic.PrepareCall(&half_context, "/inference.GRPCInferenceService/ModelInfer", &queue);
  half->StartCall(reinterpret_cast<void*>(1));
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  inference::ServerLiveResponse live;  // behind it, on the same connection
  EXPECT_TRUE(stub->ServerLive(context().get(), {}, &live).ok());
  EXPECT_TRUE(front->drain(kPatience));
  grpc::Status status;
  half->Finish(&status, reinterpret_cast<void*>(2));
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_FALSE(status.ok());
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

}  // namespace
}  // namespace sluice::serving::test
