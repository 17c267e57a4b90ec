// A service with HTTP of its own that runs a bundle, be it one that trains.
//
//   cpp_service BUNDLE PORT [RANK SIZE MASTER_PORT]
//
// POST /step: the inputs' bytes, one after the other; the answer has the outputs' bytes. GET /ports: what they are.
// POST /stop ends it. A bundle of several ranks runs in this one process, or, with RANK, as one of SIZE such services;
// then SLUICE_TOKEN must hold the same text in all of them. PORT 0 is one that is free; it is told on the first line.
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sluice/sluice.hpp>

using namespace sluice::api;
namespace http = boost::beast::http;
using tcp = boost::asio::ip::tcp;
using Request = http::request<http::string_body>;
using Response = http::response<http::string_body>;

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
  }
  response.prepare_payload();
  return response;
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
  boost::asio::io_context io;
  tcp::acceptor acceptor(io, {boost::asio::ip::make_address("127.0.0.1"), static_cast<uint16_t>(std::atoi(argv[2]))});
  std::printf("%d\n", acceptor.local_endpoint().port());
  std::fflush(stdout);
  for (bool stop = false; !stop;) {
    tcp::socket socket = acceptor.accept();
    boost::beast::flat_buffer buffer;
    http::request_parser<http::string_body> parser;
    parser.body_limit(64 << 20);
    boost::system::error_code error;
    http::read(socket, buffer, parser, error);
    if (error) continue;  // whoever it was has gone, or spoke no HTTP
    const Response response = answer(session, parser.get());
    http::write(socket, response, error);
    stop = parser.get().target() == "/stop";
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
