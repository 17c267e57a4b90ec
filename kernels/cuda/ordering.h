#pragma once
// Stable ordering of keys on the device: what adds up at places that indices name needs, so that the addends of one
// place come together, in the order of their positions, without atomics.
#include "kernels/cuda/writer.h"

namespace sluice::cuda {

struct Order {
  int64_t count = 0;
  int64_t limit = 0;     // keys are at least 0 and below it; `limit` itself stands for none
  std::string key = {};  // statements that set the Index `key` of position i; they may raise()
  DescribeFailure describe = nullptr;
};
// The results of order() in the workspace, as expressions of type const Index*.
struct Ordered {
  std::string keys, places;  // ascending; the positions they had
};

// Appends the stages that order keys by a radix sort of 6 bits a pass: in one launch where a block can do it, else by
// blocks that count, a scan of the counts, and blocks that place. REQUIRES: the writer's Index counts `count`.
Ordered order(const Writer& writer, const Order& what, Generated& generated);

}  // namespace sluice::cuda
