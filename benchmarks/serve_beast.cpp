// The peer of serve.health, serve.tiny and serve.overhead: the least that a server of Beast's does for a request. One
// thread reads it whole and gives its body back, of a long one the first 4 KiB; a GET gets nothing, or what sluice-perf
// wants to know of a model. Prints its port.
// usage: serve_beast MODEL NAME:DATATYPE:DIMS, as in digits INPUT_0:FP32:1,1,8,8
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kMostGivenBack = 4096;

struct Model {
  std::string path, metadata, config;
};

Model model_of(const std::string& name, const std::string& port) {
  const size_t type = port.find(':'), dims = port.rfind(':');
  const std::string quoted = "{\"name\":\"" + name + "\"";
  return {"/v2/models/" + name,
          quoted + ",\"versions\":[\"1\"],\"platform\":\"beast\",\"outputs\":[],\"inputs\":[{\"name\":\"" +
              port.substr(0, type) + "\",\"datatype\":\"" + port.substr(type + 1, dims - type - 1) + "\",\"shape\":[" +
              port.substr(dims + 1) + "]}]}",
          quoted + ",\"max_batch_size\":0}"};
}

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, const Model& model) : stream_(std::move(socket)), model_(model) {
    stream_.socket().set_option(tcp::no_delay(true));
  }

  void read() {
    request_ = {};
    http::async_read(stream_, buffer_, request_, [self = shared_from_this()](error_code error, size_t) {
      if (!error) self->answer();
    });
  }

 private:
  void answer() {
    response_ = {http::status::ok, request_.version()};
    response_.keep_alive(request_.keep_alive());
    if (request_.method() == http::verb::post) {
      response_.body() = std::move(request_.body());
      if (response_.body().size() > kMostGivenBack) response_.body().resize(kMostGivenBack);
    } else if (request_.target() == model_.path) {
      response_.body() = model_.metadata;
    } else if (request_.target() == model_.path + "/config") {
      response_.body() = model_.config;
    } else if (request_.target().ends_with("/stats")) {
      response_.body() = "{\"model_stats\":[]}";
    }
    response_.prepare_payload();
    http::async_write(stream_, response_, [self = shared_from_this()](error_code error, size_t) {
      if (!error && self->request_.keep_alive()) self->read();
    });
  }

  beast::tcp_stream stream_;
  const Model& model_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  http::response<http::string_body> response_;
};

void accept(tcp::acceptor& acceptor, const Model& model) {
  acceptor.async_accept([&](error_code error, tcp::socket socket) {
    if (!error) std::make_shared<Connection>(std::move(socket), model)->read();
    accept(acceptor, model);
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fputs("usage: serve_beast MODEL NAME:DATATYPE:DIMS\n", stderr), 2;
  const Model model = model_of(argv[1], argv[2]);
  asio::io_context context(1);
  tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
  std::printf("%u\n", acceptor.local_endpoint().port());
  std::fflush(stdout);
  accept(acceptor, model);
  context.run();
}
