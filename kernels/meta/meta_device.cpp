#include "kernels/meta/meta_device.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/kernel.h"
#include "streams/cpu/cpu_device.h"

namespace sluice::meta {
namespace {

constexpr const char* kKind = "meta";

// Addresses without memory behind them: who reads or writes there is stopped by the machine.
class MetaDevice final : public Device {
 public:
  MetaDevice(const DeviceId& id, const DeviceOptions& options) : host_(id, options) {}
  plan::DeviceDesc describe() const override {
    plan::DeviceDesc desc = host_.describe();
    desc.host_memory = false;
    return desc;
  }
  std::unique_ptr<Stream> create_stream(plan::StreamKind kind, int index) override {
    return host_.create_stream(kind, index);
  }
  void* allocate(const plan::Space& space, uint64_t bytes) override {
    void* data = mmap(nullptr, size(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) fail(ErrorKind::kMemory, "{}: no addresses for {} bytes", space.str(), bytes);
    return data;
  }
  void deallocate(const plan::Space&, void* data, uint64_t bytes) override { munmap(data, size(bytes)); }
  void copy_to_host(void*, const void*, uint64_t) override {
    fail(ErrorKind::kUnsupported,
         "meta: a tensor of this device has no data that could be read or copied; use to_empty() or empty_like() "
         "for memory elsewhere");
  }
  void copy_from_host(void*, const void*, uint64_t) override {}

 private:
  static uint64_t size(uint64_t bytes) { return std::max<uint64_t>(bytes, 1); }

  CpuDevice host_;
};

class NoKernel final : public PreparedKernel {
 public:
  void run(const KernelArgs&) const override {}
};

void add_kernels(KernelTable& table) {
  for (const std::string& op : table.ops(DeviceKind::kCpu)) {
    KernelDef def{.op = op, .prepare = [](const plan::KernelQuery&, const PrepareContext&) {
                    return std::make_unique<NoKernel>();
                  }};
    table.add(DeviceKind::named(kKind), std::move(def));
  }
}

}  // namespace

const Backend& backend() {
  static const Backend made{nullptr, kKind,
                            [](const DeviceId& id, const DeviceOptions& options) -> std::unique_ptr<Device> {
                              return std::make_unique<MetaDevice>(id, options);
                            },
                            add_kernels};
  return made;
}

}  // namespace sluice::meta
