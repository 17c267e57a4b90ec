#include "kernels/cuda/ordering.h"

#include <bit>

namespace sluice::cuda {
namespace {

constexpr int64_t kDigitBits = 6;
constexpr int64_t kDigits = 1 << kDigitBits;
constexpr int64_t kOneBlock = 8192;  // items that one block orders by itself
constexpr int64_t kTileItems = 4096;

// A thread owns items that follow each other. counts[slot(d, t)] is how many items of digit d thread t has, then how
// many of them stand before its own in its quarter of the block; before[] is what stands before that quarter, and
// total[d] what the block has in all. Runs are padded, so that the threads of a warp scan them in different banks.
constexpr const char* kTileFunctions = R"(
constexpr int kDigits = 64, kRun = 66;
__device__ inline int slot(int digit, int thread) { return (digit * 4 + thread / 64) * kRun + thread % 64; }
__device__ inline int digit_of(Index key, int shift) { return (int)(key >> shift) & (kDigits - 1); }
template <class Keys>
__device__ inline void count_digits(Keys keys, Index begin, Index end, int shift, u16* counts, u32* before, u32* total) {
  const int t = (int)threadIdx.x;
  for (int k = t; k < kThreads * kRun; k += kThreads) counts[k] = 0;
  __syncthreads();
  for (Index i = begin; i < end; ++i) ++counts[slot(digit_of(keys[i], shift), t)];
  __syncthreads();
  u16* run = counts + t * kRun;
  u32 sum = 0;
  for (int k = 0; k < 64; ++k) {
    const u32 count = run[k];
    run[k] = (u16)sum;
    sum += count;
  }
  before[t] = sum;
  __syncthreads();
  u32 earlier = 0;
  for (int k = t - t % 4; k < t; ++k) earlier += before[k];
  if (t % 4 == 3) total[t / 4] = earlier + sum;
  __syncthreads();
  before[t] = earlier;
  __syncthreads();
}
)";

// Statements that place items [begin, end) where base[d] and the counts say. `place` is the position of item i.
std::string placing(const std::string& place) {
  return R"(  for (Index i = begin; i < end; ++i) {
    const Index key = from_keys[i];
    const int digit = digit_of(key, kShift), at = slot(digit, t);
    const Index to = base[digit] + (Index)before[digit * 4 + t / 64] + (Index)counts[at]++;
    to_keys[to] = key;
    to_places[to] = )" +
         place + ";\n  }\n";
}

constexpr const char* kShared = R"(  __shared__ u16 counts[kThreads * kRun];
  __shared__ u32 before[kThreads], total[kDigits];
  __shared__ Index base[kDigits];
  const int t = (int)threadIdx.x;
)";

// Two keys and two places of each item, in the workspace: a pass reads one pair of arrays and writes the other.
class Pairs {
 public:
  Pairs(const Writer& writer, const Order& what, Generated& generated)
      : at_(align_up(generated.workspace_bytes, 64)),
        bytes_(align_up(static_cast<uint64_t>(what.count) * writer.index_size(), 64)) {
    generated.workspace_bytes = at_ + 4 * bytes_;
  }
  // Pointers to what a pass reads and writes, as expressions; keys first. REQUIRES: `which` is below 4.
  std::string array(int which) const {
    return fmt::format("((Index*)((char*)work + {}))", at_ + static_cast<uint64_t>(which) * bytes_);
  }
  std::string from_keys(int pass) const { return array(pass % 2 * 2); }
  std::string from_places(int pass) const { return array(pass % 2 * 2 + 1); }
  std::string to_keys(int pass) const { return array(2 - pass % 2 * 2); }
  std::string to_places(int pass) const { return array(3 - pass % 2 * 2); }

 private:
  uint64_t at_, bytes_;
};

// All passes, by one block.
Source order_in_block(const Writer& writer, const Order& what, const Pairs& pairs, int passes) {
  return writer.blocks("order", what.count == 0 ? 0 : 1,
                       kShared +
                           fmt::format("  Index* pairs[4] = {{{}, {}, {}, {}}};\n", pairs.array(0), pairs.array(1),
                                       pairs.array(2), pairs.array(3)) +
                           R"(  for (Index i = t; i < kCount; i += kThreads) {
    Index key = 0;
)" + what.key +
                           fmt::format(R"(    pairs[0][i] = key;
    pairs[1][i] = i;
  }}
  __syncthreads();
  constexpr Index kEach = (kCount + kThreads - 1) / kThreads;
  const Index begin = t * kEach < kCount ? t * kEach : kCount, end = begin + kEach < kCount ? begin + kEach : kCount;
  for (int pass = 0; pass < {}; ++pass) {{
    const int kShift = pass * {};
    const Index *from_keys = pairs[pass % 2 * 2], *from_places = pairs[pass % 2 * 2 + 1];
    Index *to_keys = pairs[2 - pass % 2 * 2], *to_places = pairs[3 - pass % 2 * 2];
    count_digits(from_keys, begin, end, kShift, counts, before, total);
    if (t < kDigits) {{
      Index sum = 0;
      for (int d = 0; d < t; ++d) sum += (Index)total[d];
      base[t] = sum;
    }}
    __syncthreads();
)",
                                       passes, kDigitBits) +
                           placing("from_places[i]") + "    __syncthreads();\n  }\n");
}

// Turns the counts of digits by tile into where each tile's items of a digit begin.
Source add_up_counts(const Writer& writer, const std::string& sums) {
  return writer.blocks("offsets", 1,
                       fmt::format(R"(  __shared__ Index all[kThreads];
  constexpr Index kAll = kDigits * kTiles, kShare = (kAll + kThreads - 1) / kThreads;
  Index* sums = {};
  const int t = (int)threadIdx.x;
  const Index begin = t * kShare < kAll ? t * kShare : kAll, end = begin + kShare < kAll ? begin + kShare : kAll;
  Index sum = 0;
  for (Index i = begin; i < end; ++i) sum += sums[i];
  all[t] = sum;
  __syncthreads();
  sum = 0;
  for (int k = 0; k < t; ++k) sum += all[k];
  for (Index i = begin; i < end; ++i) {{
    const Index count = sums[i];
    sums[i] = sum;
    sum += count;
  }}
)",
                                   sums));
}

// One pass by tiles: their counts, where each begins, and the placing, which counts once more.
void order_by_tiles(const Writer& writer, const Pairs& pairs, int pass, int64_t tiles, const std::string& sums,
                    Generated& generated) {
  Writer tile = writer;
  tile.constant("kShift", pass * kDigitBits);
  const std::string head =
      kShared + fmt::format("  const Index* from_keys = {};\n", pairs.from_keys(pass)) +
      R"(  const Index first = ((Index)blockIdx.x * kThreads + t) * kEach, begin = first < kCount ? first : kCount;
  const Index end = begin + kEach < kCount ? begin + kEach : kCount;
  count_digits(from_keys, begin, end, kShift, counts, before, total);
)";
  generated.stages.push_back(
      tile.blocks(fmt::format("count{}", pass).c_str(), tiles,
                  head + fmt::format("  if (t < kDigits) {}[t * kTiles + blockIdx.x] = (Index)total[t];\n", sums)));
  generated.stages.push_back(add_up_counts(writer, sums));
  generated.stages.push_back(tile.blocks(
      fmt::format("place{}", pass).c_str(), tiles,
      head + fmt::format("  if (t < kDigits) base[t] = {}[t * kTiles + blockIdx.x];\n  __syncthreads();\n", sums) +
          fmt::format("  const Index* from_places = {};\n  Index *to_keys = {}, *to_places = {};\n",
                      pairs.from_places(pass), pairs.to_keys(pass), pairs.to_places(pass)) +
          placing(pass == 0 ? "i" : "from_places[i]")));
}

}  // namespace

Ordered order(const Writer& writer, const Order& what, Generated& generated) {
  const Pairs pairs(writer, what, generated);
  const int passes = (std::bit_width(static_cast<uint64_t>(what.limit)) + kDigitBits - 1) / kDigitBits;
  const Ordered ordered = {fmt::format("((const Index*){})", pairs.from_keys(passes)),
                           fmt::format("((const Index*){})", pairs.from_places(passes))};
  Writer with = writer;
  with.constant("kCount", what.count);
  with.add(kTileFunctions);
  if (what.count <= kOneBlock) {
    generated.stages.push_back(order_in_block(with, what, pairs, passes));
    generated.stages.back().describe = what.describe;
    return ordered;
  }
  Source keys =
      with.each("keys", what.count, "    Index key = 0;\n" + what.key + "    " + pairs.array(0) + "[i] = key;\n");
  keys.describe = what.describe;
  generated.stages.push_back(std::move(keys));
  const int64_t tiles = (what.count + kTileItems - 1) / kTileItems;
  const std::string sums = fmt::format("((Index*)((char*)work + {}))", generated.workspace_bytes);
  generated.workspace_bytes += static_cast<uint64_t>(tiles * kDigits) * writer.index_size();
  with.constant("kTiles", tiles);
  with.constant("kEach", kTileItems / kThreads);
  for (int pass = 0; pass < passes; ++pass) order_by_tiles(with, pairs, pass, tiles, sums, generated);
  return ordered;
}

}  // namespace sluice::cuda
