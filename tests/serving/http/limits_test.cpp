// Tests what a client can make the server hold: memory, connections, time.
#include <atomic>
#include <thread>

#include "packing.h"

namespace sluice::serving::test {
namespace {

std::string ones(size_t count) {
  std::string list = "1";
  for (size_t i = 1; i < count; ++i) list += ",1";
  return R"({"inputs":[{"name":"x","datatype":"FP32","shape":[)" + std::to_string(count) + R"(],"data":[)" + list +
         "]}]}";
}
// Asks for its bytes back as they are.
std::string binary_head(size_t bytes) {
  return R"({"parameters":{"binary_data_output":true},"inputs":[{"name":"x","datatype":"UINT8","shape":[)" +
         std::to_string(bytes) + R"(],"parameters":{"binary_data_size":)" + std::to_string(bytes) + "}}]}";
}

class HttpLimits : public Http {
 protected:
  void with_memory(uint64_t bytes) {
    memory = std::make_shared<MemoryBudget>(bytes);
    HttpOptions options;
    options.memory = memory;
    start(options);
  }
  void wait_until_held(const std::function<bool(uint64_t)>& holds) {
    const auto until = Clock::now() + kPatience;
    while (!holds(memory->held()) && Clock::now() < until) std::this_thread::yield();
    EXPECT_TRUE(holds(memory->held())) << memory->held();
  }
  std::shared_ptr<MemoryBudget> memory;
};

TEST_F(HttpLimits, ARequestHoldsWhatHasComeOfIt) {
  with_memory(1 << 20);
  const std::string head = binary_head(100000);
  const std::string request = infer(head, std::string(100000, 'x'));
  {
    Wire wire(front->port());
    wire.send(request.substr(0, request.size() - 50000));
    wait_until_held([&](uint64_t held) { return held >= 50000; });
    EXPECT_LE(memory->held(), head.size() + 50000u);
    wire.send(request.substr(request.size() - 50000));
    EXPECT_EQ(wire.answer()->status, 200);
  }
  wait_until_held([](uint64_t held) { return held == 0; });
}

TEST_F(HttpLimits, ClientsThatAnnounceMuchAndSendNothingHoldNothing) {
  with_memory(300000);
  std::vector<std::unique_ptr<Wire>> wires;
  for (int i = 0; i < 20; ++i) {
    wires.push_back(std::make_unique<Wire>(front->port()));
    const std::string whole = infer(binary_head(200000), std::string(200000, 'x'));
    wires.back()->send(whole.substr(0, whole.size() - 200000));
  }
  EXPECT_EQ(ask(infer(binary_head(200000), std::string(200000, 'x'))).status, 200);
}

TEST_F(HttpLimits, BeyondTheMemoryOfAllRequestsTheNextIsToldToAskAgain) {
  with_memory(300000);
  server.at_once = nullptr;
  Wire first(front->port());
  first.send(infer(binary_head(200000), std::string(200000, 'x')));
  auto asked = server.take(1);
  const Answer refused = ask(infer(binary_head(150000), std::string(150000, 'x')));
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_THAT(refused.error(), HasSubstr("memory"));
  EXPECT_EQ(ask(get("/v2/health/live")).status, 200);
  answer(server, *asked[0]);
  asked.clear();  // its tensor counts as long as somebody has it
  EXPECT_EQ(first.answer()->status, 200);
  wait_until_held([](uint64_t held) { return held == 0; });
  server.at_once = echo;
  EXPECT_EQ(ask(infer(binary_head(150000), std::string(150000, 'x'))).status, 200);
}

TEST_F(HttpLimits, WhatCanNeverFitIsTooLarge) {
  with_memory(100000);
  EXPECT_EQ(ask(infer(binary_head(150000), std::string(150000, 'x'))).status, 413);
  EXPECT_EQ(ask(post("/v2/models/echo/infer", ones(30000))).status, 413);  // of JSON, its values
  std::string chunks = "POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 30; ++i) chunks += "2000\r\n" + std::string(0x2000, ' ') + "\r\n";
  EXPECT_EQ(ask(chunks + "0\r\n\r\n").status, 413);
  wait_until_held([](uint64_t held) { return held == 0; });
}

TEST_F(HttpLimits, ABombIsRefusedBeforeItIsUnpacked) {
  with_memory(200000);
  const std::string bomb = packed(std::string(size_t{8} << 20, '\0'), Coding::kGzip);
  ASSERT_LT(bomb.size(), 50000u);
  EXPECT_EQ(ask(post("/v2/models/echo/infer", bomb, "Content-Encoding: gzip\r\n")).status, 413);
  start();  // and without a tight budget, by the limit of a body
  EXPECT_THAT(ask(post("/v2/models/echo/infer", bomb, "Content-Encoding: gzip\r\n")).error(),
              HasSubstr("unpacks to more"));
}

TEST_F(HttpLimits, WhatARequestHeldIsGivenBackHoweverItEnds) {
  with_memory(1 << 20);
  const std::string good = infer(binary_head(1000), std::string(1000, 'x'));
  const std::string small = packed(ones(100), Coding::kDeflate);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(ask(good).status, 200);
    EXPECT_EQ(ask(post("/v2/models/echo/infer", ones(100))).status, 200);
    EXPECT_EQ(ask(post("/v2/models/echo/infer", small, "Content-Encoding: deflate\r\n")).status, 200);
    EXPECT_EQ(ask(post("/v2/models/echo/infer", small.substr(5), "Content-Encoding: deflate\r\n")).status, 400);
    EXPECT_EQ(ask(infer(binary_head(1000) + "}", std::string(1000, 'x'))).status, 400);
    Wire(front->port()).send(good.substr(0, good.size() * static_cast<size_t>(i) / 20));
  }
  wait_until_held([](uint64_t held) { return held == 0; });
}

// The server has read the header, and waits for the body.
class Announced {
 public:
  Announced(uint16_t port, const std::string& headers) : wire_(port) {
    wire_.send("POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n" + headers + "\r\n");
    EXPECT_EQ(wire_.answer()->status, 100);
  }
  Wire& wire() { return wire_; }

 private:
  Wire wire_;
};

TEST_F(HttpLimits, WhatIsAnnouncedTakesNoMemoryBeforeItComes) {
  with_memory(64 << 10);
  const std::string length = "Content-Length: 1000000\r\n";
  for (const std::string& headers :
       {length, length + "Content-Encoding: gzip\r\n", std::string("Transfer-Encoding: chunked\r\n"),
        length + "Inference-Header-Content-Length: 50000\r\n"}) {
    std::vector<std::unique_ptr<Announced>> clients;
    for (int i = 0; i < 50; ++i) clients.push_back(std::make_unique<Announced>(front->port(), headers));
    EXPECT_EQ(memory->held(), 0u) << headers;
    EXPECT_EQ(ask(post("/v2/models/echo/infer", ones(100))).status, 200) << headers;
  }
  wait_until_held([](uint64_t held) { return held == 0; });
}

TEST_F(HttpLimits, AByteOfALargeBodyTakesLittle) {
  with_memory(1 << 20);
  Announced client(front->port(), "Content-Length: 1000000\r\n");
  client.wire().send("{");
  wait_until_held([](uint64_t held) { return held > 0; });
  EXPECT_LE(memory->held(), uint64_t{17} << 10);
}

TEST_F(HttpLimits, AnswersCountUntilTheyAreSent) {
  with_memory(1 << 20);
  server.at_once = [](const InferRequest& request) {
    InferResponse response = echo(request);
    Tensor& output = response.outputs.at(0);
    output.bytes = size_t{400} << 10;
    output.shape = {static_cast<int64_t>(output.bytes)};
    output.data = BufferPool(0).take(output.bytes, request.memory);
    std::memset(output.data.get(), 1, output.bytes);
    return response;
  };
  // As JSON it takes more than is allowed, and as bytes it fits.
  const std::string bytes = binary_head(10), json = R"({)" + bytes.substr(bytes.find("\"inputs"));
  const Answer refused = ask(infer(json, std::string(10, 'x')));
  EXPECT_EQ(refused.status, 413) << refused.body;
  EXPECT_THAT(refused.error(), HasSubstr("memory"));
  EXPECT_EQ(ask(infer(bytes, std::string(10, 'x'))).body.size() / 1024, 400u);
  wait_until_held([](uint64_t held) { return held == 0; });
}

TEST_F(HttpLimits, ManyTensorsOrHeaderLinesAreRefused) {
  with_memory(uint64_t{64} << 20);
  std::string outputs = R"({"name":"a0"})", dims = "1", lines;
  for (int i = 1; i < 5000; ++i) outputs += R"(,{"name":"a)" + std::to_string(i) + R"("})";
  for (int i = 0; i < 100; ++i) dims += ",1";
  for (int i = 0; i < 300; ++i) lines += "a: b\r\n";
  const auto infer_of = [](const std::string& shape, const std::string& outputs) {
    return post("/v2/models/echo/infer", R"({"inputs":[{"name":"x","datatype":"FP32","shape":[)" + shape +
                                             R"(],"data":[1]}],"outputs":[)" + outputs + "]}");
  };
  EXPECT_EQ(ask(infer_of("1", outputs)).error(), "infer: 5000 outputs; at most 4096 are allowed");
  EXPECT_EQ(ask(infer_of(dims, "")).error(), "infer: 101 dims; at most 64 are allowed");
  EXPECT_EQ(ask(get("/v2/health/live", lines)).status, 431);
  wait_until_held([](uint64_t held) { return held == 0; });
}

TEST_F(HttpLimits, SharedMemoryIsCheckedBeforeItIsCopied) {
  with_memory(1 << 20);
  std::atomic<int> copied{0};
  server.region_asked = [&] { ++copied; };
  const auto input = [&](const std::string& shape, uint64_t bytes) {
    return ask(post("/v2/models/echo/infer",
                    R"({"inputs":[{"name":"x","datatype":"FP32","shape":[)" + shape +
                        R"(],"parameters":{"shared_memory_region":"known","shared_memory_byte_size":)" +
                        std::to_string(bytes) + "}}]}"));
  };
  const Answer wrong = input("2", uint64_t{1} << 40);
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(wrong.error(), "infer: input 'x': 1099511627776 bytes in shared memory; shape and datatype have 8");
  EXPECT_EQ(copied, 0);
  EXPECT_EQ(input("1000000,1000", 4000000000).status, 413);  // which fits its shape
  EXPECT_EQ(input("1000000,1000000,1000000", 8).status, 413);
  EXPECT_EQ(input("2", 8).status, 200);
  wait_until_held([](uint64_t held) { return held == 0; });
}

TEST_F(HttpLimits, AHeaderThatDoesNotComeInTimeEndsItsConnection) {
  HttpOptions options;
  options.header_timeout = milliseconds(100);
  start(options);
  Wire wire(front->port());
  EXPECT_TRUE(wire.send("GET /v2/health/live HT").closed());
}

TEST_F(HttpLimits, ABodyThatDoesNotComeInTimeEndsItsConnection) {
  HttpOptions options;
  options.body_timeout = milliseconds(100);
  start(options);
  Wire wire(front->port());
  const std::string request = infer(binary_head(1000), std::string(1000, 'x'));
  EXPECT_TRUE(wire.send(request.substr(0, request.size() - 10)).closed());
}

TEST_F(HttpLimits, AnIdleConnectionIsClosed) {
  HttpOptions options;
  options.idle_timeout = milliseconds(100);
  start(options);
  Wire wire(front->port());
  EXPECT_TRUE(wire.closed());
}

TEST(MemoryShareTest, HoldsToBothLimits) {
  const auto all = std::make_shared<MemoryBudget>(100);
  MemoryShare a(all, 60);
  auto other = std::make_unique<MemoryShare>(all, 1000);
  MemoryShare& b = *other;
  a.take(60);
  EXPECT_THROW(a.take(1), Error);
  const auto code_of = [](MemoryShare& share, uint64_t bytes) {
    try {
      share.take(bytes);
    } catch (const Error& error) {
      return std::optional(error.code());
    }
    return std::optional<Code>();
  };
  EXPECT_EQ(code_of(a, 1), Code::kTooLarge);
  EXPECT_EQ(code_of(b, 41), Code::kOverloaded);
  EXPECT_EQ(code_of(b, 101), Code::kTooLarge);
  EXPECT_EQ(code_of(b, UINT64_MAX), Code::kTooLarge);
  EXPECT_EQ(code_of(b, 40), std::nullopt);
  EXPECT_EQ(all->held(), 100u);
  a.give(10);
  EXPECT_EQ(all->held(), 90u);
  a.give(50);
  other = nullptr;
  EXPECT_EQ(all->held(), 0u);
}

}  // namespace
}  // namespace sluice::serving::test
