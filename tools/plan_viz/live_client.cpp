#include "tools/plan_viz/live_client.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "plan/json/json.h"

namespace sluice::plan_viz {

namespace {

constexpr size_t kMostBytes = size_t{1} << 30;
constexpr int kPatienceSeconds = 10;

std::string user_name(uid_t uid) {
  const passwd* const found = getpwuid(uid);
  return found == nullptr ? fmt::format("user {}", uid) : found->pw_name;
}

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// The process must be this user's: anybody may make a socket of that name.
void check_peer(int fd, int64_t pid) {
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool told = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  SLUICE_CHECK_KIND(kIo, told && peer.pid == static_cast<pid_t>(pid),
                    "process {}: another process ({}) answers in its place; nothing of it is shown", pid,
                    told ? peer.pid : 0);
}

}  // namespace

LiveClient::LiveClient(int64_t pid) : pid_(pid) {
  const std::string folder = fmt::format("/proc/{}", pid);
  struct stat owner {};
  SLUICE_CHECK_KIND(kIo, pid > 0 && stat(folder.c_str(), &owner) == 0,
                    "process {}: there is none; it must be the number of a process that runs, as `ps` lists it", pid);
  SLUICE_CHECK_KIND(kIo, owner.st_uid == geteuid() || geteuid() == 0,
                    "process {}: it belongs to another user ({}); only its own user can look at it", pid,
                    user_name(owner.st_uid));
  program_ = first_line(folder + "/comm");
  fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  SLUICE_CHECK_KIND(kIo, fd_ >= 0, "process {}: socket() failed: {}", pid, std::strerror(errno));
  const timeval patience{kPatienceSeconds, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const std::string name = plan::live_socket_name(pid);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  try {
    SLUICE_CHECK_KIND(kIo, connect(fd_, reinterpret_cast<const sockaddr*>(&address), size) == 0,
                      "process {} ({}): it does not let itself be seen: {}; start it with SLUICE_LIVE=1", pid, program_,
                      errno == ECONNREFUSED ? "nobody answers" : std::strerror(errno));
    check_peer(fd_, pid);
  } catch (...) {
    close(fd_);
    throw;
  }
}

LiveClient::~LiveClient() { close(fd_); }

bool LiveClient::hear_more() {
  char block[65536];
  ssize_t n = 0;
  do {
    n = recv(fd_, block, sizeof block, 0);
  } while (n < 0 && errno == EINTR);
  SLUICE_CHECK_KIND(kIo, n >= 0 || errno != EAGAIN, "process {} ({}): it has not answered for {} s; it may be stopped",
                    pid_, program_, kPatienceSeconds);
  if (n > 0) rest_.append(block, static_cast<size_t>(n));
  return n > 0;
}

std::string LiveClient::ask(const std::string& question) {
  constexpr size_t kLongestNumber = 20;
  const std::string line = question + "\n";
  if (send(fd_, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) return "";
  size_t end = 0;
  while ((end = rest_.find('\n')) == std::string::npos && rest_.size() <= kLongestNumber) {
    if (!hear_more()) return "";
  }
  size_t bytes = 0;
  const auto [stop, fault] = std::from_chars(rest_.data(), rest_.data() + std::min(end, kLongestNumber), bytes);
  SLUICE_CHECK_KIND(kIo, fault == std::errc() && stop == rest_.data() + end && bytes > 0 && bytes <= kMostBytes,
                    "process {} ({}): its answer begins with '{}'; must be a number of bytes", pid_, program_,
                    rest_.substr(0, kLongestNumber));
  rest_.erase(0, end + 1);
  while (rest_.size() < bytes) {
    if (!hear_more()) return "";
  }
  std::string text = rest_.substr(0, bytes);
  rest_.erase(0, bytes);
  return text;
}

bool LiveClient::ask_state(plan::LiveProcess& state) {
  const std::string text = ask(std::string(plan::kAskState));
  if (text.empty()) return false;
  state = plan::read_live(text, fmt::format("process {} ({})", pid_, program_));
  return true;
}

std::unique_ptr<LivePlan> LiveClient::plan(uint64_t session) {
  const std::string text = ask(fmt::format("{} {}", plan::kAskPlan, session));
  if (text.empty() || text.starts_with(plan::kLiveError)) return nullptr;
  return std::make_unique<LivePlan>(plan::from_json(text, fmt::format("process {} ({})", pid_, program_)));
}

}  // namespace sluice::plan_viz
