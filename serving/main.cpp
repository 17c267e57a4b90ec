// sluice-serve: answers clients of the Open Inference Protocol with the models of a repository.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "serving/grpc/grpc_server.h"
#include "serving/program/arguments.h"
#include "serving/program/check.h"
#include "serving/program/serve.h"
#include "sluice/engine.h"
#include "sluice/version.h"

namespace {

using namespace sluice::serving;

constexpr const char* kAbout =
    "Serves models that sluice.save wrote to clients of the Open Inference Protocol (KServe v2), such as Triton's.\n\n"
    "A repository is a folder of models: models/digits/1/model/ is what sluice.save(graph, ...) wrote for version 1 of "
    "'digits'. A config.pbtxt beside the versions is not needed.\n\n"
    "  sluice-serve --model-repository models                        all models, at 127.0.0.1:8000 (HTTP) and 8001 "
    "(gRPC)\n"
    "  sluice-serve check models                                     what is wrong with them, without serving\n"
    "  sluice-serve --model-repository models --http-address 0.0.0.0 for other machines: read docs/security.md "
    "first\n"
    "  sluice-serve --model-repository models --model-control-mode poll --repository-poll-secs 5\n"
    "                                                                new versions are served when their folder "
    "appears\n"
    "  sluice-serve --model-repository models --model-control-mode explicit --load-model digits\n"
    "                                                                clients load and unload models\n"
    "  sluice-serve --model-repository models --memory-limit 2GiB    what needs more is refused when it is loaded\n\n"
    "SIGTERM and Ctrl-C: no new requests, those under way are answered, exit status 0. A second one ends it at once.";

// Options that are read as text first.
struct Texts {
  std::string control = "none", memory = "0", cache = "0", availability = "preserve";
  std::string max_input = "64MiB", request_memory = "1GiB";
  std::string log_format = "default", request_log, request_log_max = "1GiB";
  std::vector<std::string> metrics;
  std::vector<std::string> http_restricted, grpc_restricted;
  std::vector<std::string> rate_limits, trace, cache_config, tensorrt, openvino, backends;
  double poll_s = 15, request_log_share = 0.01;
  int64_t exit_timeout_s = 30;
};

void add_models(CLI::App& app, Arguments& args, Texts& texts) {
  const char* group = "Models";
  app.add_option("--model-repository,--model-store", args.server.repositories, "folder of models; may be given again")
      ->group(group);
  app.add_option(
         "--model-config-file", args.server.model_config_file,
         "a list of more models, as TensorFlow Serving's: model_config_list { config { name: .. base_path: .. } }")
      ->group(group);
  app.add_flag("--follow-links", args.server.follow_links,
               "links in repositories are followed, where they stay beneath: Kubernetes' volumes have such")
      ->group(group);
  app.add_option("--model-control-mode", texts.control,
                 "none: all models, once; explicit: those that clients ask for; poll: as the folders change")
      ->check(CLI::IsMember({"none", "explicit", "poll"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--load-model", args.server.startup_models, "with explicit: load it at the start; * for all")
      ->group(group);
  app.add_option("--repository-poll-secs", texts.poll_s, "with poll: look so often")
      ->check(CLI::Range(0.05, 86400.0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--availability", texts.availability,
                 "preserve: a new version is loaded before the old one goes; save-memory: after")
      ->check(CLI::IsMember({"preserve", "save-memory"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--id", args.server.name, "of the server, in its metadata")->capture_default_str()->group(group);
  app.add_option_function<bool>(
         "--strict-model-config", [&args](bool strict) { args.server.auto_config = !strict; },
         "true: as --disable-auto-complete-config")
      ->group(group);
  app.add_flag("--disable-auto-complete-config{false}", args.server.auto_config,
               "serve models with a whole config.pbtxt only")
      ->group(group);
  app.add_option("--exit-on-error", args.exit_on_error, "end when a model cannot be loaded at the start")
      ->capture_default_str()
      ->group(group);
  app.add_option("--strict-readiness", args.server.strict_readiness,
                 "ready only when every model is; false: as soon as requests are answered")
      ->capture_default_str()
      ->group(group);
  app.add_option("--backend", texts.backends,
                 "a library that computes what plans have for it: a foreign backend, or a device; may be given again")
      ->group(group);
  app.add_option("--enable-tensorrt", texts.tensorrt)->group("");
  app.add_option("--enable-openvino", texts.openvino)->group("");
}

void add_endpoints(CLI::App& app, Arguments& args, Texts& texts) {
  const char* group = "Endpoints";
  const auto endpoint = [&](const std::string& name, Endpoint& endpoint, const char* what) {
    app.add_option("--" + name + "-address", endpoint.address,
                   fmt::format("where {} listens; 0.0.0.0: everywhere", what))
        ->capture_default_str()
        ->group(group);
    app.add_option("--" + name + "-port", endpoint.port, "0: any that is free")->capture_default_str()->group(group);
    app.add_option("--allow-" + name, endpoint.on, fmt::format("whether there is {}", what))
        ->capture_default_str()
        ->group(group);
  };
  endpoint("http", args.http, "HTTP");
  endpoint("grpc", args.grpc, "gRPC");
  endpoint("metrics", args.metrics, "the page of metrics for Prometheus");
  const auto tls = [&](const std::string& name, TlsOptions& tls) {
    app.add_flag("--" + name + "-use-ssl", tls.on, "TLS; it needs the certificate and the key")->group(group);
    app.add_flag("--" + name + "-use-ssl-mutual", tls.mutual, "clients need certificates, too")->group(group);
    app.add_option("--" + name + "-server-cert", tls.certificate, "file of the server's certificates, in PEM")
        ->group(group);
    app.add_option("--" + name + "-server-key", tls.key, "file of its key, in PEM")->group(group);
    app.add_option("--" + name + "-root-cert", tls.root, "file of certificates that clients' must be signed by")
        ->group(group);
  };
  app.add_option("--reuse-http-port", args.http.reuse_port, "whether other processes may listen at it, too")
      ->group(group);
  app.add_option("--reuse-grpc-port", args.grpc.reuse_port, "the same of gRPC's")->group(group);
  for (const GrpcTuning& tuning : kGrpcTuning)
    app.add_option_function<int>(
           tuning.option, [&args, &tuning](int value) { args.grpc_tuning[tuning.argument] = value; }, tuning.what)
        ->check(CLI::NonNegativeNumber)
        ->group(group);
  tls("http", args.http.tls);
  tls("grpc", args.grpc.tls);
  app.add_option("--metrics-config", texts.metrics,
                 "summary_latencies=true: quantiles of the last minute (summary_quantiles=0.5,0.99); "
                 "histogram_latencies=true: of the time to the first response; counter_latencies=false: no sums")
      ->group(group);
  app.add_option("--http-base-path", args.http_base_path, "before /v2 in every URL")->group(group);
  app.add_option("--http-max-input-size", texts.max_input, "of a request's body, also unpacked")
      ->capture_default_str()
      ->group(group);
  app.add_option("--http-thread-count", args.http_threads, "0: chosen by the number of cores")
      ->check(CLI::Range(0, 256))
      ->capture_default_str()
      ->group(group);
  app.add_option("--exit-timeout-secs", texts.exit_timeout_s, "for requests under way at the end")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--exit-with-stdin", args.exit_with_stdin,
               "end, as by SIGTERM, when standard input does: with the program that started it")
      ->group(group);
  app.add_option(
         "--http-restricted-api", texts.http_restricted,
         "APIS:HEADER=VALUE, as in model-repository,logging:admin-key=secret: groups of calls that need a header")
      ->group(group);
  app.add_option("--grpc-restricted-protocol", texts.grpc_restricted,
                 "the same over gRPC, where clients send it as triton-grpc-protocol-HEADER")
      ->group(group);
  app.add_option(
         "--management-token-file", args.token_file,
         "file with a token; only who sends it (Authorization: Bearer TOKEN) may load and unload models, change "
         "settings, and register shared memory")
      ->group(group);
}

void add_limits(CLI::App& app, Arguments& args, Texts& texts) {
  const char* group = "Limits";
  app.add_option("--cores", args.server.cores, "lent to models; 0: all")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str()
      ->group(group);
  app.add_option("--memory-limit", texts.memory, "of all models together, as in 2GiB; 0: none")
      ->capture_default_str()
      ->group(group);
  app.add_option("--request-memory", texts.request_memory,
                 "bytes that all requests together may hold, from their first byte to the last of their answers; what "
                 "does not fit is told to ask again")
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-connections", args.max_connections,
                 "of HTTP; one more takes the place of one that has no request, or is answered 503")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-queue-size", args.server.max_queue_size, "requests that wait for a model that does not say")
      ->check(CLI::Range(1u, 1u << 24u))
      ->capture_default_str()
      ->group(group);
  app.add_option("--rate-limit-resource", texts.rate_limits, "NAME:COUNT: models that name it share so many")
      ->group(group);
  app.add_option("--response-cache,--response-cache-byte-size", texts.cache,
                 "bytes for answers to equal requests; 0: none")
      ->capture_default_str()
      ->group(group);
  app.add_option("--cache-config", texts.cache_config)->group("");
  app.add_flag("--allow-shared-memory", args.server.shared_memory, "clients on this machine may register shared memory")
      ->group(group);
  app.add_option("--shared-memory-prefix", args.server.shared_memory_prefix, "of the names they may register")
      ->capture_default_str()
      ->group(group);
}

void add_log(CLI::App& app, Arguments& args, Texts& texts) {
  const char* group = "Log and traces";
  app.add_option("--log-verbose", args.log.verbose_level, "1 and more: lines about requests")
      ->capture_default_str()
      ->group(group);
  app.add_option("--log-info", args.log.info)->capture_default_str()->group(group);
  app.add_option("--log-warning", args.log.warning)->capture_default_str()->group(group);
  app.add_option("--log-error", args.log.error)->capture_default_str()->group(group);
  app.add_option("--log-format", texts.log_format, "of the time")
      ->check(CLI::IsMember({"default", "ISO8601"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--log-file", args.log_file, "instead of stderr; opened anew on SIGHUP")->group(group);
  app.add_option(
         "--trace-config", texts.trace,
         "file=PATH, level=TIMESTAMPS or TENSORS, rate=N (one of N requests), count=N, log-frequency=N (traces of "
         "a file), mode=triton or opentelemetry")
      ->group(group);
  app.add_option("--request-log", texts.request_log, "file to keep requests in, whole, for sluice-perf --replay")
      ->group(group);
  app.add_option("--request-log-share", texts.request_log_share, "of the requests")
      ->capture_default_str()
      ->group(group);
  app.add_option("--request-log-max", texts.request_log_max, "bytes of the file")->capture_default_str()->group(group);
}

// Triton's, of GPUs, of threads and buffers that are not here, of other backends.
constexpr const char* kPassedOver[] = {"--pinned-memory-pool-byte-size",
                                       "--cuda-memory-pool-byte-size",
                                       "--cuda-virtual-address-size",
                                       "--min-supported-compute-capability",
                                       "--buffer-manager-thread-count",
                                       "--model-load-gpu-limit",
                                       "--grpc-infer-thread-count",
                                       "--grpc-infer-allocation-pool-size",
                                       "--grpc-max-response-pool-size",
                                       "--enable-peer-access",
                                       "--host-policy",
                                       "--backend-config",
                                       "--backend-directory",
                                       "--allow-gpu-metrics",
                                       "--allow-cpu-metrics",
                                       "--metrics-interval-ms"};

void add_passed_over(CLI::App& app, Arguments& args) {
  for (const char* option : kPassedOver)
    app.add_option_function<std::vector<std::string>>(
           option, [&args, option](const std::vector<std::string>&) { args.passed_over.emplace_back(option); })
        ->group("");
}

[[noreturn]] void refuse(const std::string& text) { throw std::runtime_error(text); }

void apply(Arguments& args, const Texts& texts) {
  if (!texts.tensorrt.empty())
    refuse(fmt::format(
        "--enable-tensorrt {}: not built with TensorRT: there is no adapter to it in this version; leave the "
        "option out, or build a library of your own with cmake -DSLUICE_FOREIGN_BACKENDS=NAME=SOURCE, and "
        "serve a plan that it has compiled by --backend (docs/backends.md)",
        texts.tensorrt.front()));
  if (!texts.openvino.empty())
    refuse(fmt::format(
        "--enable-openvino {}: the server writes no models of ONNX, which the adapter to OpenVINO reads; "
        "leave the option out, or load the graph in Python: sl.load_graph(path, backend=\"openvino\"), or serve "
        "a plan for oneDNN: sluice-compile MODEL --backend onednn_graph --to bundle, and --backend "
        "onednn_graph here (docs/backends.md)",
        texts.openvino.front()));
  if (!texts.backends.empty()) {  // the process has them, whichever engine runs the models
    sluice::api::Engine engine({.cores = 1});
    for (const std::string& backend : texts.backends) engine.load_backend(backend);
  }
  if (args.server.repositories.empty() && args.server.model_config_file.empty())
    refuse("no models: say where they are, as in sluice-serve --model-repository models");
  if (!args.http.on && !args.grpc.on) refuse("neither HTTP nor gRPC: leave out --allow-http or --allow-grpc");
  args.server.control = texts.control == "none"       ? ModelControl::kNone
                        : texts.control == "explicit" ? ModelControl::kExplicit
                                                      : ModelControl::kPoll;
  if (!args.server.startup_models.empty() && args.server.control != ModelControl::kExplicit)
    refuse("--load-model: it needs --model-control-mode explicit; in the other modes all models are loaded");
  args.server.poll = std::chrono::milliseconds(static_cast<int64_t>(texts.poll_s * 1000));
  args.server.availability = texts.availability == "preserve" ? Availability::kPreserve : Availability::kSaveMemory;
  args.server.memory_limit = parse_bytes("--memory-limit", texts.memory);
  args.server.response_cache_bytes = parse_bytes("--response-cache", texts.cache);
  for (const std::string& text : texts.cache_config) {
    if (!text.starts_with("local,size=")) refuse(fmt::format("--cache-config '{}': it must be local,size=BYTES", text));
    args.server.response_cache_bytes = parse_bytes("--cache-config", text.substr(11));
  }
  args.http_max_input_bytes = parse_bytes("--http-max-input-size", texts.max_input);
  if (args.http_max_input_bytes == 0) refuse("--http-max-input-size: it must be above 0");
  args.request_memory_bytes = parse_bytes("--request-memory", texts.request_memory);
  if (args.request_memory_bytes == 0) refuse("--request-memory: it must be above 0");
  for (const std::string& text : texts.metrics) parse_metrics(text, args.server.metrics);
  for (const std::string& text : texts.http_restricted)
    parse_restriction("--http-restricted-api", text, args.http_restrictions);
  for (const std::string& text : texts.grpc_restricted)
    parse_restriction("--grpc-restricted-protocol", text, args.grpc_restrictions);
  for (const std::string& text : texts.rate_limits) parse_rate_limit(text, args.server.rate_limits);
  for (const std::string& text : texts.trace) parse_trace(text, args.server.trace);
  if (!texts.request_log.empty())
    parse_request_log(texts.request_log, texts.request_log_share, texts.request_log_max, args.server.request_log);
  for (TlsOptions* tls : {&args.http.tls, &args.grpc.tls}) tls->on |= tls->mutual;
  args.log.iso8601 = texts.log_format == "ISO8601";
  args.exit_timeout = std::chrono::seconds(texts.exit_timeout_s);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(kAbout, "sluice-serve");
  app.set_version_flag("--version", "sluice-serve " SLUICE_VERSION);
  app.require_subcommand(0, 1);
  app.footer("Exit status: 0; 1 for what went wrong; 2 for options that are wrong. docs/serving.md teaches the rest.");
  Arguments args;
  Texts texts;
  args.log.info = true;
  add_models(app, args, texts);
  add_endpoints(app, args, texts);
  add_limits(app, args, texts);
  add_log(app, args, texts);
  add_passed_over(app, args);
  CheckArguments check_args;
  CLI::App* check_command = app.add_subcommand("check", "Says what is wrong with a repository, without serving it.");
  check_command->add_option("repository", check_args.repositories, "folders of models")->required();
  check_command->add_option("--model", check_args.models, "only these");
  std::string check_limit = "0", check_cache = "0";
  std::vector<std::string> check_rates;
  check_command->add_option("--memory-limit", check_limit, "that all together must fit into, as in 2GiB; 0: none");
  check_command->add_option("--response-cache,--response-cache-byte-size", check_cache, "as it will be served");
  check_command->add_option("--rate-limit-resource", check_rates, "as it will be served");
  check_command->add_flag("--follow-links", check_args.follow_links, "as it will be served");
  check_command->add_flag("--load", check_args.load, "also load every version, one at a time, and run its warm-up");
  check_command->add_flag("--json", check_args.json, "for programs: models, how they are served, problems");
  check_command->footer("Exit status: 0 when every model can be served; 1 when not, with every problem listed.");
  try {
    app.parse(argc, argv);
    if (check_command->parsed()) {
      check_args.memory_limit = parse_bytes("--memory-limit", check_limit);
      check_args.response_cache_bytes = parse_bytes("--response-cache", check_cache);
      for (const std::string& text : check_rates) parse_rate_limit(text, check_args.rate_limits);
      return check(check_args);
    }
    apply(args, texts);
  } catch (const CLI::ParseError& e) {  // help is one, too
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "sluice-serve: %s\n", e.what());
    return 2;
  }
  return serve(args);
}
