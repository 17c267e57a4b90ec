#pragma once
// The extents of a pooling, as its kernels walk them.
#include <array>
#include <cstdint>

namespace sluice::cpu {

// One side of a pooling: where lane 0 of plane 0 continues.
struct PoolSide {
  std::array<int64_t, 3> size{1, 1, 1}, stride{0, 0, 0};  // spatial
  int64_t batch_stride = 0, channel_stride = 0;
};
struct Pool {
  int64_t batch = 1, channels = 1;
  bool lanes_are_channels = true;  // else one lane per plane
  PoolSide x, y;
  std::array<int64_t, 3> kernel{1, 1, 1}, step{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
  bool include_padding = true;
  int64_t divisor = 0;
  int threads = 1;

  int64_t planes() const { return lanes_are_channels ? batch : batch * channels; }
  int64_t lanes() const { return lanes_are_channels ? channels : 1; }
  // From one output of a block to the next (for_each_block): in x, in y, and in flat spatial indices of x.
  int64_t x_step() const { return lanes_are_channels ? x.channel_stride : step[2] * x.stride[2]; }
  int64_t y_step() const { return lanes_are_channels ? y.channel_stride : y.stride[2]; }
  int64_t flat_step() const { return lanes_are_channels ? 0 : step[2]; }
  int64_t base(const PoolSide& s, int64_t plane) const {
    return lanes_are_channels ? plane * s.batch_stride
                              : plane / channels * s.batch_stride + plane % channels * s.channel_stride;
  }
};
using PoolFn = void (*)(const Pool&, const void* in0, const void* in1, void* out0, void* out1);

}  // namespace sluice::cpu
