#include "streams/collective/world.h"

#include <algorithm>

#include "streams/collective/gloo.h"
#include "streams/collective/links.h"

namespace sluice::collective {

World::World(const WorldOptions& options)
    : options_(options), links_(std::make_shared<Links>(options.rank, meet(options), options.heartbeat)) {}

World::~World() { leave(); }

std::unique_ptr<Communicator> World::communicator(const std::vector<int>& ranks, uint32_t channel) {
  const bool ascending = std::is_sorted(ranks.begin(), ranks.end()) &&
                         std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end() && !ranks.empty();
  SLUICE_CHECK(ascending && ranks.front() >= 0 && ranks.back() < size() &&
                   std::binary_search(ranks.begin(), ranks.end(), rank()),
               "distributed: a group of ranks ({}); they must be ascending, below {}, and with rank {} itself",
               fmt::join(ranks, ", "), size(), rank());
  SLUICE_CHECK(channel < 65536, "distributed: channel {}; it must be below 65536", channel);
  return make_gloo_communicator(links_, ranks, channel, options_.timeout);
}

void World::leave(const std::string& failure) noexcept { links_->leave(failure); }
Status World::failure() const { return links_->failure(); }
int World::failed_rank() const { return links_->failed_rank(); }

}  // namespace sluice::collective
