// sluice-info: what this installation runs on and with, to paste into a bug report; and what errors mean.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "include/sluice/sluice.hpp"
#include "runtime/family/needed_ops.h"
#include "tools/sluice_info/explain.h"
#include "tools/sluice_info/measure.h"

namespace {

std::string ops_of(const std::vector<std::string>& bundles) {
  std::set<std::string> ops;
  for (const std::string& bundle : bundles) ops.merge(sluice::needed_ops(sluice::BundleSource(bundle)));
  return CLI::detail::join(ops, "\n") + "\n";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Versions, build, machine, devices and settings of Sluice, to paste into a bug report.", "sluice-info");
  bool json = false;
  app.add_flag("--json", json, "as one JSON object");
  app.set_version_flag("--version", std::string(sluice::api::version()));
  CLI::App* explain = app.add_subcommand("explain", "what an error means and what to do");
  std::vector<std::string> words;
  explain->add_option("words", words, "the code of the error, such as E201, or a part of its text")->required();
  CLI::App* ops =
      app.add_subcommand("ops", "which kernels bundles need, one in a line, for builds that have no others");
  std::vector<std::string> bundles;
  ops->add_option("bundles", bundles, "directories that sluice.save wrote, or tar archives of them")->required();
  CLI::App* measure =
      app.add_subcommand("measure", "cores, caches, nodes of memory, and how fast bytes are moved: takes a second");
  measure->add_flag("--json", json, "as one JSON object");
  app.require_subcommand(0, 1);  // words of `explain` that are called like another are words
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {  // help is one, too
    return app.exit(e) == 0 ? 0 : 1;
  }
  try {
    const std::string text = *explain   ? sluice::info::explain(CLI::detail::join(words, " "))
                             : *ops     ? ops_of(bundles)
                             : *measure ? sluice::info::measure(json)
                                        : sluice::api::describe(json);
    std::fputs(text.c_str(), stdout);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "sluice-info: %s\n", e.what());
    return 1;
  }
  return 0;
}
