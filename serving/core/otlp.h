#pragma once
// Traces in OpenTelemetry's form.
#include <string>

#include "serving/core/trace.h"

namespace sluice::serving {

// One line: an ExportTraceServiceRequest in JSON (OTLP 1.0), as the collector's otlpjsonfile receiver reads it. The
// request is a span, within it its time in the queue and its computation, and in that each firing and kernel.
std::string otlp_record(const RequestTrace& trace);

// Parses W3C's traceparent, "00-<32 hex digits>-<16 hex digits>-<2>"; where it is none of this form, nothing.
struct TraceParent {
  std::string trace_id, span_id;
};
TraceParent trace_parent_of(const std::string& text);

}  // namespace sluice::serving
