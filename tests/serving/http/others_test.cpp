// One client does not hold up the others: work that takes long, connections, the end of the server.
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <future>
#include <thread>

#include "packing.h"
#include "serving/http/places.h"
#include "serving/http/workers.h"
#include "support/eventually.h"

namespace sluice::serving::test {
namespace {

namespace asio = boost::asio;

std::string infer_of(const std::string& more, const std::string& outputs = "") {
  return R"({"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1,2])" + more + "}]" + outputs + "}";
}

// A front end of one thread, and of one worker, who is busy until he is let go.
class HttpOthers : public Http {
 protected:
  HttpOthers() {
    HttpOptions options;
    options.threads = 1;
    options.workers = workers;
    options.max_input = size_t{32} << 20;
    front = std::make_unique<HttpServer>(server, options);
  }
  ~HttpOthers() override {
    release();
    front = nullptr;
  }
  void occupy() {
    std::promise<void> begun;
    io_.restart();
    std::function<int()> work = [this, &begun] {
      begun.set_value();
      go_on_.get_future().wait();
      return 0;
    };
    asio::co_spawn(io_, workers->run(std::move(work)), asio::detached);
    occupier_ = std::thread([this] { io_.run(); });
    begun.get_future().wait();
  }
  void release() {
    if (!occupier_.joinable()) return;
    go_on_.set_value();
    occupier_.join();
    go_on_ = {};
  }
  void wait_for_turns(int waiting) {
    const auto until = Clock::now() + kPatience;
    while (workers->waiting() != waiting && Clock::now() < until) std::this_thread::yield();
    ASSERT_EQ(workers->waiting(), waiting);
  }
  std::shared_ptr<Workers> workers = std::make_shared<Workers>(1);

 private:
  asio::io_context io_;  // outlives the worker
  std::promise<void> go_on_;
  std::thread occupier_;
};

// A response of one output of so many floats.
std::function<InferResponse(const InferRequest&)> floats(size_t count) {
  return [count](const InferRequest& request) {
    InferResponse response = echo(request);
    Tensor& output = response.outputs.at(0);
    output.bytes = count * sizeof(float);
    output.shape = {static_cast<int64_t>(count)};
    output.data = BufferPool(0).take(output.bytes, request.memory);
    std::fill_n(static_cast<float*>(output.data.get()), count, 0.5F);
    return response;
  };
}

TEST_F(HttpOthers, AreAnsweredWhileABodyIsUnpackedOrReadAndWhileAnAnswerIsWrittenOrPacked) {
  const std::string large = infer_of(std::string(1 << 20, ' '));
  const std::string bomb = packed(infer_of(std::string(16 << 20, ' ')), Coding::kGzip);
  EXPECT_LT(bomb.size(), 80000u);
  const std::string path = "/v2/models/echo/infer", binary = R"(,"parameters":{"binary_data_output":true})";
  server.model.set_name("echo");
  auto& input = *server.model.add_inputs();
  input.set_name("x");
  input.set_datatype("FP32");
  input.add_shape(-1);
  struct Case {
    const char* what;
    std::string request;
    size_t outputs;
  };
  const std::vector<Case> cases = {
      {"unpacked", post(path, bomb, "Content-Encoding: gzip\r\n"), 2},
      {"unpacked, of a call about the server",
       post("/v2/repository/index", packed(std::string(1 << 20, ' '), Coding::kDeflate),
            "Content-Encoding: deflate\r\n"),
       2},
      {"long JSON", post(path, large), 2},
      {"long JSON of names", post("/v1/models/echo:predict", R"({"instances":[1,2)" + std::string(1 << 20, ' ') + "]}"),
       2},
      {"an answer as JSON", post(path, infer_of("")), 100000},
      {"an answer as rows", post("/v1/models/echo:predict", R"({"inputs":[1,2]})"), 100000},
      {"an answer that is packed", post(path, infer_of("", binary), "Accept-Encoding: gzip\r\n"), 100000},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    server.at_once = floats(one.outputs);
    occupy();
    Wire slow(front->port()), other(front->port());
    slow.send(one.request);
    wait_for_turns(2);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(other.send(get("/v2/health/live")).answer()->status, 200);
    EXPECT_GE(workers->waiting(), 2);
    release();
    const auto answer = slow.answer();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->status, 200) << answer->body.substr(0, 200);
  }
}

// A client with much to unpack has as many turns as others who have little: the order of the turns tells.
TEST_F(HttpOthers, HaveTheirTurnBetweenThoseOfALongWork) {
  server.at_once = nullptr;
  const auto named = [](const std::string& id, size_t bytes) {
    std::string text = infer_of("");
    text.insert(1, R"("id":")" + id + "\",");
    return post("/v2/models/echo/infer", packed(text + std::string(bytes, ' '), Coding::kGzip),
                "Content-Encoding: gzip\r\n");
  };
  occupy();
  Wire longest(front->port()), small(front->port());
  longest.send(named("long", 24 << 20));
  wait_for_turns(2);
  small.send(named("small", 256 << 10));
  wait_for_turns(3);
  release();
  std::vector<std::shared_ptr<FakeServer::Asked>> asked;
  while (asked.size() < 2)
    for (auto& one : server.take(1)) asked.push_back(one);
  EXPECT_EQ(asked[0]->request.id, "small");
  EXPECT_EQ(asked[1]->request.id, "long");
  for (auto& one : asked) answer(server, *one);
  EXPECT_EQ(small.answer()->status, 200);
  EXPECT_EQ(longest.answer()->status, 200);
}

TEST(Packing, BothWaysInTurnsIsTheSame) {
  std::string text;
  for (int i = 0; i < 400000; ++i) text += std::to_string(i * int64_t{7919} % 100003);
  for (const Coding coding : {Coding::kGzip, Coding::kDeflate}) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{70000}, text.size()}) {
      const std::string part = text.substr(0, size);
      Text out;
      int turns = 1;
      for (Turns pieces =
               pack({std::string_view(part).substr(0, size / 3), std::string_view(part).substr(size / 3)}, coding, out);
           pieces.next();)
        ++turns;
      EXPECT_EQ(turns > 1, size == text.size());
      EXPECT_EQ(unpacked(std::string(out), coding), part);
    }
  }
}

class HttpPlaces : public Http {
 protected:
  void start_with(int most) {
    HttpOptions options;
    options.max_connections = most;
    start(options);
  }
  static std::string ask_health() { return get("/v2/health/live"); }
  // An answer comes before the server has seen that its connection waits again.
  void wait_for_idle(int connections) {
    ASSERT_TRUE(sluice::test::eventually([&] { return front->idle_connections() == connections; }));
  }
};

TEST_F(HttpPlaces, WhoHasNoRequestGivesItsPlaceToWhoComes) {
  start_with(2);
  Wire a(front->port());
  EXPECT_EQ(a.send(ask_health()).answer()->status, 200);
  Wire b(front->port());
  EXPECT_EQ(b.send(ask_health()).answer()->status, 200);
  wait_for_idle(2);
  EXPECT_EQ(a.send(ask_health()).answer()->status, 200);  // so b has been without for longer
  wait_for_idle(2);
  Wire c(front->port());
  EXPECT_EQ(c.send(post("/v2/models/echo/infer", infer_of(""))).answer()->status, 200);
  EXPECT_TRUE(b.closed());
  EXPECT_EQ(a.send(ask_health()).answer()->status, 200);
  EXPECT_EQ(c.send(ask_health()).answer()->status, 200);
}

TEST_F(HttpPlaces, WhereAllHaveRequestsOthersMayAskForHealthAlone) {
  start_with(2);
  server.at_once = nullptr;
  Wire a(front->port()), b(front->port());
  a.send(post("/v2/models/echo/infer", infer_of("")));
  b.send(post("/v2/models/echo/infer", infer_of("")));
  std::vector<std::shared_ptr<FakeServer::Asked>> asked;
  while (asked.size() < 2)
    for (auto& one : server.take(1)) asked.push_back(one);
  {
    std::vector<std::unique_ptr<Wire>> idle;  // more than there are places for health
    for (size_t i = 0; i < Places::kForHealth + 8; ++i) idle.push_back(std::make_unique<Wire>(front->port()));
    Wire health(front->port());
    EXPECT_EQ(health.send(ask_health()).answer()->status, 200);
    EXPECT_TRUE(health.closed());
    Wire other(front->port());
    const auto refused = other.send(post("/v2/models/echo/infer", infer_of(""))).answer();
    ASSERT_TRUE(refused.has_value());
    EXPECT_EQ(refused->status, 503);
    EXPECT_EQ(refused->headers.at("retry-after"), "1");
    EXPECT_THAT(refused->error(), HasSubstr("connections"));
    EXPECT_TRUE(other.closed());
  }
  for (auto& one : asked) answer(server, *one);
  EXPECT_EQ(a.answer()->status, 200);
  EXPECT_EQ(b.answer()->status, 200);
  server.at_once = echo;
  Wire next(front->port());
  EXPECT_EQ(next.send(post("/v2/models/echo/infer", infer_of(""))).answer()->status, 200);
}

TEST_F(HttpPlaces, TheLimitIsLogged) {
  testing::internal::CaptureStderr();
  start_with(1);
  server.at_once = nullptr;
  Wire a(front->port());
  a.send(post("/v2/models/echo/infer", infer_of("")));
  const auto asked = server.take(1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ask(post("/v2/models/echo/infer", infer_of(""))).status, 503);
  answer(server, *asked[0]);
  EXPECT_EQ(a.answer()->status, 200);
  const std::string log = testing::internal::GetCapturedStderr();
  const std::string line = "http: all 1 connections that --max-connections allows are there";
  EXPECT_THAT(log, HasSubstr(line));
  EXPECT_EQ(log.find(line), log.rfind(line)) << log;
}

TEST_F(HttpPlaces, HalfRequestsAreClosedSoonWhenTheServerEnds) {
  HttpOptions options;
  options.half_timeout = milliseconds(20);
  start(options);
  Wire body(front->port()), chunks(front->port()), idle(front->port());
  const std::string path = "POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n";
  EXPECT_EQ(body.send(path + "Content-Length: 100\r\n\r\n").answer()->status, 100);
  body.send("{");
  EXPECT_EQ(chunks.send(path + "Transfer-Encoding: chunked\r\n\r\n").answer()->status, 100);
  EXPECT_EQ(idle.send(ask_health()).answer()->status, 200);
  Wire header(front->port());
  header.send("GET /v2/hea");
  EXPECT_TRUE(front->drain(kPatience));
  for (Wire* wire : {&body, &chunks, &idle, &header}) EXPECT_TRUE(wire->closed());
}

TEST_F(HttpPlaces, WholeRequestsAreAnsweredWhenTheServerEnds) {
  HttpOptions options;
  options.half_timeout = milliseconds(0);
  start(options);
  server.at_once = nullptr;
  Wire wire(front->port());
  wire.send(post("/v2/models/echo/infer", infer_of("")));
  const auto asked = server.take(1);
  Wire half(front->port());
  EXPECT_EQ(
      half.send("POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
          .answer()
          ->status,
      100);
  std::thread ends([&] { EXPECT_TRUE(front->drain(kPatience)); });
  EXPECT_TRUE(half.closed());  // half_timeout has passed
  answer(server, *asked[0]);
  EXPECT_EQ(wire.answer()->status, 200);
  ends.join();
}

}  // namespace
}  // namespace sluice::serving::test
