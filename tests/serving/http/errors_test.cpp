// Errors as clients see them: a status for each kind, JSON in every body, and nothing of the inside.
#include "fixture.h"

namespace sluice::serving::test {
namespace {

struct Kind {
  Code code;
  int status;
};
constexpr Kind kKinds[] = {
    {Code::kInvalidArgument, 400}, {Code::kAlreadyExists, 400}, {Code::kCancelled, 400},  {Code::kForbidden, 403},
    {Code::kNotFound, 404},        {Code::kTooLarge, 413},      {Code::kOverloaded, 429}, {Code::kInternal, 500},
    {Code::kUnsupported, 501},     {Code::kUnavailable, 503},   {Code::kTimeout, 504},
};

TEST_F(Http, EveryKindOfErrorHasItsStatus) {
  start();
  for (const Kind& kind : kKinds) {
    server.at_once = [&](const InferRequest& request) {
      InferResponse response = echo(request);
      response.error = Error(kind.code, "a \"quoted\" error\n");
      return response;
    };
    server.fail = Error(kind.code, "a \"quoted\" error\n");
    for (const std::string& request :
         {post("/v2/models/echo/infer", R"({"inputs":[]})"), get("/v2/models/echo/config")}) {
      Wire wire(front->port());
      const auto answer = wire.send(request).answer();
      ASSERT_TRUE(answer.has_value());
      EXPECT_EQ(answer->status, kind.status);
      EXPECT_EQ(answer->error(), "a \"quoted\" error\n");
      EXPECT_EQ(answer->headers.at("content-type"), "application/json");
      EXPECT_EQ(answer->headers.contains("retry-after"), kind.status == 429 || kind.status == 503) << kind.status;
      EXPECT_EQ(wire.send(get("/v2/health/live")).answer()->status, 200);  // the connection goes on
    }
  }
}

TEST_F(Http, RefusalsSayWhenToAskAgain) {
  start();
  const auto after = [&](std::optional<milliseconds> wait) {
    server.fail = Error(Code::kOverloaded, "full", wait);
    return ask(get("/v2/models/echo/config")).headers.at("retry-after");
  };
  EXPECT_EQ(after({}), "1");
  EXPECT_EQ(after(milliseconds(1)), "1");  // whole seconds, and never none
  EXPECT_EQ(after(milliseconds(1001)), "2");
  EXPECT_EQ(after(milliseconds(60000)), "60");
}

TEST_F(Http, ErrorsTellNothingOfTheInside) {
  start();
  server.fail.reset();  // then it throws what only a defect would
  const Answer answer = ask(get("/v2/models/echo/config"));
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(answer.error(), "server: an unexpected error; its log says more");
}

struct Path {
  const char* name;
  std::string request;
  int status;
  const char* says;
};
const Path kPaths[] = {
    {"unknown_page", get("/v3"), 404, "Not Found"},
    {"root", get("/"), 404, "Not Found"},
    {"star", get("*"), 400, "begin with '/'"},
    {"no_target_slash", get("v2"), 400, "begin with '/'"},
    {"slash_behind", get("/v2/"), 404, "Not Found"},
    {"slashes", get("//v2"), 404, "Not Found"},
    {"dot_segment", get("/v2/./health/live"), 404, "Not Found"},
    {"method", get("/v2/models/echo/infer"), 405, "Method Not Allowed"},
    {"post_of_health", post("/v2/health/live", ""), 405, "Method Not Allowed"},
    {"unknown_method", "TEAPOT /v2 HTTP/1.1\r\nHost: x\r\n\r\n", 405, "Method Not Allowed"},
    {"unknown_model", get("/v2/models/nobody/ready"), 404, "Request for unknown model: 'nobody' is not found"},
    {"up", get("/v2/models/../ready"), 400, "a name has letters"},
    {"up_encoded", get("/v2/models/%2e%2e/ready"), 400, "a name has letters"},
    {"up_encoded_twice", get("/v2/models/%252e%252e/ready"), 400, "a name has letters"},
    {"slash_encoded", get("/v2/models/a%2fb/ready"), 400, "a name has letters"},
    {"backslash", get("/v2/models/a%5cb/ready"), 400, "a name has letters"},
    {"zero", get("/v2/models/a%00/ready"), 400, "a name has letters"},
    {"line_break", get("/v2/models/a%0d%0ab/ready"), 400, "a name has letters"},
    {"not_ascii", get("/v2/models/%C3%BC/ready"), 400, "a name has letters"},
    {"dot_first", get("/v2/models/.a/ready"), 400, "a name has letters"},
    {"empty", get("/v2/models//ready"), 400, "a name has letters"},
    {"long", get("/v2/models/" + std::string(129, 'a') + "/ready"), 400, "at most 128"},
    {"half_an_escape", get("/v2/models/a%4/ready"), 400, "two digits"},
    {"no_escape", get("/v2/models/a%zz/ready"), 400, "two digits"},
    {"blank_version", get("/v2/models/echo/versions/%20/ready"), 400, "a name has letters"},
    {"load_of_a_blank", post("/v2/repository/models/%20/load", "{}"), 400, "a name has letters"},
    {"unload_of_nothing", post("/v2/repository/models//unload", "{}"), 400, "a name has letters"},
    {"load_no_json", post("/v2/repository/models/m/load", "{"), 400, "JSON"},
    {"load_unknown_parameter", post("/v2/repository/models/m/load", R"({"parameters":{"x":"y"}})"), 400,
     "parameter 'x'"},
    {"load_file_no_base64", post("/v2/repository/models/m/load", R"({"parameters":{"file:1/a":"%%%"}})"), 400,
     "base64"},
    {"index_nested", post("/v2/repository/index", std::string(5000, '[')), 400, "JSON"},
    {"settings_no_object", post("/v2/logging", "[1]"), 400, "object"},
    {"large_body", "POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n", 413,
     "more than the 1048576 bytes"},
};
class HttpPaths : public Http, public testing::WithParamInterface<Path> {};

TEST_P(HttpPaths, EveryRefusalIsJson) {
  start();
  const Answer answer = ask(GetParam().request);
  EXPECT_EQ(answer.status, GetParam().status) << answer.body;
  EXPECT_THAT(answer.error(), HasSubstr(GetParam().says));
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  EXPECT_TRUE(server.loaded.empty());
}

INSTANTIATE_TEST_SUITE_P(Section5, HttpPaths, testing::ValuesIn(kPaths),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(Http, HealthIsEmptyAndItsStatusTells) {
  start();
  EXPECT_EQ(ask(get("/v2/health/ready")).body, "");
  server.ready_ = false;
  const Answer answer = ask(get("/v2/health/ready"));
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.body, "");
}

TEST_F(Http, ABasePathStandsBeforeEveryPath) {
  HttpOptions options;
  options.base_path = "/serving";
  start(options);
  EXPECT_EQ(ask(get("/serving/v2/health/live")).status, 200);
  EXPECT_EQ(ask(get("/v2/health/live")).status, 404);
}

TEST_F(Http, WhoManagesNeedsTheToken) {
  HttpOptions options;
  options.management_token = "0123456789abcdef";
  start(options);
  const std::string path = "/v2/repository/models/m/load";
  for (const char* header :
       {"", "Authorization: 0123456789abcdef\r\n", "Authorization: Bearer 0123456789abcdeg\r\n",
        "Authorization: Bearer 0123456789abcde\r\n", "Authorization: Bearer 0123456789abcdef0\r\n"}) {
    const Answer answer = ask(post(path, "{}", header));
    EXPECT_EQ(answer.status, 401) << header;
    EXPECT_EQ(answer.headers.at("www-authenticate"), "Bearer");
  }
  EXPECT_TRUE(server.loaded.empty());
  EXPECT_EQ(ask(post(path, "{}", "Authorization: Bearer 0123456789abcdef\r\n")).status, 200);
  EXPECT_TRUE(server.loaded.contains("m"));
  EXPECT_EQ(ask(get("/v2/logging")).status, 200);  // looking changes nothing
  EXPECT_EQ(ask(post("/v2/logging", "{}")).status, 401);
}

TEST_F(Http, RestrictedGroupsOfCallsNeedTheirHeader) {
  HttpOptions options;
  parse_restriction("--http-restricted-api", "health,model-repository:Admin-Key=let me in", options.restrictions);
  parse_restriction("--http-restricted-api", "inference:user=u", options.restrictions);
  start(options);
  const std::string head = R"({"inputs":[]})";
  const auto statuses = [&](const std::string& headers) {
    std::vector<int> all;
    for (const std::string& request :
         {get("/v2/health/live", headers), get("/v2/models/echo/ready", headers),
          post("/v2/repository/index", "", headers), post("/v2/models/echo/infer", head, headers),
          post("/v2/models/echo/generate", "{}", headers), get("/v2", headers), get("/v2/logging", headers)})
      all.push_back(ask(request).status);
    return all;
  };
  EXPECT_EQ(statuses(""), (std::vector<int>{403, 403, 403, 403, 403, 200, 200}));
  EXPECT_EQ(statuses("admin-key: let me\r\n"), (std::vector<int>{403, 403, 403, 403, 403, 200, 200}));
  EXPECT_EQ(statuses("admin-key: let me in\r\n"), (std::vector<int>{200, 200, 200, 403, 403, 200, 200}));
  EXPECT_EQ(statuses("User: u\r\n"), (std::vector<int>{403, 403, 403, 200, 200, 200, 200}));
  const Answer answer = ask(get("/v2/health/live"));
  EXPECT_EQ(answer.error(), "request: this API is restricted; it needs the header 'admin-key'");
}

TEST_F(Http, WithoutManagementNobodyManages) {
  HttpOptions options;
  options.management = false;
  start(options);
  EXPECT_EQ(ask(post("/v2/repository/models/m/load", "{}")).status, 403);
  EXPECT_EQ(ask(post("/v2/systemsharedmemory/region/r/register", "{}")).status, 403);
}

}  // namespace
}  // namespace sluice::serving::test
