#include "kernels/c/engine_device.h"

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/c/function.h"
#include "kernels/c/target.h"
#include "kernels/cpu/generated/host_compiler.h"
#include "kernels/kernel.h"
#include "streams/cpu/cpu_device.h"

namespace sluice::c {
namespace {

// The host's cores and memory, under a name of its own.
class EngineDevice final : public Device {
 public:
  EngineDevice(const DeviceId& id, const DeviceOptions& options) : host_(id, options) {}
  plan::DeviceDesc describe() const override {
    plan::DeviceDesc desc = host_.describe();
    desc.cores = 1;
    return desc;
  }
  std::unique_ptr<Stream> create_stream(plan::StreamKind kind, int index) override {
    return host_.create_stream(kind, index);
  }
  void* allocate(const plan::Space& space, uint64_t bytes) override { return host_.allocate(space, bytes); }
  void deallocate(const plan::Space& space, void* data, uint64_t bytes) override {
    host_.deallocate(space, data, bytes);
  }
  void copy_to_host(void* host, const void* device, uint64_t bytes) override {
    host_.copy_to_host(host, device, bytes);
  }
  void copy_from_host(void* device, const void* host, uint64_t bytes) override {
    host_.copy_from_host(device, host, bytes);
  }

 private:
  CpuDevice host_;
};

constexpr const char* kEntry = "sluice_kernel";

std::string source_of(const plan::KernelQuery& query, Shared& shared) {
  const std::string function = function_text(query, shared);
  std::string operands;
  const auto add = [&](const char* qualifier, const char* array, size_t k, const TensorSpec& spec) {
    operands +=
        fmt::format("{}({}{}*){}[{}]", operands.empty() ? "" : ", ", qualifier, memory_type(spec.dtype), array, k);
  };
  for (size_t k = 0; k < query.inputs.size(); ++k) add("const ", "inputs", k, query.inputs[k]);
  for (size_t k = 0; k < query.outputs.size(); ++k) add("", "outputs", k, query.outputs[k]);
  return fmt::format(
      "{}{}\nstatic int kernel{}\nint {}(const void* const* inputs, void* const* outputs);\n"
      "int {}(const void* const* inputs, void* const* outputs) {{\n  (void)inputs;\n  return kernel({});\n}}\n",
      kPrelude, shared.functions(), function, kEntry, kEntry, operands);
}

class PrintedKernel final : public PreparedKernel {
 public:
  explicit PrintedKernel(const plan::KernelQuery& query) {
    Shared shared;
    const std::string source = source_of(query, shared);
    errors_ = shared.errors();
    code_ = generated::compile(source, generated::Language::kC);
    run_ = reinterpret_cast<int (*)(const void* const*, void* const*)>(code_->function(kEntry));
    held_bytes_ = code_->bytes();
  }
  void run(const KernelArgs& args) const override {
    const int error = run_(args.inputs, args.outputs);
    if (error != 0) fail(ErrorKind::kRuntime, "{}", errors_.at(static_cast<size_t>(error) - 1));
  }

 private:
  std::vector<std::string> errors_;  // by number, from 1
  std::shared_ptr<const generated::Code> code_;
  int (*run_)(const void* const*, void* const*) = nullptr;
};

void add_kernels(KernelTable& table) {
  for (const auto& [op, printer] : printers()) {
    KernelDef def{.op = op, .prepare = [](const plan::KernelQuery& query, const PrepareContext&) {
                    return std::make_unique<PrintedKernel>(query);
                  }};
    def.layouts = [](const plan::KernelQuery& query) {
      return plan::LayoutPreference{std::vector(query.inputs.size(), plan::Layout::kAny),
                                    std::vector(query.outputs.size(), plan::Layout::kAny)};
    };
    def.in_place = printer.in_place;
    def.can_fuse = [](const plan::KernelQuery& query) { return printers().at(query.op).fuses; };
    table.add(device().kind, std::move(def));
  }
}

}  // namespace

const Backend& backend() {
  static const std::string kind = device().kind.str();
  static const Backend made{nullptr, kind.c_str(),
                            [](const DeviceId& id, const DeviceOptions& options) -> std::unique_ptr<Device> {
                              return std::make_unique<EngineDevice>(id, options);
                            },
                            add_kernels};
  return made;
}

}  // namespace sluice::c
