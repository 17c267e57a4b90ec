#pragma once
// How the ranks of a job find each other: rank 0 listens at the master address, the others come and say who they are,
// and then every two ranks have one connection. After that nobody listens any more.
//
// A connection counts only when its first words are this job's token. Others are closed and logged: strangers can
// neither take part nor disturb. The token travels unencrypted: between hosts, the network has to be trusted.
#include <chrono>
#include <string>
#include <vector>

#include "streams/collective/socket.h"

namespace sluice::collective {

inline constexpr size_t kMaxToken = 64;
inline constexpr const char* kGloo = "gloo";

struct WorldOptions {
  int rank = 0;
  int size = 1;
  Address master{"127.0.0.1", 0};  // rank 0 listens at this address and at no other
  std::string token;               // the same in every rank, 1 to kMaxToken characters
  // How long to wait for the others: for all of them to come, and in each collective.
  std::chrono::milliseconds timeout{300000};
  // A rank not heard of for so long counts as hung: stopped, or cut off from the network.
  std::chrono::milliseconds heartbeat{10000};
  // The carrier of messages: Gloo over connections of our own, or what register_carrier() has (carrier.h), which then
  // finds the ranks, too.
  std::string carrier = kGloo;
};

// Connections to all ranks, by rank (none to itself). Throws kValue for options that cannot be or differ between ranks
// (said in every rank), kTimeout naming the ranks that did not come, kIo when the master's port is taken.
std::vector<Socket> meet(const WorldOptions& options);

}  // namespace sluice::collective
