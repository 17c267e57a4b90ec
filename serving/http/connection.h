#pragma once
// One client. Only for the sources of this folder.
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/thread_pool.hpp>
#include <memory>

#include "serving/core/buffers.h"
#include "serving/http/client_stream.h"
#include "serving/http/http_server.h"
#include "serving/http/places.h"
#include "serving/http/workers.h"

namespace sluice::serving {

// The state that the connections of a front end share.
struct HttpState {
  HttpState(Server& server, HttpOptions given);

  Server& server;
  const HttpOptions options;
  const std::shared_ptr<MemoryBudget> memory;
  const std::shared_ptr<Workers> workers;  // for what takes long to compute
  BufferPool buffers;
  boost::asio::thread_pool managers{2};  // for calls that wait for models
  const std::shared_ptr<TlsContext> tls = make_tls(options.tls);
  std::atomic<bool> draining{false};
  Places places;
};

// Serves a client until it is gone, if there is a place for it.
void serve_connection(boost::asio::ip::tcp::socket socket, const std::shared_ptr<HttpState>& state);

}  // namespace sluice::serving
