// positions: where a mask is true.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/families.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kWord = sizeof(uint64_t);

// Writes where `mask` is true to `at`, without a branch for each element, and zeros behind. Returns how many there are.
// Bytes that come from elsewhere may be true without being 1.
int64_t find(const uint8_t* mask, int64_t n, int64_t* at) {
  int64_t count = 0, i = 0;
  // `at` has room for the next one as long as fewer have been found than looked at.
  for (; i + kWord <= n; i += kWord) {
    uint64_t word;
    std::memcpy(&word, mask + i, sizeof word);
    if (word == 0) continue;
    for (int64_t k = i; k < i + kWord; ++k) {
      at[count] = k;
      count += mask[k] != 0;
    }
  }
  for (; i < n; ++i) {
    at[count] = i;
    count += mask[i] != 0;
  }
  std::fill(at + count, at + n, int64_t{0});
  return count;
}

}  // namespace

void add_positions_kernel(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "positions", .prepare = [](const plan::KernelQuery& q, const PrepareContext&) {
                                 const int64_t n = numel(q.inputs.at(0).shape);
                                 return make_kernel(0, [n](const KernelArgs& args) {
                                   *static_cast<int64_t*>(args.outputs[1]) =
                                       find(static_cast<const uint8_t*>(args.inputs[0]), n,
                                            static_cast<int64_t*>(args.outputs[0]));
                                 });
                               }});
}

}  // namespace sluice::cpu
