// Elementwise ops: generated from their expressions.
#include <cstring>

#include "kernels/cuda/expressions.h"
#include "kernels/cuda/families.h"

namespace sluice::cuda {
namespace {

template <Source (*kSource)(const plan::KernelQuery&)>
Generated one(const plan::KernelQuery& query) {
  return {{kSource(query)}};
}

}  // namespace

void add_elementwise_kernels(KernelTable& table) {
  for (const Expression& e : expressions()) {
    if (std::strchr(e.op, ':') == nullptr) add_generated(table, e.op, one<elementwise_source>);  // else a variant
  }
  add_generated(table, "cast", one<cast_source>);
  add_generated(table, "where", one<where_source>);
}

}  // namespace sluice::cuda
