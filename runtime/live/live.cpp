#include "runtime/live/live.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "plan/json/json.h"
#include "sluice/version.h"

namespace sluice {

namespace {

constexpr size_t kMostClients = 16;
constexpr size_t kLongestQuestion = 64;

class Sources {
 public:
  void add(const std::shared_ptr<LiveSource>& source) {
    const MutexLock lock(mutex_);
    std::erase_if(all_, [](const auto& one) { return one.second.expired(); });
    all_.emplace_back(next_++, source);
  }
  std::vector<std::pair<uint64_t, std::shared_ptr<LiveSource>>> held() {
    std::vector<std::pair<uint64_t, std::shared_ptr<LiveSource>>> found;
    const MutexLock lock(mutex_);
    for (const auto& [id, source] : all_) {
      if (std::shared_ptr<LiveSource> held = source.lock()) found.emplace_back(id, std::move(held));
    }
    return found;
  }

 private:
  Mutex mutex_;
  const ForkLock fork_lock_{mutex_};
  uint64_t next_ SLUICE_GUARDED_BY(mutex_) = 1;
  std::vector<std::pair<uint64_t, std::weak_ptr<LiveSource>>> all_ SLUICE_GUARDED_BY(mutex_);
};

Sources& sources() {
  static auto* const made = new Sources();  // sessions may end after main()
  return *made;
}

std::string state() {
  plan::LiveProcess process{.pid = getpid(), .clock_ns = now_ns(), .version = SLUICE_VERSION, .sessions = {}};
  for (const auto& [id, source] : sources().held()) {
    std::optional<plan::LiveSession> session = source->live_state();
    if (!session) continue;
    session->id = id;
    process.sessions.push_back(std::move(*session));
  }
  return plan::live_json(process);
}

std::string answer(std::string_view question) {
  try {
    if (question == plan::kAskState) return state();
    if (question.starts_with(plan::kAskPlan)) {
      const std::string number(question.substr(plan::kAskPlan.size()));
      for (const auto& [id, source] : sources().held()) {
        if (" " + std::to_string(id) == number) return plan::to_json(source->live_plan());
      }
      fail(ErrorKind::kValue, "there is no session{} any more", number);
    }
    fail(ErrorKind::kValue, "'{}': no such question; it may be of another version of Sluice", question);
  } catch (const std::exception& error) {
    return fmt::format("{}{}}}\n", plan::kLiveError, quoted_json(error.what()));
  }
}

// True for processes of this user, and of the superuser.
bool may_look(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == geteuid() || peer.uid == 0;
}

// False where the other end has gone, or takes nothing.
bool send_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// Answers until it is destroyed. REQUIRES: not destroyed in a fork of the process that has made it.
class Server {
 public:
  Server() {
    try {
      begin();
    } catch (...) {
      close_all();
      throw;
    }
  }
  ~Server() {
    const uint64_t one = 1;
    while (write(stop_, &one, sizeof one) < 0 && errno == EINTR) {
    }
    thread_.join();
    close_all();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // In a fork, where the thread is not: the name is the parent's.
  void close_all() {
    for (Client& client : clients_) {
      if (client.fd >= 0) close(std::exchange(client.fd, -1));
    }
    for (int* const fd : {&listen_, &stop_}) {
      if (*fd >= 0) close(std::exchange(*fd, -1));
    }
  }

 private:
  struct Client {
    int fd = -1;
    std::string heard;
  };

  void begin() {
    const auto check = [](bool ok, const char* what) {
      SLUICE_CHECK_KIND(kRuntime, ok, "live: {} failed: {}; the process cannot be looked at", what,
                        std::strerror(errno));
    };
    listen_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    check(listen_ >= 0, "socket()");
    stop_ = eventfd(0, EFD_CLOEXEC);
    check(stop_ >= 0, "eventfd()");
    const std::string name = plan::live_socket_name(getpid());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(name.begin(), name.end(), address.sun_path + 1);  // behind a zero: no file
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    check(bind(listen_, reinterpret_cast<const sockaddr*>(&address), size) == 0, "bind()");
    check(listen(listen_, kMostClients) == 0, "listen()");
    thread_ = start_thread("live", "sluice live", [this] { serve(); });
  }

  void serve() {
    std::array<pollfd, kMostClients + 2> waits{};
    while (true) {
      const bool room = std::ranges::any_of(clients_, [](const Client& client) { return client.fd < 0; });
      for (size_t i = 0; i < kMostClients; ++i) waits[i] = {clients_[i].fd, POLLIN, 0};
      waits[kMostClients] = {room ? listen_ : -1, POLLIN, 0};
      waits[kMostClients + 1] = {stop_, POLLIN, 0};
      if (poll(waits.data(), waits.size(), -1) < 0) continue;  // a signal
      if (waits[kMostClients + 1].revents != 0) return;
      for (size_t i = 0; i < kMostClients; ++i) {
        if (waits[i].fd >= 0 && waits[i].revents != 0 && !hear(clients_[i])) close(std::exchange(clients_[i].fd, -1));
      }
      if (waits[kMostClients].revents != 0) accept_one();
    }
  }

  void accept_one() {
    const int fd = accept4(listen_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    const timeval patience{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (!may_look(fd)) {
      close(fd);
      return;
    }
    Client& client = *std::ranges::find(clients_, -1, &Client::fd);
    client.heard.clear();
    client.fd = fd;
  }

  // False where it has gone, or asks what nobody would.
  bool hear(Client& client) {
    char bytes[256];
    const ssize_t n = recv(client.fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n == 0) return false;
    client.heard.append(bytes, static_cast<size_t>(n));
    for (size_t end; (end = client.heard.find('\n')) != std::string::npos; client.heard.erase(0, end + 1)) {
      const std::string text = answer(std::string_view(client.heard).substr(0, end));
      if (!send_all(client.fd, fmt::format("{}\n", text.size())) || !send_all(client.fd, text)) return false;
    }
    return client.heard.size() <= kLongestQuestion;
  }

  int listen_ = -1, stop_ = -1;
  std::array<Client, kMostClients>
      clients_;  // the thread's; a fork may find all of it but the descriptors half written
  std::thread thread_;
};

// The process's, until it ends. In a fork the server is let go: its thread is in the parent.
struct Switch {
  Mutex mutex;
  const ForkListener listener{[this]() SLUICE_UNCHECKED_LOCKS { mutex.lock(); },
                              [this](bool in_child) SLUICE_UNCHECKED_LOCKS {
                                if (in_child) {
                                  asked = false;
                                  if (server != nullptr) server.release()->close_all();
                                }
                                mutex.unlock();
                              }};
  std::unique_ptr<Server> server SLUICE_GUARDED_BY(mutex);
  bool asked SLUICE_GUARDED_BY(mutex) = false;  // the environment, in this process

  static Switch& of_process() {
    static auto* const made = [] {
      auto* fresh = new Switch();
      std::atexit([] { set_live(false); });
      return fresh;
    }();
    return *made;
  }
};

bool environment_says_so() {
  const char* const said = std::getenv("SLUICE_LIVE");
  return said != nullptr && *said != '\0' && std::string_view(said) != "0";
}

}  // namespace

void set_live(bool on) {
  Switch& process = Switch::of_process();
  std::unique_ptr<Server> ended;  // without the lock: its thread may be in a lock that a fork holds, with this one
  const MutexLock lock(process.mutex);
  process.asked = true;
  if (!on) {
    ended = std::move(process.server);
  } else if (process.server == nullptr) {
    process.server = std::make_unique<Server>();
  }
}

bool live() {
  Switch& process = Switch::of_process();
  const MutexLock lock(process.mutex);
  return process.server != nullptr;
}

void add_live_source(const std::shared_ptr<LiveSource>& source) {
  sources().add(source);
  if (!environment_says_so()) return;
  Switch& process = Switch::of_process();
  {
    const MutexLock lock(process.mutex);
    if (std::exchange(process.asked, true)) return;
  }
  try {
    set_live(true);
  } catch (const Error& error) {
    log(LogLevel::kWarn, LogArea::kRuntime, "{}", error.what());
  }
}

}  // namespace sluice
