#pragma once
// The connection of a client, as it is or within TLS. Only for the sources of this folder.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "serving/core/tls.h"

namespace sluice::serving {

using TlsContext = boost::asio::ssl::context;
// Null where TLS is off. Throws Error.
std::shared_ptr<TlsContext> make_tls(const TlsOptions& options);

// A stream of Asio's, with the deadlines of Beast's.
class ClientStream {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;

  ClientStream(boost::asio::ip::tcp::socket socket, TlsContext* tls) : tcp_(std::move(socket)) {
    if (tls != nullptr) tls_.emplace(tcp_, *tls);
  }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return tls_ ? tls_->async_read_some(buffers, std::forward<Token>(token))
                : tcp_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return tls_ ? tls_->async_write_some(buffers, std::forward<Token>(token))
                : tcp_.async_write_some(buffers, std::forward<Token>(token));
  }
  // Before anything is read. False for who speaks no TLS, or none that both know.
  boost::asio::awaitable<bool> greet(std::chrono::milliseconds timeout) {
    if (!tls_) co_return true;
    boost::system::error_code error;
    expires_after(timeout);
    co_await tls_->async_handshake(boost::asio::ssl::stream_base::server,
                                   redirect_error(boost::asio::use_awaitable, error));
    co_return !error;
  }
  // Tells the client that nothing more is sent, where it has to be told.
  boost::asio::awaitable<void> say_goodbye() {
    if (!tls_) co_return;
    boost::system::error_code ignored;
    expires_after(std::chrono::seconds(2));
    co_await tls_->async_shutdown(redirect_error(boost::asio::use_awaitable, ignored));
  }

  bool is_tls() const { return tls_.has_value(); }
  executor_type get_executor() { return tcp_.get_executor(); }
  boost::asio::ip::tcp::socket& socket() { return tcp_.socket(); }
  template <class Duration>
  void expires_after(Duration duration) {
    tcp_.expires_after(duration);
  }
  template <class Time>
  void expires_at(Time time) {
    tcp_.expires_at(time);
  }
  void expires_never() { tcp_.expires_never(); }
  void cancel() { tcp_.cancel(); }
  void close() { tcp_.close(); }

 private:
  boost::beast::tcp_stream tcp_;
  std::optional<boost::asio::ssl::stream<boost::beast::tcp_stream&>> tls_;
};

}  // namespace sluice::serving
