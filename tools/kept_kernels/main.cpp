// kept_kernels OUT MODEL...: writes which kernels of the cpu these models need, for builds that have no others. A model
// is a bundle, or a text with a list of ops.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/files/file.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/families.h"
#include "kernels/kernel.h"
#include "runtime/family/needed_ops.h"

namespace {

using namespace sluice;

struct Family {
  const char* function;
  void (*add)(KernelTable& table);
};

constexpr Family kFamilies[] = {
#define FAMILY(FUNCTION) {#FUNCTION, cpu::FUNCTION},
#include "kernels/cpu/families.inc"
#undef FAMILY
};

std::set<std::string> ops_of(const std::string& model) {
  std::error_code ignored;
  if (std::filesystem::is_directory(model, ignored) || BundleSource::is_archive(model))
    return needed_ops(BundleSource(model));
  std::istringstream words(read_file(model));
  return {std::istream_iterator<std::string>(words), {}};
}

// With those that kernels are made of. The others are of extensions and backends, or are collectives.
std::set<std::string> kernels_of(const std::set<std::string>& ops, const KernelTable& table) {
  std::set<std::string> kernels;
  for (const std::string& op : ops) {
    const KernelDef* const def = table.find(op, DeviceKind::kCpu);
    if (def == nullptr) {
      fmt::print("kept_kernels: {}: no kernel of Sluice's on the cpu; an extension or a backend must bring it\n", op);
      continue;
    }
    kernels.insert(op);
    kernels.insert(def->made_of.begin(), def->made_of.end());
  }
  return kernels;
}

std::string kept_text(const std::set<std::string>& kernels) {
  std::string text = "// Written by kept_kernels.\n";
  for (const Family& family : kFamilies) {
    KernelTable alone;
    family.add(alone);
    bool needed = false;
    for (const std::string& op : alone.ops(DeviceKind::kCpu)) needed = needed || kernels.contains(op);
    if (needed) text += fmt::format("FAMILY({})\n", family.function);
  }
  for (const std::string& op : kernels) text += fmt::format("KEPT(\"{}\")\n", op);
  return text;
}

}  // namespace

int main(int argc, char** argv) try {
  SLUICE_CHECK(argc > 2, "kept_kernels: {} arguments; needs OUT and a MODEL", argc - 1);
  KernelTable all;
  add_cpu_kernels(all);
  std::set<std::string> ops;
  for (int i = 2; i < argc; ++i) ops.merge(ops_of(argv[i]));
  const std::set<std::string> kernels = kernels_of(ops, all);
  SLUICE_CHECK(!kernels.empty(), "kept_kernels: no kernels are needed; give models that have some");
  std::ofstream out(argv[1], std::ios::binary);
  out << kept_text(kernels);
  out.flush();
  SLUICE_CHECK_KIND(kIo, out.good(), "{}: cannot be written", argv[1]);
  fmt::print("{} of {} kernels are kept\n", kernels.size(), all.ops(DeviceKind::kCpu).size());
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
