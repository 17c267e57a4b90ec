#pragma once
// An HTTP front end of a server without models, and a client that sends bytes as they stand in the test.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <cctype>
#include <cstring>
#include <map>
#include <optional>
#include <string>

#include "../fake_server.h"
#include "serving/http/http_server.h"

namespace sluice::serving::test {

namespace json = boost::json;
using ::testing::HasSubstr;

struct Answer {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  json::value json() const {
    boost::system::error_code error;
    json::value value = boost::json::parse(body, error);
    EXPECT_FALSE(error) << body;
    return value;
  }
  std::string error() const {
    const json::value value = json();
    if (!value.is_object() || value.get_object().size() != 1 || !value.get_object().contains("error")) return "";
    return std::string(value.get_object().at("error").get_string());
  }
};

// A connection of bytes.
class Wire {
 public:
  explicit Wire(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{kPatience.count(), 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~Wire() { ::close(socket_); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // Bytes that are left when the server has closed are not sent.
  Wire& send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) break;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return *this;
  }
  // Nothing when the server has closed the connection.
  std::optional<Answer> answer() {
    size_t end = 0;
    while ((end = rest_.find("\r\n\r\n")) == std::string::npos)
      if (!more()) return std::nullopt;
    Answer answer;
    answer.status = std::atoi(rest_.c_str() + std::strlen("HTTP/1.1 "));
    for (size_t at = rest_.find("\r\n") + 2; at < end;) {
      const size_t colon = rest_.find(':', at), line = rest_.find("\r\n", at);
      std::string name = rest_.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      answer.headers[name] = rest_.substr(colon + 2, line - colon - 2);
      at = line + 2;
    }
    rest_.erase(0, end + 4);
    if (answer.status == 100) return answer;
    const auto length = static_cast<size_t>(std::atoll(answer.headers["content-length"].c_str()));
    while (rest_.size() < length)
      if (!more()) return std::nullopt;
    answer.body = rest_.substr(0, length);
    rest_.erase(0, length);
    return answer;
  }
  // The next chunk of a body in chunks; "" at its end, or when the server has closed the connection.
  std::string chunk() {
    size_t end = 0;
    while ((end = rest_.find("\r\n")) == std::string::npos)
      if (!more()) return "";
    const auto size = static_cast<size_t>(std::stoul(rest_.substr(0, end), nullptr, 16));
    while (rest_.size() < end + 2 + size + 2)
      if (!more()) return "";
    const std::string text = rest_.substr(end + 2, size);
    rest_.erase(0, end + 2 + size + 2);
    return text;
  }
  bool closed() { return rest_.empty() && !more(); }
  // Sends nothing more, but goes on reading.
  void end() { ::shutdown(socket_, SHUT_WR); }
  std::string byte() {
    if (rest_.empty() && !more()) ADD_FAILURE() << "the server has closed the connection";
    const std::string first = rest_.substr(0, 1);
    rest_.erase(0, 1);
    return first;
  }

 private:
  bool more() {
    char bytes[4096];
    const ssize_t n = ::recv(socket_, bytes, sizeof bytes, 0);
    if (n < 0 && errno == EAGAIN) ADD_FAILURE() << "the server says nothing";
    if (n > 0) rest_.append(bytes, static_cast<size_t>(n));
    return n > 0;
  }
  int socket_;
  std::string rest_;
};

inline std::string get(const std::string& path, const std::string& headers = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n";
}
inline std::string post(const std::string& path, const std::string& body, const std::string& headers = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + headers +
         "\r\n" + body;
}
// A request for inference: JSON, and what follows it.
inline std::string infer(const std::string& head, const std::string& binary = "", const std::string& headers = "") {
  return post("/v2/models/echo/infer", head + binary,
              headers + "Inference-Header-Content-Length: " + std::to_string(head.size()) + "\r\n");
}

class Http : public testing::Test {
 protected:
  Http() { server.at_once = echo; }
  void start(HttpOptions options = {}) {
    options.max_input = std::min<size_t>(options.max_input, size_t{1} << 20);
    front = std::make_unique<HttpServer>(server, options);
  }
  Answer ask(const std::string& request) {
    Wire wire(front->port());
    const std::optional<Answer> answer = wire.send(request).answer();
    EXPECT_TRUE(answer.has_value()) << request.substr(0, 200);
    return answer.value_or(Answer{});
  }

  FakeServer server;
  std::unique_ptr<HttpServer> front;
};

}  // namespace sluice::serving::test
