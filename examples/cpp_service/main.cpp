// A service with HTTP of its own that runs a bundle, be it one that trains, for many clients at once.
//
//   cpp_service BUNDLE PORT [RANK SIZE MASTER_PORT]
//
// POST /step: the inputs' bytes, one after the other; the answer has the outputs' bytes. GET /ports: what they are.
// POST /stop ends it. A bundle of several ranks runs in this one process, or, with RANK, as one of SIZE such services;
// then SLUICE_TOKEN must hold the same text in all of them. PORT 0 is one that is free; it is told on the first line.
//
// A client that is slow or silent costs a socket and holds up nobody: reading and writing never block, and end after
// kPatience. A thread is busy only while it waits for a step. Steps of several clients overlap in the session.
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <sluice/sluice.hpp>
#include <thread>
#include <vector>

using namespace sluice::api;
namespace asio = boost::asio;
namespace http = boost::beast::http;
using tcp = boost::asio::ip::tcp;
using Request = http::request<http::string_body>;
using Response = http::response<http::string_body>;
using ErrorCode = boost::system::error_code;

constexpr auto kPatience = std::chrono::seconds(60);  // with a client, for a request or for taking the answer
constexpr size_t kLongestBody = 64 << 20;

static std::string step(Session& session, const std::string& body) {
  std::vector<Tensor> inputs;
  size_t at = 0;
  for (const Port& port : session.inputs()) {
    Tensor& input = inputs.emplace_back(port.dtype, port.shape);
    if (body.size() - at < input.bytes()) throw Error(ErrorKind::kValue, "step: the body ends within " + port.str());
    std::memcpy(input.raw(), body.data() + at, input.bytes());
    at += input.bytes();
  }
  if (at != body.size()) throw Error(ErrorKind::kValue, "step: the body has more than the inputs");
  std::string answer;
  for (const Tensor& output : session.run(inputs))
    answer.append(static_cast<const char*>(output.raw()), output.bytes());
  return answer;
}

static Response answer(Session& session, const Request& request) {
  Response response(http::status::ok, request.version());
  try {
    if (request.target() == "/step") {
      response.body() = step(session, request.body());
    } else if (request.target() == "/ports") {
      for (const Port& port : session.inputs()) response.body() += "input " + port.str() + "\n";
      for (const Port& port : session.outputs()) response.body() += "output " + port.str() + "\n";
    } else if (request.target() != "/stop") {
      response.result(http::status::not_found);
    }
  } catch (const Error& error) {
    response.result(http::status::bad_request);
    response.body() = error.what();
  } catch (const std::exception& error) {  // out of memory
    response.result(http::status::internal_server_error);
    response.body() = error.what();
  }
  response.keep_alive(request.keep_alive());
  response.prepare_payload();
  return response;
}

// One client: reads a request, answers it, reads the next. Lives as long as something of it is under way.
class Client : public std::enable_shared_from_this<Client> {
 public:
  Client(tcp::socket socket, Session& session, asio::io_context& io)
      : stream_(std::move(socket)), session_(session), io_(io) {}

  void read() {
    parser_.emplace();
    parser_->body_limit(kLongestBody);
    stream_.expires_after(kPatience);
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](ErrorCode error, size_t) {
      if (!error) self->reply();  // else whoever it was has gone, said nothing for long, or spoke no HTTP
    });
  }

 private:
  void reply() {
    const bool stop = parser_->get().target() == "/stop";
    response_ = answer(session_, parser_->get());
    stream_.expires_after(kPatience);
    http::async_write(stream_, response_, [self = shared_from_this(), stop](ErrorCode error, size_t) {
      if (stop) self->io_.stop();
      if (!error && self->response_.keep_alive()) self->read();
    });
  }

  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  Response response_;
  Session& session_;
  asio::io_context& io_;
};

static void accept(tcp::acceptor& acceptor, Session& session, asio::io_context& io) {
  // A strand for each client: its handlers run one at a time, on any thread.
  acceptor.async_accept(asio::make_strand(io), [&](ErrorCode error, tcp::socket socket) {
    if (!error) std::make_shared<Client>(std::move(socket), session, io)->read();
    if (error == asio::error::no_descriptors) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    accept(acceptor, session, io);
  });
}

int main(int argc, char** argv) try {
  if (argc != 3 && argc != 6)
    return std::fprintf(stderr, "usage: cpp_service BUNDLE PORT [RANK SIZE MASTER_PORT]\n"), 2;
  Engine engine;
  if (argc == 6) {
    WorldOptions world;
    world.rank = std::atoi(argv[3]);
    world.size = std::atoi(argv[4]);
    world.master_port = std::atoi(argv[5]);
    if (const char* token = std::getenv("SLUICE_TOKEN")) world.token = token;
    engine.join(world);
  }
  Session session = Session::load(engine, argv[1]);
  asio::io_context io;
  tcp::acceptor acceptor(io, {asio::ip::make_address("127.0.0.1"), static_cast<uint16_t>(std::atoi(argv[2]))});
  std::printf("%d\n", acceptor.local_endpoint().port());
  std::fflush(stdout);
  accept(acceptor, session, io);
  std::vector<std::jthread> threads(8);  // steps that clients wait for at the same time
  for (std::jthread& thread : threads) thread = std::jthread([&io] { io.run(); });
  threads.clear();  // joins them, once somebody has said /stop
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
