#pragma once
// A value that lies on several devices is several values to a plan, one on each of them.
#include <cstdint>
#include <map>
#include <string>

#include "base/device.h"
#include "base/tensor_spec.h"

namespace sluice::plan {

// A part, or a copy, of an input, output or variable of a graph.
struct Shard {
  std::string name, whole;  // what the plan calls it, and what the graph calls all of it
  DeviceId device;
  TensorType type;  // of the shard
  int axis = -1;    // it is [start, start + type.shape[axis]) of that axis; -1: a copy of the whole
  int64_t start = 0;
  bool operator==(const Shard&) const = default;
  std::string str() const;  // "'w@1/sim:0', [8, 16) of dimension 0 of 'w'"
};

using ShardsByName = std::map<std::string, Shard>;

// The shards of a graph over several devices.
struct Shards {
  ShardsByName inputs, outputs, variables;
  bool empty() const { return inputs.empty() && outputs.empty() && variables.empty(); }
};

// Null when there is none of that name.
const Shard* find_shard(const ShardsByName& shards, const std::string& name);

// The place of a shard in the memory of its whole.
struct Window {
  uint64_t offset = 0;  // bytes
  TensorSpec spec;
};
// Throws kValue when it does not fit in there.
Window window_of(const Shard& shard, const TensorSpec& whole);

}  // namespace sluice::plan
