// The server within a program, where the program does what it should not: nothing hangs, nothing ends the process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <stdexcept>

#include "include/sluice/serving.hpp"

namespace sluice::api::serving {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class LibraryServer : public testing::Test {
 protected:
  LibraryServer() {
    std::string path = testing::TempDir() + "/sluice-library-XXXXXX";
    EXPECT_NE(::mkdtemp(path.data()), nullptr);
    options.repositories = {path};
  }
  ~LibraryServer() override { std::filesystem::remove_all(options.repositories[0]); }
  template <class Function>
  static std::string refused(const Function& function) {
    try {
      function();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      return error.what();
    }
    ADD_FAILURE() << "nothing is thrown";
    return "";
  }
  Options options;
};

TEST_F(LibraryServer, WithoutAFunctionToAnswerByNothingStarts) {
  Server server(options);
  EXPECT_THAT(refused([&] { server.start({.model = "m"}, nullptr); }), HasSubstr("start: respond: no function"));
  EXPECT_TRUE(server.stop(milliseconds(0)));
}

TEST_F(LibraryServer, WhatARespondThrowsIsTheProgramsAffair) {
  Server server(options);
  int calls = 0;
  server.start({.model = "m"}, [&](Response, bool) {
    ++calls;
    throw std::runtime_error("no");
  });
  server.start({.model = "m"}, [&](Response, bool) {
    ++calls;
    throw 7;
  });
  EXPECT_EQ(calls, 2);
}

TEST_F(LibraryServer, WhatWouldWaitForItselfIsRefusedWithinRespond) {
  Server server(options), other(options);
  int calls = 0;
  server.start({.model = "m"}, [&](const Response& response, bool last) {
    EXPECT_TRUE(last);
    EXPECT_TRUE(response.error.has_value());
    for (const std::string& said :
         {refused([&] { server.stop(std::chrono::hours(1)); }), refused([&] { server.infer({.model = "m"}); }),
          refused([&] { server.load("m"); }), refused([&] { server.unload("m"); })})
      EXPECT_THAT(said, HasSubstr("it is called by respond()"));
    EXPECT_EQ(server.call("POST", "/v2/repository/models/m/load").status, 400);
    EXPECT_EQ(server.call("GET", "/v2").status, 200);
    server.start({.model = "n"}, [&](Response, bool) {
      ++calls;
      EXPECT_THAT(refused([&] { server.stop(milliseconds(0)); }), HasSubstr("respond()"));
    });
    EXPECT_THAT(refused([&] { server.stop(milliseconds(0)); }), HasSubstr("respond()"));  // still within the first
    EXPECT_TRUE(other.stop(milliseconds(0)));
    ++calls;
  });
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(server.stop(milliseconds(0)));
}

TEST_F(LibraryServer, MayEndWithinRespond) {
  auto server = std::make_unique<Server>(options);
  Server* const it = server.get();
  bool told = false;
  it->start({.model = "m"}, [&](Response, bool) {
    server.reset();
    told = true;
  });
  EXPECT_TRUE(told);
  Server first(options), second(options);
  first.start({.model = "m"}, [&](Response, bool) { first = std::move(second); });
  EXPECT_TRUE(first.stop(milliseconds(0)));
}

TEST_F(LibraryServer, ListensWithinTls) {
  const std::string files = SLUICE_SOURCE_DIR "/tests/serving/tls/";
  const Tls tls{.on = true, .certificate = files + "server.pem", .key = files + "server.key"};
  options.http = {.on = true, .tls = tls};
  options.grpc = {.on = true, .tls = tls};
  Server server(options);
  EXPECT_NE(server.http_port(), 0);
  EXPECT_NE(server.grpc_port(), 0);
  options.grpc.tls.key = files + "none";
  EXPECT_THAT(refused([&] { Server other(options); }), HasSubstr("grpc: key '" + files + "none': No such file"));
}

TEST_F(LibraryServer, WhatHasBeenMovedFromSaysSo) {
  Server from(options);
  Server server = std::move(from);
  const std::function<void()> calls[] = {
      [&] { from.http_port(); },
      [&] { from.grpc_port(); },
      [&] { from.metrics_port(); },
      [&] { from.ready(); },
      [&] { from.model_ready("m"); },
      [&] { from.wait_ready(milliseconds(0)); },
      [&] { from.load("m"); },
      [&] { from.unload("m"); },
      [&] { from.infer({.model = "m"}); },
      [&] { from.start({.model = "m"}, [](Response, bool) {}); },
      [&] { from.call("GET", "/v2"); },
      [&] { from.call("GET", "/metrics"); },
      [&] { from.stop(milliseconds(0)); },
  };
  for (const auto& call : calls) EXPECT_THAT(refused(call), HasSubstr("it has been moved from"));
  EXPECT_TRUE(server.stop(milliseconds(0)));
}

}  // namespace
}  // namespace sluice::api::serving
