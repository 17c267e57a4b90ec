// host_function: calls what the engine has registered under the attribute `name`.
#include <cstring>

#include "kernels/cpu/control/spill.h"
#include "kernels/cpu/families.h"
#include "kernels/host_args.h"
#include "kernels/kernel.h"

namespace sluice::cpu {
namespace {

constexpr const char* kFunction = "name";  // the attribute

// An attribute that calls without dims, and older files, do not have.
template <class T>
T attr_or_empty(const NamedAttrs& attrs, const char* name) {
  for (const auto& [key, value] : attrs)
    if (key == name) return get_attr<T>(attrs, name);
  return {};
}

std::vector<TensorType> types_of(const std::vector<TensorSpec>& specs) {
  std::vector<TensorType> types;
  for (const TensorSpec& spec : specs) types.push_back({spec.dtype, spec.shape});
  return types;
}

// Zeros the part of a contiguous tensor that lies beyond the extent of an axis.
void zero_beyond(void* data, const TensorSpec& spec, int axis, int64_t extent) {
  size_t row = dtype_size(spec.dtype), blocks = 1;
  for (int i = 0; i < spec.shape.rank(); ++i)
    (i < axis ? blocks : row) *= static_cast<size_t>(i == axis ? 1 : spec.shape[i]);
  const size_t block = row * static_cast<size_t>(spec.shape[axis]), kept = row * static_cast<size_t>(extent);
  for (size_t b = 0; b < blocks; ++b) std::memset(static_cast<std::byte*>(data) + b * block + kept, 0, block - kept);
}

class HostCall final : public PreparedKernel {
 public:
  HostCall(const plan::KernelQuery& q, HostFunction function)
      : function_(std::move(function)),
        name_(get_attr<std::string>(q.attrs, kFunction)),
        dims_(host_dims(attr_or_empty<Strings>(q.attrs, "dims"), attr_or_empty<Ints>(q.attrs, "input_dims"),
                        attr_or_empty<Ints>(q.attrs, "output_dims"))),
        capacity_(room_of(dims_, types_of(q.inputs), types_of(q.outputs))),
        inputs_(q.inputs.begin(), q.inputs.end() - dims_.taken),
        outputs_(q.outputs.begin(), q.outputs.end() - dims_.given()) {
    needs_cores_ = false;
  }

  void run(const KernelArgs& args) const override {
    std::vector<int64_t> extents = capacity_;
    std::vector<TensorSpec> cut;
    if (dims_.taken > 0) {
      cut = inputs_;
      for (int d = 0; d < dims_.taken; ++d) {
        std::memcpy(&extents[d], args.inputs[inputs_.size() + static_cast<size_t>(d)], sizeof(int64_t));
        check(d, extents[d]);
      }
      for (const HostDims::Axis& axis : dims_.inputs) cut[axis.tensor].shape[axis.axis] = extents[axis.dim];
    }
    function_(HostArgs{args, dims_, extents}, dims_.taken > 0 ? cut : inputs_, outputs_);
    for (int d = dims_.taken; d < static_cast<int>(extents.size()); ++d) {
      check(d, extents[d]);
      std::memcpy(args.outputs[outputs_.size() + static_cast<size_t>(d - dims_.taken)], &extents[d], sizeof(int64_t));
    }
    for (const HostDims::Axis& axis : dims_.outputs)
      zero_beyond(args.outputs[axis.tensor], outputs_[axis.tensor], axis.axis, extents[axis.dim]);
  }

 private:
  void check(int dim, int64_t extent) const {
    SLUICE_CHECK(extent >= 0 && extent <= capacity_[dim], "host function '{}': dim '{}' is {} long; must be 0 to {}",
                 name_, dims_.names[dim], extent, capacity_[dim]);
  }
  const HostFunction function_;
  const std::string name_;
  const HostDims dims_;
  const std::vector<int64_t> capacity_;  // per dim
  const std::vector<TensorSpec> inputs_, outputs_;
};

}  // namespace

void add_host_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu,
            {.op = "host_function",
             .prepare =
                 [](const plan::KernelQuery& q, const PrepareContext& context) {
                   const std::string& name = get_attr<std::string>(q.attrs, kFunction);
                   const HostFunction* found = nullptr;
                   if (context.functions) {
                     const auto it = context.functions->find(name);
                     if (it != context.functions->end()) found = &it->second;
                   }
                   SLUICE_CHECK_KIND(
                       kUnsupported, found != nullptr,
                       "host_function: '{}' is not registered with this engine; register it before loading "
                       "the plan (a runtime without Python cannot run Python actor '{}')",
                       name, name);
                   return std::make_unique<HostCall>(q, *found);
                 },
             .function = kFunction});
  add_spill_kernels(table);
}

}  // namespace sluice::cpu
