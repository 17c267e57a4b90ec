#include "kernels/libraries.h"

#include <hwy/highway.h>
#include <hwy/targets.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>

#include "base/build_id.h"
#include "base/error.h"
#include "kernels/cpu/vector_math.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace sluice {

std::vector<LibraryVersion> kernel_libraries() {
  const dnnl_version_t& dnnl = *dnnl_version();
  return {{"oneDNN", fmt::format("{}.{}.{}", dnnl.major, dnnl.minor, dnnl.patch)},
          {"Highway", fmt::format("{}.{}.{}", HWY_MAJOR, HWY_MINOR, HWY_PATCH)},
          {"OpenMP", std::to_string(_OPENMP)}};
}

namespace {

std::string onednn_isa() {
  const auto isa = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
  struct Name {
    unsigned isa;
    const char* name;
  };
  static constexpr Name kNames[] = {
      {dnnl_cpu_isa_sse41, "sse41"},
      {dnnl_cpu_isa_avx, "avx"},
      {dnnl_cpu_isa_avx2, "avx2"},
      {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
      {dnnl_cpu_isa_avx512_core, "avx512_core"},
      {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
      {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
      {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
  };
  for (const Name& name : kNames) {
    if (name.isa == isa) return name.name;
  }
  return fmt::format("{:#x}", isa);
}

std::string highway_target() {
  const int64_t targets = hwy::SupportedTargets();
  return hwy::TargetName(targets & -targets);  // the lowest bit is the best
}

std::string loops() {
#if SLUICE_CLONED
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512cd");
  return v4 ? "x86-64-v4" : v3 ? "x86-64-v3" : "baseline";
#else
  return "baseline";
#endif
}

}  // namespace

std::vector<InstructionSet> cpu_instruction_sets() {
  return {{"oneDNN", onednn_isa()}, {"Highway", highway_target()}, {"loops", loops()}};
}

std::string processor_name() {
  std::string name;
#if defined(__x86_64__)
  for (unsigned leaf = 0x80000002; leaf <= 0x80000004; ++leaf) {
    std::array<unsigned, 4> text{};
    if (__get_cpuid(leaf, &text[0], &text[1], &text[2], &text[3]) == 0) break;
    const auto* const bytes = reinterpret_cast<const char*>(text.data());
    name.append(bytes, strnlen(bytes, sizeof(text)));
  }
#endif
  return fmt::format("{}/{}/{}/{}", name, sysconf(_SC_LEVEL1_DCACHE_SIZE), sysconf(_SC_LEVEL2_CACHE_SIZE),
                     sysconf(_SC_LEVEL3_CACHE_SIZE));
}

void add_machine(Key& key) {
  key.add(build_id()).add(processor_name());
  for (const InstructionSet& set : cpu_instruction_sets()) key.add(set.part).add(set.name);
  for (const LibraryVersion& library : kernel_libraries()) key.add(library.name).add(library.version);
}

}  // namespace sluice
