#include "kernels/cpu/indexing/indices.h"

#include "kernels/cpu/math/numeric.h"
#include "kernels/cpu/math/vector_math.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {

void bad_index(const std::string& op, int64_t index, int64_t limit, int dim) {
  fail(ErrorKind::kIndex, "{}: index out of range: {} at axis {} of size {}; must be in [0, {}]", op, index, dim, limit,
       limit - 1);
}

SLUICE_CLONES bool all_below(const int64_t* index, int64_t n, int64_t limit) {
  uint64_t bad = 0;
  for (int64_t i = 0; i < n; ++i) bad |= static_cast<uint64_t>(index[i]) >= static_cast<uint64_t>(limit) ? 1 : 0;
  return bad == 0;
}

int indexed_axis(const plan::KernelQuery& q) {
  return normalize_axis(get_attr<int64_t>(q.attrs, "dim"), q.inputs.at(0).shape.rank(), q.op.c_str());
}

}  // namespace sluice::cpu
