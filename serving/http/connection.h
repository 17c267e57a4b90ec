#pragma once
// One client. Only for the sources of this folder.
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/thread_pool.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>

#include "serving/core/buffers.h"
#include "serving/http/client_stream.h"
#include "serving/http/http_server.h"

namespace sluice::serving {

class Connection;

// What the connections of a front end share.
struct HttpState {
  HttpState(Server& server, HttpOptions given) : server(server), options(std::move(given)) {}

  Server& server;
  const HttpOptions options;
  const std::shared_ptr<MemoryBudget> memory =
      options.memory != nullptr ? options.memory : std::make_shared<MemoryBudget>(uint64_t{1} << 30);
  BufferPool buffers{size_t{256} << 20};
  boost::asio::thread_pool workers{2};  // for what takes long
  const std::shared_ptr<TlsContext> tls = make_tls(options.tls);
  std::atomic<bool> draining{false};

  std::mutex mutex;
  std::condition_variable none_left;
  std::set<std::shared_ptr<Connection>> connections;
};

// Serves a client until it is gone. Takes itself out of `state->connections` in the end.
void serve_connection(boost::asio::ip::tcp::socket socket, const std::shared_ptr<HttpState>& state);
// Any thread. Closes a connection: at once, or, unless `now`, when it has no request.
void close_connection(const std::shared_ptr<Connection>& connection, bool now);

}  // namespace sluice::serving
