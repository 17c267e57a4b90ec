// What a client can make the server hold: memory, connections, time.
#include <future>
#include <thread>

#include "fixture.h"
#include "serving/http/compression.h"

namespace sluice::serving::test {
namespace {

std::string ones(size_t count) {
  std::string list = "1";
  for (size_t i = 1; i < count; ++i) list += ",1";
  return R"({"inputs":[{"name":"x","datatype":"FP32","shape":[)" + std::to_string(count) + R"(],"data":[)" + list +
         "]}]}";
}
std::string binary_head(size_t bytes) {
  return R"({"inputs":[{"name":"x","datatype":"UINT8","shape":[)" + std::to_string(bytes) +
         R"(],"parameters":{"binary_data_size":)" + std::to_string(bytes) + "}}]}";
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
    wait_until_held([&](uint64_t held) { return held >= head.size() + 50000; });
    EXPECT_LE(memory->held(), head.size() + 50000 + 64 * 1024);
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
  const auto asked = server.take(1);
  const Answer refused = ask(infer(binary_head(150000), std::string(150000, 'x')));
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_THAT(refused.error(), HasSubstr("memory"));
  EXPECT_EQ(ask(get("/v2/health/live")).status, 200);
  answer(server, *asked[0]);
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
  const std::string bomb = pack(std::string(size_t{8} << 20, '\0'), Coding::kGzip);
  ASSERT_LT(bomb.size(), 50000u);
  EXPECT_EQ(ask(post("/v2/models/echo/infer", bomb, "Content-Encoding: gzip\r\n")).status, 413);
  start();  // and without a tight budget, by the limit of a body
  EXPECT_THAT(ask(post("/v2/models/echo/infer", bomb, "Content-Encoding: gzip\r\n")).error(),
              HasSubstr("unpacks to more"));
}

TEST_F(HttpLimits, WhatARequestHeldIsGivenBackHoweverItEnds) {
  with_memory(1 << 20);
  const std::string good = infer(binary_head(1000), std::string(1000, 'x'));
  const std::string packed = pack(ones(100), Coding::kDeflate);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(ask(good).status, 200);
    EXPECT_EQ(ask(post("/v2/models/echo/infer", ones(100))).status, 200);
    EXPECT_EQ(ask(post("/v2/models/echo/infer", packed, "Content-Encoding: deflate\r\n")).status, 200);
    EXPECT_EQ(ask(post("/v2/models/echo/infer", packed.substr(5), "Content-Encoding: deflate\r\n")).status, 400);
    EXPECT_EQ(ask(infer(binary_head(1000) + "}", std::string(1000, 'x'))).status, 400);
    Wire(front->port()).send(good.substr(0, good.size() * static_cast<size_t>(i) / 20));
  }
  wait_until_held([](uint64_t held) { return held == 0; });
}

TEST_F(HttpLimits, ConnectionsBeyondTheLimitAreClosed) {
  HttpOptions options;
  options.max_connections = 2;
  start(options);
  Wire a(front->port()), b(front->port());
  EXPECT_EQ(a.send(get("/v2/health/live")).answer()->status, 200);
  EXPECT_EQ(b.send(get("/v2/health/live")).answer()->status, 200);
  Wire c(front->port());
  EXPECT_TRUE(c.closed());
  EXPECT_EQ(a.send(get("/v2/health/live")).answer()->status, 200);
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

// What takes long to read holds up nobody else, even where there is one thread.
TEST_F(HttpLimits, OthersAreAnsweredWhileLongJsonIsRead) {
  std::promise<void> reading, go_on;
  server.region_asked = [&] {
    reading.set_value();
    go_on.get_future().wait();
  };
  HttpOptions options;
  options.threads = 1;
  start(options);
  Wire slow(front->port()), other(front->port());
  const std::string shared = R"("parameters":{"shared_memory_region":"known","shared_memory_byte_size":8})";
  slow.send(post("/v2/models/echo/infer", R"({"inputs":[{"name":"x","datatype":"FP32","shape":[2],)" + shared + "}]" +
                                              std::string(300000, ' ') + "}"));
  reading.get_future().wait();
  EXPECT_EQ(other.send(get("/v2/health/live")).answer()->status, 200);
  go_on.set_value();
  EXPECT_EQ(slow.answer()->status, 200);
}

TEST(MemoryShareTest, HoldsToBothLimits) {
  const auto all = std::make_shared<MemoryBudget>(100);
  MemoryShare a(all, 60), b(all, 1000);
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
  a.clear();
  b.clear();
  EXPECT_EQ(all->held(), 0u);
}

}  // namespace
}  // namespace sluice::serving::test
