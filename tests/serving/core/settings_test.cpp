#include "serving/core/settings.h"

#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "serving/core/json_string.h"
#include "serving/core/log.h"
#include "serving/core/request_log.h"
#include "serving/core/trace_writer.h"

namespace sluice::serving {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Settings : public testing::Test {
 protected:
  Settings() {
    std::string name = (fs::temp_directory_path() / "sluice_settings_XXXXXX").string();
    folder = ::mkdtemp(name.data());
  }
  ~Settings() override {
    set_log_file("");
    set_log_settings({});
    fs::remove_all(folder);
  }
  std::string path(const std::string& name) const { return (folder / name).string(); }
  std::string text(const std::string& name) const {
    std::ifstream in(folder / name, std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  size_t records_in(const std::string& name) const {
    const json::value trace = json::parse(text(name));
    return trace.as_array().size();
  }
  TraceOptions options() const { return {.file = path("trace.json"), .level = {"TIMESTAMPS"}, .rate = 1}; }

  fs::path folder;
};

InferRequest request_of(const std::string& model, const std::string& id = "") {
  InferRequest request;
  request.model = model;
  request.version = "1";
  request.id = id;
  request.transport = Transport::kHttp;
  request.read = request.received;
  auto values = std::make_shared<std::array<float, 3>>(std::array<float, 3>{1, 2.5, -3});
  request.inputs.push_back({"x\"", DataType::TYPE_FP32, {1, 3}, values, 12});
  return request;
}

// A request through its stages, as front end, server and executor do them.
bool pass(Tracing& tracing, InferRequest request) {
  Respond respond = [](InferResponse response, bool) {
    if (response.trace) response.trace->stamp(Stamp::kSendEnd);
  };
  tracing.begin(request, respond);
  const bool traced = request.trace != nullptr;
  if (traced) {
    request.trace->stamp(Stamp::kQueueStart);
    request.trace->stamp(Stamp::kComputeStart);
    request.trace->stamp(Stamp::kComputeEnd);
    request.trace->ran(0, 17);
  }
  InferResponse response;
  response.outputs = request.inputs;
  respond(std::move(response), true);
  return traced;
}

inference::TraceSettingRequest setting(const std::string& name, const std::vector<std::string>& values,
                                       const std::string& model = "") {
  inference::TraceSettingRequest request;
  request.set_model_name(model);
  auto& value = (*request.mutable_settings())[name];
  for (const std::string& text : values) value.add_value(text);
  return request;
}

std::string told(const inference::TraceSettingResponse& response, const std::string& name) {
  std::string all;
  for (const std::string& value : response.settings().at(name).value()) all += (all.empty() ? "" : ",") + value;
  return all;
}

TEST_F(Settings, OneOfTenRequestsIsTraced) {
  TraceOptions ten = options();
  ten.rate = 10;
  Tracing tracing(ten, {});
  int traced = 0;
  for (int i = 0; i < 100; ++i) traced += pass(tracing, request_of("m", std::to_string(i))) ? 1 : 0;
  EXPECT_EQ(traced, 10);
  tracing.flush();
  std::set<std::string> ids;
  const json::value trace = json::parse(text("trace.json"));
  for (const json::value& record : trace.as_array())
    if (const json::value* id = record.as_object().if_contains("request_id")) ids.insert(id->as_string().c_str());
  EXPECT_EQ(ids.size(), 10u);
  EXPECT_TRUE(ids.contains("9") && ids.contains("99"));
}

TEST_F(Settings, ATraceHasEveryStageInOrderAndTheEnginesStep) {
  Tracing tracing(options(), {});
  pass(tracing, request_of("digits", "abc"));
  tracing.flush();
  const json::value trace = json::parse(text("trace.json"));
  const json::array& records = trace.as_array();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].at("model_name"), "digits");
  EXPECT_EQ(records[0].at("request_id"), "abc");
  std::vector<std::string> names;
  int64_t before = 0;
  for (const json::value& stamp : records[1].at("timestamps").as_array()) {
    names.emplace_back(stamp.at("name").as_string());
    EXPECT_GE(stamp.at("ns").as_int64(), before);
    before = stamp.at("ns").as_int64();
  }
  EXPECT_THAT(names,
              testing::ElementsAre("HTTP_RECV_START", "HTTP_RECV_END", "REQUEST_START", "QUEUE_START", "COMPUTE_START",
                                   "COMPUTE_END", "INFER_RESPONSE_COMPLETE", "HTTP_SEND_END", "REQUEST_END"));
  EXPECT_EQ(records[2].at("step"), 17);
}

TEST_F(Settings, TensorsAreWrittenAsText) {
  TraceOptions tensors = options();
  tensors.level = {"TIMESTAMPS", "TENSORS"};
  Tracing tracing(tensors, {});
  pass(tracing, request_of("m"));
  tracing.flush();
  int in = 0, out = 0;
  const json::value trace = json::parse(text("trace.json"));
  for (const json::value& record : trace.as_array()) {
    const json::value* activity = record.as_object().if_contains("activity");
    if (activity == nullptr) continue;
    in += *activity == "TENSOR_QUEUE_INPUT" ? 1 : 0;
    out += *activity == "TENSOR_BACKEND_OUTPUT" ? 1 : 0;
    EXPECT_EQ(record.at("tensor").at("data"), "1,2.5,-3");
    EXPECT_EQ(record.at("tensor").at("shape"), "1,3");
    EXPECT_EQ(record.at("tensor").at("name"), "x\"");
  }
  EXPECT_EQ(in, 1);
  EXPECT_EQ(out, 1);
}

TEST_F(Settings, EveryDatatypeHasItsText) {
  const auto data = [](const Tensor& tensor) {
    const json::value record = json::parse(tensor_record(1, "A", tensor));
    return std::string(record.at("tensor").at("data").as_string());
  };
  const auto of = [](DataType type, auto values) {
    auto owner = std::make_shared<decltype(values)>(values);
    return Tensor{"t", type, {2}, owner, sizeof(values)};
  };
  EXPECT_EQ(data(of(DataType::TYPE_FP16, std::array<uint16_t, 4>{0x3c00, 0xc100, 0x0001, 0x7c00})),
            "1,-2.5,5.9604645e-08,inf");
  EXPECT_EQ(data(of(DataType::TYPE_BF16, std::array<uint16_t, 2>{0x3f80, 0xc020})), "1,-2.5");
  EXPECT_EQ(data(of(DataType::TYPE_INT8, std::array<int8_t, 2>{-1, 2})), "-1,2");
  EXPECT_EQ(data(of(DataType::TYPE_UINT8, std::array<uint8_t, 2>{255, 2})), "255,2");
  EXPECT_EQ(data(of(DataType::TYPE_INT64, std::array<int64_t, 1>{INT64_MIN})), "-9223372036854775808");
  EXPECT_EQ(data(of(DataType::TYPE_STRING, std::array<char, 12>{2, 0, 0, 0, 'a', '"', 1, 0, 0, 0, '\x80', 0})),
            "a\",\xef\xbf\xbd");
  // A length beyond its end is not read.
  EXPECT_EQ(data(of(DataType::TYPE_STRING, std::array<char, 5>{9, 0, 0, 0, 'a'})), "");
}

TEST_F(Settings, AModelsSettingsStandBeforeTheServersAndCanBeCleared) {
  TraceOptions off = options();
  off.level = {};
  Tracing tracing(off, {});
  EXPECT_FALSE(pass(tracing, request_of("m")));
  tracing.settings(setting("trace_level", {"TIMESTAMPS"}, "m"));
  EXPECT_TRUE(pass(tracing, request_of("m")));
  EXPECT_FALSE(pass(tracing, request_of("other")));
  EXPECT_EQ(told(tracing.settings(setting("trace_rate", {"5"}, "m")), "trace_rate"), "5");
  EXPECT_EQ(told(tracing.settings({}), "trace_rate"), "1");
  EXPECT_EQ(told(tracing.settings({}), "trace_level"), "OFF");
  tracing.settings(setting("trace_rate", {}, "m"));
  tracing.settings(setting("trace_rate", {"7"}));
  inference::TraceSettingRequest of_m;
  of_m.set_model_name("m");
  EXPECT_EQ(told(tracing.settings(of_m), "trace_rate"), "7");
  EXPECT_EQ(told(tracing.settings(setting("trace_rate", {})), "trace_rate"), "1");  // as it was started
  tracing.settings(setting("trace_level", {}, "m"));
  EXPECT_FALSE(pass(tracing, request_of("m")));
}

TEST_F(Settings, ACountEndsTracing) {
  TraceOptions two = options();
  two.count = 2;
  Tracing tracing(two, {});
  int traced = 0;
  for (int i = 0; i < 5; ++i) traced += pass(tracing, request_of("m")) ? 1 : 0;
  EXPECT_EQ(traced, 2);
  EXPECT_EQ(told(tracing.settings({}), "trace_count"), "0");
}

TEST_F(Settings, WithALogFrequencyFilesHaveSoManyTraces) {
  TraceOptions two = options();
  two.log_frequency = 2;
  Tracing tracing(two, {});
  for (int i = 0; i < 5; ++i) pass(tracing, request_of("m"));
  tracing.flush();
  EXPECT_EQ(records_in("trace.json.0"), 6u);
  EXPECT_EQ(records_in("trace.json.1"), 6u);
  EXPECT_EQ(records_in("trace.json.2"), 3u);
}

TEST_F(Settings, WhatIsWrongChangesNothing) {
  Tracing tracing(options(), {});
  const auto refusal = [&](const std::string& name, const std::vector<std::string>& values) -> std::string {
    inference::TraceSettingRequest request = setting("trace_rate", {"9"});
    request.MergeFrom(setting(name, values));
    try {
      tracing.settings(request);
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  };
  EXPECT_EQ(refusal("trace_count", {"x"}), "trace: 'trace_count' is 'x'; it must be a whole number of at least -1");
  EXPECT_THAT(refusal("trace_level", {"MAX"}), HasSubstr("TIMESTAMPS, TENSORS or both"));
  EXPECT_THAT(refusal("trace_level", {"OFF", "TENSORS"}), HasSubstr("OFF alone"));
  EXPECT_THAT(refusal("trace_file", {"/etc/passwd"}), HasSubstr("when the server is started"));
  EXPECT_THAT(refusal("trace_mode", {"opentelemetry"}), HasSubstr("when the server is started"));
  EXPECT_THAT(refusal("speed", {"1"}), HasSubstr("is no setting"));
  EXPECT_EQ(told(tracing.settings({}), "trace_rate"), "1");
  // If no file was given nothing can be traced, and the path of the file is nobody's business.
  Tracing without({}, {});
  EXPECT_THROW(without.settings(setting("trace_level", {"TIMESTAMPS"})), Error);
  EXPECT_EQ(told(tracing.settings({}), "trace_file"), "trace.json");
  EXPECT_THROW(Tracing({.file = path("no/such/folder")}, {}), Error);
}

TEST_F(Settings, ThreadsTraceAtTheSameTime) {
  Tracing tracing(options(), {});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&tracing] {
      for (int i = 0; i < 50; ++i) {
        pass(tracing, request_of("m"));
        tracing.settings(setting("trace_level", {i % 2 == 0 ? "TENSORS" : "TIMESTAMPS"}, "m"));
      }
    });
  for (std::thread& thread : threads) thread.join();
  tracing.flush();
  EXPECT_GT(records_in("trace.json"), 300u);
}

TEST_F(Settings, ATenthOfTheRequestsIsKeptWhole) {
  {
    Tracing tracing({}, {.file = path("requests.log"), .share = 0.1});
    for (int i = 0; i < 1000; ++i) {
      pass(tracing, request_of("m", std::to_string(i)));
      if (i % 100 == 99) tracing.flush();
    }
  }
  const std::string log = text("requests.log");
  int records = 0;
  for (size_t at = 0; at < log.size(); ++records) {
    const size_t line = log.find('\n', at);
    const json::value head = json::parse(log.substr(at, line - at));
    EXPECT_EQ(head.at("model"), "m");
    const std::string body = log.substr(line + 1, head.at("bytes").as_int64());
    const json::value request = json::parse(body.substr(0, head.at("header_bytes").as_int64()));
    EXPECT_EQ(request.at("inputs").at(0).at("parameters").at("binary_data_size"), 12);
    EXPECT_EQ(body.size(), head.at("header_bytes").as_int64() + 12u);
    at = line + 1 + body.size() + 1;
  }
  EXPECT_GE(records, 50);  // of 100; fewer or more have a chance of less than one in a million
  EXPECT_LE(records, 150);
}

TEST_F(Settings, ARequestLogEndsAtItsLimit) {
  {
    Tracing tracing({}, {.file = path("requests.log"), .share = 1, .max_bytes = 1000});
    for (int i = 0; i < 100; ++i) pass(tracing, request_of("m"));
  }
  EXPECT_LE(fs::file_size(folder / "requests.log"), 1000u);
  EXPECT_GT(fs::file_size(folder / "requests.log"), 500u);
  EXPECT_THROW(Tracing({}, {.file = path("x"), .share = 2}), Error);
}

inference::LogSettingsRequest log_request(const std::string& json_name, bool value) {
  inference::LogSettingsRequest request;
  (*request.mutable_settings())[json_name].set_bool_param(value);
  return request;
}

TEST_F(Settings, LogSettingsActOnTheNextLine) {
  set_log_file(path("log"));
  log_info("one");
  apply_log_settings(log_request("log_info", true));
  log_info("two\nfaked");
  log_line(LogKind::kVerbose, "three");
  inference::LogSettingsRequest verbose;
  (*verbose.mutable_settings())["log_verbose_level"].set_uint32_param(1);
  (*verbose.mutable_settings())["log_format"].set_string_param("ISO8601");
  const auto response = apply_log_settings(verbose);
  log_line(LogKind::kVerbose, "four");
  log_line(LogKind::kVerbose, "five", 2);
  EXPECT_THAT(text("log"), AllOf(Not(HasSubstr("one")), HasSubstr("two\\x0afaked"), Not(HasSubstr("three")),
                                 HasSubstr("Z V four\n"), Not(HasSubstr("five"))));
  EXPECT_EQ(response.settings().at("log_file").string_param(), "log");
  EXPECT_EQ(response.settings().at("log_verbose_level").uint32_param(), 1u);
  EXPECT_EQ(response.settings().at("log_format").string_param(), "ISO8601");
}

TEST_F(Settings, WrongLogSettingsAreRefusedByName) {
  inference::LogSettingsRequest request = log_request("log_info", true);
  (*request.mutable_settings())["log_file"].set_string_param("/tmp/x");
  EXPECT_THROW(apply_log_settings(request), Error);
  EXPECT_FALSE(log_settings().info);
  EXPECT_THROW(apply_log_settings(log_request("log_verbose_level", true)), Error);
  EXPECT_THROW(apply_log_settings(log_request("log_infos", true)), Error);
  EXPECT_THROW(set_log_file(path("no/such/folder")), Error);
}

TEST(JsonString, IsAlwaysJson) {
  for (const std::string text :
       {"plain", "\"\\\x01\n", "\xc3\xbc", "\xc3", "\xff\xfe", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe0\x80\x80"})
    EXPECT_NO_THROW(json::parse(json_string(text))) << text;
  EXPECT_EQ(json_string("\xc3\xbc"), "\"\xc3\xbc\"");
  EXPECT_EQ(json_string("a\x80"), "\"a\\ufffd\"");
}

}  // namespace
}  // namespace sluice::serving
