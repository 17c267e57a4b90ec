// Requests that two readers could take for different ones (request smuggling), on raw sockets: each is refused, its
// connection closed, and what stands behind it is not taken for a request.
#include "fixture.h"

namespace sluice::serving::test {
namespace {

struct Strict {
  const char* name;
  std::string request;
  int status;
};

std::string index(const std::string& headers, const std::string& body = "{}") {
  return "POST /v2/repository/index HTTP/1.1\r\n" + headers + "\r\n" + body;
}
std::string live(const std::string& headers) { return "GET /v2/health/live HTTP/1.1\r\n" + headers + "\r\n"; }

const Strict kStrict[] = {
    {"encoding_gzip_then_length", index("Host: x\r\nTransfer-Encoding: gzip\r\nContent-Length: 2\r\n"), 400},
    {"encoding_gzip", index("Host: x\r\nTransfer-Encoding: gzip\r\n", ""), 501},
    {"chunked_then_length", index("Host: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n", "0\r\n\r\n"), 400},
    {"length_then_chunked", index("Host: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
    {"chunked_twice", index("Host: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
     400},
    {"chunked_in_a_list", index("Host: x\r\nTransfer-Encoding: chunked, gzip\r\n", ""), 501},
    {"chunked_behind_identity", index("Host: x\r\nTransfer-Encoding: identity, chunked\r\n", "0\r\n\r\n"), 501},
    {"chunked_with_a_tab",
     index("Host: x\r\nTransfer-Encoding:\x0b"
           "chunked\r\n",
           "0\r\n\r\n"),
     400},
    {"lengths_that_differ", index("Host: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n"), 400},
    {"lengths_that_are_equal", index("Host: x\r\nContent-Length: 2\r\nContent-Length: 2\r\n"), 400},
    {"lengths_in_a_list", index("Host: x\r\nContent-Length: 2, 2\r\n"), 400},
    {"space_before_colon", live("Host : x\r\n"), 400},
    {"tab_before_colon", live("Host: x\r\nA\t: b\r\n"), 400},
    {"length_with_plus", index("Host: x\r\nContent-Length: +2\r\n"), 400},
    {"length_negative", index("Host: x\r\nContent-Length: -2\r\n"), 400},
    {"length_hexadecimal", index("Host: x\r\nContent-Length: 0x2\r\n"), 400},
    {"length_empty", index("Host: x\r\nContent-Length:\r\n"), 400},
    {"length_beyond_64_bits", index("Host: x\r\nContent-Length: 18446744073709551621\r\n"), 400},
    {"length_of_a_tebibyte", index("Host: x\r\nContent-Length: 1099511627776\r\n", ""), 413},
    {"bare_line_feed", "GET /v2/health/live HTTP/1.1\nHost: x\r\n\r\n", 400},
    {"bare_line_feed_in_a_field", live("Host: x\nContent-Length: 5\r\n"), 400},
    {"bare_carriage_return", live("Host: x\rContent-Length: 5\r\n"), 400},
    {"folded_line", live("Host: x\r\nA: b\r\n c\r\n"), 400},
    {"folded_host", live("Host:\r\n x\r\n"), 400},
    {"no_host", live(""), 400},
    {"two_hosts", live("Host: x\r\nHost: y\r\n"), 400},
    {"no_name", live("Host: x\r\n: b\r\n"), 400},
    {"no_colon", live("Host: x\r\nabc\r\n"), 400},
    {"zero_in_a_field", live(std::string("Host: x\r\nA: b\0c\r\n", 16)), 400},
    {"zero_in_the_target", std::string("GET /v2\0 HTTP/1.1\r\nHost: x\r\n\r\n", 31), 400},
    {"space_in_the_target", "GET /v2/health/live x HTTP/1.1\r\nHost: x\r\n\r\n", 400},
    {"no_protocol", "GET /v2/health/live\r\nHost: x\r\n\r\n", 400},
    {"protocol_3", "GET /v2/health/live HTTP/3.0\r\nHost: x\r\n\r\n", 400},
    {"protocol_of_2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
    {"chunked_of_1_0", "POST /v2/repository/index HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     400},
    {"header_length_twice",
     "POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nInference-Header-Content-Length: 2\r\n"
     "Inference-Header-Content-Length: 1\r\n\r\n{}",
     400},
    {"long_header", live("Host: x\r\nA: " + std::string(20000, 'a') + "\r\n"), 431},
    {"unknown_expectation", index("Host: x\r\nContent-Length: 2\r\nExpect: tea\r\n"), 417},
    {"tls", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15), 400},
};

class HttpStrict : public Http, public testing::WithParamInterface<Strict> {};

TEST_P(HttpStrict, IsRefusedAndTheConnectionClosed) {
  start();
  Wire wire(front->port());
  // A reader that took the first one otherwise would take this for a request of its own.
  const auto answer = wire.send(GetParam().request + get("/v2/models/smuggled/ready")).answer();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, GetParam().status) << answer->body;
  EXPECT_NE(answer->error(), "") << answer->body;
  EXPECT_EQ(answer->headers.at("content-type"), "application/json");
  if (answer->headers.at("connection") == "close") {
    EXPECT_TRUE(wire.closed());
  } else {  // it is known where the next one begins, so that is answered
    EXPECT_EQ(GetParam().status, 417);
    EXPECT_EQ(wire.answer()->status, 404);
  }
  EXPECT_EQ(ask(get("/v2/health/live")).status, 200);
}

INSTANTIATE_TEST_SUITE_P(Section9, HttpStrict, testing::ValuesIn(kStrict),
                         [](const auto& info) { return std::string(info.param.name); });

struct Chunks {
  const char* name;
  std::string body;
  bool answered = true;  // where it may still go on, its connection is closed in time
};
const Chunks kChunks[] = {
    {"no_hexadecimal", "zz\r\n{}\r\n0\r\n\r\n"}, {"negative", "-2\r\n{}\r\n0\r\n\r\n"},
    {"prefix", "0x2\r\n{}\r\n0\r\n\r\n"},        {"beyond_64_bits", "10000000000000002\r\n{}\r\n0\r\n\r\n"},
    {"too_long", "1\r\n{}\r\n0\r\n\r\n"},        {"bare_line_feed", "2\n{}\n0\n\n", false},
    {"no_size", "\r\n{}\r\n0\r\n\r\n"},
};
class HttpChunks : public Http, public testing::WithParamInterface<Chunks> {};

TEST_P(HttpChunks, ThatCannotBeReadAreRefused) {
  HttpOptions options;
  if (!GetParam().answered) options.body_timeout = milliseconds(100);
  start(options);
  Wire wire(front->port());
  const auto answer =
      wire.send("POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + GetParam().body)
          .answer();
  ASSERT_EQ(answer.has_value(), GetParam().answered);
  if (answer) {
    EXPECT_EQ(answer->status, 400);
    EXPECT_EQ(answer->headers.at("connection"), "close");
  }
  EXPECT_TRUE(wire.closed());
}

INSTANTIATE_TEST_SUITE_P(Section9, HttpChunks, testing::ValuesIn(kChunks),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(Http, PostsWithoutLengthHaveNoBody) {
  start();
  Wire wire(front->port());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(wire.send(index("Host: x\r\n", "")).answer()->status, 200);
}

TEST_F(Http, ContinuesWhereItIsExpected) {
  start();
  Wire wire(front->port());
  wire.send(index("Host: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n", ""));
  EXPECT_EQ(wire.answer()->status, 100);
  EXPECT_EQ(wire.send("{}").answer()->status, 200);
}

}  // namespace
}  // namespace sluice::serving::test
