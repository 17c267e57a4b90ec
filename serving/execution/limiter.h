#pragma once
// How many steps at the same time use a resource, over all models of a server.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "model_config.pb.h"

namespace sluice::serving {

// Thread-safe.
class RateLimiter {
 public:
  // `limits`: of resources; others have as many as the model that takes most of them.
  explicit RateLimiter(std::map<std::string, uint32_t> limits) : limits_(std::move(limits)) {}

  class Client;
  // `wake` is called, on any thread, when a turn is kept for the client; it must not block nor call the limiter. Throws
  // kInvalidArgument when a step would take more than there is. Null for a need of nothing.
  std::shared_ptr<Client> join(const inference::ModelRateLimiter& need, std::function<void()> wake);
  // False when it has to wait; then it will be woken, unless it gives up.
  bool acquire(Client& client);
  void give_up(Client& client);
  void release(Client& client);
  void leave(Client& client);  // with all it has

 private:
  bool fits(const Client& client) const;
  void grant();

  std::mutex mutex_;
  const std::map<std::string, uint32_t> limits_;
  std::map<std::string, uint32_t> limit_, used_;
  std::vector<Client*> waiting_;
};

}  // namespace sluice::serving
