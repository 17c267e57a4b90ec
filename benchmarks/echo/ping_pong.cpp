#include "echo/ping_pong.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>

#include "streams/collective/socket.h"

namespace sluice::bench {
namespace {

void futex(std::atomic<int>& word, int operation, int value) {
  syscall(SYS_futex, reinterpret_cast<int*>(&word), operation | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}

class FutexPingPong final : public PingPong {
 public:
  ~FutexPingPong() override {
    ending_ = true;
    turn_.store(1);
    futex(turn_, FUTEX_WAKE, 1);
    thread_.join();
  }
  void call() override { hand_over(1); }

 private:
  // To the other side, until it hands back.
  void hand_over(int to) {
    turn_.store(to);
    futex(turn_, FUTEX_WAKE, 1);
    while (turn_.load() == to) futex(turn_, FUTEX_WAIT, to);
  }
  void answer() {
    while (turn_.load() == 0) futex(turn_, FUTEX_WAIT, 0);
    while (!ending_) hand_over(0);
  }

  std::atomic<int> turn_{0};  // of the caller: 0
  std::atomic<bool> ending_{false};
  std::thread thread_{[this] { answer(); }};
};

constexpr size_t kBytes = 16;  // as ours

// False at the end of the connection.
bool move_all(const collective::Socket& socket, bool sends, char* data) {
  for (size_t done = 0; done < kBytes;) {
    const ssize_t n = sends ? send(socket.descriptor(), data + done, kBytes - done, MSG_NOSIGNAL)
                            : recv(socket.descriptor(), data + done, kBytes - done, 0);
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

void make_blocking(const collective::Socket& socket) {
  fcntl(socket.descriptor(), F_SETFL, fcntl(socket.descriptor(), F_GETFL) & ~O_NONBLOCK);
}

class SocketPingPong final : public PingPong {
 public:
  SocketPingPong() {
    using namespace collective;
    Socket listener = listen_at({"127.0.0.1", 0});
    const Address address{"127.0.0.1", local_address(listener).port};
    process_ = start_process([&] {
      listener.close();
      const Socket socket = connect_before(address, Clock::now() + std::chrono::seconds(10));
      make_blocking(socket);
      char data[kBytes];
      while (move_all(socket, false, data) && move_all(socket, true, data)) {
      }
    });
    while (!socket_.open()) socket_ = accept_from(listener);
    make_blocking(socket_);
  }
  ~SocketPingPong() override {
    socket_.close();
    waitpid(process_, nullptr, 0);
  }
  void call() override {
    if (!move_all(socket_, true, data_) || !move_all(socket_, false, data_))
      throw std::runtime_error("the other process has gone");
  }

 private:
  collective::Socket socket_;
  int process_ = 0;
  char data_[kBytes] = {};
};

}  // namespace

std::unique_ptr<PingPong> futex_ping_pong() { return std::make_unique<FutexPingPong>(); }
std::unique_ptr<PingPong> socket_ping_pong() { return std::make_unique<SocketPingPong>(); }

int start_process(const std::function<void()>& program) {
  std::fflush(stdout);
  const int process = fork();
  if (process < 0) throw std::runtime_error("no process could be started");
  if (process > 0) return process;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    program();
    std::_Exit(0);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "echo_bench: in a process of its own: %s\n", e.what());
    std::_Exit(1);
  }
}

void join_process(int process) {
  int status = 0;
  waitpid(process, &status, 0);
  if (status != 0) throw std::runtime_error("a process it had started failed");
}

}  // namespace sluice::bench
