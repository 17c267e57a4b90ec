#pragma once
// The fuzz targets. Each reads any bytes, accepts sluice::Error (of the server: its own) as the only way to refuse
// them, and aborts on anything else: another exception, a wrong round trip, an error without a place. libFuzzer drives
// them (libfuzzer_entry.cpp); the tests feed them the corpus.
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice::fuzz {

int plan_json(const uint8_t* data, size_t size);      // read, verify, write, read: equal
int recording(const uint8_t* data, size_t size);      // read, blame, write, read: equal
int message_order(const uint8_t* data, size_t size);  // read, write: equal
int graph_text(const uint8_t* data, size_t size);     // parse, infer, print, parse: equal
int safetensors(const uint8_t* data, size_t size);    // read, write, read: equal; no more bytes than the file has
int bundle_dir(const uint8_t* data, size_t size);     // a directory cut from the input
int tar_file(const uint8_t* data, size_t size);       // places of files in a tar archive
int record_file(const uint8_t* data, size_t size);    // places of records
int encoded_image(const uint8_t* data, size_t size);  // JPEG and PNG: a part of an image, row by row
int shapes(const uint8_t* data, size_t size);         // shape arithmetic against 128-bit integers
int op_infer(const uint8_t* data, size_t size);       // any op with any types and attributes
#ifdef SLUICE_FUZZ_ONNX
int onnx_model(const uint8_t* data, size_t size);  // a model of ONNX: its graphs and tensors, checked
#endif
#ifdef SLUICE_FUZZ_SERVING
int http_head(const uint8_t* data, size_t size);      // a request's header, against the plainest reading of it
int infer_json(const uint8_t* data, size_t size);     // a request in JSON, its answer, and that as a request
int bytes_tensor(const uint8_t* data, size_t size);   // texts: to a model's input, and as JSON
int packed_body(const uint8_t* data, size_t size);    // gzip and deflate: unpack, pack, unpack: equal
int config_text(const uint8_t* data, size_t size);    // config.pbtxt: read, completed, printed, read: equal
int infer_message(const uint8_t* data, size_t size);  // a request as gRPC's message, and its response
#endif

struct Target {
  const char* name;  // of its folder in corpus/
  int (*run)(const uint8_t* data, size_t size);
};
inline constexpr Target kTargets[] = {
    {"plan_json", plan_json},     {"recording", recording},         {"graph_text", graph_text},
    {"safetensors", safetensors}, {"bundle_dir", bundle_dir},       {"shapes", shapes},
    {"op_infer", op_infer},       {"message_order", message_order}, {"tar_file", tar_file},
    {"record_file", record_file}, {"encoded_image", encoded_image},
#ifdef SLUICE_FUZZ_ONNX
    {"onnx_model", onnx_model},
#endif
#ifdef SLUICE_FUZZ_SERVING
    {"http_head", http_head},     {"infer_json", infer_json},       {"bytes_tensor", bytes_tensor},
    {"packed_body", packed_body}, {"config_text", config_text},     {"infer_message", infer_message},
#endif
};

// Prints what a target found and aborts, in every build.
[[noreturn]] void finding(std::string_view what, std::string_view detail);
inline void expect(bool holds, std::string_view what, std::string_view detail = {}) {
  if (!holds) finding(what, detail);
}

}  // namespace sluice::fuzz
