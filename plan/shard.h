#pragma once
// A value that lies on several devices is several values to a plan, one on each of them.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/tensor_spec.h"

namespace sluice::plan {

// A part, or a copy, of an input, output or variable of a graph.
struct Shard {
  std::string name, whole;  // what the plan calls it, and what the graph calls all of it
  DeviceId device;
  TensorType type;  // of the shard
  // It is [start, start + type.shape[axis]) of these axes, which ascend, and all of the others.
  struct Cut {
    int axis = 0;
    int64_t start = 0;
    bool operator==(const Cut&) const = default;
  };
  std::vector<Cut> cuts = {};
  std::string lies = {};  // on a mesh of several axes: how the whole lies, as in "S(0),B on sim:0-3 (2, 2)"
  int64_t start(int axis) const;
  bool operator==(const Shard&) const = default;
  std::string str() const;  // "'w@1/sim:0', [8, 16) of dimension 0 of 'w'"; "..., [0, 2) of dimension 1 of 'w'"
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
