// sluice-info: what this installation runs on and with, to paste into a bug report.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "include/sluice/sluice.hpp"

int main(int argc, char** argv) {
  CLI::App app("Versions, build, machine, devices and settings of Sluice, to paste into a bug report.", "sluice-info");
  bool json = false;
  app.add_flag("--json", json, "as one JSON object");
  app.set_version_flag("--version", std::string(sluice::api::version()));
  CLI11_PARSE(app, argc, argv);
  try {
    std::fputs(sluice::api::describe(json).c_str(), stdout);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "sluice-info: %s\n", e.what());
    return 1;
  }
  return 0;
}
