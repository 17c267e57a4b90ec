#pragma once
// Images from encoded files.
#include <span>

#include "graph/op_def.h"
#include "graph/value.h"

namespace sluice::ops {

std::span<const OpDef* const> images_ops();

// `count` images of (channels, height, width) from files as base/files/packed_files.h lays them; uint8. `boxes`,
// float32 (count, 4), and `flip`, bool (count), may be undefined: see the op.
Value decode_jpeg(const Value& files, const Value& boxes, const Value& flip, int64_t count, int64_t height,
                  int64_t width, int64_t channels);

}  // namespace sluice::ops
