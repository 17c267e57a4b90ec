#pragma once
// The fixed parts of the html page.

namespace sluice::plan_viz {

extern const char kPageStyle[];     // CSS
extern const char kPageBody[];      // <body> without its end
extern const char kPageLanes[];     // script: data, lanes, zoom, picking
extern const char kPageRequests[];  // script: a server's requests above the lanes
extern const char kPageDetails[];   // script: details, tables, search, start

}  // namespace sluice::plan_viz
