#include "streams/collective/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"

namespace sluice::collective {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

constexpr std::chrono::milliseconds kNameTime{200};  // between two questions for a name

// A name that has no address yet is asked for again until the deadline: where hosts are started with a job, so are
// their names.
Addresses resolve(const Address& address, int flags, Deadline deadline = Clock::now()) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  bool told = false;
  while (true) {
    addrinfo* found = nullptr;
    const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
    if (error == 0) return {found, &freeaddrinfo};
    if (milliseconds_until(deadline) == 0)
      fail(ErrorKind::kValue, "distributed: '{}' has no address: {}; the master must be a host name or an IP address",
           address.host, gai_strerror(error));
    if (!std::exchange(told, true))
      log(LogLevel::kWarn, LogArea::kStreams, "distributed: '{}' has no address yet: {}; it is asked for again",
          address.host, gai_strerror(error));
    check_interrupt();
    std::this_thread::sleep_for(kNameTime);
  }
}

Socket socket_for(const addrinfo& info) {
  Socket socket(::socket(info.ai_family, info.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, info.ai_protocol));
  if (!socket.open()) fail(ErrorKind::kIo, "distributed: no socket could be made: {}", std::strerror(errno));
  return socket;
}

Address address_of(const sockaddr_storage& storage, socklen_t length) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  const auto* address = reinterpret_cast<const sockaddr*>(&storage);
  if (getnameinfo(address, length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {"unknown", 0};
  return {host, std::stoi(port)};
}

// Waits until `events` are there; false at the deadline.
bool wait_for(const Socket& socket, short events, Deadline deadline) {
  constexpr int kSlice = 50;
  while (true) {
    pollfd entry{socket.descriptor(), events, 0};
    const int left = milliseconds_until(deadline);
    if (poll(&entry, 1, std::min(left, kSlice)) > 0) return true;
    if (left == 0) return false;
    check_interrupt();
  }
}

Socket connected(const addrinfo& info, Deadline deadline) {
  Socket socket = socket_for(info);
  if (connect(socket.descriptor(), info.ai_addr, info.ai_addrlen) != 0) {
    if (errno != EINPROGRESS || !wait_for(socket, POLLOUT, deadline)) return {};
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return {};
  }
  return socket;
}

void send_at_once(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

std::string Address::str() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

Socket listen_at(const Address& address) {
  const Addresses addresses = resolve(address, AI_PASSIVE);
  Socket socket = socket_for(*addresses);
  const int on = 1;
  setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // ports of programs that have ended
  if (bind(socket.descriptor(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      listen(socket.descriptor(), SOMAXCONN) != 0) {
    const int error = errno;
    if (error == EADDRINUSE)
      fail(ErrorKind::kIo, "distributed: port {} of {} is taken by another program; choose another MASTER_PORT",
           address.port, address.host);
    fail(ErrorKind::kIo, "distributed: cannot listen at {}: {}; rank 0 must run on the host of MASTER_ADDR",
         address.str(), std::strerror(error));
  }
  return socket;
}

Socket connect_before(const Address& address, Deadline deadline) {
  const Addresses addresses = resolve(address, 0, deadline);
  while (true) {
    for (const addrinfo* info = addresses.get(); info != nullptr; info = info->ai_next) {
      Socket socket = connected(*info, deadline);
      // A port that nobody listens at may be connected to itself.
      if (socket.open() && local_address(socket).str() != peer_address(socket).str()) {
        send_at_once(socket);
        return socket;
      }
    }
    if (milliseconds_until(deadline) == 0) return {};
    check_interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Socket accept_from(const Socket& listener) {
  Socket socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.open()) send_at_once(socket);
  return socket;
}

std::pair<Socket, Socket> connected_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
    fail(ErrorKind::kRuntime, "distributed: no connection within the process: {}", std::strerror(errno));
  return {Socket(ends[0]), Socket(ends[1])};
}

Address local_address(const Socket& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&storage), &length);
  return address_of(storage, length);
}

Address peer_address(const Socket& socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (getpeername(socket.descriptor(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {"unknown", 0};
  return address_of(storage, length);
}

bool is_loopback(const std::string& host) {
  const Addresses addresses = resolve({host, 0}, 0);
  for (const addrinfo* info = addresses.get(); info != nullptr; info = info->ai_next) {
    if (info->ai_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(info->ai_addr);
      if (ntohl(v4->sin_addr.s_addr) >> 24 != 127) return false;
    } else {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(info->ai_addr);
      if (!IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr)) return false;
    }
  }
  return true;
}

int64_t read_some(const Socket& socket, void* data, size_t bytes) {
  const ssize_t n = recv(socket.descriptor(), data, bytes, 0);
  if (n >= 0) return n;
  return errno == EAGAIN || errno == EINTR ? -1 : 0;
}

int64_t write_some(const Socket& socket, const void* data, size_t bytes) {
  const ssize_t n = send(socket.descriptor(), data, bytes, MSG_NOSIGNAL);
  if (n >= 0) return n;
  return errno == EAGAIN || errno == EINTR ? -1 : 0;
}

bool has_bytes(const Socket& socket) {
  pollfd entry{socket.descriptor(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

bool read_all(const Socket& socket, void* data, size_t bytes, Deadline deadline) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const int64_t n = read_some(socket, at, bytes);
    if (n == 0 || (n < 0 && !wait_for(socket, POLLIN, deadline))) return false;
    if (n < 0) continue;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool write_all(const Socket& socket, const void* data, size_t bytes, Deadline deadline) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const int64_t n = write_some(socket, at, bytes);
    if (n == 0 || (n < 0 && !wait_for(socket, POLLOUT, deadline))) return false;
    if (n < 0) continue;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace sluice::collective
