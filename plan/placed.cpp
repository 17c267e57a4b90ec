#include "plan/placed.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "plan/query.h"

namespace sluice::plan {

namespace {

std::vector<std::string> order_of(const Plan& plan) {
  constexpr std::string_view kPrefix = kDeviceOrder;
  std::vector<std::string> order;
  for (const auto& [name, value] : plan.options)
    if (name.starts_with(kPrefix)) order.push_back(name.substr(kPrefix.size()));
  return order;
}

std::string by_order(const std::vector<std::string>& order, const std::string& device) {
  const auto found = std::find(order.begin(), order.end(), device);
  const std::string all = fmt::format("{}", fmt::join(order, ", "));
  if (found == order.begin() || found == order.end()) return "first of the order " + all;
  return fmt::format("next of the order {}: no kernel on {}", all, fmt::join(order.begin(), found, ", "));
}

std::string why(const std::vector<std::string>& order, const Kernel& kernel, const Stream& stream) {
  if (stream.kind == StreamKind::kCopyIn || stream.kind == StreamKind::kCopyOut)
    return "moves a value to where it is read";
  switch (kernel.placed) {
    case Placed::kDefault: return "the graph's device";
    case Placed::kNamed: return "named in the program";
    case Placed::kState: return "where its state is read";
    case Placed::kView: return "where what it shows lies";
    case Placed::kOrder: break;
  }
  return by_order(order, stream.device.str());
}

}  // namespace

std::vector<PlacedKernel> placed_kernels(const Plan& plan) {
  const std::vector<int> streams = streams_of_kernels(plan);
  const std::vector<std::string> order = order_of(plan);
  std::vector<PlacedKernel> placed;
  for (int k = 0; k < static_cast<int>(plan.kernels.size()); ++k) {
    if (streams[k] < 0) continue;
    const Stream& stream = plan.streams[streams[k]];
    placed.push_back({k, stream.device, why(order, plan.kernels[k], stream)});
  }
  return placed;
}

}  // namespace sluice::plan
