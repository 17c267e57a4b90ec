#include "streams/collective/rendezvous.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"

namespace sluice::collective {
namespace {

constexpr uint32_t kMagic = 0x53'4C'43'31;
constexpr std::chrono::seconds kHelloTime{5};  // for the first words of a connection
constexpr std::chrono::seconds kAnswerTime{2};
constexpr size_t kMaxHost = 64;
constexpr size_t kMostCallers = 256;  // that have not said who they are

// The first words of a connection.
struct Hello {
  uint32_t magic = kMagic;
  int32_t rank = 0;
  int32_t size = 0;
  int32_t port = 0;  // where this rank listens for higher ones
  char token[kMaxToken] = {};
};

// Rank 0's answer; when nothing is wrong, the ranks' addresses follow.
struct Answer {
  ErrorKind kind = ErrorKind::kValue;
  char refusal[512] = {};  // empty: welcome
};
struct Place {
  char host[kMaxHost] = {};
  int32_t port = 0;
};

// Takes as long for every token.
bool same_token(const Hello& a, const Hello& b) {
  unsigned difference = 0;
  for (size_t i = 0; i < kMaxToken; ++i) difference |= static_cast<unsigned char>(a.token[i] ^ b.token[i]);
  return difference == 0;
}

template <size_t N>
void copy_text(char (&to)[N], const std::string& from) {
  std::memcpy(to, from.data(), std::min(from.size(), N - 1));
}

void check(const WorldOptions& o) {
  SLUICE_CHECK(o.size >= 1, "distributed: the world has {} ranks; it needs at least one", o.size);
  SLUICE_CHECK(o.rank >= 0 && o.rank < o.size, "distributed: this is rank {} of {}; ranks are 0 to {}", o.rank, o.size,
               o.size - 1);
  if (o.size == 1) return;
  SLUICE_CHECK(o.master.port > 0 && o.master.port < 65536,
               "distributed: the master's port is {}; it must be from 1 to 65535", o.master.port);
  SLUICE_CHECK(!o.token.empty() && o.token.size() <= kMaxToken,
               "distributed: the token has {} characters; all ranks need the same, of 1 to {}", o.token.size(),
               kMaxToken);
}

// The other side has ended; what it has sent may be unread.
bool has_ended(const Socket& socket) {
  pollfd entry{socket.descriptor(), POLLRDHUP, 0};
  return poll(&entry, 1, 0) > 0;
}

// listen_at() of a name that may get its address only now: where hosts are started with a job, so are their names.
Socket listen_before(const Address& address, Deadline deadline) {
  while (true) {
    try {
      return listen_at(address);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kValue || milliseconds_until(deadline) == 0) throw;
    }
    check_interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

// Listens until given ranks have said hello, and keeps everyone else out.
class Reception {
 public:
  struct Guest {
    Socket socket;
    Hello hello;
  };

  Reception(Socket listener, Hello own) : listener_(std::move(listener)), own_(own) {}

  // The next guest with our token; none at the deadline, or once one of those `present` is gone.
  std::optional<Guest> next(Deadline deadline, const std::vector<Guest>& present = {}) {
    while (true) {
      if (gone_of(present)) return std::nullopt;
      std::vector<pollfd> entries{{listener_.descriptor(), POLLIN, 0}};
      for (const Caller& caller : callers_) entries.push_back({caller.socket.descriptor(), POLLIN, 0});
      const int left = milliseconds_until(deadline);
      poll(entries.data(), entries.size(), std::min(left, 50));
      check_interrupt();
      for (auto it = callers_.begin(); it != callers_.end();) {
        const Words words = listen_to(*it);
        if (words == Words::kMore) {
          ++it;
          continue;
        }
        Caller caller = std::move(*it);
        it = callers_.erase(it);
        if (words == Words::kHello) return Guest{std::move(caller.socket), caller.hello};
        log(LogLevel::kWarn, LogArea::kStreams,
            "distributed: a connection from {} was closed: it did not say this job's token",
            peer_address(caller.socket).str());
      }
      while (true) {
        Socket socket = accept_from(listener_);
        if (!socket.open()) break;
        if (callers_.size() == kMostCallers) callers_.pop_front();
        callers_.push_back({std::move(socket), {}, 0, Clock::now() + kHelloTime});
      }
      if (left == 0) return std::nullopt;
    }
  }

  // Which of these guests has closed its connection, by rank.
  static std::optional<int> gone_of(const std::vector<Guest>& guests) {
    for (size_t r = 0; r < guests.size(); ++r)
      if (guests[r].socket.open() && has_ended(guests[r].socket)) return static_cast<int>(r);
    return std::nullopt;
  }

 private:
  enum class Words { kMore, kHello, kWrong };
  struct Caller {
    Socket socket;
    Hello hello;
    size_t got = 0;
    Deadline deadline;
  };

  Words listen_to(Caller& caller) const {
    auto* bytes = reinterpret_cast<char*>(&caller.hello);
    const ssize_t n = read_some(caller.socket, bytes + caller.got, sizeof(Hello) - caller.got);
    if (n == 0) return Words::kWrong;
    if (n > 0) caller.got += static_cast<size_t>(n);
    // A stranger is refused as soon as it can be told: it may leave the rest open.
    if (caller.got >= sizeof kMagic && caller.hello.magic != kMagic) return Words::kWrong;
    if (caller.got == sizeof(Hello)) return same_token(caller.hello, own_) ? Words::kHello : Words::kWrong;
    return Clock::now() < caller.deadline ? Words::kMore : Words::kWrong;
  }

  Socket listener_;
  const Hello own_;
  std::list<Caller> callers_;
};

std::string missing_of(const std::vector<Reception::Guest>& guests) {
  std::string missing;
  int count = 0;
  for (size_t r = 1; r < guests.size(); ++r) {
    if (guests[r].socket.open()) continue;
    missing += (count++ > 0 ? ", " : "") + std::to_string(r);
  }
  return (count > 1 ? "ranks " : "rank ") + missing;
}

// The reason why rank 0 refuses a guest; empty: none.
std::string objection(const WorldOptions& o, const std::vector<Reception::Guest>& guests, const Hello& hello) {
  if (hello.size != o.size)
    return fmt::format(
        "distributed: world sizes differ: rank {} says {}, rank 0 says {}; all ranks must have the same WORLD_SIZE",
        hello.rank, hello.size, o.size);
  if (hello.rank < 1 || hello.rank >= o.size || guests[hello.rank].socket.open())
    return fmt::format("distributed: two processes say they are rank {} of {}; each must have a RANK of its own",
                       hello.rank, o.size);
  return {};
}

[[noreturn]] void refuse(std::vector<Reception::Guest>& guests, ErrorKind kind, const std::string& text) {
  Answer answer;
  answer.kind = kind;
  copy_text(answer.refusal, text);
  for (const Reception::Guest& guest : guests) {
    if (guest.socket.open()) write_all(guest.socket, &answer, sizeof answer, Clock::now() + kAnswerTime);
  }
  throw Error(kind, text);
}

std::string gone_before_all(int rank, int size) {
  return fmt::format("distributed: rank {} is gone before all {} ranks had met; see its own output", rank, size);
}

std::vector<Socket> receive_all(const WorldOptions& o, const Hello& own, Deadline deadline) {
  Reception reception(listen_before(o.master, deadline), own);
  std::vector<Reception::Guest> guests(o.size);
  for (int present = 1; present < o.size; ++present) {
    std::optional<Reception::Guest> guest = reception.next(deadline, guests);
    if (!guest) {
      if (const std::optional<int> gone = Reception::gone_of(guests))
        refuse(guests, ErrorKind::kTimeout, gone_before_all(*gone, o.size));
      refuse(guests, ErrorKind::kTimeout,
             fmt::format("distributed: {} of {} did not come to {} within {} ms; start every rank, with the same "
                         "MASTER_ADDR, MASTER_PORT and token",
                         missing_of(guests), o.size, o.master.str(), o.timeout.count()));
    }
    if (const std::string wrong = objection(o, guests, guest->hello); !wrong.empty()) {
      guests.push_back(std::move(*guest));
      refuse(guests, ErrorKind::kValue, wrong);
    }
    const int rank = guest->hello.rank;
    guests[rank] = std::move(*guest);
  }
  std::vector<Place> places(o.size);
  for (int r = 1; r < o.size; ++r) {
    copy_text(places[r].host, peer_address(guests[r].socket).host);
    places[r].port = guests[r].hello.port;
  }
  std::vector<Socket> sockets(o.size);
  for (int r = 1; r < o.size; ++r) {
    const Answer welcome;
    const Deadline soon = Clock::now() + kAnswerTime;
    // The links will notice a guest who is gone by now.
    if (write_all(guests[r].socket, &welcome, sizeof welcome, soon))
      write_all(guests[r].socket, places.data(), places.size() * sizeof(Place), soon);
    sockets[r] = std::move(guests[r].socket);
  }
  return sockets;
}

std::vector<Socket> go_to_all(const WorldOptions& o, Hello own, Deadline deadline) {
  Socket master = connect_before(o.master, deadline);
  if (!master.open())
    fail(ErrorKind::kTimeout,
         "distributed: rank 0 does not answer at {} within {} ms; it must run there, with the same MASTER_PORT",
         o.master.str(), o.timeout.count());
  const auto no_answer = [&] {
    fail(
        ErrorKind::kTimeout,
        "distributed: whoever listens at {} said nothing or closed the connection; it must be rank 0 of this job, with "
        "the same token",
        o.master.str());
  };
  Socket listener = listen_at({local_address(master).host, 0});
  own.port = local_address(listener).port;
  Answer answer;
  // Rank 0 waits as long as we do, and says then who is missing.
  const Deadline answer_deadline = deadline + kAnswerTime;
  if (!write_all(master, &own, sizeof own, deadline) || !read_all(master, &answer, sizeof answer, answer_deadline))
    no_answer();
  answer.refusal[sizeof answer.refusal - 1] = 0;
  if (answer.refusal[0] != 0)
    throw Error(answer.kind == ErrorKind::kTimeout ? ErrorKind::kTimeout : ErrorKind::kValue, answer.refusal);
  std::vector<Place> places(o.size);
  if (!read_all(master, places.data(), places.size() * sizeof(Place), answer_deadline)) no_answer();
  std::vector<Socket> sockets(o.size);
  sockets[0] = std::move(master);
  const auto lost = [&](int rank) { throw Error(ErrorKind::kTimeout, gone_before_all(rank, o.size)); };
  for (int r = 1; r < o.rank; ++r) {
    places[r].host[kMaxHost - 1] = 0;
    sockets[r] = connect_before({places[r].host, places[r].port}, answer_deadline);
    if (!sockets[r].open() || !write_all(sockets[r], &own, sizeof own, answer_deadline)) lost(r);
  }
  Reception reception(std::move(listener), own);
  for (int missing = o.size - 1 - o.rank; missing > 0; --missing) {
    std::optional<Reception::Guest> guest = reception.next(answer_deadline);
    if (!guest) {
      for (int r = o.rank + 1; r < o.size; ++r) {
        if (!sockets[r].open()) lost(r);
      }
    }
    SLUICE_CHECK(guest->hello.rank > o.rank && guest->hello.rank < o.size && !sockets[guest->hello.rank].open(),
                 "distributed: rank {} was called by rank {}; each rank must be started once", o.rank,
                 guest->hello.rank);
    sockets[guest->hello.rank] = std::move(guest->socket);
  }
  return sockets;
}

}  // namespace

std::vector<Socket> meet(const WorldOptions& o) {
  check(o);
  if (o.size == 1) return std::vector<Socket>(1);
  Hello own;
  own.rank = o.rank;
  own.size = o.size;
  std::memcpy(own.token, o.token.data(), o.token.size());
  const Deadline deadline = Clock::now() + o.timeout;
  return o.rank == 0 ? receive_all(o, own, deadline) : go_to_all(o, own, deadline);
}

}  // namespace sluice::collective
