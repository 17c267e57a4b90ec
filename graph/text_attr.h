#pragma once
// Values within a line of a graph's text: attributes and types, as attr_str() and TensorType::str() print them.
#include "base/attr.h"
#include "graph/text_cursor.h"

namespace sluice::graph {

TensorType read_type(TextCursor& line);
// (4, 3): of a `what` whose items are called so.
Shape read_sizes(TextCursor& line, const char* what, const char* item);
Attr read_attribute(TextCursor& line, int depth = 0);  // `depth`: graphs around it
// name = value, ... up to '}'. REQUIRES: '{' has been read.
NamedAttrs read_attributes(TextCursor& line, int depth = 0);

}  // namespace sluice::graph
