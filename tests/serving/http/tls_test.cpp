// HTTP within TLS: the same requests and answers; who speaks no TLS, or has no certificate where one is asked for,
// gets none.
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>

#include "fixture.h"

namespace sluice::serving::test {
namespace {

namespace asio = boost::asio;
namespace ssl = asio::ssl;

std::string file(const std::string& name) { return SLUICE_SOURCE_DIR "/tests/serving/tls/" + name; }

class HttpTls : public Http {
 protected:
  HttpTls() {
    options.tls.on = true;
    options.tls.certificate = file("server.pem");
    options.tls.key = file("server.key");
  }
  std::string refusal() {
    try {
      start(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      return error.what();
    }
    return "";
  }
  HttpOptions options;
};

// A client that trusts the tests' authority alone.
class Client {
 public:
  explicit Client(uint16_t port, bool certificate = false) {
    context_.load_verify_file(file("ca.pem"));
    if (certificate) {
      context_.use_certificate_chain_file(file("client.pem"));
      context_.use_private_key_file(file("client.key"), ssl::context::pem);
    }
    stream_.emplace(io_, context_);
    stream_->set_verify_mode(ssl::verify_peer);
    stream_->set_verify_callback(ssl::host_name_verification("127.0.0.1"));
    stream_->next_layer().connect({asio::ip::make_address("127.0.0.1"), port});
    stream_->handshake(ssl::stream_base::client);
  }
  void send(const std::string& text) { asio::write(*stream_, asio::buffer(text)); }
  // Everything up to the end of a body with a length.
  std::string answer() {
    while (text_.find("\r\n\r\n") == std::string::npos) more();
    const size_t head = text_.find("\r\n\r\n") + 4, field = text_.find("Content-Length: ");
    const size_t length = field < head ? std::stoul(text_.substr(field + 16)) : 0;
    while (text_.size() < head + length) more();
    std::string answer = text_.substr(0, head + length);
    text_.erase(0, head + length);
    return answer;
  }
  void shutdown() {
    boost::system::error_code error;
    stream_->shutdown(error);
  }

 private:
  void more() {
    char bytes[65536];
    text_.append(bytes, stream_->read_some(asio::buffer(bytes)));
  }
  asio::io_context io_;
  ssl::context context_{ssl::context::tls_client};
  std::optional<ssl::stream<asio::ip::tcp::socket>> stream_;
  std::string text_;
};

TEST_F(HttpTls, RequestsAndAnswersAreAsWithoutIt) {
  start(options);
  Client client(front->port());
  client.send(get("/v2/health/live"));
  EXPECT_TRUE(client.answer().starts_with("HTTP/1.1 200 OK"));
  const std::string binary(size_t{400} << 10, '\x01');  // many records
  const std::string head =
      R"({"parameters":{"binary_data_output":true},"inputs":[{"name":"x","datatype":"UINT8","shape":[409600],)"
      R"("parameters":{"binary_data_size":409600}}]})";
  for (int i = 0; i < 3; ++i) {
    client.send(infer(head, binary));
    const std::string answer = client.answer();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK"));
    EXPECT_TRUE(answer.ends_with(binary));
  }
  client.send(post("/v2/models/echo/infer", "{"));
  EXPECT_TRUE(client.answer().starts_with("HTTP/1.1 400"));
  client.shutdown();
  // A client that speaks no TLS learns nothing, and holds up nobody.
  Wire plain(front->port());
  plain.send(get("/v2/health/live"));
  EXPECT_FALSE(plain.answer().has_value());
  Client other(front->port());
  other.send(get("/v2/health/live"));
  EXPECT_TRUE(other.answer().starts_with("HTTP/1.1 200 OK"));
}

TEST_F(HttpTls, AClientThatGoesAwayEndsItsRequest) {
  server.at_once = nullptr;
  start(options);
  std::shared_ptr<FakeServer::Asked> asked;
  {
    Client client(front->port());
    client.send(post("/v2/models/echo/infer", R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]})"));
    asked = server.take(1)[0];
    client.send(get("/v2/health/live"));  // its next request is no end
  }
  server.wait_cancelled(*asked);
}

TEST_F(HttpTls, WhereClientsNeedCertificatesOthersAreNotLetIn) {
  options.tls.mutual = true;
  options.tls.root = file("ca.pem");
  start(options);
  Client client(front->port(), true);
  client.send(get("/v2/health/live"));
  EXPECT_TRUE(client.answer().starts_with("HTTP/1.1 200 OK"));
  EXPECT_THROW(
      {
        Client stranger(front->port());
        stranger.send(get("/v2/health/live"));
        stranger.answer();  // with TLS 1.3 it learns of it here
      },
      boost::system::system_error);
}

TEST_F(HttpTls, WhatIsWrongWithItsFilesIsSaidAtTheStart) {
  options.tls.key = "";
  EXPECT_EQ(refusal(), "http: TLS needs the server's certificate and its key");
  options.tls.key = file("client.key");
  EXPECT_THAT(refusal(), HasSubstr("http: key '" + file("client.key") + "': "));  // another's
  options.tls.key = "/no/such/key";
  EXPECT_EQ(refusal(), "http: key '/no/such/key': No such file or directory");
  options.tls.key = file("README.md");
  EXPECT_THAT(refusal(), HasSubstr("it is no PEM"));
  options.tls.key = file("server.key");
  options.tls.mutual = true;
  EXPECT_THAT(refusal(), HasSubstr("say by a root certificate"));
  options.tls = {};
  options.tls.certificate = file("server.pem");
  EXPECT_THAT(refusal(), HasSubstr("TLS is off"));
}

}  // namespace
}  // namespace sluice::serving::test
