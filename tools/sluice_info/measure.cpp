#include "tools/sluice_info/measure.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "kernels/libraries.h"
#include "streams/cores.h"

namespace sluice::info {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kLong = std::chrono::milliseconds(200);  // of each measurement
constexpr size_t kBlock = size_t{64} << 20, kShared = size_t{16} << 20, kMessage = size_t{256} << 10;

struct Cache {
  int level = 0;
  std::string type, size, cores;
};
struct Node {
  std::string name, cores;
};
struct Rate {
  std::string what;
  double gb_per_s = 0;
  std::string fault;  // why there is none
};

[[noreturn]] void fault(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

std::string line_of(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::vector<fs::path> folders_in(const fs::path& parent, const std::string& prefix) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.size() > prefix.size() &&
        name.find_first_not_of("0123456789", prefix.size()) == std::string::npos)
      found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

std::vector<Cache> caches() {
  std::vector<Cache> found;
  for (const fs::path& folder : folders_in("/sys/devices/system/cpu/cpu0/cache", "index")) {
    const std::string level = line_of(folder / "level");
    if (level.empty() || level.find_first_not_of("0123456789") != std::string::npos) continue;
    found.push_back(
        {std::stoi(level), line_of(folder / "type"), line_of(folder / "size"), line_of(folder / "shared_cpu_list")});
  }
  return found;
}

std::vector<Node> nodes() {
  std::vector<Node> found;
  for (const fs::path& folder : folders_in("/sys/devices/system/node", "node"))
    found.push_back({folder.filename().string(), line_of(folder / "cpulist")});
  return found;
}

// The best of several rounds, since others use the machine, too.
double best_rate(size_t bytes, const std::function<void()>& move) {
  double best = 0;
  move();  // pages are there from now on
  for (const auto end = Clock::now() + kLong; best == 0 || Clock::now() < end;) {
    const auto begin = Clock::now();
    move();
    const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
    best = std::max(best, static_cast<double>(bytes) / std::max(1.0, took.count()));
  }
  return best;
}

double memcpy_rate() {
  std::vector<char> from(kBlock, 1), to(kBlock);
  return best_rate(kBlock, [&] { std::memcpy(to.data(), from.data(), kBlock); });
}

class Pipe {
 public:
  Pipe() {
    if (pipe(ends_) != 0) fault("pipe");
  }
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  bool wait() {
    char byte = 0;
    return read(ends_[0], &byte, 1) == 1 && byte != 0;
  }
  void tell(char byte) {
    if (write(ends_[1], &byte, 1) != 1) fault("write");
  }

 private:
  int ends_[2] = {-1, -1};
};

// A block is handed to another process, which has copied it when it answers.
double shared_rate() {
  void* const memory = mmap(nullptr, kShared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fault("mmap");
  Pipe there, back;
  const pid_t child = fork();
  if (child < 0) fault("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // it must not wait for a parent that is gone
    std::vector<char> own(kShared);
    while (there.wait()) {
      std::memcpy(own.data(), memory, kShared);
      back.tell(own[kShared / 2]);
    }
    _exit(0);
  }
  std::vector<char> from(kShared, 1);
  const double rate = best_rate(kShared, [&] {
    std::memcpy(memory, from.data(), kShared);
    there.tell(1);
    if (!back.wait()) throw std::runtime_error("the other process has ended");
  });
  there.tell(0);
  waitpid(child, nullptr, 0);
  munmap(memory, kShared);
  return rate;
}

// Closes a socket in the end.
struct Socket {
  int number = -1;
  explicit Socket(int n) : number(n) {
    if (n < 0) fault("socket");
  }
  ~Socket() { close(number); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
};

void receive_all(int socket, char* to, size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = recv(socket, to, bytes, 0);
    if (got <= 0) fault("recv");
    to += got;
    bytes -= static_cast<size_t>(got);
  }
}

double tcp_rate() {
  const Socket listening(socket(AF_INET, SOCK_STREAM, 0)), sending(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (bind(listening.number, any, size) != 0 || getsockname(listening.number, any, &size) != 0) fault("bind");
  if (listen(listening.number, 1) != 0 || connect(sending.number, any, size) != 0) fault("connect");
  const Socket receiving(accept(listening.number, nullptr, nullptr));
  std::thread sender([&] {
    const std::vector<char> message(kMessage, 1);
    while (send(sending.number, message.data(), kMessage, MSG_NOSIGNAL) > 0) continue;
  });
  std::vector<char> received(8 * kMessage);
  double rate = 0;
  std::string failed;
  try {
    rate = best_rate(received.size(), [&] { receive_all(receiving.number, received.data(), received.size()); });
  } catch (const std::exception& error) {
    failed = error.what();
  }
  shutdown(receiving.number, SHUT_RDWR);  // so that the sender ends
  sender.join();
  if (!failed.empty()) throw std::runtime_error(failed);
  return rate;
}

Rate rate_of(const std::string& what, double (*ask)()) {
  try {
    return {what, ask(), ""};
  } catch (const std::exception& error) {
    return {what, 0, fmt::format("not available: {}", error.what())};
  }
}

std::string as_json(const std::vector<Rate>& rates) {
  std::string s = fmt::format("{{\n  \"cores\": {},\n  \"cores_used\": {},\n  \"caches\": [",
                              std::thread::hardware_concurrency(), machine_cores());
  const char* comma = "";
  for (const Cache& c : caches())
    s += fmt::format("{}\n    {{\"level\": {}, \"type\": {}, \"size\": {}, \"cores\": {}}}", std::exchange(comma, ","),
                     c.level, quoted_json(c.type), quoted_json(c.size), quoted_json(c.cores));
  s += "],\n  \"nodes\": [";
  comma = "";
  for (const Node& node : nodes())
    s += fmt::format("{}{{\"name\": {}, \"cores\": {}}}", std::exchange(comma, ", "), quoted_json(node.name),
                     quoted_json(node.cores));
  s += "],\n  \"instructions\": {";
  comma = "";
  for (const InstructionSet& set : cpu_instruction_sets())
    s += fmt::format("{}{}: {}", std::exchange(comma, ", "), quoted_json(set.part), quoted_json(set.name));
  s += "},\n  \"gb_per_s\": {";
  comma = "";
  for (const Rate& rate : rates)
    s += fmt::format("{}{}: {}", std::exchange(comma, ", "), quoted_json(rate.what),
                     rate.fault.empty() ? fmt::format("{:.3f}", rate.gb_per_s) : quoted_json(rate.fault));
  return s + "}\n}\n";
}

}  // namespace

std::string measure(bool json) {
  const std::vector<Rate> rates = {rate_of("memcpy", memcpy_rate), rate_of("shared_memory", shared_rate),
                                   rate_of("tcp_loopback", tcp_rate)};
  if (json) return as_json(rates);
  std::string s = fmt::format("cores          {}, {} used\n", std::thread::hardware_concurrency(), machine_cores());
  for (const Cache& c : caches())
    s += fmt::format("cache          level {} {}: {}, shared by cores {}\n", c.level, c.type, c.size, c.cores);
  for (const Node& node : nodes()) s += fmt::format("memory         {}: cores {}\n", node.name, node.cores);
  for (const InstructionSet& set : cpu_instruction_sets())
    s += fmt::format("instructions   {}: {}\n", set.part, set.name);
  for (const Rate& rate : rates)
    s += fmt::format("{:<14} {}\n", rate.what,
                     rate.fault.empty() ? fmt::format("{:.2f} GB/s", rate.gb_per_s) : rate.fault);
  return s;
}

}  // namespace sluice::info
