#ifndef SLUICE_SLUICE_EAGER_H_
#define SLUICE_SLUICE_EAGER_H_
/* Tensors that are computed with now, without a graph or a bundle. Only in sluice::sluice. C99.
 *
 *   sluice_device_tensor *x = NULL, *y = NULL;
 *   sluice_eager_from_data(eager, SLUICE_FLOAT32, shape, 2, values, sizeof values, "cpu", &x);
 *   sluice_eager_call(eager, "relu", &x, 1, NULL, &y, 1);
 *
 * Statuses, handles and threads are as in sluice.h. Tensors are immutable; handles may share memory. A tensor keeps its
 * engine. */
#include "sluice.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_eager sluice_eager;
typedef struct sluice_device_tensor sluice_device_tensor;

SLUICE_API sluice_status* sluice_eager_create(sluice_engine* engine, sluice_eager** eager);
SLUICE_API void sluice_eager_destroy(sluice_eager* eager);
/* `device`: "cpu", "sim:0"; NULL: the cpu. */
SLUICE_API sluice_status* sluice_eager_zeros(sluice_eager* eager, sluice_dtype dtype, const int64_t* shape, int rank,
                                             const char* device, sluice_device_tensor** tensor);
/* A copy of `bytes` bytes, which must be the tensor's size. */
SLUICE_API sluice_status* sluice_eager_from_data(sluice_eager* eager, sluice_dtype dtype, const int64_t* shape,
                                                 int rank, const void* data, size_t bytes, const char* device,
                                                 sluice_device_tensor** tensor);
SLUICE_API sluice_status* sluice_eager_from_tensor(sluice_eager* eager, const sluice_tensor* host, const char* device,
                                                   sluice_device_tensor** tensor);
/* Any op of the reference by its name, or of a loaded extension, on the device of its inputs; NULL among the inputs is
 * an optional one that is not given. `attributes`, as in a graph's text: "dim = [1], keepdim = true"; NULL, and those
 * not named: the defaults. `outputs` receives as many new tensors as the op has outputs, which must be `num_outputs`.
 */
SLUICE_API sluice_status* sluice_eager_call(sluice_eager* eager, const char* op, sluice_device_tensor* const* inputs,
                                            size_t num_inputs, const char* attributes, sluice_device_tensor** outputs,
                                            size_t num_outputs);

/* A copy on another device; another handle of the same where it is there already. */
SLUICE_API sluice_status* sluice_device_tensor_to(const sluice_device_tensor* tensor, const char* device,
                                                  sluice_device_tensor** moved);
/* A copy in host memory. Waits for what computes it; its error. */
SLUICE_API sluice_status* sluice_device_tensor_host(const sluice_device_tensor* tensor, sluice_tensor** host);
SLUICE_API sluice_dtype sluice_device_tensor_dtype(const sluice_device_tensor* tensor);
SLUICE_API int sluice_device_tensor_rank(const sluice_device_tensor* tensor);
SLUICE_API const int64_t* sluice_device_tensor_shape(const sluice_device_tensor* tensor);
SLUICE_API const char* sluice_device_tensor_device(const sluice_device_tensor* tensor); /* "cpu:0" */
SLUICE_API void sluice_device_tensor_destroy(sluice_device_tensor* tensor);

#ifdef __cplusplus
}
#endif
#endif
