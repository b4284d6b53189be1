/* Inkle's runtime for C: runs programs that `inkle build` has compiled and written to a file.

   Every function that can fail returns a status and leaves a sentence in inkle_last_error(). No
   exception leaves any of them. A program may be called from any number of threads at once; a
   results object belongs to one thread at a time. Null is a right argument of the functions whose
   names end in _release, and of no other. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define INKLE_API __attribute__((visibility("default")))

#ifdef __cplusplus
#define INKLE_NOEXCEPT noexcept
extern "C" {
#else
#define INKLE_NOEXCEPT
#endif

typedef enum inkle_status {
  INKLE_OK = 0,
  INKLE_WRONG_ARGUMENT = 1, /* a name, number, dtype or size that is not what is expected */
  INKLE_BAD_FILE = 2,       /* cannot be read, is damaged, of another version or not signed */
  INKLE_UNSUPPORTED = 3,    /* this processor, or this machine's libraries, cannot run it */
  INKLE_OUT_OF_RANGE = 4,   /* an index in a tensor lies outside of the tensor it indexes */
  INKLE_OUT_OF_MEMORY = 5,
  INKLE_FAILED = 6,  /* the program met what it cannot compute, such as a division by zero */
  INKLE_INTERNAL = 7 /* a bug of Inkle's */
} inkle_status;

typedef enum inkle_dtype {
  INKLE_BOOL = 1, /* bytes 0 and 1 */
  INKLE_U8 = 2,
  INKLE_I8 = 3,
  INKLE_I16 = 4,
  INKLE_I32 = 5,
  INKLE_I64 = 6,
  INKLE_F16 = 7,
  INKLE_BF16 = 8,
  INKLE_F32 = 9,
  INKLE_F64 = 10,
  INKLE_U16 = 11,
  INKLE_U32 = 12,
  INKLE_U64 = 13,
  INKLE_C32 = 14, /* complex, of two f16 */
  INKLE_C64 = 15,
  INKLE_C128 = 16,
  INKLE_F8_E4M3FN = 17,
  INKLE_F8_E5M2 = 18,
  INKLE_F8_E4M3FNUZ = 19,
  INKLE_F8_E5M2FNUZ = 20
} inkle_dtype;

typedef enum inkle_kind {
  INKLE_TENSOR = 1,
  INKLE_INTEGER = 2,
  INKLE_NONE = 3, /* of results only */
  INKLE_DEVICE_TENSOR =
      4 /* in memory of the program's GPU; of inputs and results, never of infos */
} inkle_kind;

/* Memory of somebody, in native byte order: the host's, or a GPU's in an INKLE_DEVICE_TENSOR. */
typedef struct inkle_tensor {
  void* data; /* element (0, ..., 0) */
  inkle_dtype dtype;
  int32_t rank;
  const int64_t* sizes;
  const int64_t* strides; /* in elements; null: row-major */
} inkle_tensor;

typedef struct inkle_value {
  inkle_kind kind;
  int64_t integer;
  inkle_tensor tensor;
} inkle_value;

typedef struct inkle_named_tensor {
  const char* name;
  inkle_tensor tensor;
} inkle_named_tensor;

/* What a program takes or gives; lives as long as the program. */
typedef struct inkle_info {
  const char* name;
  inkle_kind kind;
  inkle_dtype dtype; /* of a tensor, as all below */
  int32_t rank;
  const int64_t* least; /* by dimension: the smallest size */
  const int64_t* most;  /* and the largest, INT64_MAX if unbounded; equal ones are fixed */
  int32_t is_written;   /* the program writes into the caller's tensor */
} inkle_info;

typedef struct inkle_program inkle_program;
typedef struct inkle_results inkle_results;
typedef struct inkle_weights inkle_weights;

/* Of the library: "0.1.0". */
INKLE_API const char* inkle_version(void) INKLE_NOEXCEPT;
/* What went wrong in the last function of this thread that failed, naming what was expected and
   what there was; empty before. Valid until this thread's next failure. */
INKLE_API const char* inkle_last_error(void) INKLE_NOEXCEPT;
/* "wrong argument", "f32"; "?" for others. */
INKLE_API const char* inkle_status_name(inkle_status status) INKLE_NOEXCEPT;
INKLE_API const char* inkle_dtype_name(inkle_dtype dtype) INKLE_NOEXCEPT;
/* Bytes of an element; 0 for no dtype. */
INKLE_API size_t inkle_dtype_bytes(inkle_dtype dtype) INKLE_NOEXCEPT;
/* How many threads calls of the calling thread use; OMP_NUM_THREADS, or all processors, before. */
INKLE_API inkle_status inkle_set_threads(int32_t count) INKLE_NOEXCEPT;

/* --- Programs --- */

/* Maps the file and checks its plan and code. Weights are checked before the first call. A program
   is machine code: load one from people you trust. Where the environment variable
   INKLE_PACKAGE_KEY is set, it is the `key` of inkle_load_signed. */
INKLE_API inkle_status inkle_load(const char* path, inkle_program** program) INKLE_NOEXCEPT;
/* Of a file's bytes, which are copied; `name` is for messages. */
INKLE_API inkle_status inkle_load_bytes(const char* name, const void* bytes, size_t size,
                                        inkle_program** program) INKLE_NOEXCEPT;
/* Loads only what the holder of a key has signed: `key` is the path of a public key's file
   (KEY.pub of `inkle key`) or the line that it holds; null: INKLE_PACKAGE_KEY, which must be set.
   INKLE_BAD_FILE, before anything of the plan is used, unless PATH.sig is that key's signature. */
INKLE_API inkle_status inkle_load_signed(const char* path, const char* key,
                                         inkle_program** program) INKLE_NOEXCEPT;
/* `signature`: the text of the .sig file; null: it is not signed, and refused. */
INKLE_API inkle_status inkle_load_bytes_signed(const char* name, const void* bytes, size_t size,
                                               const char* signature, const char* key,
                                               inkle_program** program) INKLE_NOEXCEPT;
/* For a device: "cpu", as the functions above; "cuda" or "cuda:1", a GPU, on which the file has to
   have a target (`inkle build --target sm_90a`). Weights are checked and copied there now.
   INKLE_UNSUPPORTED says what is missing: a driver, that GPU, a target for it. cuBLASLt and cuDNN
   are opened when a plan first calls them. `key` as in inkle_load_signed, but null: as in
   inkle_load. "null:sm_90a" is no GPU: it does all but run kernels, for tests without one. */
INKLE_API inkle_status inkle_load_on(const char* path, const char* device, const char* key,
                                     inkle_program** program) INKLE_NOEXCEPT;
/* Null `signature`: it is not signed; null `key`: it need not be. */
INKLE_API inkle_status inkle_load_bytes_on(const char* name, const void* bytes, size_t size,
                                           const char* device, const char* signature,
                                           const char* key, inkle_program** program) INKLE_NOEXCEPT;
/* Calls that other threads are in must have ended; results stay. */
INKLE_API void inkle_program_release(inkle_program* program) INKLE_NOEXCEPT;
/* Checks the weights now: INKLE_BAD_FILE if one is damaged. */
INKLE_API inkle_status inkle_program_check(inkle_program* program) INKLE_NOEXCEPT;
/* Where it runs: "cpu", "cuda:0". */
INKLE_API const char* inkle_program_device(const inkle_program* program) INKLE_NOEXCEPT;
/* The instruction set or architecture that was chosen: "x86-64-v4", "sm_90a". */
INKLE_API const char* inkle_program_target(const inkle_program* program) INKLE_NOEXCEPT;

INKLE_API size_t inkle_input_count(const inkle_program* program) INKLE_NOEXCEPT;
INKLE_API size_t inkle_output_count(const inkle_program* program) INKLE_NOEXCEPT;
INKLE_API size_t inkle_weight_count(const inkle_program* program) INKLE_NOEXCEPT;
INKLE_API inkle_status inkle_input_info(const inkle_program* program, size_t number,
                                        inkle_info* info) INKLE_NOEXCEPT;
INKLE_API inkle_status inkle_output_info(const inkle_program* program, size_t number,
                                         inkle_info* info) INKLE_NOEXCEPT;
INKLE_API inkle_status inkle_weight_info(const inkle_program* program, size_t number,
                                         inkle_info* info) INKLE_NOEXCEPT;

/* --- Calls --- */

/* Memory for the results of one call after another, by one thread at a time: what an earlier call
   left is written over, not allocated anew. */
INKLE_API inkle_status inkle_results_new(inkle_results** results) INKLE_NOEXCEPT;
INKLE_API void inkle_results_release(inkle_results* results) INKLE_NOEXCEPT;

/* Inputs in the program's order. Tensors are only read, unless inkle_info says is_written; of those
   the strides must be the program's (row-major, with few exceptions), others are copied where they
   are not. After a failure there are no results, and inputs that are written hold anything.
   On a GPU inputs are tensors of the host, which are copied, or INKLE_DEVICE_TENSOR, which what is
   queued on the default stream makes; results are in memory of the host. */
INKLE_API inkle_status inkle_run(inkle_program* program, const inkle_value* inputs, size_t count,
                                 inkle_results* results) INKLE_NOEXCEPT;
/* On a GPU: queues the call on `stream`, a CUstream or cudaStream_t of the program's GPU or null,
   and returns. Results are INKLE_DEVICE_TENSOR, for what is queued on that stream later. Inputs of
   the host stay as they are until the work is done. An index out of range is told by
   inkle_results_wait or by a later call. The next call that uses the results object writes over
   its memory, in the stream's order. */
INKLE_API inkle_status inkle_run_on(inkle_program* program, void* stream, const inkle_value* inputs,
                                    size_t count, inkle_results* results) INKLE_NOEXCEPT;
/* Waits for the work of the latest call; fails as inkle_run does. */
INKLE_API inkle_status inkle_results_wait(inkle_results* results) INKLE_NOEXCEPT;
/* The same, and copies results that lie on a GPU: they are tensors of the host from then on. */
INKLE_API inkle_status inkle_results_fetch(inkle_results* results) INKLE_NOEXCEPT;
INKLE_API size_t inkle_result_count(const inkle_results* results) INKLE_NOEXCEPT;
/* Valid until the object's next call or release. A tensor may lie in an input, if the program gives
   that or a view of it; its strides are what the program gives, not always row-major. */
INKLE_API inkle_status inkle_result(const inkle_results* results, size_t number,
                                    inkle_value* value) INKLE_NOEXCEPT;

/* In memory of the host: to[i...] = from[i...]: same dtype and sizes, any strides, no shared
 * memory. */
INKLE_API inkle_status inkle_copy(const inkle_tensor* from, const inkle_tensor* to) INKLE_NOEXCEPT;

/* --- Weights ---
   A set of weights by name, shared by as many programs as use it. A program whose file holds its
   weights begins with these. Weights that a program writes (running means) are its own copies. */

/* Copies the tensors. */
INKLE_API inkle_status inkle_weights_new(const inkle_named_tensor* tensors, size_t count,
                                         inkle_weights** weights) INKLE_NOEXCEPT;
/* The set that the program uses, as it was given or read from the file. */
INKLE_API inkle_status inkle_program_weights(const inkle_program* program,
                                             inkle_weights** weights) INKLE_NOEXCEPT;
/* All weights of the program at once: a call sees the old set or the new one, never some of each.
   The set may hold more than the program needs. */
INKLE_API inkle_status inkle_set_weights(inkle_program* program,
                                         const inkle_weights* weights) INKLE_NOEXCEPT;
/* Programs that use the set keep it. */
INKLE_API void inkle_weights_release(inkle_weights* weights) INKLE_NOEXCEPT;

#ifdef __cplusplus
}
#endif
