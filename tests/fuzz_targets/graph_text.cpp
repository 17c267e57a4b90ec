#include "fuzz_targets/targets.h"
#include "graph/graph.h"

namespace sluice::fuzz {

int graph_text(const uint8_t* data, size_t size) {
  graph::Graph graph;
  try {
    graph = graph::parse({reinterpret_cast<const char*>(data), size}, "fuzz.ir", builtin_ops());
  } catch (const Error& error) {
    const std::string_view text = error.what();
    expect(text.starts_with("fuzz.ir:"), "graph_text: the error names no file and line", text);
    expect(text.size() > 8 && text[8] >= '1' && text[8] <= '9', "graph_text: the error names no line", text);
    return 0;
  }
  graph.verify();
  for (const graph::Node& node : graph.nodes()) graph.cost(node);
  const std::string text = graph::to_text(graph);
  const std::string again = graph::to_text(graph::parse(text, "again.ir", builtin_ops()));
  expect(again == text, "graph_text: not the same after printing and parsing", text + "\n" + again);
  return 0;
}

}  // namespace sluice::fuzz
