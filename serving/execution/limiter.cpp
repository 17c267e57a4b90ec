#include "serving/execution/limiter.h"

#include <algorithm>
#include <set>

#include "serving/core/error.h"

namespace sluice::serving {

class RateLimiter::Client {
 public:
  std::map<std::string, uint32_t> need;
  uint32_t priority = 1;
  std::function<void()> wake;
  uint64_t turns = 0;
  uint32_t taken = 0;  // turns under way, those kept included
  bool kept = false;   // a turn, until it is fetched
  bool waits = false;
};

std::shared_ptr<RateLimiter::Client> RateLimiter::join(const inference::ModelRateLimiter& need,
                                                       std::function<void()> wake) {
  auto client = std::make_shared<Client>();
  for (const auto& resource : need.resources())
    if (resource.count() > 0) client->need[resource.name()] += resource.count();
  if (client->need.empty()) return nullptr;
  client->priority = std::max<uint32_t>(need.priority(), 1);
  client->wake = std::move(wake);
  const std::lock_guard lock(mutex_);
  for (const auto& [name, count] : client->need) {
    const auto given = limits_.find(name);
    if (given != limits_.end() && given->second < count)
      throw Error(Code::kInvalidArgument, "rate_limiter: resource '" + name + "': a step takes " +
                                              std::to_string(count) + "; the server has " +
                                              std::to_string(given->second));
    // A resource for which the server has no limit has as much as the largest step takes, so that any step can run, and
    // two of the largest cannot run at once.
    limit_[name] = given != limits_.end() ? given->second : std::max(limit_[name], count);
  }
  // A client that comes late does not get all turns until it has caught up.
  for (const Client* other : waiting_) client->turns = std::max(client->turns, other->turns);
  return client;
}

bool RateLimiter::fits(const Client& client) const {
  return std::all_of(client.need.begin(), client.need.end(), [&](const auto& need) {
    const auto used = used_.find(need.first);
    return (used == used_.end() ? 0 : used->second) + need.second <= limit_.at(need.first);
  });
}

// Those who have had the fewest turns, weighed by their priority, come first; who does not fit keeps later ones from
// what it needs.
void RateLimiter::grant() {
  std::stable_sort(waiting_.begin(), waiting_.end(),
                   [](const Client* a, const Client* b) { return a->turns * a->priority < b->turns * b->priority; });
  std::set<std::string> blocked;
  std::vector<Client*> left;
  for (Client* client : waiting_) {
    const bool free = std::none_of(client->need.begin(), client->need.end(),
                                   [&](const auto& need) { return blocked.contains(need.first); });
    if (!free || !fits(*client)) {
      for (const auto& [name, count] : client->need) blocked.insert(name);
      left.push_back(client);
      continue;
    }
    for (const auto& [name, count] : client->need) used_[name] += count;
    ++client->taken;
    client->kept = true;
    client->waits = false;
    client->wake();
  }
  waiting_ = std::move(left);
}

bool RateLimiter::acquire(Client& client) {
  const std::lock_guard lock(mutex_);
  // A turn may be granted while the client does something else: it is kept for the client, which is woken to fetch it.
  if (!client.kept) {
    if (!client.waits) waiting_.push_back(&client);
    client.waits = true;
    grant();
  }
  if (!client.kept) return false;
  client.kept = false;
  ++client.turns;
  return true;
}

void RateLimiter::give_up(Client& client) {
  const std::lock_guard lock(mutex_);
  if (client.waits) std::erase(waiting_, &client);
  client.waits = false;
  if (!client.kept) return;
  client.kept = false;
  --client.taken;
  for (const auto& [name, count] : client.need) used_[name] -= count;
  grant();
}

void RateLimiter::release(Client& client) {
  const std::lock_guard lock(mutex_);
  // leave() may have given the turns back already.
  if (client.taken == 0) return;
  --client.taken;
  for (const auto& [name, count] : client.need) used_[name] -= count;
  grant();
}

void RateLimiter::leave(Client& client) {
  const std::lock_guard lock(mutex_);
  if (client.waits) std::erase(waiting_, &client);
  client.waits = client.kept = false;
  for (; client.taken > 0; --client.taken)
    for (const auto& [name, count] : client.need) used_[name] -= count;
  grant();
}

}  // namespace sluice::serving
