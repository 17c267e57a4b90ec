#ifndef SLUICE_SLUICE_H_
#define SLUICE_SLUICE_H_
/* The C API: load a bundle, feed it tensors, get tensors back. C99; also usable from C++ and by foreign-function calls.
 *
 *   sluice_engine* engine = NULL;
 *   sluice_status* status = sluice_engine_create(NULL, &engine);
 *   if (status != NULL) { puts(sluice_status_message(status)); sluice_status_destroy(status); }
 *
 * Statuses: NULL is success; anything else is an error that the caller destroys.
 * Handles: what a function creates, the caller destroys, in any order: a session keeps its engine, a step its session.
 * They are names, not addresses: NULL, a destroyed or a made-up handle is an error (or 0, or NULL, where no status is
 * returned), never a crash. Destroying NULL or such a handle does nothing.
 * Threads: every function may be called from any thread at any time, with the same handles; destroying a handle that
 * another thread is using waits for nothing: the object goes when the last call that uses it ends. Pointers that a
 * function returns into an object (text, shapes, data) live as long as its handle.
 * End: destroy every engine, and its sessions and steps, before main() returns.
 * Compatibility: structs begin with their size, which the _INIT macros set; later versions may add fields at their end.
 * No exception crosses this border. */
#include <stddef.h>
#include <stdint.h>

#include "export.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_status sluice_status;
typedef struct sluice_engine sluice_engine;
typedef struct sluice_plan sluice_plan;
typedef struct sluice_arenas sluice_arenas;
typedef struct sluice_session sluice_session;
typedef struct sluice_step sluice_step;
typedef struct sluice_tensor sluice_tensor;
typedef struct sluice_tensors sluice_tensors;
typedef struct sluice_counters sluice_counters;
typedef struct sluice_text sluice_text;
typedef struct sluice_trace sluice_trace;

/* "0.1.0", of the library loaded. */
SLUICE_API const char* sluice_version(void);
/* Text that a function makes; "" of no live handle. */
SLUICE_API const char* sluice_text_data(const sluice_text* text);
SLUICE_API void sluice_text_destroy(sluice_text* text);

/* --- statuses */
typedef enum sluice_kind {
  SLUICE_OK = 0,
  SLUICE_ERROR_VALUE = 1,
  SLUICE_ERROR_TYPE = 2,
  SLUICE_ERROR_INDEX = 3,
  SLUICE_ERROR_RUNTIME = 4,
  SLUICE_ERROR_UNSUPPORTED = 5,
  SLUICE_ERROR_MEMORY = 6,
  SLUICE_ERROR_TIMEOUT = 7,
  SLUICE_ERROR_IO = 8,
  SLUICE_ERROR_CANCELLED = 9,
  SLUICE_ERROR_DEVICE = 10,      /* a device is lost to this process; everything on it fails from now on */
  SLUICE_ERROR_END_OF_DATA = 11, /* a source has no more */
  SLUICE_ERROR_LINALG = 12       /* a matrix has no such inverse, solution or factorization */
} sluice_kind;
SLUICE_API sluice_kind sluice_status_kind(const sluice_status* status);
/* "" of success. */
SLUICE_API const char* sluice_status_message(const sluice_status* status);
SLUICE_API void sluice_status_destroy(sluice_status* status);

/* --- tensors: contiguous, row-major, in host memory or on a device; several handles may share it */
typedef enum sluice_dtype {
  SLUICE_BOOL = 0,
  SLUICE_UINT8 = 1,
  SLUICE_INT8 = 2,
  SLUICE_INT16 = 3,
  SLUICE_INT32 = 4,
  SLUICE_INT64 = 5,
  SLUICE_FLOAT16 = 6,
  SLUICE_BFLOAT16 = 7,
  SLUICE_FLOAT32 = 8,
  SLUICE_FLOAT64 = 9,
  SLUICE_COMPLEX64 = 10, /* float pairs: real, imaginary */
  SLUICE_COMPLEX128 = 11,
  SLUICE_DTYPE_INT_ = -2147483647 - 1 /* no dtype; it makes the type as wide as an int, so that any value is an error */
} sluice_dtype;
/* "float32"; NULL of no dtype. */
SLUICE_API const char* sluice_dtype_name(sluice_dtype dtype);
/* Bytes of an element; 0 of no dtype. */
SLUICE_API size_t sluice_dtype_size(sluice_dtype dtype);
/* Zeros. `shape` may be NULL when rank is 0. */
SLUICE_API sluice_status* sluice_tensor_create(sluice_dtype dtype, const int64_t* shape, int rank,
                                               sluice_tensor** tensor);
/* A copy of `bytes` bytes, which must be the tensor's size. */
SLUICE_API sluice_status* sluice_tensor_from_data(sluice_dtype dtype, const int64_t* shape, int rank, const void* data,
                                                  size_t bytes, sluice_tensor** tensor);
/* Memory of the caller's, which must hold the whole tensor. `release`, if not NULL, is called once with `context` when
 * nobody uses it any more, on any thread; it must not block or call Sluice. On an error it is not called. */
SLUICE_API sluice_status* sluice_tensor_from_memory(sluice_dtype dtype, const int64_t* shape, int rank, void* data,
                                                    size_t bytes, void (*release)(void* context), void* context,
                                                    sluice_tensor** tensor);
/* The same of memory of a device, "cuda:0". Sluice believes what is said of its place, and the data there must be
 * complete. */
SLUICE_API sluice_status* sluice_tensor_from_device_memory(sluice_dtype dtype, const int64_t* shape, int rank,
                                                           void* data, size_t bytes, const char* device,
                                                           void (*release)(void* context), void* context,
                                                           sluice_tensor** tensor);
SLUICE_API void sluice_tensor_destroy(sluice_tensor* tensor);
/* The address of the elements; for a tensor on a device it is an address there. */
SLUICE_API void* sluice_tensor_data(const sluice_tensor* tensor);
/* The device in whose memory it lies: "cpu:0", "cuda:0"; "" of no live handle. The text lives as long as the
 * process. */
SLUICE_API const char* sluice_tensor_device(const sluice_tensor* tensor);
/* A copy on another device, "cpu" for host memory, made by now, or another handle where it is there already. It may
 * outlive the engine. */
SLUICE_API sluice_status* sluice_tensor_to(const sluice_tensor* tensor, sluice_engine* engine, const char* device,
                                           sluice_tensor** copy);
SLUICE_API size_t sluice_tensor_bytes(const sluice_tensor* tensor);
SLUICE_API int64_t sluice_tensor_size(const sluice_tensor* tensor); /* elements */
SLUICE_API sluice_dtype sluice_tensor_dtype(const sluice_tensor* tensor);
SLUICE_API int sluice_tensor_rank(const sluice_tensor* tensor);
SLUICE_API const int64_t* sluice_tensor_shape(const sluice_tensor* tensor);

/* A file of named tensors (safetensors), in the order of their names. Names live as long as the handle. */
SLUICE_API sluice_status* sluice_tensors_load(const char* path, sluice_tensors** tensors);
SLUICE_API void sluice_tensors_destroy(sluice_tensors* tensors);
SLUICE_API size_t sluice_tensors_count(const sluice_tensors* tensors);
SLUICE_API const char* sluice_tensors_name(const sluice_tensors* tensors, size_t index); /* NULL beyond the last */
/* A new tensor, which shares the file's memory. */
SLUICE_API sluice_status* sluice_tensors_get(const sluice_tensors* tensors, size_t index, sluice_tensor** tensor);
/* Writes such a file. */
SLUICE_API sluice_status* sluice_tensors_save(const char* path, const char* const* names, sluice_tensor* const* tensors,
                                              size_t count);

/* --- engines: devices, threads and memory that sessions share */
typedef struct sluice_engine_options {
  size_t size;
  int32_t cores;       /* lent to kernels; 0: all this process may run on */
  int32_t watchdog_ms; /* log who waits for whom when nothing happens for so long; 0: never */
  /* of threads that wait within a kernel; 0: while no other process wants the cores, 1: never, 2: always */
  int32_t spin;
  const int32_t* cpus; /* processors that kernels run on; all where num_cpus is 0 */
  size_t num_cpus;
  /* The source of the host memory that the engine gives its sessions: the memory plans compute in, weights that are not
   * mapped, results.
   * NULL, both of them: the system's. Called from any thread, also after the engine's end for results that are still
   * held; they must not block or call Sluice. `allocate` gives a multiple of `alignment`, or NULL where there is none.
   */
  void* (*allocate)(void* context, size_t bytes, size_t alignment);
  void (*release)(void* context, void* data, size_t bytes);
  void* context;
  int32_t stop_timeout_ms; /* how long its end waits for kernels that run */
} sluice_engine_options;
#define SLUICE_ENGINE_OPTIONS_INIT \
  { sizeof(sluice_engine_options), 0, 10000, 0, NULL, 0, NULL, NULL, NULL, 5000 }
/* `options` may be NULL. */
SLUICE_API sluice_status* sluice_engine_create(const sluice_engine_options* options, sluice_engine** engine);
SLUICE_API void sluice_engine_destroy(sluice_engine* engine);
/* Host bytes of the plans loaded now, and the most there ever were. */
SLUICE_API uint64_t sluice_engine_memory_bytes(const sluice_engine* engine);
SLUICE_API uint64_t sluice_engine_peak_memory_bytes(const sluice_engine* engine);
/* Cores lent to kernels. */
SLUICE_API int sluice_engine_cores(const sluice_engine* engine);
/* Makes a shared library the backend of a kind of device (docs/adding-a-device.md), in this process; nothing when it is
 * already. Or loads a foreign backend (offload.h), also by its name. `kind` may be NULL; else it receives the kind's
 * name, or the backend's, which lives as long as the process. */
SLUICE_API sluice_status* sluice_engine_load_backend(sluice_engine* engine, const char* path, const char** kind);
/* Loads a shared library with ops and kernels (extension.h). */
SLUICE_API sluice_status* sluice_engine_load_extension(sluice_engine* engine, const char* path);
/* The ranks of a job, of which this process is one. Blocks until all have met; bundles of several ranks then run on all
 * of them, which must load them in one order. */
typedef struct sluice_world_options {
  size_t size;
  int32_t rank;
  int32_t ranks;
  const char* master_host; /* where rank 0 listens until all have come */
  int32_t master_port;
  int32_t timeout_ms;   /* to wait for other ranks: for all to come, and in each exchange */
  int32_t heartbeat_ms; /* a rank that is not heard of for so long counts as hung */
  const char* token;    /* the same in every rank, 1 to 64 characters; who does not have it is no rank */
} sluice_world_options;
#define SLUICE_WORLD_OPTIONS_INIT \
  { sizeof(sluice_world_options), 0, 1, "127.0.0.1", 0, 300000, 10000, NULL }
SLUICE_API sluice_status* sluice_engine_join(sluice_engine* engine, const sluice_world_options* options);

/* --- what goes in and out */
typedef struct sluice_port {
  size_t size;
  const char* name;
  sluice_dtype dtype;
  int32_t rank;
  const int64_t* shape;    /* of an axis whose size may differ from call to call, the largest */
  const char* const* dims; /* per axis: the name of the dim that its size may follow, or NULL; NULL where no axis may */
  const char* copied;      /* of a session: why its memory is copied; "" where it is exchanged with callers */
  const char* device; /* of a session: in whose memory results, and what is handed over, may lie: "cpu:0", "cuda:0" */
} sluice_port;
#define SLUICE_PORT_INIT \
  { sizeof(sluice_port), NULL, SLUICE_BOOL, 0, NULL, NULL, NULL, NULL }

/* --- plans, to look at before they are run. `path`: a plan file or a bundle directory */
SLUICE_API sluice_status* sluice_plan_load(const char* path, sluice_plan** plan);
/* Loads a tar archive of a bundle, in memory, which is read and not kept. */
SLUICE_API sluice_status* sluice_plan_load_memory(const void* archive, size_t bytes, sluice_plan** plan);
SLUICE_API void sluice_plan_destroy(sluice_plan* plan);
SLUICE_API const char* sluice_plan_name(const sluice_plan* plan);
SLUICE_API size_t sluice_plan_num_inputs(const sluice_plan* plan);
SLUICE_API size_t sluice_plan_num_outputs(const sluice_plan* plan);
SLUICE_API sluice_status* sluice_plan_input(const sluice_plan* plan, size_t index, sluice_port* port);
SLUICE_API sluice_status* sluice_plan_output(const sluice_plan* plan, size_t index, sluice_port* port);
SLUICE_API size_t sluice_plan_num_actors(const sluice_plan* plan);
SLUICE_API const char* sluice_plan_actor(const sluice_plan* plan, size_t index); /* its name; NULL beyond the last */
SLUICE_API size_t sluice_plan_num_kernels(const sluice_plan* plan);
/* Every byte the plan needs, its variables included. */
SLUICE_API uint64_t sluice_plan_memory_bytes(const sluice_plan* plan);
/* Success when the plan is right and can run for ever. */
SLUICE_API sluice_status* sluice_plan_verify(const sluice_plan* plan);

/* --- memory for what the steps of several sessions of one engine compute, as large as the largest of them needs. One
 * of the sessions at a time has steps in flight: submit waits, as long as submit_timeout_ms says, until the others' are
 * done. Variables, and all else that a session keeps between steps, are its own. Sessions keep the memory. */
SLUICE_API sluice_status* sluice_arenas_create(sluice_engine* engine, sluice_arenas** arenas);
/* Makes room for a plan; best called for all plans before the first is loaded, as memory in use cannot grow. */
SLUICE_API sluice_status* sluice_arenas_reserve(sluice_arenas* arenas, const sluice_plan* plan);
/* The bytes of host memory that are held for sessions to come. */
SLUICE_API uint64_t sluice_arenas_bytes(const sluice_arenas* arenas);
SLUICE_API void sluice_arenas_destroy(sluice_arenas* arenas);

/* --- sessions */
typedef struct sluice_session_options {
  size_t size;
  int32_t max_in_flight;     /* steps submitted and not finished, at most; 0: the plan's own number */
  int32_t check_numerics;    /* not 0: fail a step whose kernels write NaN or infinity */
  int64_t submit_timeout_ms; /* of submit when that many are in flight; 0: wait for ever */
  int64_t wait_timeout_ms;   /* of run, wait_all, and waits that name none; 0: for ever */
  int64_t zero_copy;         /* not 0: what is handed over, and results, are not copied where the plan allows it */
  sluice_arenas* arenas;     /* of the same engine; NULL: the session has its own */
  /* If not NULL, called after each step, in order, on a thread of the engine, before anybody who waits for the step is
   * told. `error` is "" when the step went well; else there are no outputs. The outputs are destroyed when it returns.
   * It must not block. */
  void (*on_output)(void* context, uint64_t step, sluice_tensor* const* outputs, size_t num_outputs, const char* error);
  void* context;
  /* Weights that take the place of the bundle's of the same names; its file of weights may then be missing. Memory at a
   * multiple of 64 bytes is used as it is where no step writes to it, and is kept; nobody may change it. */
  const char* const* weight_names;
  sluice_tensor* const* weights;
  size_t num_weights;
  /* Actors of kernels of Sluice's that are predicted to take no longer run in the thread that submits, or that brings
   * their inputs: no thread is woken for them. Submitting may take so long, and waiting has no timeout meanwhile. */
  int64_t inline_up_to_us;
  /* of sluice_session_stop, for kernels that run, and of destroying it, which then leaves them behind; 0: for ever */
  int64_t stop_timeout_ms;
  /* Not 0: as zero_copy, of inputs and outputs that the plan has in the memory of a device: what is handed over may lie
   * there, and results stay there (sluice_port.device). Otherwise these, too, are copied from and to the host's. */
  int64_t device_ports;
  /* not 0: on_output may also be called within submit, by the thread that submits; not that of a plan family */
  int64_t on_output_inline;
  /* not 0: kernels of the CPU take denormal numbers for zero, operands and results, whatever the plan says */
  int64_t flush_denormals;
  /* Of a bundle whose plan opens files, as a saved input pipeline does: pairs of a folder as names have it, and the one
   * that is there instead on this machine. "" stands for the folder of relative names. */
  const char* const* data_roots;
  size_t num_data_roots; /* pairs */
} sluice_session_options;
#define SLUICE_SESSION_OPTIONS_INIT \
  { sizeof(sluice_session_options), 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, 2, 5000, 0, 0, 0, NULL, 0 }
/* `bundle`: of a plan, or of a plan family, whose inputs may have all sizes that its dims allow. `options` may be NULL.
 */
SLUICE_API sluice_status* sluice_session_load(sluice_engine* engine, const char* bundle,
                                              const sluice_session_options* options, sluice_session** session);
/* The same of a tar archive of a bundle, in memory. Weights at multiples of 64 bytes are used where they lie.
 * `release`, if not NULL, is called once with `context` when nothing uses the archive any more, on any thread; nobody
 * may change it until then. It must not block or call Sluice. On an error it is not called. */
SLUICE_API sluice_status* sluice_session_load_memory(sluice_engine* engine, const void* archive, size_t bytes,
                                                     void (*release)(void* context), void* context,
                                                     const sluice_session_options* options, sluice_session** session);
/* Cancels what is in flight. */
SLUICE_API void sluice_session_destroy(sluice_session* session);
SLUICE_API size_t sluice_session_num_inputs(const sluice_session* session);
SLUICE_API size_t sluice_session_num_outputs(const sluice_session* session);
SLUICE_API sluice_status* sluice_session_input(const sluice_session* session, size_t index, sluice_port* port);
SLUICE_API sluice_status* sluice_session_output(const sluice_session* session, size_t index, sluice_port* port);
/* One step: `inputs` in the plan's order; `outputs` receives that many new tensors, or is left alone on an error. */
SLUICE_API sluice_status* sluice_session_run(sluice_session* session, sluice_tensor* const* inputs, size_t num_inputs,
                                             sluice_tensor** outputs, size_t num_outputs);
/* Starts a step; its inputs are copied. Waits while max_in_flight steps are under way. */
SLUICE_API sluice_status* sluice_session_submit(sluice_session* session, sluice_tensor* const* inputs,
                                                size_t num_inputs, sluice_step** step);
/* The same, but where it would have to wait, `step` receives NULL. */
SLUICE_API sluice_status* sluice_session_try_submit(sluice_session* session, sluice_tensor* const* inputs,
                                                    size_t num_inputs, sluice_step** step);
/* Starts a step whose inputs' memory becomes the step's, which may write to it; with zero_copy it is not copied if it
 * lies at a multiple of 64 bytes; with device_ports it may be a device's, whose work on it must be done. On success the
 * inputs are destroyed; what else shares their memory must not write to it until the step is over. On an error nothing
 * was taken. */
SLUICE_API sluice_status* sluice_session_hand_over(sluice_session* session, sluice_tensor* const* inputs,
                                                   size_t num_inputs, sluice_step** step);
/* One step whose results are written to memory of the caller's: `outputs` are tensors of the outputs' types, and nobody
 * else may use their memory until the step is over. After a timeout the step may still write there. SLUICE_ERROR_VALUE
 * where types differ, SLUICE_ERROR_UNSUPPORTED for an output whose length differs from step to step. */
SLUICE_API sluice_status* sluice_session_run_into(sluice_session* session, sluice_tensor* const* inputs,
                                                  size_t num_inputs, sluice_tensor* const* outputs, size_t num_outputs);
typedef struct sluice_step_options {
  size_t size;
  const char* tag;               /* names the step in its errors, in the log and in traces; NULL: none */
  sluice_tensor* const* outputs; /* memory for the results, as of sluice_session_run_into; NULL: the session's own */
  size_t num_outputs;
  /* If not NULL, called once with `context` when the step is over: after on_output of the session, before a wait for
   * the step returns (but where it was given up), on a thread of the engine; of steps still in flight, on the thread
   * that ends the session. `error` is "" when the step went well; else there are no results. They are destroyed when it
   * returns. It must not block or submit. Not called where no step was started. */
  void (*on_done)(void* context, sluice_tensor* const* results, size_t num_results, const char* error);
  void* context;
  /* From the call on: a step that is not over by then is given up as by sluice_step_cancel, with SLUICE_ERROR_TIMEOUT
   * naming who is stuck. Waiting for room counts. 0: none. SLUICE_ERROR_UNSUPPORTED for one rank's part of a plan. */
  int64_t deadline_ms;
  int32_t priority; /* of callers that wait for room, those of the highest get it first; of these, who came first */
} sluice_step_options;
#define SLUICE_STEP_OPTIONS_INIT \
  { sizeof(sluice_step_options), NULL, NULL, 0, NULL, NULL, 0, 0 }
/* These do the same as sluice_session_submit, sluice_session_try_submit and sluice_session_hand_over. `options` may be
 * NULL. */
SLUICE_API sluice_status* sluice_session_submit_with(sluice_session* session, sluice_tensor* const* inputs,
                                                     size_t num_inputs, const sluice_step_options* options,
                                                     sluice_step** step);
SLUICE_API sluice_status* sluice_session_try_submit_with(sluice_session* session, sluice_tensor* const* inputs,
                                                         size_t num_inputs, const sluice_step_options* options,
                                                         sluice_step** step);
SLUICE_API sluice_status* sluice_session_hand_over_with(sluice_session* session, sluice_tensor* const* inputs,
                                                        size_t num_inputs, const sluice_step_options* options,
                                                        sluice_step** step);
/* Waits until every submitted step is finished. */
SLUICE_API sluice_status* sluice_session_wait_all(sluice_session* session);
/* Begins anew, after SLUICE_ERROR_END_OF_DATA or at any time: waits for what was submitted; its
 * variables stay as they are. */
SLUICE_API sluice_status* sluice_session_reset(sluice_session* session);
/* Cancels what is in flight; no step can be submitted any more. */
SLUICE_API sluice_status* sluice_session_stop(sluice_session* session);

/* --- submitted steps */
SLUICE_API uint64_t sluice_step_number(const sluice_step* step); /* from 0, in the order of submission */
SLUICE_API int sluice_step_ready(const sluice_step* step);       /* 1 or 0; never blocks */
/* Waits; as long as the session's wait_timeout_ms says if timeout_ms is negative. The step's error, or
 * SLUICE_ERROR_TIMEOUT naming who is stuck. */
SLUICE_API sluice_status* sluice_step_wait(sluice_step* step, int64_t timeout_ms);
/* Waits, and gives as many new tensors as the plan has outputs. */
SLUICE_API sluice_status* sluice_step_outputs(sluice_step* step, sluice_tensor** outputs, size_t num_outputs);
/* Gives the step up, from any thread: who waits for it gets SLUICE_ERROR_CANCELLED at once, and none of its kernels
 * starts any more; one that runs comes to its end. The session goes on as after a step that failed: variables may be
 * updated in part, and memory given for results may be written to until sluice_session_wait_all. `cancelled`, if not
 * NULL, receives 1, or 0 where the step was over, or all but. SLUICE_ERROR_UNSUPPORTED for one rank's part of a plan.
 */
SLUICE_API sluice_status* sluice_step_cancel(sluice_step* step, int* cancelled);
SLUICE_API void sluice_step_destroy(sluice_step* step);

/* --- counters of a session, as they were when asked for; what counts events never falls. Names live as long as they.
 */
SLUICE_API sluice_status* sluice_session_counters(const sluice_session* session, sluice_counters** counters);
SLUICE_API void sluice_counters_destroy(sluice_counters* counters);
typedef struct sluice_totals {
  size_t size;
  uint64_t submitted, finished, failed; /* steps */
  int32_t in_flight, max_in_flight;
  uint64_t bytes;                       /* that the session holds */
  uint64_t mapped;                      /* of them, pages of a bundle's file, which processes share */
  uint64_t input_copies, output_copies; /* tensors copied */
  size_t num_actors, num_streams, num_registers;
  int32_t waiting; /* callers, for room for another step */
  uint64_t shared; /* of bytes, what sessions of an engine with the same weights hold once */
} sluice_totals;
typedef struct sluice_actor_counters {
  size_t size;
  const char* name;
  uint64_t firings, waits; /* waits: how often it had to stop for a message */
  uint64_t busy_ns;        /* in its kernels */
  int32_t stream;          /* its index */
} sluice_actor_counters;
typedef struct sluice_stream_counters {
  size_t size;
  const char* name;
  uint64_t busy_ns; /* neither parked nor waiting for a device or for cores */
  uint64_t parks;
} sluice_stream_counters;
typedef struct sluice_register_counters {
  size_t size;
  const char* name;
  uint64_t tokens;                  /* written so far */
  int32_t quota, used, ready, peak; /* slots; not free now; with a token to read; most used at once */
} sluice_register_counters;
/* Each fills a struct whose `size` the caller has set. */
SLUICE_API sluice_status* sluice_counters_totals(const sluice_counters* counters, sluice_totals* totals);
SLUICE_API sluice_status* sluice_counters_actor(const sluice_counters* counters, size_t index,
                                                sluice_actor_counters* actor);
SLUICE_API sluice_status* sluice_counters_stream(const sluice_counters* counters, size_t index,
                                                 sluice_stream_counters* stream);
SLUICE_API sluice_status* sluice_counters_register(const sluice_counters* counters, size_t index,
                                                   sluice_register_counters* counted);
/* The same as tables for people; "" of no live handle. */
SLUICE_API const char* sluice_counters_text(const sluice_counters* counters);

/* --- traces: what steps did, and when */
/* Records firings, kernels and waits of the steps that run while `on` is not 0: each stream keeps its latest 32,768.
 * Waits for nothing: what is under way when it is switched off still adds its events. */
SLUICE_API sluice_status* sluice_session_set_trace(sluice_session* session, int on);
/* Gives the events that have been recorded since it was switched on, or last taken. Names and tags live as long as the
 * handle. */
SLUICE_API sluice_status* sluice_session_take_trace(sluice_session* session, sluice_trace** trace);
SLUICE_API void sluice_trace_destroy(sluice_trace* trace);
typedef struct sluice_trace_counts {
  size_t size;
  size_t num_events, num_steps, num_plans;
  uint64_t lost;         /* events that were overwritten before they were taken */
  int64_t begin_ns;      /* when the trace began, of the steady clock */
  int64_t begin_unix_ns; /* the same, of the system's clock */
} sluice_trace_counts;
typedef enum sluice_event_kind {
  SLUICE_FIRING = 0,   /* of an actor, with all that follows here while it lasts */
  SLUICE_KERNEL = 1,   /* or several that run as one */
  SLUICE_WAIT = 2,     /* of an actor for a device; without an actor, of a stream that has nothing to do */
  SLUICE_LEFT_OUT = 3, /* a kernel that did not run: it is on a branch that was not taken */
  SLUICE_EVENT_KIND_INT_ = -2147483647 - 1 /* none; it makes the type as wide as an int */
} sluice_event_kind;
typedef struct sluice_traced_event {
  size_t size;
  sluice_event_kind kind;
  int32_t plan;                                       /* of a family of plans, the member's number */
  int32_t stream, actor, kernel;                      /* -1: none */
  int32_t kernels;                                    /* from `kernel` on */
  uint64_t step;                                      /* as sluice_step_number; nothing where there is no actor */
  int64_t begin_ns, end_ns;                           /* since the trace began */
  const char *stream_name, *actor_name, *kernel_name; /* NULL: none */
} sluice_traced_event;
typedef struct sluice_traced_step {
  size_t size;
  uint64_t step;
  const char* tag; /* "": none */
  int32_t over;    /* 1: all its events have been given; it is not told of again */
} sluice_traced_step;
/* Each fills a struct whose `size` the caller has set: events in the order of their begin; steps that were submitted
 * while it was on, the latest 4,096. */
SLUICE_API sluice_status* sluice_trace_totals(const sluice_trace* trace, sluice_trace_counts* counts);
SLUICE_API sluice_status* sluice_trace_event(const sluice_trace* trace, size_t index, sluice_traced_event* event);
SLUICE_API sluice_status* sluice_trace_step(const sluice_trace* trace, size_t index, sluice_traced_step* step);
/* In the format of Chrome and Perfetto, with the tags of the steps. */
SLUICE_API sluice_status* sluice_trace_chrome_json(const sluice_trace* trace, sluice_text** text);

/* --- for whoever looks for what is wrong */
/* Describes what this process runs on and with, to paste into a bug report: as text, or as one JSON object if `json` is
 * not 0. */
SLUICE_API sluice_status* sluice_describe(int json, sluice_text** text);
/* Sets what is logged, as the environment variable SLUICE_LOG does at the start: "warn,plan=debug,json". */
SLUICE_API sluice_status* sluice_set_log(const char* spec);
/* The levels in force, in the form that sluice_set_log takes. */
SLUICE_API sluice_status* sluice_log_spec(sluice_text** text);
/* Sets the function that takes lines of the log, without their newlines, from one thread at a time; NULL: to stderr, or
 * SLUICE_LOG_FILE.
 * `sink` must not call Sluice. Once this returns, the sink that was there before is not called any more. */
SLUICE_API sluice_status* sluice_set_log_sink(void (*sink)(void* context, const char* line), void* context);

#ifdef __cplusplus
}
#endif
#endif
