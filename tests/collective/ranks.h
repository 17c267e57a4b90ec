#pragma once
// Ranks as threads of one process, connected as processes are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "streams/collective/links.h"
#include "streams/collective/socket.h"
#include "streams/collective/world.h"
#include "support/error_of.h"

namespace sluice::test {

using namespace sluice::collective;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

inline constexpr milliseconds kSoon{20000};  // nothing of these tests takes so long

// A port that was free a moment ago.
inline int free_port() { return local_address(listen_at({"127.0.0.1", 0})).port; }

inline WorldOptions world_options(int rank, int size, int port) {
  WorldOptions o;
  o.rank = rank;
  o.size = size;
  o.master.port = port;
  o.token = "a token of the tests";
  o.timeout = kSoon;
  o.heartbeat = kSoon;
  return o;
}

// Calls f(rank) on a thread per rank; returns the errors by rank, "no error" where there was none.
inline std::vector<std::string> on_ranks(int size, const std::function<void(int rank)>& f) {
  std::vector<std::string> errors(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) threads.emplace_back([&, r] { errors[r] = error_of([&] { f(r); }); });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// The same with a world and a communicator of all ranks.
inline std::vector<std::string> in_world(int size, const std::function<void(World&, Communicator&)>& f,
                                         const std::function<void(WorldOptions&)>& change = {}) {
  const int port = free_port();
  return on_ranks(size, [&](int rank) {
    WorldOptions options = world_options(rank, size, port);
    if (change) change(options);
    World world(options);
    f(world, world.all());
  });
}

}  // namespace sluice::test
