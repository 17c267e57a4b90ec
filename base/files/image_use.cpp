#include "base/files/image_use.h"

#include <map>
#include <mutex>

namespace sluice {

ImageUse& image_use(int64_t meter) {
  static std::mutex mutex;
  static std::map<int64_t, ImageUse> all;
  const std::lock_guard lock(mutex);
  return all[meter];
}

}  // namespace sluice
