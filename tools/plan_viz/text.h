#pragma once
// Small helpers of the text views.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "plan/pack/ledger.h"
#include "plan/plan.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

// Characters of UTF-8 text, colour codes not counted.
size_t columns(std::string_view text);
// `text` cut to `width` columns (ending in "…") or filled up with blanks.
std::string cut(const std::string& text, size_t width);
std::string padded(const std::string& text, size_t width);

// Lines of at most `width` columns, broken before an arrow.
std::string wrapped(const std::string& text, int width);

enum class Color { kNone, kBold, kDim, kGreen, kBlue, kYellow, kRed };
std::string paint(const std::string& text, Color color, const TextOptions& options);

std::string time_str(double ns);                    // "1.25 ms"
std::string count_str(size_t n, const char* noun);  // "1 actor", "3 actors"
std::string short_bytes(uint64_t bytes);            // "1.5 MiB", "640 B"

// A line that says how many events a recording lacks; "" where it has all.
std::string lost_str(const plan::Recording& recording);

// Rows as columns with two blanks between; numbers right-aligned where `right` says so.
std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right, int width);

std::string escaped(const std::string& text);  // for HTML and SVG

// Actors of the stream in the order they fire (certificate), each once; those not in it last.
std::vector<int> chain(const plan::Plan& plan, int stream);

// Streams by device, ranks first; of one device in the plan's order.
std::vector<int> streams_by_device(const plan::Plan& plan);
// The stream's name, behind its device where that is not in it.
std::string stream_label(const plan::Plan& plan, int stream);

// The name of what a view is of. REQUIRES: it is not absent.
const std::string& base_name(const plan::Plan& plan, const plan::View& view);
// "name float32(4, 3)": what a view shows.
std::string view_str(const plan::Plan& plan, const plan::View& view);

// Which messages of a register carry events, since a stream at one end works asynchronously: "ready", "ack",
// "ready, ack" or "".
std::string events_of(const plan::Plan& plan, const plan::Adjacency& adjacency, int reg);

}  // namespace sluice::plan_viz
