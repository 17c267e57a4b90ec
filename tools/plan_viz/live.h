#pragma once
// Looks at a process that runs, until it ends.
#include <cstdint>
#include <string>

#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

struct LiveOptions {
  int64_t pid = 0;
  std::string session;  // only plans of this name; "": all
  double interval = 1;  // seconds between two pictures
  int count = -1;       // pictures; 0: until the process ends
  bool json = false;
  bool redraw = false;                      // over the picture before
  int port = 0;                             // of the page; 0: any that is free
  std::vector<std::string> source = {"."};  // folders of the program's files, for the page
  TextOptions text;
};

// In the terminal. Throws what LiveClient throws.
int show_top(const LiveOptions& options);
// Joules a step, by the counters of energy in a folder of the system, or why there are none. Throws what LiveClient
// throws.
int show_energy(const LiveOptions& options, const std::string& folder);
// As a page on 127.0.0.1, for whoever knows its token; until the process ends, or Ctrl-C.
int serve_page(const LiveOptions& options);

}  // namespace sluice::plan_viz
