#ifndef SLUICE_SLUICE_SERVER_H_
#define SLUICE_SLUICE_SERVER_H_
/* The inference server within a program, in C: serving.hpp for C99 and foreign-function calls. Link sluice::serving.
 *
 *   sluice_server_options options = SLUICE_SERVER_OPTIONS_INIT;
 *   options.repositories = repositories; options.num_repositories = 1;
 *   sluice_server* server = NULL;
 *   sluice_server_error* error = sluice_server_create(&options, &server);
 *   if (error != NULL) { puts(sluice_server_error_message(error)); sluice_server_error_destroy(error); }
 *
 * Errors, handles, threads and structs follow the rules of sluice.h: NULL is success; handles are names, and one that
 * is not alive is an error and never a crash; what a function creates, the caller destroys, in any order; every
 * function may be called from any thread; structs begin with their size. A server ends with the last call that uses it.
 */
#include <stddef.h>
#include <stdint.h>

#include "export.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_server sluice_server;
typedef struct sluice_server_error sluice_server_error;
typedef struct sluice_server_request sluice_server_request;
typedef struct sluice_server_response sluice_server_response;
typedef struct sluice_server_call sluice_server_call;

/* --- errors */
typedef enum sluice_server_code {
  SLUICE_SERVER_OK = 0,
  SLUICE_SERVER_INVALID_ARGUMENT = 1,
  SLUICE_SERVER_NOT_FOUND = 2,
  SLUICE_SERVER_ALREADY_EXISTS = 3,
  SLUICE_SERVER_TOO_LARGE = 4,
  SLUICE_SERVER_UNSUPPORTED = 5,
  SLUICE_SERVER_FORBIDDEN = 6,
  SLUICE_SERVER_OVERLOADED = 7, /* the queue is full: ask again later */
  SLUICE_SERVER_UNAVAILABLE = 8,
  SLUICE_SERVER_TIMEOUT = 9,
  SLUICE_SERVER_CANCELLED = 10,
  SLUICE_SERVER_INTERNAL = 11
} sluice_server_code;
SLUICE_API sluice_server_code sluice_server_error_code(const sluice_server_error* error);
SLUICE_API const char* sluice_server_error_message(const sluice_server_error* error);    /* "" of success */
SLUICE_API int64_t sluice_server_error_retry_after_ms(const sluice_server_error* error); /* -1: it does not say */
SLUICE_API void sluice_server_error_destroy(sluice_server_error* error);

/* --- the server */
typedef struct sluice_server_options {
  size_t size;
  const char* const* repositories; /* folders of models */
  size_t num_repositories;
  const char* const* startup_models; /* with model_control 1; "*": all */
  size_t num_startup_models;
  int32_t model_control;         /* 0: all models, once; 1: what is asked for; 2: as the folders change */
  int32_t poll_ms;               /* with model_control 2; 0: 15,000 */
  int32_t cores;                 /* lent to models; 0: all */
  int32_t max_queue_size;        /* requests that wait for a model that does not say; 0: 256 */
  uint64_t memory_limit;         /* bytes of all models together; 0: none */
  uint64_t response_cache_bytes; /* 0: none */
  const char* address;           /* where it listens; NULL: 127.0.0.1 */
  int32_t http_port;             /* -1: no HTTP; 0: a port that is free */
  int32_t grpc_port;
  int32_t metrics_port;
  int32_t shared_memory;            /* not 0: clients of the ports may register regions */
  const char* shared_memory_prefix; /* of their names; NULL: "/sluice" */
  uint64_t max_input_bytes;         /* of a request over the ports; 0: 64 MiB */
  const char* management_token;     /* who may change the server over the ports; NULL: everybody */
} sluice_server_options;
#define SLUICE_SERVER_OPTIONS_INIT \
  { sizeof(sluice_server_options), NULL, 0, NULL, 0, 0, 0, 0, 0, 0, 0, NULL, -1, -1, -1, 0, NULL, 0, NULL }
/* Starts loading, and listens where it shall. */
SLUICE_API sluice_server_error* sluice_server_create(const sluice_server_options* options, sluice_server** server);
/* Cancels what is under way. */
SLUICE_API void sluice_server_destroy(sluice_server* server);
/* No new requests; waits for those under way, or that long; then cancels the rest. `all_answered` may be NULL. */
SLUICE_API sluice_server_error* sluice_server_stop(sluice_server* server, int64_t timeout_ms, int* all_answered);
SLUICE_API int sluice_server_http_port(const sluice_server* server); /* 0 where it does not listen */
SLUICE_API int sluice_server_grpc_port(const sluice_server* server);
SLUICE_API int sluice_server_metrics_port(const sluice_server* server);

SLUICE_API int sluice_server_ready(const sluice_server* server); /* 1 or 0 */
/* Until it is ready; SLUICE_SERVER_UNAVAILABLE with the reasons when models could not be loaded. */
SLUICE_API sluice_server_error* sluice_server_wait_ready(const sluice_server* server, int64_t timeout_ms);
/* 1 or 0. `version`: NULL or "" for the newest; here as elsewhere. */
SLUICE_API int sluice_server_model_ready(const sluice_server* server, const char* model, const char* version);
/* Waits until it is done. `config`: a ModelConfig as JSON instead of the repository's, or NULL. */
SLUICE_API sluice_server_error* sluice_server_load(sluice_server* server, const char* model, const char* config);
SLUICE_API sluice_server_error* sluice_server_unload(sluice_server* server, const char* model, int dependents);
/* Every call of the protocol but infer, as HTTP has it: "GET", "/v2/models/digits/stats". `reply` is given the JSON, or
 * {"error": ..}, and `status` HTTP's. To be freed by sluice_server_free. */
SLUICE_API sluice_server_error* sluice_server_ask(sluice_server* server, const char* method, const char* path,
                                                  const char* body, int* status, char** reply);
SLUICE_API void sluice_server_free(char* text);

/* --- requests */
SLUICE_API sluice_server_error* sluice_server_request_create(const char* model, const char* version,
                                                             sluice_server_request** request);
SLUICE_API void sluice_server_request_destroy(sluice_server_request* request);
SLUICE_API sluice_server_error* sluice_server_request_set_id(sluice_server_request* request, const char* id);
SLUICE_API sluice_server_error* sluice_server_request_set_bool(sluice_server_request* request, const char* parameter,
                                                               int value);
SLUICE_API sluice_server_error* sluice_server_request_set_int64(sluice_server_request* request, const char* parameter,
                                                                int64_t value);
SLUICE_API sluice_server_error* sluice_server_request_set_string(sluice_server_request* request, const char* parameter,
                                                                 const char* value);
/* A copy of `bytes` bytes. `datatype`: "FP32", "INT64", "BYTES" (each element its length in 4 bytes, and its bytes). */
SLUICE_API sluice_server_error* sluice_server_request_add_input(sluice_server_request* request, const char* name,
                                                                const char* datatype, const int64_t* shape, int rank,
                                                                const void* data, size_t bytes);
/* Without any, all are given. `classes` > 0: the k largest, as BYTES "value:index[:label]". */
SLUICE_API sluice_server_error* sluice_server_request_add_output(sluice_server_request* request, const char* name,
                                                                 uint32_t classes);

/* --- inference. Both take the request: its handle is destroyed, also on an error. */
/* Waits for the answer. */
SLUICE_API sluice_server_error* sluice_server_infer(sluice_server* server, sluice_server_request* request,
                                                    sluice_server_response** response);
/* Called for every answer, the last time with `last`, on any thread, also before sluice_server_start has returned. It
 * must not block. `response` is the callee's to destroy; what is wrong is told by sluice_server_response_error. */
typedef void (*sluice_server_respond)(void* context, sluice_server_response* response, int last);
/* `call` may be NULL. */
SLUICE_API sluice_server_error* sluice_server_start(sluice_server* server, sluice_server_request* request,
                                                    sluice_server_respond respond, void* context,
                                                    sluice_server_call** call);
/* Drops the request where it still waits; it is answered all the same. */
SLUICE_API void sluice_server_call_cancel(sluice_server_call* call);
SLUICE_API void sluice_server_call_destroy(sluice_server_call* call); /* changes nothing for the request */

/* --- responses. The memory that it points to lives as long as the handle. */
typedef struct sluice_server_output {
  size_t size;
  const char* name;
  const char* datatype;
  const int64_t* shape;
  int32_t rank;
  const void* data;
  size_t bytes;
} sluice_server_output;
#define SLUICE_SERVER_OUTPUT_INIT \
  { sizeof(sluice_server_output), NULL, NULL, NULL, 0, NULL, 0 }
/* NULL, or the error, which is then the caller's to destroy. */
SLUICE_API sluice_server_error* sluice_server_response_error(const sluice_server_response* response);
SLUICE_API const char* sluice_server_response_model(const sluice_server_response* response);
SLUICE_API const char* sluice_server_response_version(const sluice_server_response* response);
SLUICE_API const char* sluice_server_response_id(const sluice_server_response* response);
SLUICE_API size_t sluice_server_response_num_outputs(const sluice_server_response* response);
SLUICE_API sluice_server_error* sluice_server_response_output(const sluice_server_response* response, size_t index,
                                                              sluice_server_output* output);
SLUICE_API void sluice_server_response_destroy(sluice_server_response* response);

#ifdef __cplusplus
}
#endif
#endif
