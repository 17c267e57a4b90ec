#include <map>

#include "plan/json/json.h"
#include "plan/placed.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

std::string devices_text(const Plan& plan, const TextOptions& options) {
  const std::vector<PlacedKernel> placed = placed_kernels(plan);
  std::map<DeviceId, size_t> kernels;
  std::vector<std::vector<std::string>> rows = {{"kernel", "op", "device", "why"}};
  for (const PlacedKernel& p : placed) {
    const Kernel& kernel = plan.kernels[p.kernel];
    rows.push_back({kernel.name, kernel.op, p.device.str(), p.why});
    ++kernels[p.device];
  }
  std::string counts;
  for (const auto& [device, count] : kernels)
    counts += (counts.empty() ? "" : "; ") + device.str() + ": " + count_str(count, "kernel");
  return paint(fmt::format("plan '{}'", plan.name), Color::kBold, options) + "  " + counts + "\n" +
         table(rows, {false, false, false, false}, options.width);
}

std::string devices_json(const Plan& plan) {
  std::string s = fmt::format("{{\"name\": {}, \"kernels\": [", quoted_json(plan.name));
  const char* comma = "";
  for (const PlacedKernel& p : placed_kernels(plan)) {
    const Kernel& kernel = plan.kernels[p.kernel];
    s += fmt::format("{}\n  {{\"name\": {}, \"op\": {}, \"device\": \"{}\", \"why\": {}}}", comma,
                     quoted_json(kernel.name), quoted_json(kernel.op), p.device.str(), quoted_json(p.why));
    comma = ",";
  }
  return s + "]}\n";
}

}  // namespace sluice::plan_viz
