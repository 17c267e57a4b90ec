// generate_stream: responses as events, each when it is there.
#include "fixture.h"

namespace sluice::serving::test {
namespace {

class HttpEvents : public Http {
 protected:
  HttpEvents() {
    server.at_once = nullptr;
    auto& input = *server.model.add_inputs();
    input.set_name("text");
    input.set_datatype("BYTES");
    input.add_shape(1);
    server.model.set_name("echo");
  }
  static std::string ask_for(const std::string& body) { return post("/v2/models/echo/generate_stream", body); }
  static InferResponse word(const std::string& text) {
    InferResponse response;
    response.model = "echo";
    response.version = "1";
    Tensor& tensor = response.outputs.emplace_back();
    tensor.name = "word";
    tensor.datatype = DataType::TYPE_STRING;
    tensor.shape = {1};
    tensor.bytes = sizeof(uint32_t) + text.size();
    tensor.data = BufferPool(0).take(tensor.bytes);
    const auto size = static_cast<uint32_t>(text.size());
    std::memcpy(tensor.data.get(), &size, sizeof size);
    std::memcpy(static_cast<char*>(tensor.data.get()) + sizeof size, text.data(), size);
    return response;
  }
  static InferResponse failure(Code code) {
    InferResponse response;
    response.error = Error(code, "no more");
    return response;
  }
  static std::string event(const std::string& word) {
    return "data: {\"model_name\":\"echo\",\"model_version\":\"1\",\"word\":\"" + word + "\"}\n\n";
  }
};

TEST_F(HttpEvents, AnEventIsThereBeforeTheNextResponse) {
  start();
  Wire wire(front->port());
  wire.send(ask_for(R"({"text":"hello","parameters":{"max_tokens":3}})"));
  const auto asked = server.take(1);
  EXPECT_EQ(asked[0]->request.inputs.at(0).bytes, 9u);
  EXPECT_EQ(std::get<int64_t>(asked[0]->request.parameters.at("max_tokens")), 3);
  asked[0]->respond(word("a"), false);
  const auto head = wire.answer();
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->status, 200);
  EXPECT_EQ(head->headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(wire.chunk(), event("a"));
  asked[0]->respond(word("b\n\""), false);
  EXPECT_EQ(wire.chunk(), event("b\\u000a\\\""));  // an event is a line
  asked[0]->respond(word("c"), true);
  EXPECT_EQ(wire.chunk(), event("c"));
  EXPECT_EQ(wire.chunk(), "");
  EXPECT_EQ(wire.send(get("/v2/health/live")).answer()->status, 200);
}

TEST_F(HttpEvents, AnErrorInBetweenIsAnEvent) {
  start();
  Wire wire(front->port());
  wire.send(ask_for(R"({"text":["hello"]})"));
  const auto asked = server.take(1);
  asked[0]->respond(word("a"), false);
  ASSERT_TRUE(wire.answer().has_value());
  EXPECT_EQ(wire.chunk(), event("a"));
  asked[0]->respond(failure(Code::kInternal), true);
  EXPECT_EQ(wire.chunk(), "data: {\"error\":\"no more\"}\n\n");
  EXPECT_EQ(wire.chunk(), "");
}

TEST_F(HttpEvents, AnErrorAtOnceIsAnAnswer) {
  start();
  Wire wire(front->port());
  wire.send(ask_for(R"({"text":"hello"})"));
  server.take(1)[0]->respond(failure(Code::kOverloaded), true);
  const auto answer = wire.answer();
  EXPECT_EQ(answer->status, 429);
  EXPECT_EQ(answer->error(), "no more");
  EXPECT_EQ(ask(ask_for(R"({"text":3})")).status, 400);
  EXPECT_EQ(ask(ask_for(R"({"other":"x"})")).status, 400);
  EXPECT_EQ(ask(ask_for("[")).status, 400);
  EXPECT_EQ(ask("POST /v2/models/echo/generate_stream HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}").status, 400);
}

TEST_F(HttpEvents, AClientThatGoesAwayEndsItsRequest) {
  start();
  std::shared_ptr<FakeServer::Asked> asked;
  {
    Wire wire(front->port());
    wire.send(ask_for(R"({"text":"hello"})"));
    asked = server.take(1)[0];
    asked->respond(word("a"), false);
    ASSERT_TRUE(wire.answer().has_value());
  }
  server.wait_cancelled(*asked);
}

TEST_F(HttpEvents, AClientThatTakesNoneLosesItsConnectionBeforeTheyFillTheMemory) {
  FloodServer flood(word(std::string(64 << 10, 'x')));
  flood.model = server.model;
  const auto memory = std::make_shared<MemoryBudget>(uint64_t{1} << 20);
  {
    HttpOptions options;
    options.memory = memory;
    HttpServer mine(flood, options);
    Wire wire(mine.port());
    wire.send(ask_for(R"({"text":"hello"})"));
    while (flood.parts == 0 || !flood.was_cancelled) {
      ASSERT_LT(flood.parts, FloodServer::kMost) << "nothing bounds it";
      std::this_thread::yield();
    }
    flood.wait();
    for (bool more = wire.answer().has_value(); more;) more = wire.chunk() != "";
    Wire next(mine.port());
    EXPECT_EQ(next.send(get("/v2/health/live")).answer()->status, 200);
  }
  EXPECT_EQ(memory->held(), 0u);
}

TEST_F(HttpEvents, WhoAsksForOneResponseIsToldThatThereAreMore) {
  start();
  Wire wire(front->port());
  wire.send(post("/v2/models/echo/generate", R"({"text":"hello"})"));
  const auto asked = server.take(1);
  const Respond respond = asked[0]->respond;
  respond(word("a"), false);
  server.wait_cancelled(*asked[0]);  // nobody reads the others
  const auto answer = wire.answer();
  EXPECT_EQ(answer->status, 501);
  EXPECT_THAT(answer->error(), HasSubstr("generate_stream"));
}

}  // namespace
}  // namespace sluice::serving::test
