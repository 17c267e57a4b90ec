// The plans that this process keeps for later ones (sluice.cache).
#include "tensor/session/plan_cache.h"

#include <cstdlib>
#include <mutex>

#include "base/fork.h"
#include "bindings.h"
#include "graph_object.h"
#include "tensor/eager.h"

namespace sluice::python {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 30;

struct Plans {
  std::mutex mutex;
  const ForkLock fork_lock{mutex};
  bool known = false;  // whether there is one
  std::shared_ptr<PlanCache> cache;
};

Plans& plans() {
  static auto* const plans = new Plans();  // graphs may outlive main
  return *plans;
}

std::shared_ptr<PlanCache> make_cache() {
  const char* const given = std::getenv("SLUICE_CACHE");
  const std::string mode = given == nullptr || *given == '\0' ? "off" : given;
  SLUICE_CHECK(mode == "on" || mode == "off" || mode == "check", "SLUICE_CACHE: '{}'; must be on, off or check", mode);
  const std::string directory = cache_directory("plans");
  if (mode == "off" || directory.empty()) return nullptr;
  const auto use = mode == "check" ? PlanCache::Use::kCheck : PlanCache::Use::kRead;
  return std::make_shared<PlanCache>(directory, kMostBytes, use, default_eager().ops());
}

nb::dict stats() {
  const std::shared_ptr<PlanCache> cache = process_plans();
  FileCache::Stats counts;
  if (cache != nullptr) {
    GilRelease release;
    counts = cache->files().stats();
  }
  nb::dict d;
  d["hits"] = counts.hits;
  d["misses"] = counts.misses;
  d["stored"] = counts.stored;
  d["rejected"] = counts.rejected;
  d["evicted"] = counts.evicted;
  d["entries"] = counts.entries;
  d["bytes"] = counts.bytes;
  d["limit"] = cache == nullptr ? nb::object(nb::none()) : nb::object(nb::int_(cache->files().most_bytes()));
  d["directory"] = cache == nullptr ? nb::object(nb::none()) : nb::object(nb::str(cache->files().directory().c_str()));
  return d;
}

}  // namespace

std::shared_ptr<PlanCache> process_plans() {
  const std::lock_guard lock(plans().mutex);
  if (!plans().known) plans().cache = make_cache();
  plans().known = true;
  return plans().cache;
}

void bind_plan_cache(nb::module_& m) {
  m.def(
      "set_plan_cache",
      [](const std::optional<std::string>& directory, bool check) {
        const auto use = check ? PlanCache::Use::kCheck : PlanCache::Use::kRead;
        std::shared_ptr<PlanCache> cache;
        if (directory) cache = std::make_shared<PlanCache>(*directory, kMostBytes, use, default_eager().ops());
        const std::lock_guard lock(plans().mutex);
        plans().cache = std::move(cache);
        plans().known = true;
      },
      Release(), nb::arg("directory").none(), nb::arg("check"));
  m.def("plan_cache_stats", &stats);
  m.def(
      "clear_plan_cache",
      [] {
        if (const auto cache = process_plans()) cache->files().clear();
      },
      Release());
  m.def(
      "set_plan_cache_limit",
      [](uint64_t bytes) {
        if (const auto cache = process_plans()) cache->files().set_most_bytes(bytes);
      },
      Release(), nb::arg("bytes"));
}

}  // namespace sluice::python
