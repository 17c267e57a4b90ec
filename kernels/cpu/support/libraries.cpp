#include "kernels/libraries.h"

#include <hwy/highway.h>
#include <hwy/targets.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>

#include "base/build_id.h"
#include "base/error.h"
#include "kernels/cpu/math/vector_math.h"

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
  // Highway chooses among all that the processor has, disabled or not, when it is asked, and leaves it to its caller to
  // choose again. Kernels that are dispatched later would take what limit_instruction_sets() has forbidden.
  hwy::GetChosenTarget().Update(targets);
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

void limit_instruction_sets() {
  static std::once_flag once;
  std::call_once(once, [] {
    const char* const text = std::getenv("SLUICE_MAX_ISA");
    if (text == nullptr || *text == '\0') return;
    struct Level {
      std::string_view name;
      int64_t highway;  // the best of its targets that is allowed
      dnnl_cpu_isa_t onednn;
    };
    static constexpr Level kLevels[] = {{"baseline", HWY_SSE4, dnnl_cpu_isa_sse41},
                                        {"avx2", HWY_AVX2, dnnl_cpu_isa_avx2},
                                        {"avx512", HWY_AVX3, dnnl_cpu_isa_avx512_core}};
    const auto level =
        std::find_if(std::begin(kLevels), std::end(kLevels), [&](const Level& l) { return l.name == text; });
    SLUICE_CHECK(level != std::end(kLevels), "SLUICE_MAX_ISA: '{}'; must be baseline, avx2 or avx512", text);
    hwy::DisableTargets(level->highway - 1);  // lower bits are better ones
    const bool limited = dnnl_set_max_cpu_isa(level->onednn) == dnnl_success;
    SLUICE_CHECK_KIND(
        kUnsupported, limited,
        "SLUICE_MAX_ISA: '{}': oneDNN has chosen its instructions already; set it before the process starts", text);
  });
}

std::vector<InstructionSet> cpu_instruction_sets() {
  limit_instruction_sets();
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
