#include "kernels/cpu/strides/streamed_copy.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace sluice::cpu {
namespace {

TEST(StreamedCopyTest, CopiesWhatItIsGivenAndNothingBeside) {
  std::vector<unsigned char> from(400);
  std::iota(from.begin(), from.end(), static_cast<unsigned char>(1));
  for (size_t at : {0, 1, 4, 16, 60, 63}) {
    for (size_t bytes : {0, 1, 3, 63, 64, 65, 128, 200, 300}) {
      std::vector<unsigned char> to(400, 0);
      streamed_copy(from.data() + 5, to.data() + at, static_cast<int64_t>(bytes));
      finish_streams();
      std::vector<unsigned char> expected(400, 0);
      std::copy_n(from.begin() + 5, bytes, expected.begin() + static_cast<std::ptrdiff_t>(at));
      EXPECT_EQ(to, expected) << at << " " << bytes;
    }
  }
}

TEST(StreamedCopyTest, TheCacheIsKnownOrEndless) { EXPECT_GE(streaming_bytes(), 1 << 20); }

}  // namespace
}  // namespace sluice::cpu
