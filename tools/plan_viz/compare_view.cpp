// compare: where two runs of a plan part, by what their kernels have written (SessionOptions::dump).
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "base/elements.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/files/npy.h"
#include "plan/json/json.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {
namespace {

constexpr const char* kHeader = "step,kernel,name,op,output,dtype,shape,min,max,mean,std,nan,inf,denormal,file,source";

// A line of stats.csv.
struct Row {
  uint64_t step = 0;
  int kernel = 0, output = 0;
  std::string name, op, type, file, source;
  std::vector<double> numbers;  // min, max, mean, std, nan, inf, denormal
};

// Rows of the same output of the same kernel in the same step.
using Key = std::tuple<uint64_t, std::string, int>;
Key key_of(const Row& row) { return {row.step, row.name, row.output}; }

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"')
      fields.back() += line[++i];
    else if (line[i] == '"')
      quoted = !quoted;
    else if (line[i] == ',' && !quoted)
      fields.emplace_back();
    else
      fields.back() += line[i];
  }
  return fields;
}

std::vector<Row> read_dump(const std::string& directory) {
  const std::string path = directory + "/stats.csv";
  std::istringstream lines(read_file(path));
  std::string line;
  SLUICE_CHECK_KIND(kValue, std::getline(lines, line) && line == kHeader,
                    "{}: begins with '{:.60}'; must be the stats.csv of a dump", path, line);
  std::vector<Row> rows;
  for (int number = 2; std::getline(lines, line); ++number) {
    const std::vector<std::string> f = fields_of(line);
    try {
      SLUICE_CHECK_KIND(kValue, f.size() == 16, "{} fields", f.size());
      Row row{std::stoull(f[0]), std::stoi(f[1]), std::stoi(f[4]), f[2], f[3], f[5] + f[6], f[14], f[15], {}};
      for (int i = 7; i < 14; ++i) row.numbers.push_back(std::stod(f[i]));
      rows.push_back(std::move(row));
    } catch (const std::exception& error) {
      fail(ErrorKind::kValue, "{}: line {} is no line of a dump: {}", path, number, error.what());
    }
  }
  return rows;
}

// How far apart two numbers are, as a multiple of the tolerance: |a - b| <= tolerance * (1 + |b|) is at most 1.
double distance(double a, double b, double tolerance) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double apart = std::abs(a - b) / (1 + std::abs(b));
  if (!std::isfinite(apart)) return INFINITY;
  return tolerance > 0 ? apart / tolerance : INFINITY;
}

struct Difference {
  double far = 0;  // distance()
  std::string text;
};

Difference compare_files(const std::string& a, const std::string& b, double tolerance) {
  const NpyArray x = read_npy(a), y = read_npy(b);
  SLUICE_CHECK_KIND(kValue, x.type == y.type, "{} and {}: arrays of other dtypes or shapes", a, b);
  const auto size = static_cast<int64_t>(dtype_size(x.type.dtype));
  Difference worst;
  for (int64_t i = 0; i < numel(x.type.shape); ++i) {
    const double v = element_of(x.type.dtype, x.data.data() + i * size),
                 w = element_of(y.type.dtype, y.data.data() + i * size);
    const double far = distance(v, w, tolerance);
    if (far > worst.far) worst = {far, fmt::format("element {} is {} and {}", i, v, w)};
  }
  return worst;
}

Difference compare_rows(const Row& a, const Row& b, const std::string& of_a, const std::string& of_b,
                        double tolerance) {
  if (a.type != b.type) return {INFINITY, fmt::format("{} and {}", a.type, b.type)};
  if (!a.file.empty() && !b.file.empty()) return compare_files(of_a + "/" + a.file, of_b + "/" + b.file, tolerance);
  constexpr const char* kNames[] = {"min", "max", "mean", "std", "nan", "inf", "denormal"};
  Difference worst;
  for (size_t i = 0; i < a.numbers.size(); ++i) {
    const double far = distance(a.numbers[i], b.numbers[i], tolerance);
    if (far > worst.far) worst = {far, fmt::format("{} is {} and {}", kNames[i], a.numbers[i], b.numbers[i])};
  }
  return worst;
}

}  // namespace

DumpComparison compare_dumps(const std::string& a, const std::string& b, double tolerance) {
  DumpComparison result;
  std::map<Key, Row> others;
  for (Row& row : read_dump(b)) others.emplace(key_of(row), std::move(row));
  std::vector<Row> rows = read_dump(a);
  std::stable_sort(rows.begin(), rows.end(), [](const Row& x, const Row& y) {
    return std::tie(x.step, x.kernel, x.output) < std::tie(y.step, y.kernel, y.output);
  });
  for (const Row& row : rows) {
    const auto other = others.find(key_of(row));
    if (other == others.end()) {
      ++result.only_one;
      continue;
    }
    ++result.compared;
    const Difference difference = compare_rows(row, other->second, a, b, tolerance);
    others.erase(other);
    if (difference.far <= 1) continue;
    result.differing.push_back({row.step, row.name, row.op, row.output, row.type, row.source, difference.text});
  }
  result.only_one += others.size();
  SLUICE_CHECK_KIND(kValue, result.compared > 0, "{} and {}: no kernel and step in both; dump the same ones", a, b);
  return result;
}

std::string compare_text(const DumpComparison& c, const TextOptions& options) {
  const std::string alone =
      c.only_one == 0 ? "" : fmt::format("; {} in one of the two only", count_str(c.only_one, "output"));
  if (c.differing.empty())
    return fmt::format("{}: {} compared{}\n", paint("equal", Color::kGreen, options), count_str(c.compared, "output"),
                       alone);
  const DumpComparison::Row& first = c.differing.front();
  std::string text =
      fmt::format("{}: op {} of kernel '{}' in step {}, output {} ({}): {}{}\n",
                  paint("first difference", Color::kRed, options), first.op, first.name, first.step, first.output,
                  first.type, first.text, first.source.empty() ? "" : "  (" + first.source + ")");
  text += fmt::format("{} of {} differ{}\n\n", c.differing.size(), count_str(c.compared, "output"), alone);
  std::vector<std::vector<std::string>> lines = {{"step", "kernel", "output", "difference"}};
  constexpr size_t kShown = 20;
  for (size_t i = 0; i < c.differing.size() && (options.all || i < kShown); ++i) {
    const DumpComparison::Row& row = c.differing[i];
    lines.push_back({std::to_string(row.step), row.name, std::to_string(row.output), row.text});
  }
  text += table(lines, {true, false, true, false}, options.width);
  if (!options.all && c.differing.size() > kShown)
    text += fmt::format("and {} more (--all)\n", c.differing.size() - kShown);
  return text;
}

std::string compare_json(const DumpComparison& c) {
  std::string rows;
  for (const DumpComparison::Row& row : c.differing)
    rows += fmt::format(
        "{}{{\"step\": {}, \"kernel\": {}, \"op\": {}, \"output\": {}, \"type\": {}, \"source\": {}, \"difference\": "
        "{}}}",
        rows.empty() ? "" : ", ", row.step, plan::quoted_json(row.name), plan::quoted_json(row.op), row.output,
        plan::quoted_json(row.type), plan::quoted_json(row.source), plan::quoted_json(row.text));
  return fmt::format("{{\"compared\": {}, \"only_one\": {}, \"differing\": [{}]}}\n", c.compared, c.only_one, rows);
}

}  // namespace sluice::plan_viz
