#pragma once
// From a graph to kernel calls, in passes over graphs that say more and more: where nodes run, which copies move values
// to where they are read, how values lie in memory, and which copies keep what would be overwritten. Each pass is a
// file here; what it establishes holds to the end, and its verifier checks it.
#include <span>
#include <string>
#include <vector>

#include "compiler/lowered.h"
#include "compiler/pass.h"

namespace sluice::compiler {

// lowering/<name>.cpp
int placement(graph::Graph& graph, PassContext& context);
int schedule(graph::Graph& graph, PassContext& context);
int transfers(graph::Graph& graph, PassContext& context);
int layout(graph::Graph& graph, PassContext& context);
int snapshots(graph::Graph& graph, PassContext& context);
int spill(graph::Graph& graph, PassContext& context);

void verify_placement(const graph::Graph& graph, const PassContext& context);
void verify_transfers(const graph::Graph& graph, const PassContext& context);
void verify_layout(const graph::Graph& graph, const PassContext& context);
void verify_snapshots(const graph::Graph& graph, const PassContext& context);

// Nodes in the order they are to run: the trace's, with nodes that free memory moved up unless it is to stay as
// written, or that would keep more alive.
std::vector<int> order_of_nodes(const graph::Graph& graph, bool as_written = false);
// The same by a preference among nodes that could run: options.order "speed", "overlap" or "short_last"
// (list_order.cpp).
std::vector<int> preferred_order(const graph::Graph& graph, const PassContext& context);

// The built-in ops, and those that only compiled graphs have: what their text is parsed with.
const OpRegistry& lowering_ops();

}  // namespace sluice::compiler
