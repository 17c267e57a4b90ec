#include "plan/moved.h"

#include <cctype>

#include "plan/placed.h"

namespace sluice::plan {
namespace {

// Wherever `name` stands by itself: "sim:1" is no part of "sim:10".
void rename_in(std::string& text, const std::string& name, const std::string& to) {
  const auto is_part = [&](size_t at) {
    const unsigned char c = at < text.size() ? text[at] : ' ';
    return std::isalnum(c) != 0 || c == '_';
  };
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at)) {
    const bool alone = (at == 0 || !is_part(at - 1)) && !is_part(at + name.size());
    if (alone) text.replace(at, name.size(), to);
    at += alone ? to.size() : name.size();
  }
}

}  // namespace

DeviceId device_of(const Plan& plan) {
  DeviceId device;
  for (const Stream& stream : plan.streams) {
    if (stream.device == DeviceId{} || stream.device == device) continue;
    SLUICE_CHECK_KIND(kUnsupported, device == DeviceId{},
                      "plan '{}': it is for {} and {}; a plan of one device can move", plan.name, device.str(),
                      stream.device.str());
    device = stream.device;
  }
  for (const auto& [name, value] : plan.options)
    SLUICE_CHECK_KIND(kUnsupported, !name.starts_with(kDeviceOrder),
                      "plan '{}': it was made for an order of devices, {}; a plan of one device can move", plan.name,
                      name.substr(std::string_view(kDeviceOrder).size()));
  return device;
}

void move_plan(Plan& plan, const DeviceId& from, const DeviceId& to) {
  const std::string name = from.str(), there = to.str();
  for (Space& space : plan.spaces)
    if (space.device == from) space.device = to;
  for (Stream& stream : plan.streams) {
    if (stream.device == from) stream.device = to;
    rename_in(stream.name, name, there);
  }
  for (Arena& arena : plan.arenas) rename_in(arena.name, name, there);
  for (Actor& actor : plan.actors) rename_in(actor.name, name, there);
  for (Register& reg : plan.registers) rename_in(reg.name, name, there);
  for (Buffer& buffer : plan.buffers) rename_in(buffer.name, name, there);
  for (auto& [option, value] : plan.options)
    if (std::string* device = std::get_if<std::string>(&value); option == "device" && device != nullptr)
      rename_in(*device, name, there);
  rename_in(plan.target, name, there);
}

}  // namespace sluice::plan
