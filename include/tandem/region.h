/* region.h - device memory that can be taken away and given back at the same address. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_REGION_H
#define TANDEM_REGION_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A region is a range of virtual addresses that never moves.  Physical memory backs it while it
 * is resident, and none does while it is paused.  An access to a paused region is a fault
 * (SIGSEGV).  The handler of SIGSEGV and SIGBUS that the first region installs names the region on
 * stderr, which the report of an actor's death quotes; then the signal has its former effect.  One
 * thread at a time may call the functions below, also in an actor with several threads. */
typedef struct tdm_region tdm_region;

/* What happens to the contents of a region while it is paused. */
enum tdm_region_policy {
    /* A pause copies the contents to host memory, and a resume copies them back. */
    TDM_REGION_KEEP,
    TDM_REGION_DROP, /* A pause drops the contents; after a resume they are undefined. */
    /* Only in struct tdm_region_spec (job.h): the job library allocates the memory itself, as
     * outside_memory.h says.  Its pause() keeps the contents in host memory, or drops them. */
    TDM_REGION_OUTSIDE_KEEP,
    TDM_REGION_OUTSIDE_DROP
};

enum { TDM_REGION_TAG_BYTES_MAX = 32 };

/* Options of tdm_region_create(). */
struct tdm_region_options {
    /* What the memory is for, such as "weights" or "kv_cache": 1 to 31 bytes, copied. */
    const char *tag;
    size_t size_bytes; /* Size of the region in bytes, rounded up to whole blocks of 2 MiB. */
    enum tdm_region_policy policy; /* What happens to the contents while the region is paused. */
    uint32_t gpu; /* Index of the region's GPU among this actor's GPUs; 0 is the first. */
    /* 1: the region starts paused, so that creating it needs no device memory.  The first
     * contents of a region are undefined in either case. */
    int paused;
};

/* Creates a region: reserves its addresses and, unless options->paused is set, its physical memory.
 * The caller destroys the region.  Blocks for the daemon's reply.  TDM_E_DEVICE_FULL names the tag,
 * the bytes wanted and free, and the other holders.  On failure `*region_out` is NULL. */
TDM_API TDM_MUST_CHECK tdm_status tdm_region_create(tdm_runtime *runtime,
                                                    const struct tdm_region_options *options,
                                                    tdm_region **region_out);
/* Destroys a region: frees its memory and its addresses.  NULL is allowed.  If tdm_region_retain()
 * has retained it, that happens in the last tdm_region_release(), or when the runtime stops. */
TDM_API void tdm_region_destroy(tdm_region *region);

/* Keeps the region after its owner's tdm_region_destroy(), until as many calls of
 * tdm_region_release(): for a library whose tensors lie in it.  A retained region can be paused
 * like any other.  Any thread may call it while the region exists. */
TDM_API void tdm_region_retain(tdm_region *region);
/* Ends a tdm_region_retain().  The last release of a destroyed region frees its memory and its
 * addresses: no other thread may use regions meanwhile.  Otherwise any thread may call it.  NULL is
 * allowed. */
TDM_API void tdm_region_release(tdm_region *region);

/* Returns the address of the region's memory, which never changes.  The memory may be accessed only
 * while the region is resident. */
TDM_API void *tdm_region_address(const tdm_region *region);
/* Returns the size of the region in bytes, after rounding up. */
TDM_API size_t tdm_region_size(const tdm_region *region);
/* Returns the tag of the region, borrowed from the region. */
TDM_API const char *tdm_region_tag(const tdm_region *region);
/* Returns the kind of device that the region's memory is on, a text that is never freed: "cuda" for
 * a CUDA GPU; "host" for a virtual GPU, whose memory any code of this process may access. */
TDM_API const char *tdm_region_device(const tdm_region *region);
/* Returns the number of the region's GPU among those that this process sees, as the CUDA runtime
 * and torch.device("cuda", number) count them; 0 for a virtual GPU, and -1 for NULL.  It differs
 * from the GPU's index in the actor if several GPUs of the actor share a real one:
 * CUDA_VISIBLE_DEVICES names each real GPU once.  Any thread may call it. */
TDM_API int tdm_region_device_number(const tdm_region *region);
/* Returns 1 while the region is resident, 0 while it is paused. */
TDM_API int tdm_region_is_resident(const tdm_region *region);

/* Returns the region of this process that contains the address, resident or paused, also one that
 * libtandem has created for a rank of a job; NULL if there is none.  It is borrowed until it is
 * destroyed.  Never blocks; for the thread that creates, pauses and resumes the regions. */
TDM_API tdm_region *tdm_region_find(const void *address);

/* Returns where the region's contents can be read now: the address while the region is resident,
 * the copy in host memory while a KEEP region is paused, NULL while a DROP region is paused.  Valid
 * until the next pause, resume or destroy. */
TDM_API const void *tdm_region_contents(const tdm_region *region);

/* Writes a file descriptor of the memory behind `size_bytes` bytes at `address`, which lie in a
 * resident region of this process, and the offset of the first of them in the file.  Another
 * process of the node can open it as /proc/<process>/fd/<descriptor> and map the bytes.  The
 * descriptor is the region's own: it is closed when the region is paused or destroyed.  For the
 * thread that creates, pauses and resumes the regions.  TDM_E_NOT_FOUND: no region has the
 * address.  TDM_E_STATE: the region is paused.  TDM_E_INVAL: the region ends before the bytes do.
 * TDM_E_UNSUPPORTED: the memory is on a CUDA GPU, or the bytes lie in two of the blocks of 64 MiB
 * or more of which a region consists.  A bucket of a weight update (job.h) is one block. */
TDM_API TDM_MUST_CHECK tdm_status tdm_region_descriptor(const void *address, size_t size_bytes,
                                                        int *descriptor_out, uint64_t *offset_out);

/* Pauses a region: gives its physical memory back to the device.  On a CUDA GPU it first waits,
 * like cuCtxSynchronize and without a limit, for all that this process has queued in the streams of
 * the GPU's primary context (PyTorch, engines and the CUDA runtime use it), so that no kernel loses
 * its memory and the contents are what the last kernel wrote.  No stream may be captured into a
 * CUDA graph meanwhile, and no other thread may launch work that uses the region.  The same holds
 * for tdm_region_destroy() of a resident region.  No function of this header changes the calling
 * thread's current CUDA device.  The memory is free for other
 * processes when this function returns, except for blocks that another process still maps: these
 * stay charged until that process unmaps them or dies.  Blocks while the contents are copied.
 * TDM_E_STATE: the region is paused already. */
TDM_API tdm_status tdm_region_pause(tdm_region *region);

/* Resumes a region: takes physical memory for it again, at the same address.  Waits at most
 * `timeout_ms` milliseconds for memory that another process is giving back.  TDM_E_DEVICE_FULL,
 * with the numbers of all holders, is immediate if the request can never fit.  TDM_E_STATE: the
 * region is resident already.  On failure the region stays paused with its contents, and the call
 * may be repeated. */
TDM_API tdm_status tdm_region_resume(tdm_region *region, int64_t timeout_ms);

/* Checks that cudaIpcGetMemHandle can export `size_bytes` bytes at `address`, which another library
 * has allocated on a CUDA GPU: PyTorch exports tensors in this way, and its own error does not name
 * the cause.  To be called before the export.  Only memory of cudaMalloc qualifies, and the bytes
 * must lie in one allocation.  A region does not qualify.  Needs no runtime and never blocks; any
 * thread may call it on which a context of the GPU is current, as PyTorch makes it.  TDM_E_INVAL:
 * `address` is NULL or not on a GPU, or `size_bytes` is 0.  TDM_E_UNSUPPORTED: the kind of the
 * memory, which the error names, has no such handle; or there is no CUDA driver. */
TDM_API tdm_status tdm_gpu_memory_check_ipc(const void *address, size_t size_bytes);

#ifdef __cplusplus
}
#endif

#endif
