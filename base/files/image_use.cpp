#include "base/files/image_use.h"

#include <map>
#include <mutex>

#include "base/fork.h"

namespace sluice {

ImageUse& image_use(int64_t meter) {
  static std::mutex mutex;
  static const ForkLock fork_lock(mutex);  // workers of input pipelines are forked
  static std::map<int64_t, ImageUse> all;
  const std::lock_guard lock(mutex);
  return all[meter];
}

}  // namespace sluice
