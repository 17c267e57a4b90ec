#include "runtime/session/dump.h"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/elements.h"
#include "base/error.h"
#include "base/files/npy.h"

namespace sluice {
namespace {

constexpr const char* kForm = "must be parts of \"ops=conv*,steps=2-3,stats,tensors,dir=PATH\"";

uint64_t parse_step(const std::string& text, std::string_view number) {
  uint64_t step = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), step);
  SLUICE_CHECK_KIND(kValue, error == std::errc() && end == number.data() + number.size(),
                    "dump: '{}': step '{}' is no number; steps count from 0, as in steps=2-3", text, number);
  return step;
}

// Statistics of the finite elements.
struct Statistics {
  double least = INFINITY, most = -INFINITY, mean = 0, squares = 0;
  int64_t n = 0, nan = 0, infinite = 0, denormal = 0;

  void add(double v, double least_normal) {
    if (std::isnan(v)) {
      ++nan;
    } else if (std::isinf(v)) {
      ++infinite;
    } else {
      least = std::min(least, v);
      most = std::max(most, v);
      ++n;
      if (v != 0 && std::abs(v) < least_normal) ++denormal;
      const double before = v - mean;  // Welford's
      mean += before / static_cast<double>(n);
      squares += before * (v - mean);
    }
  }
  double deviation() const { return n == 0 ? 0 : std::sqrt(squares / static_cast<double>(n)); }
};

// The least positive number that is not denormal. What is no float has no such numbers.
double least_normal_of(DType dtype) {
  if (dtype == DType::kFloat16) return std::ldexp(1.0, -14);
  if (dtype == DType::kFloat64) return std::numeric_limits<double>::min();
  return is_floating(dtype) ? double{std::numeric_limits<float>::min()} : 0;
}

// A field of a line whose fields may hold commas.
std::string csv_field(const std::string& text) {
  std::string field = "\"";
  for (const char c : text) field += c == '"' ? "\"\"" : std::string(1, c);
  return field + '"';
}

}  // namespace

DumpOptions parse_dump(const std::string& text) {
  DumpOptions options;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = part.find('=');
    const std::string key = part.substr(0, equals), value = equals == std::string::npos ? "" : part.substr(equals + 1);
    if (key == "ops" && !value.empty()) {
      options.ops.push_back(value);
    } else if (key == "dir" && !value.empty()) {
      options.directory = value;
    } else if (key == "steps" && !value.empty()) {
      const size_t dash = value.find('-');
      options.first_step = parse_step(text, std::string_view(value).substr(0, dash));
      options.last_step =
          dash == std::string::npos ? options.first_step : parse_step(text, std::string_view(value).substr(dash + 1));
      SLUICE_CHECK_KIND(kValue, options.first_step <= options.last_step,
                        "dump: '{}': steps {} to {}; the first must not be after the last", text, options.first_step,
                        options.last_step);
    } else if (part == "tensors") {
      options.tensors = true;
    } else {
      SLUICE_CHECK_KIND(kValue, part == "stats", "dump: '{}': got '{}'; {}", text, part, kForm);
    }
  }
  return options;
}

Dump::Dump(DumpOptions options) : options_(std::move(options)) {
  std::error_code error;
  std::filesystem::create_directories(options_.directory, error);
  const std::string path = options_.directory + "/stats.csv";
  stats_.open(path);
  SLUICE_CHECK_KIND(kIo, stats_.is_open(), "{}: cannot be written: {}", path, std::strerror(errno));
  stats_ << "step,kernel,name,op,output,dtype,shape,min,max,mean,std,nan,inf,denormal,file,source\n";
}

bool Dump::wants(const plan::Kernel& kernel, uint64_t step) const {
  if (step < options_.first_step || step > options_.last_step) return false;
  const auto matches = [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), kernel.op.c_str(), 0) == 0 || fnmatch(pattern.c_str(), kernel.name.c_str(), 0) == 0;
  };
  return options_.ops.empty() || std::any_of(options_.ops.begin(), options_.ops.end(), matches);
}

void Dump::wrote(const plan::Kernel& kernel, int index, int output, uint64_t step, const std::byte* data) {
  const TensorSpec& spec = kernel.outputs[output].spec;
  const auto size = static_cast<int64_t>(dtype_size(spec.dtype));
  Statistics statistics;
  const double least_normal = least_normal_of(spec.dtype);
  for_each_element(spec, [&](int64_t, int64_t offset) {
    statistics.add(element_of(spec.dtype, data + offset * size), least_normal);
  });
  std::string file;
  if (options_.tensors) {
    std::vector<std::byte> dense(static_cast<size_t>(numel(spec.shape) * size));
    for_each_element(spec, [&](int64_t i, int64_t offset) {
      std::memcpy(dense.data() + i * size, data + offset * size, static_cast<size_t>(size));
    });
    file = actors::output_file(kernel, output, step, ".npy");
    write_npy(options_.directory + "/" + file, {spec.dtype, spec.shape}, dense.data());
  }
  const MutexLock lock(mutex_);
  stats_ << fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", step, index, csv_field(kernel.name),
                        kernel.op, output, dtype_name(spec.dtype), csv_field(spec.shape.str()), statistics.least,
                        statistics.most, statistics.mean, statistics.deviation(), statistics.nan, statistics.infinite,
                        statistics.denormal, csv_field(file),
                        csv_field(kernel.source.known() ? kernel.source.str() : ""));
  stats_.flush();
  SLUICE_CHECK_KIND(kIo, stats_, "{}/stats.csv: cannot be written: {}", options_.directory, std::strerror(errno));
}

}  // namespace sluice
