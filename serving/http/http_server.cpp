#include "serving/http/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <thread>

#include "serving/http/connection.h"

namespace sluice::serving {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

// A thread with connections of its own: what happens to one of them wakes nobody else.
struct Loop {
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(io);
  std::thread thread;
};

}  // namespace

HttpState::HttpState(Server& server, HttpOptions given)
    : server(server),
      options(std::move(given)),
      memory(options.memory != nullptr ? options.memory : std::make_shared<MemoryBudget>(uint64_t{1} << 30)),
      workers(options.workers != nullptr ? options.workers
                                         : std::make_shared<Workers>(std::clamp<int>(
                                               static_cast<int>(std::thread::hardware_concurrency()), 2, 4))),
      buffers(size_t{256} << 20, memory),
      places(options.max_connections) {}

struct HttpServer::Impl {
  Impl(Server& server, HttpOptions options, int threads)
      : state(std::make_shared<HttpState>(server, std::move(options))), loops(static_cast<size_t>(threads)) {}

  void listen() {
    const HttpOptions& o = state->options;
    boost::system::error_code error;
    const auto address = asio::ip::make_address(o.address, error);
    if (error) throw Error(Code::kInvalidArgument, "http: address '" + o.address + "'; it must be one of IPv4 or IPv6");
    const tcp::endpoint endpoint(address, o.port);
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    using ReusePort = asio::detail::socket_option::boolean<SOL_SOCKET, SO_REUSEPORT>;
    if (!error && o.reuse_port) acceptor.set_option(ReusePort(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (error)
      throw Error(Code::kUnavailable,
                  fmt::format("http: cannot listen on {}:{}: {}; the port must be free and the address "
                              "one of this machine",
                              o.address, o.port, error.message()));
  }

  void accept() {
    Loop& next = loops[accepted++ % loops.size()];
    acceptor.async_accept(next.io, [this](boost::system::error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted || state->draining) return;
      if (!error) serve_connection(std::move(socket), state);
      if (!error) return accept();
      pause.expires_after(std::chrono::milliseconds(10));  // no descriptors are left, for now
      pause.async_wait([this](boost::system::error_code stopped) {
        if (!stopped) accept();
      });
    });
  }

  void close_all(bool now) {
    for (const Places::SeatPtr& seat : state->places.all()) seat->close(now);
  }

  // On the thread of the acceptor.
  void stop() {
    boost::system::error_code ignored;
    acceptor.close(ignored);
    pause.expires_after(state->options.half_timeout);
    pause.async_wait([this](boost::system::error_code stopped) {
      if (stopped) return;
      for (const Places::SeatPtr& seat : state->places.all()) seat->close_half();
    });
  }

  std::shared_ptr<HttpState> state;
  std::vector<Loop> loops;
  size_t accepted = 0;
  tcp::acceptor acceptor{loops.front().io};
  asio::steady_timer pause{loops.front().io};  // of accepting, and of closing
};

HttpServer::HttpServer(Server& server, HttpOptions options) {
  int threads = options.threads;
  if (threads <= 0) threads = std::clamp<int>(static_cast<int>(std::thread::hardware_concurrency()), 1, 4);
  if (options.metrics_only) threads = 1;
  impl_ = std::make_shared<Impl>(server, std::move(options), threads);
  impl_->listen();
  port_ = impl_->acceptor.local_endpoint().port();
  impl_->accept();
  for (Loop& loop : impl_->loops) loop.thread = std::thread([&loop] { loop.io.run(); });
}

HttpServer::~HttpServer() {
  drain(std::chrono::milliseconds(0));
  impl_->state->places.wait_for_none(std::chrono::hours(24));  // every request is answered, if only with kCancelled
  for (Loop& loop : impl_->loops) loop.io.stop();
  for (Loop& loop : impl_->loops) loop.thread.join();
  impl_->state->managers.join();
  impl_->state->workers->join();  // their last work may still let go of a loop
}

int HttpServer::connections() const { return static_cast<int>(impl_->state->places.count()); }

int HttpServer::idle_connections() const { return static_cast<int>(impl_->state->places.idle_count()); }

void HttpServer::stop_accepting() {
  if (!impl_->state->draining.exchange(true))
    asio::post(impl_->loops.front().io, [impl = impl_.get()] { impl->stop(); });
  impl_->close_all(false);
}

bool HttpServer::drain(std::chrono::milliseconds timeout) {
  stop_accepting();
  if (impl_->state->places.wait_for_none(timeout)) return true;
  impl_->close_all(true);
  return false;
}

}  // namespace sluice::serving
