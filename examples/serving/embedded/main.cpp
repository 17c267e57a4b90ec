// The inference server within a program that has an HTTP of its own: the models of a repository, behind the program's
// one endpoint. Everything else that the protocol knows is passed on as it is.
//
//   embedded REPOSITORY         prints its port, and ends when its standard input does
//
//   POST /scores/MODEL          a body of float32: the model's first output, as text
//   GET  /v2/...                metadata, statistics, health: what the server says
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <limits>
#include <sluice/serving.hpp>
#include <sstream>
#include <thread>

namespace serving = sluice::api::serving;

namespace {

struct Answer {
  int status = 200;
  std::string body;
};

// The program's own endpoint: who calls it need not know the protocol.
Answer scores(serving::Server& server, const std::string& model, const std::string& body) try {
  std::vector<float> values(body.size() / sizeof(float));
  std::memcpy(values.data(), body.data(), values.size() * sizeof(float));
  const auto count = static_cast<int64_t>(values.size());
  serving::Request request{.model = model};
  request.inputs.push_back(serving::Tensor::from("INPUT_0", sluice::api::Tensor::from(values, {1, count})));
  const sluice::api::Tensor output = server.infer(std::move(request)).outputs.at(0).tensor();
  std::ostringstream text;
  for (int64_t i = 0; i < output.size(); ++i) text << output.data<float>()[i] << "\n";
  return {200, text.str()};
} catch (const serving::Error& error) {
  const bool busy = error.code() == serving::Code::kOverloaded || error.code() == serving::Code::kUnavailable;
  return {busy ? 503 : 400, std::string(error.what()) + "\n"};
}

Answer answer(serving::Server& server, const std::string& method, const std::string& path, const std::string& body) {
  const std::string own = "/scores/";
  if (method == "POST" && path.compare(0, own.size(), own) == 0) return scores(server, path.substr(own.size()), body);
  const serving::Server::Reply reply = server.call(method, path, body);
  return {reply.status, reply.body};
}

// This is as little of HTTP as an example needs: one request of a connection.
void serve(serving::Server& server, int connection) {
  std::string data;
  const auto more = [&] {
    char buffer[1 << 14];
    const ssize_t n = ::recv(connection, buffer, sizeof buffer, 0);
    if (n > 0) data.append(buffer, static_cast<size_t>(n));
    return n > 0 && data.size() < (64u << 20u);
  };
  size_t end = 0;
  bool whole = true;
  while (whole && (end = data.find("\r\n\r\n")) == std::string::npos) whole = more();
  if (whole) {
    std::istringstream line(data);
    std::string method, path;
    line >> method >> path;
    const size_t length_at = data.find("Content-Length: ");
    const size_t length = length_at < end ? std::strtoull(data.c_str() + length_at + 16, nullptr, 10) : 0;
    while (whole && data.size() - end - 4 < length) whole = more();
    if (whole) {
      const Answer reply = answer(server, method, path, data.substr(end + 4, length));
      const std::string text = "HTTP/1.1 " + std::to_string(reply.status) +
                               " -\r\nConnection: close\r\nContent-Length: " + std::to_string(reply.body.size()) +
                               "\r\n\r\n" + reply.body;
      for (size_t at = 0; at < text.size();) {
        const ssize_t n = ::send(connection, text.data() + at, text.size() - at, MSG_NOSIGNAL);
        if (n <= 0) break;
        at += static_cast<size_t>(n);
      }
    }
  }
  ::close(connection);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: embedded REPOSITORY\n";
    return 2;
  }
  serving::Server server({.repositories = {argv[1]}});
  server.wait_ready(std::chrono::minutes(5));

  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener, 64) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::perror("embedded");
    return 1;
  }
  std::cout << ntohs(address.sin_port) << std::endl;

  std::thread accepting([&] {
    std::vector<std::thread> clients;
    for (int connection = 0; (connection = ::accept(listener, nullptr, nullptr)) >= 0;)
      clients.emplace_back([&server, connection] { serve(server, connection); });
    for (std::thread& client : clients) client.join();
  });
  std::cin.ignore(std::numeric_limits<std::streamsize>::max());
  ::shutdown(listener, SHUT_RDWR);  // accept() returns
  accepting.join();
  ::close(listener);
  return server.stop(std::chrono::seconds(30)) ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
