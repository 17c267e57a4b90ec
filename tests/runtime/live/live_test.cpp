// A process that can be looked at: who may, what is told, and that nothing is left of it.
#include "runtime/live/live.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>

#include "plan/json/json.h"
#include "runtime/fixture.h"
#include "support/eventually.h"
#include "support/processes.h"

namespace sluice::test {
namespace {

// The other end of the socket; "" where nobody answers.
class Asker {
 public:
  explicit Asker(int64_t pid = getpid()) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const std::string name = plan::live_socket_name(pid);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(name.begin(), name.end(), address.sun_path + 1);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&address),
                         static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) == 0;
  }
  ~Asker() { close(fd_); }
  bool connected() const { return connected_; }
  std::string ask(const std::string& question) const {
    if (send(fd_, question.data(), question.size(), MSG_NOSIGNAL) < 0) return "";
    std::string text;
    size_t wanted = std::string::npos;
    char bytes[4096];
    while (text.size() < wanted) {
      const ssize_t n = recv(fd_, bytes, sizeof bytes, 0);
      if (n <= 0) return "";
      text.append(bytes, static_cast<size_t>(n));
      const size_t line = text.find('\n');
      if (wanted == std::string::npos && line != std::string::npos) {
        wanted = std::stoul(text);
        text.erase(0, line + 1);
      }
    }
    return text;
  }
  plan::LiveProcess state() const { return plan::read_live(ask("state\n"), "test"); }

 private:
  int fd_ = -1;
  bool connected_ = false;
};

int entries_of(const char* folder) {
  DIR* const dir = opendir(folder);
  int n = 0;
  while (readdir(dir) != nullptr) ++n;
  closedir(dir);
  return n;
}

struct Live {
  Live() { set_live(true); }
  ~Live() { set_live(false); }
};

TEST(Live, TellsCountersAndThePlanOfASessionAtWork) {
  const Live here;
  Engine engine{{.cores = 2}};
  Gate gate;
  HostFunctions f = functions();
  f["gate"] = gate.function();
  Session session = Session::load(engine, pipeline({"gate"}, 2, 2), {}, {.functions = f});
  StepHandle step = submit(session, filled(1));
  gate.wait_arrived(1);
  const Asker asker;
  const plan::LiveProcess process = asker.state();
  EXPECT_EQ(process.pid, getpid());
  ASSERT_EQ(process.sessions.size(), 1u);
  const plan::LiveSession& told = process.sessions[0];
  EXPECT_EQ(told.name, session.plan().name);
  EXPECT_EQ(told.submitted, 1u);
  EXPECT_EQ(told.in_flight, 1u);
  EXPECT_EQ(told.firings.size(), session.plan().actors.size());
  EXPECT_EQ(std::ranges::count_if(told.now, [](int now) { return now >= 0; }), 1) << "the kernel at the gate";
  EXPECT_EQ(asker.ask("plan " + std::to_string(told.id) + "\n"), plan::to_json(session.plan()));
  EXPECT_THAT(asker.ask("plan 99999\n"), HasSubstr("there is no session 99999 any more"));
  EXPECT_THAT(asker.ask("stop\n"), HasSubstr("'stop': no such question"));
  gate.open();
  EXPECT_EQ(result(std::move(step)), filled(1));
  session.wait_all();
  EXPECT_EQ(asker.state().sessions[0].finished, 1u);
  session = Session();
  EXPECT_TRUE(asker.state().sessions.empty());
}

TEST(Live, AHundredLooksLeaveNothing) {
  EXPECT_FALSE(Asker().connected());
  set_live(true);
  EXPECT_TRUE(live());
  Asker().state();  // the first one may make what stays
  const int files = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Asker().state().sessions.empty());
  EXPECT_EQ(entries_of("/proc/self/task"), threads);
  set_live(false);
  EXPECT_FALSE(live());
  EXPECT_FALSE(Asker().connected());
  EXPECT_TRUE(eventually([&] { return entries_of("/proc/self/task") == threads - 1; }));
  EXPECT_LT(entries_of("/proc/self/fd"), files);
}

TEST(Live, WhoAsksForTooMuchIsLetGo) {
  const Live here;
  EXPECT_EQ(Asker().ask(std::string(1000, 'x')), "");
  std::vector<std::unique_ptr<Asker>> many;  // more than are answered at once
  for (int i = 0; i < 16; ++i) many.push_back(std::make_unique<Asker>());
  for (const auto& one : many) EXPECT_EQ(one->state().pid, getpid());
  many.clear();
  EXPECT_EQ(Asker().state().pid, getpid());
}

TEST(Live, AForkIsNotItsParent) {
  const Live here;
  const pid_t parent = getpid();
  const std::vector<int> codes = in_processes(1, [&](int) {
    int wrong = live();
    wrong += Asker().connected();
    wrong += Asker(parent).state().pid != parent;
    return wrong;
  });
  EXPECT_EQ(codes[0], 0);
  EXPECT_EQ(Asker().state().pid, parent);
}

// As root, one can be another user.
TEST(Live, OthersAreNotAnswered) {
  if (geteuid() != 0) return;
  const Live here;
  const pid_t parent = getpid();
  const std::vector<int> codes = in_processes(1, [&](int) {
    if (setuid(65534) != 0) return 2;
    return Asker(parent).ask("state\n").empty() ? 0 : 1;
  });
  EXPECT_EQ(codes[0], 0);
}

}  // namespace
}  // namespace sluice::test
