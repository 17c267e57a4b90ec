#pragma once
// Images resized row by row, by a linear filter as wide as the scale: Pillow's BILINEAR, to the bit.
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/images/image_reader.h"
#include "kernels/cpu/support/support.h"

namespace sluice::cpu {

// What becomes of a resized row: uint8, or v * scale + shift as float32 or bfloat16, in a plane per channel.
struct PixelSink {
  DType dtype = DType::kUInt8;
  float scale[3] = {1, 1, 1}, shift[3] = {};
};

// The memory in which a thread resizes images to one size, whatever size they come in.
class ResizeWorkspace {
 public:
  ResizeWorkspace(int channels, int64_t height, int64_t width);
  uint64_t bytes() const { return layout_.bytes(); }

 private:
  friend class Resizer;
  WorkspaceLayout layout_;
  uint64_t row_, ring_, sums_, line_, planes_, first_across_, weights_across_, pairs_, first_down_, weights_down_;
};

class Resizer {
 public:
  // REQUIRES: `workspace` has places.bytes(), 64-aligned, and is nobody else's meanwhile.
  Resizer(const ResizeWorkspace& places, void* workspace, int channels, int64_t height, int64_t width);

  // Resizes the box that `reader` was started with. `to`: contiguous (channels, height, width) of the sink's dtype.
  void run(ImageReader& reader, const Box& box, bool flip, const PixelSink& sink, void* to);

 private:
  struct Axis;
  void emit(const uint8_t* line, int64_t y, bool flip, const PixelSink& sink, void* to);
  void through_ring(ImageReader& reader, const Axis& across, const Axis& down, bool flip, const PixelSink& sink,
                    void* to);
  void through_sums(ImageReader& reader, const Axis& across, const Axis& down, bool flip, const PixelSink& sink,
                    void* to);
  const uint8_t* narrow(ImageReader& reader, const Axis& across, uint8_t* to);

  const int channels_;
  const int64_t height_, width_;
  uint8_t *row_, *ring_, *line_, *planes_;
  int32_t *sums_, *first_across_, *weights_across_, *pairs_, *first_down_, *weights_down_;
};

}  // namespace sluice::cpu
