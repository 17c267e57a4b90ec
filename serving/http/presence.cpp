#include "serving/http/presence.h"

#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/steady_timer.hpp>
#include <cerrno>

namespace sluice::serving {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

struct Watched {
  std::shared_ptr<void> owner;
  ClientStream& stream;
  std::shared_ptr<Presence> presence;

  bool over(error_code error) const { return error || presence->over || !stream.socket().is_open(); }
};

// The client may still read: then it passes over what asks whether it is there; where it has gone, its system refuses
// that.
void ask(const Watched& watched) {
  if (watched.presence->can_be_asked)
    watched.stream.socket().async_wait(tcp::socket::wait_error, [watched](error_code error) {
      if (!watched.over(error)) watched.presence->on_gone();
    });
  watched.presence->on_half_end();
}

// The bytes that a client of TLS has sent are only known when they are read, which its next request has to wait for;
// that it sends no more is known without.
void look_later(const Watched& watched) {
  const auto timer =
      std::make_shared<asio::steady_timer>(watched.stream.get_executor(), std::chrono::milliseconds(100));
  timer->async_wait([watched, timer](error_code error) {
    if (watched.over(error)) return;
    pollfd end{watched.stream.socket().native_handle(), POLLRDHUP, 0};
    if (::poll(&end, 1, 0) > 0) return ask(watched);
    look_later(watched);
  });
}

void look(const Watched& watched) {
  watched.stream.socket().async_wait(tcp::socket::wait_read, [watched](error_code error) {
    if (watched.over(error)) return;
    char c = 0;
    const ssize_t n = ::recv(watched.stream.socket().native_handle(), &c, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n > 0 && watched.stream.is_tls()) return look_later(watched);
    if (n > 0) return;                                                       // its next request
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return look(watched);  // woken for nothing
    if (n < 0) return watched.presence->on_gone();
    ask(watched);
  });
}

}  // namespace

void watch(std::shared_ptr<void> owner, ClientStream& stream, std::shared_ptr<Presence> presence) {
  look({std::move(owner), stream, std::move(presence)});
}

}  // namespace sluice::serving
