// Requests for inference and their responses, byte by byte: what the protocol's sections on both say.
#include "fixture.h"

namespace sluice::serving::test {
namespace {

constexpr const char* kTwo = R"({"name":"x","datatype":"FP32","shape":[2])";
std::string with(const std::string& rest) { return std::string(R"({"inputs":[)") + kTwo + rest + "}]}"; }
const std::string kData = R"(,"data":[1,2.5])";

struct Wrong {
  const char* name;
  std::string head;  // of JSON
  int status;
  const char* says;
  std::string binary = "";
};

std::string nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
}

const Wrong kWrong[] = {
    {"nothing", " ", 400, "JSON"},
    {"half_of_it", "{\"inputs\":[", 400, "JSON"},
    {"more_behind_it", with(kData) + "{}", 400, "JSON"},
    {"no_object", "[]", 400, "object"},
    {"no_utf8", std::string("{\"id\":\"\xff\",\"inputs\":[]}"), 400, "JSON"},
    {"no_inputs", "{}", 400, "'inputs' is missing"},
    {"inputs_no_list", R"({"inputs":{}})", 400, "list"},
    {"input_no_object", R"({"inputs":[1]})", 400, "object"},
    {"id_no_string", R"({"id":7,"inputs":[]})", 400, "'id'"},
    {"no_name", R"({"inputs":[{"datatype":"FP32","shape":[1],"data":[1]}]})", 400, "'name'"},
    {"no_datatype", R"({"inputs":[{"name":"x","shape":[1],"data":[1]}]})", 400, "'datatype'"},
    {"unknown_datatype", R"({"inputs":[{"name":"x","datatype":"FP31","shape":[1],"data":[1]}]})", 400, "FP31"},
    {"no_shape", R"({"inputs":[{"name":"x","datatype":"FP32","data":[1]}]})", 400, "'shape'"},
    {"negative_dims", R"({"inputs":[{"name":"x","datatype":"FP32","shape":[-1],"data":[1]}]})", 400, "negative"},
    {"fraction_as_dim", R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1.5],"data":[1]}]})", 400, "whole"},
    {"dim_beyond_64_bits", R"({"inputs":[{"name":"x","datatype":"FP32","shape":[9223372036854775808],"data":[1]}]})",
     400, "whole"},
    {"overflow", R"({"inputs":[{"name":"x","datatype":"FP32","shape":[4294967296,4294967296],"data":[1]}]})", 413,
     "2^48"},
    // A product that wraps around to 4, seen in a reader of safetensors.
    {"overflow_to_4",
     R"({"inputs":[{"name":"x","datatype":"FP32","shape":[4194305,4194305,211106198978564],"data":[1]}]})", 413,
     "2^48"},
    {"no_data", with(""), 400, "one of"},
    {"data_and_binary", with(kData + R"(,"parameters":{"binary_data_size":8})"), 400, "one of", "12345678"},
    {"binary_and_shared",
     with(R"(,"parameters":{"binary_data_size":8,"shared_memory_region":"known","shared_memory_byte_size":8})"), 400,
     "one of", "12345678"},
    {"shared_without_size", with(R"(,"parameters":{"shared_memory_region":"known"})"), 400, "shared_memory_byte_size"},
    {"size_without_shared", with(kData + R"(,"parameters":{"shared_memory_byte_size":8})"), 400,
     "shared_memory_region"},
    {"shared_unknown", with(R"(,"parameters":{"shared_memory_region":"r","shared_memory_byte_size":8})"), 404,
     "shared memory"},
    {"too_few", with(R"(,"data":[1])"), 400, "1 elements"},
    {"too_many", with(R"(,"data":[1,2,3])"), 400, "3 elements"},
    {"string_as_number", with(R"(,"data":["1","2"])"), 400, "FP32"},
    {"beyond_float", with(R"(,"data":[1e39,0])"), 400, "FP32"},
    {"null_as_number", with(R"(,"data":[null,0])"), 400, "FP32"},
    {"beyond_int8", R"({"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[128]}]})", 400, "INT8"},
    {"negative_uint64", R"({"inputs":[{"name":"x","datatype":"UINT64","shape":[1],"data":[-1]}]})", 400, "UINT64"},
    {"half_in_json", R"({"inputs":[{"name":"x","datatype":"FP16","shape":[1],"data":[1]}]})", 400, "FP16"},
    {"bfloat_in_json", R"({"inputs":[{"name":"x","datatype":"BF16","shape":[1],"data":[1]}]})", 400, "BF16"},
    {"number_as_bytes", R"({"inputs":[{"name":"x","datatype":"BYTES","shape":[1],"data":[1]}]})", 400, "string"},
    {"nested_too_deep", with(R"(,"data":)" + nested(200)), 400, "JSON"},
    {"nested_a_million_deep", with(R"(,"data":)" + nested(400000)), 400, "JSON"},
    {"parameter_of_a_list", R"({"parameters":{"a":[1]},"inputs":[]})", 400, "parameter 'a'"},
    {"output_twice", R"({"inputs":[],"outputs":[{"name":"y"},{"name":"y"}]})", 400, "twice"},
    {"output_no_object", R"({"inputs":[],"outputs":["y"]})", 400, "object"},
    {"classification_negative", R"({"inputs":[],"outputs":[{"name":"y","parameters":{"classification":-1}}]})", 400,
     "classification"},
    {"classes_beyond_32_bits", R"({"inputs":[],"outputs":[{"name":"y","parameters":{"classification":4294967296}}]})",
     400, "classification"},
    {"classes_in_shared_memory",
     R"({"inputs":[],"outputs":[{"name":"y","parameters":{"classification":1,"shared_memory_region":"known",)"
     R"("shared_memory_byte_size":8}}]})",
     400, "one of them"},
    {"binary_in_shared_memory",
     R"({"inputs":[],"outputs":[{"name":"y","parameters":{"binary_data":true,"shared_memory_region":"known",)"
     R"("shared_memory_byte_size":8}}]})",
     400, "one of them"},
    {"short_bytes", with(R"(,"parameters":{"binary_data_size":8})"), 400, "follow the JSON", "1234"},
    {"left_over_bytes", with(R"(,"parameters":{"binary_data_size":8})"), 400, "follow the JSON", "123456789"},
    {"bytes_that_nobody_named", with(kData), 400, "follow the JSON", "1"},
    {"binary_beyond_the_limit", with(R"(,"parameters":{"binary_data_size":1048577})"), 413, "binary data"},
    {"binary_sizes_that_wrap",
     R"({"inputs":[{"name":"a","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":18446744073709551615}},)"
     R"({"name":"b","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":5}}]})",
     413, "binary data"},
    {"json_that_grows",
     R"({"inputs":[{"name":"x","datatype":"FP64","shape":[200000],"data":[)" + std::string(2, ' ') +
         [] {
           std::string zeros = "0";
           for (int i = 1; i < 200000; ++i) zeros += ",0";
           return zeros;
         }() +
         "]}]}",
     413, ""},
};

class HttpWrong : public Http, public testing::WithParamInterface<Wrong> {};

TEST_P(HttpWrong, IsRefusedByNameAndTheConnectionGoesOn) {
  start();
  Wire wire(front->port());
  const auto answer = wire.send(infer(GetParam().head, GetParam().binary)).answer();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, GetParam().status) << answer->body;
  EXPECT_THAT(answer->error(), HasSubstr(GetParam().says));
  // More may be left of a body that was not read to its end than is worth reading.
  if (answer->headers.at("connection") != "close") {
    EXPECT_EQ(wire.send(infer(with(kData))).answer()->status, 200);
  }
  EXPECT_EQ(ask(infer(with(kData))).status, 200);
}

INSTANTIATE_TEST_SUITE_P(Section2, HttpWrong, testing::ValuesIn(kWrong),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(Http, HeaderLengthsOutOfRangeAreRefused) {
  start();
  for (const char* length : {"-1", "+2", "x", "", "0x2", "2 2", "99999999999999999999999", "3", "1000000"}) {
    const Answer answer =
        ask("POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
            "Inference-Header-Content-Length: " +
            std::string(length) + "\r\n\r\n{}");
    EXPECT_EQ(answer.status, 400) << length;
    EXPECT_THAT(answer.error(), HasSubstr("Inference-Header-Content-Length")) << length;
  }
}

std::string little(std::initializer_list<float> values) {
  std::string bytes;
  for (const float v : values) bytes.append(reinterpret_cast<const char*>(&v), sizeof v);
  return bytes;
}

TEST_F(Http, NestedAndFlatDataAreTheSame) {
  start();
  const auto out = [&](const std::string& data) {
    const Answer answer = ask(post("/v2/models/echo/infer",
                                   R"({"inputs":[{"name":"x","datatype":"FP32","shape":[2,2],"data":)" + data + "}]}"));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.headers.at("content-type"), "application/json");
    EXPECT_FALSE(answer.headers.contains("inference-header-content-length"));
    return answer.body;
  };
  EXPECT_EQ(out("[[1,2],[3,4.5]]"), out("[1,2,3,4.5]"));
  EXPECT_EQ(out("[1,2,3,4.5]"), R"({"model_name":"echo","model_version":"1","outputs":[{"name":"x","datatype":"FP32",)"
                                R"("shape":[2,2],"data":[1.0,2.0,3.0,4.5]}]})");
}

TEST_F(Http, WhatIsWrittenAsJsonCanBeReadAgain) {
  start();
  const std::string one = R"([{"name":"x","datatype":"FP32","shape":[3],"data":[3.4028235e+38,-3.4028235e+38,1e-45]}])";
  const Answer answer = ask(post("/v2/models/echo/infer", "{\"inputs\":" + one + "}"));
  EXPECT_THAT(answer.body, HasSubstr("\"outputs\":" + one));  // the largest, and the least
  EXPECT_EQ(ask(post("/v2/models/echo/infer",
                     R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[3.4028236e38]}]})"))
                .status,
            400);
}

TEST_F(Http, BinaryOutputsFollowTheJson) {
  start();
  const std::string head = R"({"id":"7","parameters":{"binary_data_output":true},"inputs":[)" + std::string(kTwo) +
                           R"(,"parameters":{"binary_data_size":8}},{"name":"e","datatype":"FP32","shape":[0],)"
                           R"("parameters":{"binary_data_size":0}}]})";
  const Answer answer = ask(infer(head, little({1, -2})));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.headers.at("content-type"), "application/octet-stream");
  const auto length = static_cast<size_t>(std::stoul(answer.headers.at("inference-header-content-length")));
  EXPECT_EQ(answer.body.substr(0, length),
            R"({"id":"7","model_name":"echo","model_version":"1","outputs":[{"name":"x","datatype":"FP32","shape":[2],)"
            R"("parameters":{"binary_data_size":8}},{"name":"e","datatype":"FP32","shape":[0],)"
            R"("parameters":{"binary_data_size":0}}]})");
  EXPECT_EQ(answer.body.substr(length), little({1, -2}));
}

TEST_F(Http, AnEmptyBinaryOutputIsPlainJson) {
  start();
  const Answer answer =
      ask(infer(R"({"parameters":{"binary_data_output":true},"inputs":[{"name":"e","datatype":"FP32","shape":[0],)"
                R"("parameters":{"binary_data_size":0}}]})"));
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  EXPECT_FALSE(answer.headers.contains("inference-header-content-length"));
  EXPECT_THAT(answer.body, HasSubstr(R"("binary_data_size":0)"));
}

TEST_F(Http, WhatAnOutputSaysCountsBeforeWhatTheRequestSays) {
  start();
  const auto binary = [&](const std::string& of_request, const std::string& of_output) {
    const Answer answer =
        ask(post("/v2/models/echo/infer", R"({"parameters":{)" + of_request + R"(},"inputs":[)" + kTwo + kData +
                                              R"(}],"outputs":[{"name":"x","parameters":{)" + of_output + "}}]}"));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.headers.contains("inference-header-content-length");
  };
  EXPECT_FALSE(binary("", ""));
  EXPECT_TRUE(binary(R"("binary_data_output":true)", ""));
  EXPECT_FALSE(binary(R"("binary_data_output":true)", R"("binary_data":false)"));
  EXPECT_TRUE(binary("", R"("binary_data":true)"));
}

TEST_F(Http, RequestsSayWhatTheServerIsAsked) {
  server.at_once = nullptr;
  start();
  Wire wire(front->port());
  wire.send(post(
      "/v2/models/echo/versions/3/infer",
      R"({"id":"a\u00fc","parameters":{"priority":2,"timeout":5,"sequence_id":"s","own":1.5,"headers":{}},"inputs":[)" +
          std::string(kTwo) + kData + R"(}],"outputs":[{"name":"x","parameters":{"classification":3}}]})"));
  const auto asked = server.take(1);
  const InferRequest& request = asked[0]->request;
  EXPECT_EQ(request.model, "echo");
  EXPECT_EQ(request.version, "3");
  EXPECT_EQ(request.id, "a\u00fc");
  EXPECT_EQ(options_of(request.parameters).priority, 2u);
  EXPECT_EQ(options_of(request.parameters).timeout.count(), 5);
  EXPECT_EQ(std::get<double>(request.parameters.at("own")), 1.5);
  EXPECT_FALSE(request.parameters.contains("headers"));
  EXPECT_EQ(request.outputs.at(0).classes, 3u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(request.inputs.at(0).data.get()) % 64, 0u);
  answer(server, *asked[0]);
  EXPECT_EQ(std::string(wire.answer()->json().at("id").get_string()), "a\u00fc");
}

TEST_F(Http, BodiesWithoutAHeadAreTheOnlyInput) {
  auto& input = *server.model.add_inputs();
  input.set_name("x");
  input.set_datatype("FP32");
  input.add_shape(-1);
  input.add_shape(2);
  inference::ModelConfig config;
  server.config = config;
  start();
  const auto raw = [&](const std::string& body) {
    return ask(post("/v2/models/echo/infer", body, "Inference-Header-Content-Length: 0\r\n"));
  };
  const Answer answer = raw(little({1, 2, 3, 4}));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.body, HasSubstr(R"("shape":[2,2])"));
  EXPECT_TRUE(answer.body.ends_with(little({1, 2, 3, 4})));
  EXPECT_THAT(raw(little({1, 2, 3})).error(), HasSubstr("multiple of 8"));
  config.set_max_batch_size(4);
  server.config = config;
  EXPECT_EQ(raw(little({1, 2})).status, 200);
  EXPECT_THAT(raw(little({1, 2, 3, 4})).error(), HasSubstr("16 bytes"));
  input.mutable_shape()->Set(1, -1);
  config.set_max_batch_size(0);
  server.config = config;
  EXPECT_THAT(raw(little({1, 2})).error(), HasSubstr("one dim at most varies"));
  input.set_datatype("BYTES");
  const Answer text = raw("hello");
  EXPECT_THAT(text.body, HasSubstr(R"("shape":[1,1])"));
  EXPECT_TRUE(text.body.ends_with(std::string("\5\0\0\0hello", 9)));
  server.model.add_inputs();
  EXPECT_THAT(raw("hello").error(), HasSubstr("models of one input"));
}

std::string chunked(const std::string& body, size_t size) {
  std::string out = "POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  char line[32];
  for (size_t at = 0; at < body.size(); at += size) {
    const std::string piece = body.substr(at, size);
    std::snprintf(line, sizeof line, "%zx\r\n", piece.size());
    out += line + piece + "\r\n";
  }
  return out + "0\r\n\r\n";
}

TEST_F(Http, ChunksMakeABody) {
  start();
  for (const size_t size : {1, 7, 4096}) EXPECT_EQ(ask(chunked(with(kData), size)).status, 200) << size;
}

TEST_F(Http, TooManyChunksAreRefused) {
  start();
  const std::string blank(70000, ' ');
  EXPECT_EQ(ask(chunked(with(kData) + blank, 16)).status, 200);
  EXPECT_EQ(ask(chunked(with(kData) + blank, 1)).status, 413);
  EXPECT_EQ(ask(chunked(std::string(1200000, ' '), 100000)).status, 413);  // 1 MiB is allowed
}

}  // namespace
}  // namespace sluice::serving::test
