#include "actors/numerics.h"

#include <cmath>
#include <fstream>

#include "base/elements.h"

namespace sluice::actors {
std::string output_file(const plan::Kernel& kernel, int output, uint64_t step, const char* suffix) {
  std::string name = kernel.name;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-') c = '_';
  }
  return fmt::format("{}.{}.step{}{}", name, output, step, suffix);
}

void NumericsCheck::wrote(const plan::Kernel& kernel, int /*index*/, int output, uint64_t step, const std::byte* data) {
  const TensorSpec& spec = kernel.outputs[output].spec;
  if (!is_floating(spec.dtype)) return;
  const auto size = static_cast<int64_t>(dtype_size(spec.dtype));
  int64_t bad = -1;
  double value = 0;
  for_each_element(spec, [&](int64_t i, int64_t offset) {
    if (bad >= 0) return;
    const double v = element_of(spec.dtype, data + offset * size);
    if (std::isfinite(v)) return;
    bad = i;
    value = v;
  });
  if (bad < 0) return;
  const std::string path = directory_ + "/" + output_file(kernel, output, step, ".bin");
  std::ofstream file(path, std::ios::binary);
  for_each_element(
      spec, [&](int64_t, int64_t offset) { file.write(reinterpret_cast<const char*>(data + offset * size), size); });
  file.close();
  const std::string type = std::string(dtype_name(spec.dtype)) + spec.shape.str();
  fail(ErrorKind::kRuntime, "{}: output {} is not finite: element {} of {} is {}; {}", kernel.op, output, bad, type,
       value, file ? fmt::format("the whole output is in {}", path) : fmt::format("{} could not be written", path));
}

}  // namespace sluice::actors
