#include "serving/http/http_server.h"

#include <fmt/format.h>

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
    std::vector<std::shared_ptr<Connection>> all;
    {
      const std::lock_guard lock(state->mutex);
      all.assign(state->connections.begin(), state->connections.end());
    }
    for (const auto& connection : all) close_connection(connection, now);
  }

  bool wait_for(std::chrono::milliseconds timeout) {
    std::unique_lock lock(state->mutex);
    return state->none_left.wait_for(lock, timeout, [this] { return state->connections.empty(); });
  }

  std::shared_ptr<HttpState> state;
  std::vector<Loop> loops;
  size_t accepted = 0;
  tcp::acceptor acceptor{loops.front().io};
  asio::steady_timer pause{loops.front().io};
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
  impl_->wait_for(std::chrono::hours(24));  // every request is answered, if only with kCancelled
  for (Loop& loop : impl_->loops) loop.io.stop();
  for (Loop& loop : impl_->loops) loop.thread.join();
  impl_->state->workers.join();
}

int HttpServer::connections() const {
  const std::lock_guard lock(impl_->state->mutex);
  return static_cast<int>(impl_->state->connections.size());
}

void HttpServer::stop_accepting() {
  if (!impl_->state->draining.exchange(true)) {
    asio::post(impl_->loops.front().io, [impl = impl_.get()] {
      boost::system::error_code ignored;
      impl->acceptor.close(ignored);
      impl->pause.cancel();
    });
  }
  impl_->close_all(false);
}

bool HttpServer::drain(std::chrono::milliseconds timeout) {
  stop_accepting();
  if (impl_->wait_for(timeout)) return true;
  impl_->close_all(true);
  return false;
}

}  // namespace sluice::serving
