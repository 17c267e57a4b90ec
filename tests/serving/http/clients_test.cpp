// Some clients do what others do not: words for floats, targets that name the server, half-closed connections.
#include <zlib.h>

#include "fixture.h"

namespace sluice::serving::test {
namespace {

std::string one(const std::string& datatype, const std::string& shape, const std::string& data) {
  return R"([{"name":"x","datatype":")" + datatype + R"(","shape":)" + shape + R"(,"data":)" + data + "}]";
}

TEST_F(Http, WordsForFloatsAreReadAsTheyAreWritten) {
  start();
  for (const char* type : {"FP32", "FP64"}) {
    const std::string data = one(type, "[2,2]", "[NaN,Infinity,-Infinity,0.5]");
    const Answer answer = ask(post("/v2/models/echo/infer", "{\"inputs\":" + data + "}"));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("\"outputs\":" + data));
    const std::string nested = one(type, "[2,2]", "[[ NaN , Inf],\n[-Inf,0.5]]");  // as RapidJSON reads them
    EXPECT_EQ(ask(post("/v2/models/echo/infer", "{\"inputs\":" + nested + "}")).body, answer.body);
  }
}

TEST_F(Http, WordsStandNowhereElse) {
  start();
  const auto status = [&](const std::string& inputs, const std::string& more = "") {
    return ask(post("/v2/models/echo/infer", "{" + more + "\"inputs\":" + inputs + "}")).status;
  };
  const std::string good = one("FP32", "[1]", "[NaN]");
  EXPECT_EQ(status(good), 200);
  for (const char* data : {"[NaNNaN]", "[NaN1]", "[1NaN]", "[Na]", "[nan]", "[--Inf]", "[+Inf]", "[Infinit]", "[Infx]",
                           "[null]", "[\"NaN\"]", "[\"Infinity\"]", "[1e400]", "[-1e400]", "[NaN", "NaN"})
    EXPECT_EQ(status(one("FP32", "[1]", data)), 400) << data;
  EXPECT_EQ(status(one("INT32", "[1]", "[NaN]")), 400);
  EXPECT_EQ(status(one("BOOL", "[1]", "[NaN]")), 400);
  EXPECT_EQ(status(one("BYTES", "[1]", "[NaN]")), 400);
  EXPECT_EQ(status(one("FP32", "[NaN]", "[1]")), 400);
  EXPECT_EQ(status(good, "\"id\":NaN,"), 400);
  EXPECT_EQ(status(good, "NaN:1,"), 400);
  // In strings they are text, whatever stands before them there.
  const std::string text = one("BYTES", "[4]", R"(["NaN","-Infinity","\"NaN","\\"])");
  const Answer answer = ask(post("/v2/models/echo/infer", "{\"id\":\"Inf\",\"inputs\":" + text + "}"));
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.body, HasSubstr("\"outputs\":" + text));
}

TEST_F(Http, RequestsThatNeverComeToTheServerAreCounted) {
  HttpOptions options;
  options.memory = std::make_shared<MemoryBudget>(100000);
  start(options);
  const std::string path = "/v2/models/echo/infer";
  const std::string good = "{\"inputs\":" + one("FP32", "[1]", "[1]") + "}";
  EXPECT_EQ(ask(post(path, good)).status, 200);
  EXPECT_TRUE(server.all_refused().empty());
  EXPECT_EQ(ask(post(path, "{")).status, 400);
  EXPECT_EQ(ask(post(path, good, "Content-Encoding: br\r\n")).status, 501);
  EXPECT_EQ(ask(post(path, good, "Inference-Header-Content-Length: x\r\n")).status, 400);
  EXPECT_EQ(ask("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n").status, 413);
  server.at_once = nullptr;
  Wire holds(front->port());
  holds.send(infer(
      R"({"parameters":{"binary_data_output":true},"inputs":[{"name":"x","datatype":"UINT8","shape":[60000],"parameters":{"binary_data_size":60000}}]})",
      std::string(60000, 'x')));
  const auto held = server.take(1);
  EXPECT_EQ(ask(post(path, std::string(80000, ' '))).status, 429);
  answer(server, *held[0]);
  EXPECT_EQ(holds.answer()->status, 200);
  EXPECT_EQ(ask(post("/v2/models/echo/generate", "[]")).status, 400);
  EXPECT_EQ(ask(post("/v1/models/echo:predict", "[]")).status, 400);
  // A request that is not for inference is none that failed.
  EXPECT_EQ(ask(post("/v2/repository/index", "[")).status, 400);
  EXPECT_EQ(ask(get(path)).status, 405);
  EXPECT_EQ(ask(post("/v2/models/a%zz/infer", "{}")).status, 400);
  const auto refused = server.all_refused();
  ASSERT_EQ(refused.size(), 7u);
  for (const auto& [model, code] : refused) EXPECT_EQ(model, "echo");
  EXPECT_EQ(
      std::count_if(refused.begin(), refused.end(), [](const auto& one) { return one.second == Code::kOverloaded; }),
      1);
}

TEST_F(Http, TargetsMayNameTheServer) {
  start();
  EXPECT_EQ(ask(get("http://somewhere:80/v2/health/live")).status, 200);
  EXPECT_EQ(ask(get("HTTPS://somewhere/v2/health/live?x=/v2")).status, 200);
  EXPECT_EQ(ask(get("http://somewhere")).status, 404);
  EXPECT_EQ(ask(get("http://somewhere?/v2/health/live")).status, 404);
  EXPECT_EQ(ask(get("ftp://somewhere/v2/health/live")).status, 400);
  EXPECT_EQ(ask(get("http:/v2/health/live")).status, 400);
}

TEST_F(Http, HeadIsGetWithoutTheBody) {
  start();
  Wire wire(front->port());
  wire.send("HEAD /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\nHEAD /v2 HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string text = ask(get("/v2")).body;
  const auto head = [&] {
    std::string all;
    while (!all.ends_with("\r\n\r\n")) all += wire.byte();
    return all;
  };
  EXPECT_TRUE(head().starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(head(), HasSubstr("Content-Length: " + std::to_string(text.size()) + "\r\n"));
  EXPECT_EQ(wire.send(get("/v2")).answer()->body, text);  // nothing stands between
  EXPECT_EQ(wire.send("HEAD /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\n\r\n").byte(), "H");
}

TEST_F(Http, TheSchemeOfATokenIsOfAnyCase) {
  HttpOptions options;
  options.management_token = "0123456789abcdef";
  start(options);
  for (const char* scheme : {"Bearer ", "bearer ", "BEARER ", "bearer  "})
    EXPECT_EQ(ask(post("/v2/logging", "{}", std::string("Authorization: ") + scheme + "0123456789abcdef\r\n")).status,
              200)
        << scheme;
  for (const char* wrong : {"bearer", "bearer ", "Basic 0123456789abcdef", "bearer0123456789abcdef",
                            "bearer 0123456789ABCDEF", "bearer 0123456789abcdef 0123456789abcdef"})
    EXPECT_EQ(ask(post("/v2/logging", "{}", std::string("Authorization: ") + wrong + "\r\n")).status, 401) << wrong;
}

// A client that ends its side waits for the answer; one that has gone does not.
TEST_F(Http, AHalfClosedConnectionIsAnswered) {
  server.at_once = nullptr;
  start();
  const std::string request = post("/v2/models/echo/infer", "{\"inputs\":" + one("FP32", "[1]", "[1]") + "}");
  Wire wire(front->port());
  wire.send(request).end();
  const auto asked = server.take(1);
  EXPECT_EQ(wire.answer()->status, 100);  // which asks whether the client is there
  answer(server, *asked[0]);
  EXPECT_EQ(wire.answer()->status, 200);
  EXPECT_TRUE(wire.closed());
  std::shared_ptr<FakeServer::Asked> left;
  {
    Wire other(front->port());
    other.send(request).end();
    left = server.take(1)[0];
  }
  server.wait_cancelled(*left);
  Wire old(front->port());
  old.send("POST /v2/models/echo/infer HTTP/1.0" + request.substr(request.find("\r\n"))).end();
  answer(server, *server.take(1)[0]);
  EXPECT_EQ(old.answer()->status, 200);
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(text.size() + 128, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

TEST_F(Http, MembersOfGzipAreOneText) {
  start();
  const std::string text = "{\"inputs\":" + one("FP32", "[1]", "[1]") + "}";
  const auto status = [&](const std::string& packed) {
    return ask(post("/v2/models/echo/infer", packed, "Content-Encoding: gzip\r\n")).status;
  };
  EXPECT_EQ(status(gzip(text)), 200);
  EXPECT_EQ(status(gzip(text.substr(0, 20)) + gzip("") + gzip(text.substr(20))), 200);
  EXPECT_EQ(status(gzip(text) + "x"), 400);
  EXPECT_EQ(status(gzip(text) + "\x1f\x8b"), 400);  // half a member
  EXPECT_EQ(status(gzip(text) + gzip("}")), 400);
  const std::string zeros = gzip(std::string(700000, ' '));
  EXPECT_EQ(status(gzip(text) + zeros), 200);
  EXPECT_EQ(status(gzip(text) + zeros + zeros), 413);  // all of them count
}

}  // namespace
}  // namespace sluice::serving::test
