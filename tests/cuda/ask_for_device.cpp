// Asks for a device in a process of its own, and prints what it is told. Usage: ask_for_device cuda:0
#include <cstdio>

#include "streams/devices.h"

int main(int, char** argv) {
  try {
    const sluice::plan::DeviceDesc desc = sluice::make_device(sluice::parse_device(argv[1]))->describe();
    std::printf("%s: %llu bytes", desc.device.str().c_str(), static_cast<unsigned long long>(desc.memory_bytes));
  } catch (const sluice::Error& error) {
    std::printf("%s: %s", sluice::error_kind_name(error.kind()), error.what());
  }
  return 0;
}
