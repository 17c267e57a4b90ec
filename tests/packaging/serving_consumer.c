/* The server within a program, in C99: what test_serving_library.py checks. Arguments: a repository with a model "net"
 * of (1, 16) floats to (1, 3). Prints one line per result; ends with 1 at the first surprise. */
#include <pthread.h>
#include <sluice/sluice_server.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                   \
  do {                                                                      \
    if (!(condition)) {                                                     \
      fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition); \
      exit(1);                                                              \
    }                                                                       \
  } while (0)

static void succeed(sluice_server_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "%s\n", sluice_server_error_message(error));
  exit(1);
}

/* The error must have this code, and a text with `part` in it. */
static void refuse(sluice_server_error* error, sluice_server_code code, const char* part) {
  EXPECT(error != NULL);
  if (sluice_server_error_code(error) != code || strstr(sluice_server_error_message(error), part) == NULL) {
    fprintf(stderr, "code %d: %s\nwanted: %d, %s\n", (int)sluice_server_error_code(error),
            sluice_server_error_message(error), (int)code, part);
    exit(1);
  }
  sluice_server_error_destroy(error);
}

static float values[16];

static sluice_server_request* request(const char* model) {
  const int64_t shape[] = {1, 16};
  sluice_server_request* made = NULL;
  succeed(sluice_server_request_create(model, NULL, &made));
  succeed(sluice_server_request_set_id(made, "id-7"));
  succeed(sluice_server_request_set_int64(made, "priority", 1));
  succeed(sluice_server_request_set_bool(made, "sequence_start", 0));
  succeed(sluice_server_request_set_string(made, "note", "kept"));
  succeed(sluice_server_request_add_input(made, "INPUT_0", "FP32", shape, 2, values, sizeof values));
  return made;
}

static void print_floats(const sluice_server_response* response) {
  sluice_server_output output = SLUICE_SERVER_OUTPUT_INIT;
  size_t i;
  succeed(sluice_server_response_output(response, 0, &output));
  EXPECT(strcmp(output.name, "OUTPUT_0") == 0 && strcmp(output.datatype, "FP32") == 0);
  EXPECT(output.rank == 2 && output.shape[0] == 1 && output.shape[1] == 3 && output.bytes == 12);
  for (i = 0; i < 3; ++i) printf("%a ", ((const float*)output.data)[i]);
  printf("\n");
}

/* Answers of started requests. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int answered = 0, failed = 0;

static void respond(void* context, sluice_server_response* response, int last) {
  sluice_server_error* error = sluice_server_response_error(response);
  EXPECT(context == &answered && last == 1);
  pthread_mutex_lock(&mutex);
  ++answered;
  if (error != NULL) ++failed;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&mutex);
  sluice_server_error_destroy(error);
  sluice_server_response_destroy(response);
}

static void wait_for(int count) {
  pthread_mutex_lock(&mutex);
  while (answered < count) pthread_cond_wait(&changed, &mutex);
  pthread_mutex_unlock(&mutex);
}

static void infer(sluice_server* server) {
  sluice_server_output output = SLUICE_SERVER_OUTPUT_INIT;
  sluice_server_response* response = NULL;
  sluice_server_request* made = request("net");
  succeed(sluice_server_infer(server, made, &response));
  EXPECT(strcmp(sluice_server_response_model(response), "net") == 0);
  EXPECT(strcmp(sluice_server_response_version(response), "1") == 0);
  EXPECT(strcmp(sluice_server_response_id(response), "id-7") == 0);
  EXPECT(sluice_server_response_num_outputs(response) == 1 && sluice_server_response_error(response) == NULL);
  print_floats(response);
  refuse(sluice_server_response_output(response, 1, &output), SLUICE_SERVER_INVALID_ARGUMENT, "there are 1 outputs");
  sluice_server_response_destroy(response);
  refuse(sluice_server_response_output(response, 0, &output), SLUICE_SERVER_INVALID_ARGUMENT, "not a live handle");
  refuse(sluice_server_infer(server, made, &response), SLUICE_SERVER_INVALID_ARGUMENT, "not been used");

  made = request("net");
  succeed(sluice_server_request_add_output(made, "OUTPUT_0", 1));
  succeed(sluice_server_infer(server, made, &response));
  succeed(sluice_server_response_output(response, 0, &output));
  EXPECT(strcmp(output.datatype, "BYTES") == 0 && output.bytes > 4);
  printf("%.*s\n", (int)output.bytes - 4, (const char*)output.data + 4);
  sluice_server_response_destroy(response);
}

static void errors(sluice_server* server) {
  const int64_t shape[] = {1, 16};
  sluice_server_response* response = NULL;
  sluice_server_request* made = request("nobody");
  refuse(sluice_server_infer(server, made, &response), SLUICE_SERVER_NOT_FOUND,
         "Request for unknown model: 'nobody' is not found");
  made = request("net");
  succeed(sluice_server_request_add_input(made, "INPUT_0", "FP99", shape, 2, values, sizeof values));
  refuse(sluice_server_infer(server, made, &response), SLUICE_SERVER_INVALID_ARGUMENT, "FP99");
  made = request("net");
  refuse(sluice_server_request_add_input(made, NULL, "FP32", shape, 2, values, sizeof values),
         SLUICE_SERVER_INVALID_ARGUMENT, "name is NULL");
  refuse(sluice_server_request_add_input(made, "x", "FP32", shape, -1, values, sizeof values),
         SLUICE_SERVER_INVALID_ARGUMENT, "rank: -1");
  refuse(sluice_server_request_add_input(made, "x", "FP32", shape, 2, NULL, 4), SLUICE_SERVER_INVALID_ARGUMENT,
         "data is NULL");
  sluice_server_request_destroy(made);
  sluice_server_request_destroy(made);
  refuse(sluice_server_request_set_id(made, "x"), SLUICE_SERVER_INVALID_ARGUMENT, "not a live handle of a request");
  refuse(sluice_server_load(server, "net", NULL), SLUICE_SERVER_FORBIDDEN, "explicit");
}

static void many(sluice_server* server) {
  int i;
  sluice_server_call* call = NULL;
  for (i = 0; i < 100; ++i) {
    succeed(sluice_server_start(server, request("net"), respond, &answered, i % 2 == 0 ? NULL : &call));
    if (i % 10 == 1) sluice_server_call_cancel(call);
    if (i % 2 == 1) sluice_server_call_destroy(call);
  }
  sluice_server_call_cancel(call); /* not alive any more */
  wait_for(100);
  EXPECT(failed <= 10); /* those that were cancelled in time */
  succeed(sluice_server_start(server, request("nobody"), respond, &answered, NULL));
  wait_for(101);
}

int main(int argc, char** argv) {
  const char* repositories[1];
  sluice_server_options options = SLUICE_SERVER_OPTIONS_INIT;
  sluice_server* server = NULL;
  char* reply = NULL;
  int status = 0, all = 0, i;
  EXPECT(argc == 2);
  for (i = 0; i < 16; ++i) values[i] = (float)i / 8 - 1;
  repositories[0] = "/no/such/folder";
  options.repositories = repositories;
  options.num_repositories = 1;
  refuse(sluice_server_create(&options, &server), SLUICE_SERVER_NOT_FOUND, "");
  options.model_control = 3;
  refuse(sluice_server_create(&options, &server), SLUICE_SERVER_INVALID_ARGUMENT, "model_control: 3");
  options.model_control = 0;
  options.http_port = 65536;
  refuse(sluice_server_create(&options, &server), SLUICE_SERVER_INVALID_ARGUMENT, "http_port: 65536");
  options.size = 7;
  refuse(sluice_server_create(&options, &server), SLUICE_SERVER_INVALID_ARGUMENT, "SLUICE_SERVER_OPTIONS_INIT");
  refuse(sluice_server_create(NULL, &server), SLUICE_SERVER_INVALID_ARGUMENT, "options is NULL");
  options.size = sizeof options;
  options.http_port = options.grpc_port = options.metrics_port = 0;
  repositories[0] = argv[1];
  succeed(sluice_server_create(&options, &server));
  succeed(sluice_server_wait_ready(server, 300000));
  EXPECT(sluice_server_ready(server) == 1 && sluice_server_model_ready(server, "net", NULL) == 1);
  EXPECT(sluice_server_model_ready(server, "net", "9") == 0 && sluice_server_model_ready(server, NULL, NULL) == 0);
  EXPECT(sluice_server_http_port(server) > 0 && sluice_server_grpc_port(server) > 0);
  EXPECT(sluice_server_metrics_port(server) > 0);
  infer(server);
  errors(server);
  many(server);
  succeed(sluice_server_ask(server, "GET", "/v2/models/net", NULL, &status, &reply));
  EXPECT(status == 200);
  printf("%s\n", reply);
  sluice_server_free(reply);
  succeed(sluice_server_ask(server, "GET", "/nowhere", NULL, &status, &reply));
  EXPECT(status == 404 && strstr(reply, "\"error\"") != NULL);
  sluice_server_free(reply);
  succeed(sluice_server_stop(server, 60000, &all));
  EXPECT(all == 1 && sluice_server_ready(server) == 0);
  {
    sluice_server_response* response = NULL;
    refuse(sluice_server_infer(server, request("net"), &response), SLUICE_SERVER_UNAVAILABLE, "shutting down");
  }
  sluice_server_destroy(server);
  sluice_server_destroy(server);
  EXPECT(sluice_server_ready(server) == 0 && sluice_server_http_port(server) == 0);
  refuse(sluice_server_stop(server, 0, NULL), SLUICE_SERVER_INVALID_ARGUMENT, "not a live handle of a server");
  return 0;
}
