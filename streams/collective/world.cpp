#include "streams/collective/world.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <set>

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

// The numbers that are held.
struct World::Lanes {
  std::mutex mutex;
  std::set<int> held;
};

World::World(const WorldOptions& options)
    : options_(options),
      links_(std::make_shared<Links>(options.rank, meet(options), options.heartbeat)),
      all_(make_gloo_communicator(links_, all_ranks(options), 0, options.timeout)),
      control_(make_gloo_communicator(links_, all_ranks(options), 1, options.timeout)),
      lanes_(std::make_shared<Lanes>()) {}

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
  return make_gloo_communicator(links_, ranks, channel, options_.timeout);
}

std::shared_ptr<const int> World::take_lane() {
  std::lock_guard lock(lanes_->mutex);
  int lane = 0;
  while (lanes_->held.contains(lane)) ++lane;
  std::shared_ptr<const int> held(new int(lane), [lanes = lanes_](const int* number) {
    std::lock_guard lock(lanes->mutex);
    lanes->held.erase(*number);
    delete number;
  });
  lanes_->held.insert(lane);
  return held;
}

void World::fail(const std::string& text) noexcept { links_->fail(text); }
void World::leave(const std::string& failure) noexcept { links_->leave(failure); }
Status World::failure() const { return links_->failure(); }
int World::failed_rank() const { return links_->failed_rank(); }

}  // namespace sluice::collective
