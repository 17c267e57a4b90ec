// How ranks meet: who is missing, who is wrong, who is a stranger; and how one that is gone or silent is noticed.
#include <sys/socket.h>

#include <atomic>

#include "base/log.h"
#include "collective/ranks.h"

namespace sluice::test {
namespace {

// Collects log lines.
class Lines {
 public:
  Lines() {
    set_log_sink([this](std::string_view line) {
      std::lock_guard lock(mutex_);
      text_ += std::string(line) + "\n";
    });
  }
  ~Lines() { set_log_sink(nullptr); }
  std::string text() const {
    std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

TEST(Meet, RanksComeInAnyOrder) {
  for (const int size : {1, 2, 3, 6}) {
    const int port = free_port();
    const auto errors = on_ranks(size, [&](int i) {
      World world(world_options(size - 1 - i, size, port));
      world.all().barrier();
    });
    EXPECT_THAT(errors, Each("no error"));
  }
}

TEST(Meet, MissingRanksAreNamedToEveryone) {
  const int port = free_port();
  const auto errors = on_ranks(2, [&](int i) {
    WorldOptions o = world_options(2 * i, 5, port);  // 0 and 2 of 5
    o.timeout = milliseconds(300);
    World world(o);
  });
  for (const std::string& error : errors)
    EXPECT_EQ(error, fmt::format("timeout: distributed: ranks 1, 3, 4 of 5 did not come to 127.0.0.1:{} within 300 ms; "
                                 "start every rank, with the same MASTER_ADDR, MASTER_PORT and token",
                                 port));
}

TEST(Meet, WithoutRankZeroItIsNamed) {
  const int port = free_port();
  WorldOptions o = world_options(1, 2, port);
  o.timeout = milliseconds(200);
  EXPECT_EQ(
      error_of([&] { World world(o); }),
      fmt::format("timeout: distributed: rank 0 does not answer at 127.0.0.1:{} within 200 ms; it must run there, "
                  "with the same MASTER_PORT",
                  port));
}

TEST(Meet, WorldSizesThatDifferAreNamedToBoth) {
  const int port = free_port();
  const auto errors = on_ranks(2, [&](int rank) { World world(world_options(rank, 2 + rank, port)); });
  for (const std::string& error : errors)
    EXPECT_EQ(error,
              "value: distributed: world sizes differ: rank 1 says 3, rank 0 says 2; all ranks must have the same "
              "WORLD_SIZE");
}

TEST(Meet, TwoOfOneRankAreNamed) {
  const int port = free_port();
  const auto errors = on_ranks(3, [&](int i) { World world(world_options(i == 0 ? 0 : 1, 3, port)); });
  for (const std::string& error : errors)
    EXPECT_EQ(error, "value: distributed: two processes say they are rank 1 of 3; each must have a RANK of its own");
}

TEST(Meet, OptionsThatCannotBeAreRefused) {
  EXPECT_THAT(error_of([] { World world(world_options(0, 0, 1)); }), HasSubstr("the world has 0 ranks"));
  EXPECT_THAT(error_of([] { World world(world_options(2, 2, 1)); }),
              HasSubstr("this is rank 2 of 2; ranks are 0 to 1"));
  EXPECT_THAT(error_of([] { World world(world_options(-1, 2, 1)); }), HasSubstr("this is rank -1 of 2"));
  EXPECT_THAT(error_of([] { World world(world_options(0, 2, 0)); }), HasSubstr("the master's port is 0; it must be"));
  WorldOptions o = world_options(0, 2, 1);
  o.token.clear();
  EXPECT_THAT(error_of([&] { World world(o); }), HasSubstr("the token has 0 characters; all ranks need the same"));
  o.token.assign(65, 'x');
  EXPECT_THAT(error_of([&] { World world(o); }), HasSubstr("the token has 65 characters"));
  o = world_options(1, 2, 1);
  o.master.host = "no such host";
  o.timeout = milliseconds(300);  // which it may get until then
  EXPECT_THAT(error_of([&] { World world(o); }), HasSubstr("'no such host' has no address"));
  o.rank = 0;
  EXPECT_THAT(error_of([&] { World world(o); }), HasSubstr("'no such host' has no address"));
}

TEST(Meet, ARankThatIsGoneWhileOthersAreAwaitedIsNamed) {
  const int port = free_port();
  const auto errors = on_ranks(2, [&](int i) {
    if (i == 0) World world(world_options(0, 4, port));  // rank 3 never comes
    // Rank 2 says hello and ends. Its words: magic, rank, size, port, token.
    const Deadline deadline = Clock::now() + kSoon;
    Socket guest = connect_before({"127.0.0.1", port}, deadline);
    const int32_t words[] = {0x53'4C'43'31, 2, 4, 1};
    std::string token = world_options(2, 4, port).token;
    token.resize(kMaxToken);
    ASSERT_TRUE(write_all(guest, words, sizeof words, deadline));
    ASSERT_TRUE(write_all(guest, token.data(), token.size(), deadline));
  });
  EXPECT_EQ(errors[0], "timeout: distributed: rank 2 is gone before all 4 ranks had met; see its own output");
}

TEST(Meet, ATakenPortIsNamed) {
  const Socket other = listen_at({"127.0.0.1", 0});
  const int port = local_address(other).port;
  EXPECT_EQ(error_of([&] { World world(world_options(0, 2, port)); }),
            fmt::format("io: distributed: port {} of 127.0.0.1 is taken by another program; choose another "
                        "MASTER_PORT",
                        port));
}

TEST(Meet, OnlyTheMastersAddressIsListenedAt) {
  const int port = free_port();
  std::atomic<bool> checked{false};
  EXPECT_THAT(on_ranks(2,
                       [&](int rank) {
                         if (rank == 1) {
                           // Rank 0 listens at 127.0.0.1 alone: elsewhere, even on loopback, nobody is there.
                           Socket at = connect_before({"127.0.0.1", port}, Clock::now() + kSoon);
                           EXPECT_TRUE(at.open());
                           EXPECT_FALSE(connect_before({"127.0.0.2", port}, Clock::now() + milliseconds(50)).open());
                           checked = true;
                         }
                         World world(world_options(rank, 2, port));
                         world.all().barrier();
                         // Once all have met, nobody listens any more.
                         EXPECT_FALSE(connect_before({"127.0.0.1", port}, Clock::now() + milliseconds(50)).open());
                       }),
              Each("no error"));
  EXPECT_TRUE(checked);
}

// Strangers of all kinds, while rank 0 waits for rank 1.
TEST(Strangers, AreClosedAndLoggedAndDisturbNobody) {
  const Lines lines;
  const int port = free_port();
  std::vector<std::string> words = {
      "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
      std::string(5000, '\0'),
      std::string(100000, '\xff'),
      "1CLS",                            // our first four bytes, and then the end
      "1CLS" + std::string(76, 'A'),     // a whole hello with another token
      "1CLS" + std::string(70, '\xff'),  // a truncated one
  };
  std::vector<Socket> silent;  // connect, say nothing and stay
  EXPECT_THAT(on_ranks(2,
                       [&](int rank) {
                         if (rank == 1) {
                           for (int i = 0; i < 300; ++i) {
                             silent.push_back(connect_before({"127.0.0.1", port}, Clock::now() + kSoon));
                             if (i % 50 != 0) continue;
                             const std::string& text = words[i / 50 % words.size()];
                             Socket stranger = connect_before({"127.0.0.1", port}, Clock::now() + kSoon);
                             write_all(stranger, text.data(), text.size(), Clock::now() + milliseconds(200));
                             shutdown(stranger.descriptor(), SHUT_WR);
                             char byte;
                             EXPECT_FALSE(read_all(stranger, &byte, 1, Clock::now() + kSoon))
                                 << "a stranger got an answer";
                           }
                         }
                         World world(world_options(rank, 2, port));
                         int32_t sum = 1;
                         world.all().all_reduce(&sum, 1, DType::kInt32, ReduceOp::kSum);
                         EXPECT_EQ(sum, 2);
                       }),
              Each("no error"));
  EXPECT_THAT(lines.text(), HasSubstr("was closed: it did not say this job's token"));
}

TEST(Strangers, AWrongTokenGetsNoAnswer) {
  const int port = free_port();
  const auto errors = on_ranks(2, [&](int rank) {
    WorldOptions o = world_options(rank, 2, port);
    if (rank == 0) o.timeout = milliseconds(3000);
    if (rank == 1) o.token = "another token";
    World world(o);
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 of 2 did not come"));
  EXPECT_THAT(errors[1],
              HasSubstr("said nothing or closed the connection; it must be rank 0 of this job, with the same token"));
}

// Two connected sockets.
std::pair<Socket, Socket> connection() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  return {Socket(ends[0]), Socket(ends[1])};
}

std::unique_ptr<Links> rank_zero(Socket to_one, milliseconds heartbeat = kSoon) {
  std::vector<Socket> sockets(2);
  sockets[1] = std::move(to_one);
  return std::make_unique<Links>(0, std::move(sockets), heartbeat);
}

TEST(Links, ARankThatIsGoneIsNoticedAtOnce) {
  auto [a, b] = connection();
  const auto links = rank_zero(std::move(a));
  Transfer t;
  int x = 0;
  links->receive(t, 1, 0, &x, sizeof x);
  b.close();
  EXPECT_EQ(error_of([&] { links->wait(t, kSoon); }),
            "runtime: rank 1 is gone: its connection closed without a goodbye; it crashed or was killed");
  EXPECT_EQ(links->failed_rank(), 1);
}

TEST(Links, ASilentRankIsNoticedAfterTheHeartbeatLimit) {
  auto [a, b] = connection();
  const Deadline start = Clock::now();
  const auto links = rank_zero(std::move(a), milliseconds(200));
  Transfer t;
  int x = 0;
  links->receive(t, 1, 0, &x, sizeof x);
  EXPECT_EQ(error_of([&] { links->wait(t, kSoon); }),
            "timeout: rank 1 does not answer: nothing was heard from it for 200 ms; it is stopped, hung or cut off");
  EXPECT_GE(Clock::now() - start, milliseconds(200));
}

TEST(Links, SignsOfLifeKeepAnIdleConnection) {
  auto [a, b] = connection();
  std::vector<Socket> sockets(2);
  sockets[0] = std::move(b);
  constexpr milliseconds kHeartbeat{1000};  // longer than a busy machine holds a thread up
  const auto zero = rank_zero(std::move(a), kHeartbeat);
  Links one(1, std::move(sockets), kHeartbeat);
  Transfer t;
  int x = 0;
  zero->receive(t, 1, 0, &x, sizeof x);
  // Three limits long nothing is sent but signs of life.
  EXPECT_THAT(error_of([&] { zero->wait(t, 3 * kHeartbeat); }), HasSubstr("waited 3000 ms for rank 1, which is alive"));
}

TEST(Links, GarbageFromAPeerIsAFailureNotACrash) {
  for (const std::string& words :
       {std::string(24, '\xff'), std::string(100, 'A'), std::string("\2\0\0\0", 4) + std::string(20, '\1')}) {
    auto [a, b] = connection();
    const auto links = rank_zero(std::move(a));
    Transfer t;
    int x = 0;
    links->receive(t, 1, 0, &x, sizeof x);
    ASSERT_TRUE(write_all(b, words.data(), words.size(), Clock::now() + kSoon));
    EXPECT_THAT(error_of([&] { links->wait(t, kSoon); }), HasSubstr("rank 1 sent what nobody asked for"));
  }
}

TEST(Links, MoreThanTheSocketTakesArrivesWhole) {
  auto [a, b] = connection();
  std::vector<Socket> sockets(2);
  sockets[0] = std::move(b);
  const auto zero = rank_zero(std::move(a));
  Links one(1, std::move(sockets), kSoon);
  std::vector<uint32_t> sent(5'000'000), got(sent.size());
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<uint32_t>(i * 2654435761u);
  Transfer out, in, small_out, small_in;
  int x = 42, y = 0;
  one.send(out, 0, 1, sent.data(), sent.size() * 4);
  one.send(small_out, 0, 2, &x, sizeof x);
  zero->receive(small_in, 1, 2, &y, sizeof y);
  zero->receive(in, 1, 1, got.data(), got.size() * 4);
  zero->wait(in, kSoon);
  zero->wait(small_in, kSoon);
  one.wait(out, kSoon);
  EXPECT_EQ(sent, got);
  EXPECT_EQ(y, 42);
}

TEST(Links, WhatIsGivenUpIsAFailureOfThisRank) {
  auto [a, b] = connection();
  std::vector<Socket> sockets(2);
  sockets[0] = std::move(b);
  const auto zero = rank_zero(std::move(a));
  Links one(1, std::move(sockets), kSoon);
  Transfer mine, theirs;
  std::vector<char> gone(1 << 20), waiting(1 << 20);
  one.receive(theirs, 0, 5, waiting.data(), waiting.size());
  zero->receive(mine, 1, 9, gone.data(), gone.size());
  zero->withdraw(mine);
  EXPECT_EQ(error_of([&] { one.wait(theirs, kSoon); }), "runtime: rank 0 gave up what it had begun");
  EXPECT_EQ(one.failed_rank(), 0);
  EXPECT_THAT(error_of([&] { zero->send(mine, 1, 5, gone.data(), 1); }), HasSubstr("rank 0 gave up"));
}

}  // namespace
}  // namespace sluice::test
