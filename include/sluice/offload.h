#ifndef SLUICE_OFFLOAD_H
#define SLUICE_OFFLOAD_H
/* Foreign backends: libraries of somebody else's that compute parts of a graph in Sluice's place. A backend is a shared
 * library that is loaded by its path, or as libsluice_NAME.so by its name. It needs this header alone, in C or C++, and
 * links nothing of Sluice's. docs/backends.md teaches it with a backend of one file.
 *
 * Sluice asks `supports` about each node of a graph, makes clusters of those that are taken, and has each cluster
 * compiled by `compile`. A step calls `run` with the addresses of the cluster's inputs and outputs. The nodes that a
 * backend does not take, or cannot compile, are computed by Sluice.
 *
 * Stability. Every struct begins with its size as the program that made it knew it, and only grows at its end; lists
 * are lists of pointers. So a backend that was built with an older header works with a newer Sluice, and the other way
 * round where it reads no field beyond `size`. SLUICE_OFFLOAD_ABI changes when that no longer holds; other versions are
 * refused.
 *
 * Errors are texts. A function that succeeds returns NULL or "". A text stays valid until the next call of one of the
 * backend's functions on the same thread, so a thread_local buffer suffices. A C++ exception is caught and named.
 *
 * Thread safety. All functions may be called from several threads at once, `run` of one cluster included. */
#include <stddef.h>
#include <stdint.h>

#define SLUICE_OFFLOAD_ABI 1u

#ifdef __cplusplus
extern "C" {
#endif

/* The type of a value. All values are contiguous and row-major, in host memory. */
typedef struct sluice_offload_type {
  size_t size;
  const char* dtype; /* "float32", "int64", "bool", ... */
  size_t item_bytes;
  const int64_t* shape; /* `rank` numbers */
  size_t rank;
} sluice_offload_type;

typedef enum sluice_offload_kind {
  SLUICE_OFFLOAD_NONE = 0,     /* the attribute is not given */
  SLUICE_OFFLOAD_INTEGER = 1,  /* integer; of a bool 0 or 1 */
  SLUICE_OFFLOAD_NUMBER = 2,   /* number */
  SLUICE_OFFLOAD_TEXT = 3,     /* text; of a dtype its name */
  SLUICE_OFFLOAD_INTEGERS = 4, /* integers, count */
  SLUICE_OFFLOAD_NUMBERS = 5,  /* numbers, count */
  SLUICE_OFFLOAD_OTHER = 6     /* text, as graphs are printed */
} sluice_offload_kind;

/* `text` is never NULL: it says the value as graphs are printed, whatever the kind. */
typedef struct sluice_offload_attribute {
  size_t size;
  const char* name;
  int32_t kind; /* sluice_offload_kind */
  int64_t integer;
  double number;
  const char* text;
  const int64_t* integers;
  const double* numbers;
  size_t count;
} sluice_offload_attribute;

/* A call of an op. Values are numbers of sluice_offload_graph::values; -1 is an optional input that is absent. Ops and
 * their attributes are those of graph.txt in a bundle, and of help(sluice.ops). */
typedef struct sluice_offload_node {
  size_t size;
  const char* op;
  const int32_t* inputs;
  size_t num_inputs;
  const int32_t* outputs;
  size_t num_outputs;
  const sluice_offload_attribute* const* attributes;
  size_t num_attributes;
} sluice_offload_node;

/* The user's options for this backend, as texts: {"precision", "fp16"}. Which ones there are is the backend's
 * matter; it should refuse in `compile` what it does not know. */
typedef struct sluice_offload_option {
  size_t size;
  const char* name;
  const char* value;
} sluice_offload_option;

/* A cluster: nodes in an order in which they can be computed. Of `values`, the first `num_inputs` are the inputs. All
 * of it is gone when the function returns that it was given to. */
typedef struct sluice_offload_graph {
  size_t size;
  const sluice_offload_type* const* values;
  size_t num_values;
  size_t num_inputs;
  const int32_t* outputs; /* numbers of values */
  size_t num_outputs;
  const sluice_offload_node* const* nodes;
  size_t num_nodes;
  const sluice_offload_option* const* options;
  size_t num_options;
  int32_t threads; /* that `run` may use; 0 in `supports`, where it is not known yet */
  /* The cluster as a model of ONNX, for a backend with SLUICE_OFFLOAD_ONNX: inputs i0, i1, ..., outputs o0, o1, ...;
   * inputs with `constants` are initializers of that name. */
  const void* onnx;
  size_t onnx_bytes;
  /* For a backend with SLUICE_OFFLOAD_CONSTANTS, in `compile`: for each input its contents, if they stay as they are,
   * or NULL; or no list at all. They are weights: when they change, the cluster is compiled again. The addresses are
   * good until `compile` returns; `run` is given such inputs, too, with the same contents. */
  const void* const* constants;
} sluice_offload_graph;

/* Flags of a backend. */
#define SLUICE_OFFLOAD_ONNX \
  1u /* `supports` and `compile` are given models of ONNX; nodes without such a form are not taken */
#define SLUICE_OFFLOAD_CONSTANTS \
  2u /* `compile` is given the contents of weights, and called when a step first has them */

typedef struct sluice_offload_backend {
  uint32_t abi;        /* SLUICE_OFFLOAD_ABI */
  uint32_t size;       /* sizeof(sluice_offload_backend) */
  const char* name;    /* letters, digits, '_' and '-'; it stands in reports */
  const char* version; /* of the backend */
  uint32_t flags;
  /* Can it compute this graph, which has one node? NULL or "": yes. Otherwise the reason, in a few words: reports list
   * it. The answer must depend on the graph alone. */
  const char* (*supports)(const sluice_offload_graph* one);
  /* Gets a cluster of supported nodes ready, and gives a handle. Otherwise the reason: the cluster is then computed by
   * Sluice, which says so. */
  const char* (*compile)(const sluice_offload_graph* cluster, void** compiled);
  /* The type of an output of what was compiled, as the backend sees it. It must be the cluster's. */
  const sluice_offload_type* (*output_type)(void* compiled, size_t output);
  /* Reads the inputs, and writes every byte of every output. Otherwise the error: it fails the step. */
  const char* (*run)(void* compiled, const void* const* inputs, void* const* outputs);
  void (*destroy)(void* compiled);
} sluice_offload_backend;

/* The one function that the library must export. Its result lives as long as the library, which is never unloaded.
 */
#if defined(__GNUC__)
#define SLUICE_OFFLOAD_EXPORT __attribute__((visibility("default")))
#else
#define SLUICE_OFFLOAD_EXPORT
#endif
SLUICE_OFFLOAD_EXPORT const sluice_offload_backend* sluice_offload(void);

#ifdef __cplusplus
}
#endif
#endif
