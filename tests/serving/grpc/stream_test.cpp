// Streams of requests: answers as they are done, several of one request, ends in every order.
#include <future>
#include <set>

#include "serving/grpc/fixture.h"

namespace sluice::serving::test {

namespace {

using inference::ModelStreamInferResponse;

class Stream : public Grpc {
 protected:
  void SetUp() override {
    start();
    open();
  }
  void open() {
    call = context();
    stream = stub->ModelStreamInfer(call.get());
  }
  // The response that comes next.
  ModelStreamInferResponse read() {
    ModelStreamInferResponse response;
    EXPECT_TRUE(stream->Read(&response));
    return response;
  }
  // Ends the client's side; nothing must come any more.
  grpc::Status finish() {
    stream->WritesDone();
    ModelStreamInferResponse response;
    EXPECT_FALSE(stream->Read(&response)) << response.ShortDebugString();
    return stream->Finish();
  }

  std::unique_ptr<grpc::ClientContext> call;
  std::unique_ptr<grpc::ClientReaderWriter<inference::ModelInferRequest, ModelStreamInferResponse>> stream;
};

TEST_F(Stream, AnswersComeAsTheyAreDone) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(stream->Write(floats(std::to_string(i), {static_cast<float>(i)})));
  std::vector<std::shared_ptr<FakeServer::Asked>> asked;
  while (asked.size() < 10)
    for (auto& one : server.take(1)) asked.push_back(one);
  for (int i = 9; i >= 0; --i) {  // requests are given to the server in their order; answers have their own
    EXPECT_EQ(asked.at(i)->request.id, std::to_string(i));
    answer(server, *asked.at(i));
    const auto response = read();
    EXPECT_EQ(response.infer_response().id(), std::to_string(i));
    EXPECT_EQ(floats_of(response.infer_response()), std::vector<float>{static_cast<float>(i)});
  }
  EXPECT_TRUE(finish().ok());
}

TEST_F(Stream, AnErrorIsOfOneRequest) {
  server.at_once = [](const InferRequest& request) {
    InferResponse response = echo(request);
    if (request.id == "bad") response.error = Error(Code::kInvalidArgument, "infer: bad");
    return response;
  };
  auto malformed = floats("malformed", {1});
  malformed.add_raw_input_contents("more");
  ASSERT_TRUE(stream->Write(floats("a", {1})) && stream->Write(floats("bad", {1})) && stream->Write(malformed) &&
              stream->Write(floats("b", {2})));
  std::map<std::string, std::string> errors;
  for (int i = 0; i < 4; ++i) {
    const auto response = read();
    errors[response.infer_response().id()] = response.error_message();
  }
  EXPECT_EQ(errors["a"], "");
  EXPECT_EQ(errors["b"], "");
  EXPECT_EQ(errors["bad"], "infer: bad");
  EXPECT_NE(errors["malformed"].find("raw_input_contents"), std::string::npos);
  EXPECT_TRUE(finish().ok());
}

TEST_F(Stream, ARequestMayHaveSeveralAnswers) {
  ASSERT_TRUE(stream->Write(floats("many", {0})));
  const auto asked = server.take(1).at(0);
  for (int i = 0; i < 5; ++i) {
    InferResponse response = echo(asked->request);
    response.parameters["n"] = int64_t{i};
    asked->respond(response, i == 4);
    EXPECT_EQ(read().infer_response().parameters().at("n").int64_param(), i);
  }
  EXPECT_TRUE(finish().ok());
  // A call that can take one only gets an error.
  grpc::Status status;
  std::thread client([&] { status = infer(floats("one", {0})); });
  const auto one = server.take(1).at(0);
  const Respond respond = one->respond;
  respond(echo(one->request), false);
  server.wait_cancelled(*one);  // nobody reads the others
  client.join();
  EXPECT_EQ(status.error_code(), grpc::UNIMPLEMENTED);
  EXPECT_NE(status.error_message().find("ModelStreamInfer"), std::string::npos);
}

TEST_F(Stream, TheClientEndsBeforeTheAnswers) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(stream->Write(floats(std::to_string(i), {1})));
  stream->WritesDone();
  std::vector<std::shared_ptr<FakeServer::Asked>> asked;
  while (asked.size() < 3)
    for (auto& one : server.take(1)) asked.push_back(one);
  for (auto& one : asked) answer(server, *one);
  std::set<std::string> ids;
  for (int i = 0; i < 3; ++i) ids.insert(read().infer_response().id());
  EXPECT_EQ(ids, (std::set<std::string>{"0", "1", "2"}));
  ModelStreamInferResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(Stream, AClientThatGoesAwayCancelsItsRequests) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(stream->Write(floats(std::to_string(i), {1})));
  std::vector<std::shared_ptr<FakeServer::Asked>> asked;
  while (asked.size() < 3)
    for (auto& one : server.take(1)) asked.push_back(one);
  call->TryCancel();
  for (auto& one : asked) server.wait_cancelled(*one);
  EXPECT_FALSE(stream->Finish().ok());
  EXPECT_TRUE(front->drain(kPatience));  // nothing of it is left
}

// A client that writes and does not read is not read from without end.
TEST_F(Stream, HasAPlaceForSoManyRequests) {
  std::atomic<int> written{0};
  std::promise<void> stop;
  std::thread client([&] {
    for (int i = 0; i < 300; ++i) {
      if (!stream->Write(floats(std::to_string(i), {1}))) break;
      ++written;
    }
    stream->WritesDone();
  });
  std::vector<std::shared_ptr<FakeServer::Asked>> asked;
  while (asked.size() < 64)
    for (auto& one : server.take(1)) asked.push_back(one);
  EXPECT_EQ(asked.size(), 64u);
  EXPECT_EQ(server.number_waiting(), 0u);
  size_t answered = 0;
  std::thread reader([&] {
    ModelStreamInferResponse response;
    while (stream->Read(&response)) ++answered;
  });
  size_t given = 0;
  while (given < 300) {
    for (; given < asked.size(); ++given) answer(server, *asked[given]);
    if (given < 300)
      for (auto& one : server.take(1)) asked.push_back(one);
  }
  client.join();
  reader.join();
  EXPECT_EQ(answered, 300u);
  EXPECT_TRUE(stream->Finish().ok());
}

// Streams that end while they are answered, from another thread: nothing of a stream is used after its end.
TEST_F(Stream, EndsWhileItIsAnswered) {
  ASSERT_TRUE(finish().ok());
  std::atomic<bool> over{false};
  std::thread engine([&] {
    while (!over) {
      std::vector<std::shared_ptr<FakeServer::Asked>> asked;
      {
        const std::lock_guard lock(server.mutex);
        asked.swap(server.waiting);
      }
      for (auto& one : asked) answer(server, *one);
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> clients;
  for (int c = 0; c < 4; ++c)
    clients.emplace_back([&, c] {
      for (int round = 0; round < 50; ++round) {
        const auto mine = context();
        const auto own = stub->ModelStreamInfer(mine.get());
        const int count = 1 + (round + c) % 5;
        for (int i = 0; i < count; ++i) own->Write(floats("", {1}));
        if (round % 3 == 0) {
          mine->TryCancel();
          EXPECT_FALSE(own->Finish().ok());
          continue;
        }
        own->WritesDone();
        int answers = 0;
        for (ModelStreamInferResponse response; own->Read(&response);) ++answers;
        EXPECT_EQ(answers, count);
        EXPECT_TRUE(own->Finish().ok());
      }
    });
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(front->drain(kPatience));
  over = true;
  engine.join();
}

TEST_F(Stream, ThatWaitsForARequestIsEndedAtOnceWhenTheServerEnds) {
  server.at_once = echo;
  ASSERT_TRUE(stream->Write(floats("a", {1})));
  EXPECT_EQ(read().infer_response().id(), "a");  // so it is open
  EXPECT_TRUE(front->drain(kPatience));
  ModelStreamInferResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(Stream, IsAnsweredWhatItHasAskedBeforeTheServerEnds) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(stream->Write(floats(std::to_string(i), {1})));
  std::vector<std::shared_ptr<FakeServer::Asked>> asked;
  while (asked.size() < 3)
    for (auto& one : server.take(1)) asked.push_back(one);
  const auto idle_call = context();
  const auto idle = stub->ModelStreamInfer(idle_call.get());
  std::thread ends([&] { EXPECT_TRUE(front->drain(kPatience)); });
  ModelStreamInferResponse none;
  EXPECT_FALSE(idle->Read(&none));  // the server ends now
  EXPECT_FALSE(idle->Finish().ok());
  for (auto& one : asked) answer(server, *one);
  std::set<std::string> ids;
  for (int i = 0; i < 3; ++i) ids.insert(read().infer_response().id());
  EXPECT_EQ(ids, (std::set<std::string>{"0", "1", "2"}));
  // The client does not say that it is done, since it might be so before the server ends its stream.
  EXPECT_FALSE(stream->Read(&none));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  ends.join();
}

TEST(StreamFlood, AClientThatReadsNothingLosesItsStreamBeforeTheResponsesFillTheMemory) {
  InferResponse part;
  part.model = "echo";
  part.version = "1";
  Tensor& tensor = part.outputs.emplace_back();
  tensor.name = "x";
  tensor.datatype = DataType::TYPE_FP32;
  tensor.bytes = 64 << 10;
  tensor.shape = {static_cast<int64_t>(tensor.bytes / sizeof(float))};
  tensor.data = BufferPool(0).take(tensor.bytes);
  std::memset(tensor.data.get(), 0, tensor.bytes);
  FloodServer flood(part);
  const auto memory = std::make_shared<MemoryBudget>(uint64_t{4} << 20);
  GrpcServer front(flood, {.memory = memory});
  const auto channel =
      grpc::CreateChannel("127.0.0.1:" + std::to_string(front.port()), grpc::InsecureChannelCredentials());
  const auto stub = inference::GRPCInferenceService::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto stream = stub->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write(floats("flood", {1})));
  while (!flood.was_cancelled && flood.parts < FloodServer::kMost) std::this_thread::yield();
  EXPECT_TRUE(flood.was_cancelled) << "nothing bounds it";
  flood.wait();
  ModelStreamInferResponse response;
  while (stream->Read(&response)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  inference::ServerLiveResponse live;
  grpc::ClientContext next;
  EXPECT_TRUE(stub->ServerLive(&next, {}, &live).ok() && live.live());
  front.drain(std::chrono::seconds(10));
  EXPECT_EQ(memory->held(), 0u);
}

}  // namespace

}  // namespace sluice::serving::test
