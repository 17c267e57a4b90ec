#pragma once
// TCP sockets, as far as ranks need them: non-blocking, with deadlines instead of timeouts.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace sluice::collective {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

struct Address {
  std::string host;
  int port = 0;
  std::string str() const;  // "127.0.0.1:29500"
};

// A file descriptor with an owner.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();
  int descriptor() const { return descriptor_; }
  bool open() const { return descriptor_ >= 0; }
  void close() { *this = Socket(); }

 private:
  int descriptor_ = -1;
};

// Port 0: one that is free. Throws kIo, naming the port, when another program has it.
Socket listen_at(const Address& address);
// Tries until someone listens there; a socket that is not open when nobody did before the deadline. Throws kValue for a
// host that has no address, and whatever check_interrupt() throws.
Socket connect_before(const Address& address, Deadline deadline);
// The next connection, if there is one.
Socket accept_from(const Socket& listener);
// The two ends of a connection within this process.
std::pair<Socket, Socket> connected_pair();
Address local_address(const Socket& socket);
Address peer_address(const Socket& socket);
bool is_loopback(const std::string& host);

// Bytes read; 0 when the other side has ended, -1 when there are none yet.
int64_t read_some(const Socket& socket, void* data, size_t bytes);
// The same for writing: 0 when the other side has ended, -1 when it takes none now.
int64_t write_some(const Socket& socket, const void* data, size_t bytes);
// There is something to read, be it the end. Never blocks.
bool has_bytes(const Socket& socket);
// False when the other side ended first, or the deadline came.
bool read_all(const Socket& socket, void* data, size_t bytes, Deadline deadline);
bool write_all(const Socket& socket, const void* data, size_t bytes, Deadline deadline);
// Milliseconds until then, for poll(); never negative.
int milliseconds_until(Deadline deadline);

}  // namespace sluice::collective
