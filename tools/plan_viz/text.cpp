#include "tools/plan_viz/text.h"

#include <numeric>

namespace sluice::plan_viz {

size_t columns(std::string_view text) {
  size_t n = 0;
  bool escape = false;
  for (const char c : text) {
    if (c == '\x1b') escape = true;
    if (!escape && (static_cast<unsigned char>(c) & 0xC0) != 0x80) ++n;
    if (escape && c == 'm') escape = false;
  }
  return n;
}

std::string cut(const std::string& text, size_t width) {
  if (columns(text) <= width) return text;
  std::string s;
  size_t n = 0;
  bool escape = false, colored = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\x1b') escape = colored = true;
    const bool starts = !escape && (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    if (starts && ++n == width) break;
    s += c;
    if (escape && c == 'm') escape = false;
  }
  return s + (colored ? "\x1b[0m…" : "…");
}

std::string padded(const std::string& text, size_t width) {
  const size_t n = columns(text);
  return n >= width ? text : text + std::string(width - n, ' ');
}

std::string paint(const std::string& text, Color color, const TextOptions& options) {
  constexpr const char* kCodes[] = {"", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[34m", "\x1b[33m", "\x1b[31m"};
  if (!options.color || color == Color::kNone) return text;
  return kCodes[static_cast<int>(color)] + text + "\x1b[0m";
}

std::string time_str(double ns) {
  if (ns >= 1e9) return fmt::format("{:.3g} s", ns / 1e9);
  if (ns >= 1e6) return fmt::format("{:.3g} ms", ns / 1e6);
  if (ns >= 1e3) return fmt::format("{:.3g} us", ns / 1e3);
  return fmt::format("{:.3g} ns", ns);
}

std::string count_str(size_t n, const char* noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }

std::string short_bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right, int width) {
  std::vector<size_t> widths(right.size());
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], columns(row[c]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string fill(widths[c] - columns(row[c]), ' ');
      line += " " + (right[c] ? fill + row[c] : row[c] + fill) + " ";
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    text += cut(line, static_cast<size_t>(width)) + "\n";
  }
  return text;
}

std::string escaped(const std::string& text) {
  std::string s;
  for (const char c : text) {
    if (c == '<')
      s += "&lt;";
    else if (c == '&')
      s += "&amp;";
    else
      s += c;
  }
  return s;
}

std::vector<int> chain(const plan::Plan& plan, int stream) {
  std::vector<int> order;
  std::vector<bool> seen(plan.actors.size());
  const auto add = [&](int a) {
    if (seen[a] || plan.actors[a].stream != stream) return;
    seen[a] = true;
    order.push_back(a);
  };
  for (const int a : plan.certificate) add(a);
  for (int a = 0; a < static_cast<int>(plan.actors.size()); ++a) add(a);
  return order;
}

std::vector<int> streams_by_device(const plan::Plan& plan) {
  std::vector<int> order(plan.streams.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return plan.streams[a].device < plan.streams[b].device; });
  return order;
}

std::string stream_label(const plan::Plan& plan, int stream) {
  const plan::Stream& s = plan.streams[stream];
  const std::string device = s.device.str() + "/";
  return s.name.starts_with(device) ? s.name : device + s.name;
}

const std::string& base_name(const plan::Plan& plan, const plan::View& view) {
  if (view.base == plan::BaseKind::kRegister) return plan.registers[view.index].name;
  if (view.base == plan::BaseKind::kVariable) return plan.variables[view.index].name;
  return plan.buffers[view.index].name;
}

std::string view_str(const plan::Plan& plan, const plan::View& view) {
  if (plan::is_absent(view)) return "none";
  std::string s = fmt::format("{} {}{}", base_name(plan, view), dtype_name(view.spec.dtype), view.spec.shape.str());
  if (!is_contiguous(view.spec.shape, view.spec.strides)) {
    const bool channels_last =
        view.spec.shape.rank() >= 3 && view.spec.strides == channels_last_strides(view.spec.shape);
    s += channels_last ? " channels-last" : " strides " + view.spec.strides.str();
  }
  if (view.offset) s += fmt::format(" +{}", view.offset);
  if (view.packed >= 0) s += " packed";
  return s;
}

std::string events_of(const plan::Plan& plan, const plan::Adjacency& adjacency, int reg) {
  const auto asynchronous = [&](int actor) {
    return plan.streams[plan.actors[actor].stream].device.kind != DeviceKind::kCpu;
  };
  const int producer = plan.registers[reg].producer;
  bool ready = false, ack = false;
  for (const int e : adjacency.register_edges[reg]) {
    const int consumer = plan.edges[e].consumer;
    if (plan.actors[consumer].stream == plan.actors[producer].stream) continue;  // the stream's order is enough
    ready |= asynchronous(producer);
    ack |= asynchronous(consumer);
  }
  return ready && ack ? "ready, ack" : ready ? "ready" : ack ? "ack" : "";
}

std::string wrapped(const std::string& text, int width) {
  std::string s, line;
  for (size_t at = 0; at < text.size();) {
    const size_t next = std::min(text.find(" -(", at + 1), text.size());
    const std::string hop = text.substr(at, next - at);
    if (columns(line + hop) > static_cast<size_t>(width)) {
      s += line + "\n";
      line = "   ";
    }
    line += hop;
    at = next;
  }
  return s + line + "\n";
}

}  // namespace sluice::plan_viz
