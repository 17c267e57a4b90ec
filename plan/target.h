#pragma once
// The questions that a compiler may ask about the devices it compiles for. Plain facts and kernel queries; no device
// types.
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/attr.h"
#include "base/cost.h"
#include "base/device.h"
#include "base/tensor_spec.h"

namespace sluice::plan {

struct DeviceDesc {
  DeviceId device;
  bool host_memory = true;  // kernels read and write host memory; otherwise copies are needed
  bool asynchronous = false;
  int cores = 1;
  uint64_t memory_bytes = 0;  // 0: unknown
  bool dma = false;           // copies between it and the host move dense bytes, and block unless the host's are pinned
};

struct KernelQuery {
  std::string op;
  NamedAttrs attrs;
  std::vector<TensorSpec> inputs, outputs;
  DeviceId device;
  int cores = 1;
  Cost cost = {};
  // Inputs, ascending, that the kernel may ask for packed (PreparedKernel::packings): they do not change between runs.
  std::vector<int> packed = {};
};

// An input that a kernel wants packed.
struct PackedInput {
  int input = 0;
  std::string format;  // PackedCopy::format
  uint64_t bytes = 0;
};

enum class Layout : uint8_t { kAny, kContiguous, kChannelsLast };

// The strides that a kernel wants of its operands. kAny: any strides are accepted as they come.
struct LayoutPreference {
  std::vector<Layout> inputs, outputs;
};

struct InPlacePair {
  int output = 0, input = 0;
};

class Target {
 public:
  virtual ~Target() = default;
  virtual std::vector<DeviceDesc> devices() const = 0;
  virtual bool has_kernel(const std::string& op, DeviceKind kind) const = 0;
  virtual LayoutPreference layouts(const KernelQuery& query) const = 0;
  virtual uint64_t workspace_bytes(const KernelQuery& query) const = 0;
  virtual std::vector<InPlacePair> in_place(const KernelQuery& query) const = 0;
  // May the call be a step of the device's "fused" or "fused_rows"? Asked of devices that have it; strides do not
  // count.
  virtual bool can_fuse(const KernelQuery& query) const = 0;
  // The sizes {m, n, k} to which zeros should make a product of (m, k) and (k, n) larger, since it is done sooner then;
  // empty: it should stay as it is. Asked with the shapes that the call has; strides do not count.
  virtual Ints padded_sizes(const KernelQuery& query) const {
    (void)query;
    return {};
  }
  // Which of query.packed the kernel wants packed, and how. kept: they stay as they are for many runs, so that it may
  // cost more to pack them than a run gains.
  virtual std::vector<PackedInput> packings(const KernelQuery& query, bool kept) const {
    (void)query, (void)kept;
    return {};
  }
  // Names the implementation by which the kernel is fastest, found by trial: plan::kImplementation; "": the usual one.
  virtual std::string implementation(const KernelQuery& query) const {
    (void)query;
    return {};
  }
  // The text of which the kernel is made at run time; "": it is not made so.
  virtual std::string source(const KernelQuery& query) const {
    (void)query;
    return {};
  }
  virtual double cost_ns(const KernelQuery& query) const = 0;
  // Equal fingerprints mean equal answers to every query above.
  virtual std::string fingerprint() const = 0;
};

}  // namespace sluice::plan
