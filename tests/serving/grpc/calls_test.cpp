// Calls of one request and one response: what arrives, what comes back, what is refused, and who may change the server.
#include "serving/grpc/fixture.h"

namespace sluice::serving::test {

namespace {

using inference::ModelInferRequest;
using inference::ModelInferResponse;

TEST_F(Grpc, AnswersWithWhatTheServerGives) {
  server.at_once = echo;
  start();
  auto request = floats("abc42", {1, 2.5, -3});
  (*request.mutable_parameters())["note"].set_string_param("kept");
  (*request.mutable_parameters())["n"].set_int64_param(-7);
  (*request.mutable_parameters())["u"].set_uint64_param(7);
  (*request.mutable_parameters())["b"].set_bool_param(true);
  (*request.mutable_parameters())["d"].set_double_param(0.5);
  ModelInferResponse response;
  ASSERT_TRUE(infer(request, &response).ok());
  EXPECT_EQ(response.id(), "abc42");
  EXPECT_EQ(response.model_version(), "1");
  EXPECT_EQ(response.outputs(0).datatype(), "FP32");
  EXPECT_EQ(floats_of(response), (std::vector<float>{1, 2.5, -3}));
  EXPECT_EQ(response.parameters().at("note").string_param(), "kept");
  EXPECT_EQ(response.parameters().at("n").int64_param(), -7);
  EXPECT_EQ(response.parameters().at("u").uint64_param(), 7u);
  EXPECT_TRUE(response.parameters().at("b").bool_param());
  EXPECT_EQ(response.parameters().at("d").double_param(), 0.5);
}

TEST_F(Grpc, ALongRefusalIsCutAndArrives) {
  server.at_once = [](const InferRequest& request) {
    InferResponse response = echo(request);
    response.outputs.clear();
    std::string text = "infer: ";
    for (int i = 0; i < 20000; ++i) text += "\xc3\xbc";  // six bytes in a header
    response.error = Error(Code::kNotFound, text);
    return response;
  };
  start();
  const grpc::Status status = infer(floats("", {1}));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(status.error_message().starts_with("infer: \xc3\xbc")) << status.error_message();
  EXPECT_TRUE(status.error_message().ends_with("\xc3\xbc ...")) << status.error_message().substr(2000);
}

TEST_F(Grpc, RequestsThatNeverComeToTheServerAreCounted) {
  server.at_once = echo;
  start();
  auto wrong = floats("", {1});
  wrong.mutable_inputs(0)->set_datatype("FP31");
  EXPECT_EQ(infer(wrong).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(infer(floats("", {1})).ok());
  const auto context = Grpc::context();
  const auto stream = stub->ModelStreamInfer(context.get());
  EXPECT_TRUE(stream->Write(wrong));
  inference::ModelStreamInferResponse response;
  EXPECT_TRUE(stream->Read(&response));
  EXPECT_NE(response.error_message(), "");
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(server.all_refused(), (std::vector<std::pair<std::string, Code>>{{"echo", Code::kInvalidArgument},
                                                                             {"echo", Code::kInvalidArgument}}));
}

TEST_F(Grpc, RestrictedGroupsOfCallsNeedTheirMetadata) {
  server.at_once = echo;
  GrpcOptions options;
  parse_restriction("--grpc-restricted-protocol", "health,inference:Key=secret", options.restrictions);
  start(options);
  const auto codes = [&](const std::string& value) {
    const auto with = [&] {
      auto made = Grpc::context();
      if (!value.empty()) made->AddMetadata("triton-grpc-protocol-key", value);
      return made;
    };
    inference::ServerLiveResponse live;
    inference::ServerMetadataResponse metadata;
    ModelInferResponse response;
    grpc::health::v1::HealthCheckResponse health;
    const auto of_stream = with();
    const auto stream = stub->ModelStreamInfer(of_stream.get());
    stream->WritesDone();
    return std::vector<int>{stub->ServerLive(with().get(), {}, &live).error_code(),
                            grpc::health::v1::Health::NewStub(channel)->Check(with().get(), {}, &health).error_code(),
                            stub->ModelInfer(with().get(), floats("", {1}), &response).error_code(),
                            stream->Finish().error_code(),
                            stub->ServerMetadata(with().get(), {}, &metadata).error_code()};
  };
  constexpr int kNo = grpc::StatusCode::PERMISSION_DENIED;
  EXPECT_EQ(codes(""), (std::vector<int>{kNo, kNo, kNo, kNo, 0}));
  EXPECT_EQ(codes("other"), (std::vector<int>{kNo, kNo, kNo, kNo, 0}));
  EXPECT_EQ(codes("secret"), (std::vector<int>{0, 0, 0, 0, 0}));
}

TEST_F(Grpc, WithinTlsTheSame) {
  const auto file = [](const std::string& name) { return std::string(SLUICE_SOURCE_DIR "/tests/serving/tls/") + name; };
  const auto read = [&](const char* name) { return read_pem("test", "file", file(name)); };
  server.at_once = echo;
  GrpcOptions options;
  options.tls = {true, file("server.pem"), file("server.key"), file("ca.pem"), true};
  start(options);
  const auto ask = [&](const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    const auto within = inference::GRPCInferenceService::NewStub(
        grpc::CreateChannel("127.0.0.1:" + std::to_string(front->port()), credentials));
    inference::ServerLiveResponse live;
    return within->ServerLive(context().get(), {}, &live).ok();
  };
  EXPECT_TRUE(ask(grpc::SslCredentials({read("ca.pem"), read("client.key"), read("client.pem")})));
  EXPECT_FALSE(ask(grpc::SslCredentials({read("ca.pem"), "", ""})));
  EXPECT_FALSE(ask(grpc::InsecureChannelCredentials()));
  const auto refused = [&](const TlsOptions& tls) {
    GrpcOptions wrong;
    wrong.tls = tls;
    try {
      GrpcServer other(server, wrong);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused({true, file("server.pem"), "", "", false}), "grpc: TLS needs the server's certificate and its key");
  EXPECT_EQ(refused({true, "/no/such", file("server.key"), "", false}),
            "grpc: certificate '/no/such': No such file or directory");
}

TEST_F(Grpc, MemoryOfInputsIsAligned) {
  server.at_once = [](const InferRequest& request) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(request.inputs.at(0).data.get()) % 64, 0u);
    EXPECT_EQ(request.inputs.at(0).data.use_count(), 1);
    EXPECT_EQ(request.transport, Transport::kGrpc);
    return echo(request);
  };
  start();
  for (const size_t size : {1u, 7u, 100000u}) EXPECT_TRUE(infer(floats("", std::vector<float>(size))).ok());
}

// Contents by type, each in the field that the protocol gives it.
template <class Fill>
ModelInferRequest contents(const std::string& datatype, int64_t size, const Fill& fill) {
  ModelInferRequest request;
  request.set_model_name("echo");
  auto& input = *request.add_inputs();
  input.set_name("x");
  input.set_datatype(datatype);
  input.add_shape(size);
  fill(*input.mutable_contents());
  return request;
}

TEST_F(Grpc, TypedContentsBecomeBytes) {
  server.at_once = echo;
  start();
  const auto raw = [this](const ModelInferRequest& request) {
    ModelInferResponse response;
    const grpc::Status status = infer(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.raw_output_contents_size() == 1 ? response.raw_output_contents(0) : "none";
  };
  using Contents = inference::InferTensorContents;
  using namespace std::string_literals;
  const auto ints = [](Contents& c) { c.add_int_contents(-1), c.add_int_contents(2); };
  EXPECT_EQ(raw(contents("INT8", 2, ints)), "\xff\x02"s);
  EXPECT_EQ(raw(contents("INT16", 2, ints)), "\xff\xff\x02\0"s);
  EXPECT_EQ(raw(contents("INT32", 2, ints)), "\xff\xff\xff\xff\x02\0\0\0"s);
  EXPECT_EQ(raw(contents("INT64", 1, [](Contents& c) { c.add_int64_contents(-2); })),
            "\xfe\xff\xff\xff\xff\xff\xff\xff"s);
  const auto unsigned_ints = [](Contents& c) { c.add_uint_contents(200); };
  EXPECT_EQ(raw(contents("UINT8", 1, unsigned_ints)), "\xc8"s);
  EXPECT_EQ(raw(contents("UINT16", 1, unsigned_ints)), "\xc8\0"s);
  EXPECT_EQ(raw(contents("UINT32", 1, unsigned_ints)), "\xc8\0\0\0"s);
  EXPECT_EQ(raw(contents("UINT64", 1, [](Contents& c) { c.add_uint64_contents(~0ull); })), std::string(8, '\xff'));
  EXPECT_EQ(raw(contents("BOOL", 2, [](Contents& c) { c.add_bool_contents(true), c.add_bool_contents(false); })),
            "\x01\0"s);
  EXPECT_EQ(raw(contents("FP32", 1, [](Contents& c) { c.add_fp32_contents(1); })), "\0\0\x80\x3f"s);
  EXPECT_EQ(raw(contents("FP64", 1, [](Contents& c) { c.add_fp64_contents(1); })), "\0\0\0\0\0\0\xf0\x3f"s);
  EXPECT_EQ(raw(contents("BYTES", 2, [](Contents& c) { c.add_bytes_contents("hi"), c.add_bytes_contents(""); })),
            "\x02\0\0\0hi\0\0\0\0"s);
}

struct Refusal {
  const char* text;
  std::function<void(ModelInferRequest&)> spoil;
  grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT;
};

TEST_F(Grpc, RefusesWhatIsWrongByName) {
  server.at_once = echo;
  start();
  const auto set = [](const char* name, auto value) {
    return [name, value](ModelInferRequest& r) {
      auto& parameter = (*r.mutable_inputs(0)->mutable_parameters())[name];
      if constexpr (std::is_same_v<decltype(value), const char*>)
        parameter.set_string_param(value);
      else
        parameter.set_int64_param(value);
    };
  };
  const std::vector<Refusal> refusals = {
      {"datatype", [](auto& r) { r.mutable_inputs(0)->set_datatype("FP8"); }},
      {"input 'x': shape: -1; dims must not be negative", [](auto& r) { r.mutable_inputs(0)->set_shape(0, -1); }},
      {"contents beside raw_input_contents",
       [](auto& r) { r.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1); }},
      {"raw_input_contents has 2 entries; 1 inputs", [](auto& r) { r.add_raw_input_contents("more"); }},
      {"fewer than inputs", [](auto& r) { r.add_inputs()->CopyFrom(r.inputs(0)); }},
      {"'note' has no value", [](auto& r) { (*r.mutable_parameters())["note"]; }},
      {"'shared_memory_byte_size' is missing", set("shared_memory_region", "known")},
      {"must be a name", set("shared_memory_region", int64_t{3})},
      {"classification: 4294967296 classes",
       [](auto& r) { (*r.add_outputs()->mutable_parameters())["classification"].set_int64_param(int64_t{1} << 32); }},
      {"must be a number that is not negative",
       [](auto& r) { (*r.add_outputs()->mutable_parameters())["classification"].set_int64_param(-1); }},
      {"cannot be written to shared memory",
       [](auto& r) {
         auto& parameters = *r.add_outputs()->mutable_parameters();
         parameters["classification"].set_int64_param(1);
         parameters["shared_memory_region"].set_string_param("known");
         parameters["shared_memory_byte_size"].set_int64_param(4);
       }},
      {"another field than that of FP32",
       [](auto& r) {
         r.clear_raw_input_contents();
         r.mutable_inputs(0)->mutable_contents()->add_fp64_contents(1);
       }},
      {"300 is out of the range of INT8",
       [](auto& r) {
         r.clear_raw_input_contents();
         r.mutable_inputs(0)->set_datatype("INT8");
         r.mutable_inputs(0)->mutable_contents()->add_int_contents(300);
       }},
      {"FP16 has no contents of its own",
       [](auto& r) {
         r.clear_raw_input_contents();
         r.mutable_inputs(0)->set_datatype("FP16");
         r.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
       }},
  };
  for (const Refusal& refusal : refusals) {
    auto request = floats("", {1});
    refusal.spoil(request);
    const grpc::Status status = infer(request);
    EXPECT_EQ(status.error_code(), refusal.code) << refusal.text;
    EXPECT_NE(status.error_message().find(refusal.text), std::string::npos) << status.error_message();
  }
  EXPECT_TRUE(infer(floats("", {1})).ok());
}

TEST_F(Grpc, ErrorsHaveTheirCodes) {
  start();
  const std::vector<std::pair<Code, grpc::StatusCode>> codes = {{Code::kInvalidArgument, grpc::INVALID_ARGUMENT},
                                                                {Code::kNotFound, grpc::NOT_FOUND},
                                                                {Code::kAlreadyExists, grpc::ALREADY_EXISTS},
                                                                {Code::kTooLarge, grpc::INVALID_ARGUMENT},
                                                                {Code::kUnsupported, grpc::UNIMPLEMENTED},
                                                                {Code::kForbidden, grpc::PERMISSION_DENIED},
                                                                {Code::kOverloaded, grpc::UNAVAILABLE},
                                                                {Code::kUnavailable, grpc::UNAVAILABLE},
                                                                {Code::kTimeout, grpc::DEADLINE_EXCEEDED},
                                                                {Code::kCancelled, grpc::CANCELLED},
                                                                {Code::kInternal, grpc::INTERNAL}};
  for (const auto& [code, wanted] : codes) {
    server.fail = Error(code, "where: what");
    inference::ModelConfigResponse response;
    const grpc::Status status = stub->ModelConfig(context().get(), {}, &response);
    EXPECT_EQ(status.error_code(), wanted);
    EXPECT_EQ(status.error_message(), "where: what");
  }
  server.fail.reset();  // then it throws what clients must not read
  inference::ModelConfigResponse response;
  const grpc::Status status = stub->ModelConfig(context().get(), {}, &response);
  EXPECT_EQ(status.error_code(), grpc::INTERNAL);
  EXPECT_EQ(status.error_message().find("secret"), std::string::npos);
}

TEST_F(Grpc, ARefusalSaysWhenToAskAgain) {
  server.at_once = [](const InferRequest&) {
    InferResponse response;
    response.error = Error(Code::kOverloaded, "infer: the queue is full", milliseconds(1500));
    return response;
  };
  start();
  const auto call = context();
  ModelInferResponse response;
  EXPECT_EQ(stub->ModelInfer(call.get(), floats("", {1}), &response).error_code(), grpc::UNAVAILABLE);
  const auto& trailers = call->GetServerTrailingMetadata();
  const auto found = trailers.find("grpc-retry-pushback-ms");
  ASSERT_NE(found, trailers.end());
  EXPECT_EQ(std::string(found->second.data(), found->second.size()), "1500");
}

TEST_F(Grpc, SharedMemoryIsToldByName) {
  server.at_once = [](const InferRequest& request) {
    EXPECT_EQ(request.inputs.at(0).bytes, 8u);
    EXPECT_NE(request.inputs.at(0).data, nullptr);
    InferResponse response = echo(request);
    response.outputs.at(0).data = nullptr;
    response.outputs.at(0).bytes = 0;
    return response;
  };
  start();
  auto request = floats("", {1, 2});
  request.clear_raw_input_contents();
  for (auto* parameters :
       {request.mutable_inputs(0)->mutable_parameters(), request.add_outputs()->mutable_parameters()}) {
    (*parameters)["shared_memory_region"].set_string_param("known");
    (*parameters)["shared_memory_byte_size"].set_int64_param(8);
    (*parameters)["shared_memory_offset"].set_int64_param(64);
  }
  request.mutable_outputs(0)->set_name("x");
  ModelInferResponse response;
  ASSERT_TRUE(infer(request, &response).ok());
  EXPECT_EQ(response.outputs(0).parameters().at("shared_memory_region").string_param(), "known");
  EXPECT_EQ(response.outputs(0).parameters().at("shared_memory_byte_size").uint64_param(), 8u);
  EXPECT_EQ(response.outputs(0).parameters().at("shared_memory_offset").uint64_param(), 64u);
  (*request.mutable_inputs(0)->mutable_parameters())["shared_memory_region"].set_string_param("unknown");
  EXPECT_EQ(infer(request).error_code(), grpc::NOT_FOUND);
}

TEST_F(Grpc, MessagesThatAreTooLongAreRefused) {
  server.at_once = echo;
  start({.max_message = 4096});
  EXPECT_TRUE(infer(floats("", std::vector<float>(500))).ok());
  EXPECT_EQ(infer(floats("", std::vector<float>(5000))).error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(infer(floats("", std::vector<float>(500))).ok());
}

TEST_F(Grpc, BeyondTheMemoryOfAllRequestsTheNextIsToldToAskAgain) {
  GrpcOptions options;
  options.memory = std::make_shared<MemoryBudget>(30000);
  start(options);
  const auto first = context();
  grpc::Status status;
  inference::ModelInferResponse response;
  std::thread call([&] { status = stub->ModelInfer(first.get(), floats("1", std::vector<float>(2000)), &response); });
  auto asked = server.take(1);
  EXPECT_GE(options.memory->held(), 8000u);  // its tensor; the message has gone
  const grpc::Status refused = infer(floats("2", std::vector<float>(3000)));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(refused.error_message().find("memory"), std::string::npos) << refused.error_message();
  EXPECT_EQ(infer(floats("3", std::vector<float>(4000))).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);  // never fits
  answer(server, *asked[0]);
  asked.clear();  // its tensor counts as long as somebody has it
  call.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
  const auto until = Clock::now() + kPatience;
  while (options.memory->held() > 0 && Clock::now() < until) std::this_thread::yield();
  EXPECT_EQ(options.memory->held(), 0u);
}

TEST_F(Grpc, ACancelledCallCancelsTheRequest) {
  start();
  const auto call = context();
  grpc::Status status;
  ModelInferResponse response;
  std::thread client([&] { status = stub->ModelInfer(call.get(), floats("", {1}), &response); });
  const auto asked = server.take(1);
  call->TryCancel();
  client.join();
  EXPECT_EQ(status.error_code(), grpc::CANCELLED);
  server.wait_cancelled(*asked.at(0));
}

TEST_F(Grpc, ADeadlineCancelsTheRequest) {
  start();
  grpc::ClientContext call;
  call.set_deadline(std::chrono::system_clock::now() + milliseconds(200));
  ModelInferResponse response;
  EXPECT_EQ(stub->ModelInfer(&call, floats("", {1}), &response).error_code(), grpc::DEADLINE_EXCEEDED);
  for (const auto& asked : server.take(0)) server.wait_cancelled(*asked);  // it may not have come in time
}

TEST_F(Grpc, HealthIsTheServersReadiness) {
  start();
  const auto health = grpc::health::v1::Health::NewStub(channel);
  grpc::health::v1::HealthCheckRequest request;
  grpc::health::v1::HealthCheckResponse response;
  for (const char* service : {"", "inference.GRPCInferenceService"}) {
    request.set_service(service);
    server.ready_ = true;
    ASSERT_TRUE(health->Check(context().get(), request, &response).ok());
    EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
    server.ready_ = false;
    ASSERT_TRUE(health->Check(context().get(), request, &response).ok());
    EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  }
  request.set_service("nobody");
  EXPECT_EQ(health->Check(context().get(), request, &response).error_code(), grpc::NOT_FOUND);
}

TEST_F(Grpc, ReadinessOfModels) {
  start();
  inference::ModelReadyRequest request;
  inference::ModelReadyResponse response;
  request.set_name("echo");
  ASSERT_TRUE(stub->ModelReady(context().get(), request, &response).ok());
  EXPECT_TRUE(response.ready());
  request.set_name("nobody");
  ASSERT_TRUE(stub->ModelReady(context().get(), request, &response).ok());
  EXPECT_FALSE(response.ready());
}

TEST_F(Grpc, OnlyWhoHasTheTokenChangesTheServer) {
  start({.management_token = "sixteen-letters-or-more"});
  inference::RepositoryModelLoadRequest load;
  load.set_model_name("m");
  (*load.mutable_parameters())["config"].set_string_param("{}");
  (*load.mutable_parameters())["file:1/model/plan.json"].set_bytes_param("bytes");
  inference::RepositoryModelLoadResponse loaded;
  for (const char* given :
       {"", "Bearer sixteen-letters-or-mor", "Bearer sixteen-letters-or-moreX", "sixteen-letters-or-more"}) {
    const auto call = context();
    if (*given != 0) call->AddMetadata("authorization", given);
    EXPECT_EQ(stub->RepositoryModelLoad(call.get(), load, &loaded).error_code(), grpc::PERMISSION_DENIED) << given;
  }
  EXPECT_TRUE(server.all_loaded().empty());
  auto call = context();
  call->AddMetadata("authorization", "Bearer sixteen-letters-or-more");
  ASSERT_TRUE(stub->RepositoryModelLoad(call.get(), load, &loaded).ok());
  EXPECT_EQ(server.all_loaded().at("m").config, "{}");
  EXPECT_EQ(server.all_loaded().at("m").files.at("1/model/plan.json"), "bytes");
  // Reading needs none.
  inference::LogSettingsResponse settings;
  EXPECT_TRUE(stub->LogSettings(context().get(), {}, &settings).ok());
  inference::LogSettingsRequest change;
  (*change.mutable_settings())["log_info"].set_bool_param(true);
  EXPECT_EQ(stub->LogSettings(context().get(), change, &settings).error_code(), grpc::PERMISSION_DENIED);
}

TEST_F(Grpc, ManagementCanBeOff) {
  start({.management = false});
  inference::RepositoryModelUnloadRequest request;
  inference::RepositoryModelUnloadResponse response;
  EXPECT_EQ(stub->RepositoryModelUnload(context().get(), request, &response).error_code(), grpc::PERMISSION_DENIED);
  EXPECT_TRUE(server.unloaded.empty());
}

TEST_F(Grpc, UnknownLoadParametersAreNamed) {
  start();
  inference::RepositoryModelLoadRequest load;
  inference::RepositoryModelLoadResponse loaded;
  (*load.mutable_parameters())["file:a"].set_string_param("not bytes");
  const grpc::Status status = stub->RepositoryModelLoad(context().get(), load, &loaded);
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("'file:a'"), std::string::npos);
}

TEST_F(Grpc, APortInUseIsAnError) {
  start();
  try {
    GrpcServer second(server, {.port = front->port()});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(front->port())), std::string::npos) << error.what();
  }
}

TEST_F(Grpc, DrainAnswersWhatIsUnderWay) {
  start();
  grpc::Status status;
  ModelInferResponse response;
  std::thread client([&] { status = infer(floats("last", {4}), &response); });
  const auto asked = server.take(1);
  bool all = false;
  std::thread drain([&] { all = front->drain(kPatience); });
  const auto health = grpc::health::v1::Health::NewStub(channel);  // new calls are refused at some time
  grpc::health::v1::HealthCheckResponse healthy;
  while (health->Check(context().get(), {}, &healthy).ok() &&
         healthy.status() == grpc::health::v1::HealthCheckResponse::SERVING)
    std::this_thread::yield();
  answer(server, *asked.at(0));
  client.join();
  drain.join();
  EXPECT_TRUE(all);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(floats_of(response), std::vector<float>{4});
}

TEST_F(Grpc, DrainCancelsWhatTakesTooLong) {
  start();
  grpc::Status status;
  std::thread client([&] { status = infer(floats("", {4})); });
  const auto asked = server.take(1);
  EXPECT_FALSE(front->drain(milliseconds(1)));
  client.join();
  EXPECT_FALSE(status.ok());
  server.wait_cancelled(*asked.at(0));
}

}  // namespace

}  // namespace sluice::serving::test
