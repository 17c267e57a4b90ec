#include "streams/collective/world.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "streams/collective/carrier.h"
#include "streams/collective/gloo.h"
#include "streams/collective/links.h"

namespace sluice::collective {

namespace {

std::vector<int> all_ranks(const WorldOptions& options) {
  std::vector<int> ranks(options.size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

World::World(const WorldOptions& options)
    : World(options, options.carrier == kGloo ? meet(options) : std::vector<Socket>()) {}

World::World(const WorldOptions& options, std::vector<Socket> sockets)
    : options_(options),
      carrier_(options.carrier == kGloo ? nullptr : make_carrier(options)),
      links_(carrier_ ? nullptr : std::make_shared<Links>(options.rank, std::move(sockets), options.heartbeat)),
      all_(make(all_ranks(options), 0)),
      control_(make(all_ranks(options), 1)) {}

std::unique_ptr<Communicator> World::make(const std::vector<int>& ranks, uint32_t channel) const {
  if (carrier_) return make_message_communicator(carrier_, options_, ranks, channel);
  return make_gloo_communicator(links_, ranks, channel, options_.timeout);
}

std::vector<std::shared_ptr<World>> World::in_one_process(int size) {
  std::vector<std::vector<Socket>> sockets(size);
  for (std::vector<Socket>& of_rank : sockets) of_rank.resize(size);
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) std::tie(sockets[a][b], sockets[b][a]) = connected_pair();
  }
  std::vector<std::shared_ptr<World>> worlds;
  for (int rank = 0; rank < size; ++rank) {
    WorldOptions options;
    options.rank = rank;
    options.size = size;
    worlds.emplace_back(new World(options, std::move(sockets[rank])));
  }
  return worlds;
}

World::~World() { leave(); }

std::unique_ptr<Communicator> World::communicator(const std::vector<int>& ranks, uint32_t channel) {
  const bool ascending = std::is_sorted(ranks.begin(), ranks.end()) &&
                         std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end() && !ranks.empty();
  SLUICE_CHECK(ascending && ranks.front() >= 0 && ranks.back() < size() &&
                   std::binary_search(ranks.begin(), ranks.end(), rank()),
               "distributed: a group of ranks ({}); they must be ascending, below {}, and with rank {} itself",
               fmt::join(ranks, ", "), size(), rank());
  SLUICE_CHECK(channel >= kFirstChannel && channel < kEndOfChannels,
               "distributed: channel {}; it must be from {} to {}", channel, kFirstChannel, kEndOfChannels - 1);
  return make(ranks, channel);
}

void World::forbid_looks() {
  if (links_) links_->forbid_looks();
}
void World::fail(const std::string& text) noexcept { carrier_ ? carrier_->fail(text) : links_->fail(text); }
void World::leave(const std::string& failure) noexcept { carrier_ ? carrier_->leave(failure) : links_->leave(failure); }
Status World::failure() const { return carrier_ ? carrier_->failure() : links_->failure(); }
int World::failed_rank() const { return carrier_ ? carrier_->failed_rank() : links_->failed_rank(); }

}  // namespace sluice::collective
