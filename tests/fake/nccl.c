/* nccl.c - a fake library for NCCL: collectives of processes or threads, by shared memory. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Works on the fake library of the CUDA driver (cuda.h), which it finds by TANDEM_CUDA_LIBRARY.  As
 * with NCCL a call only gives its work to the stream: a thread does it, and the stream is held
 * until it is done.  A rank waits for a peer that does not come until it is aborted.
 *
 *   FAKE_NCCL_FAIL  "ncclAllGather:3:2": the third of them fails with error 2
 *   FAKE_NCCL_HANG  1: no collective ever ends */
#include "colocate/comm/nccl/nccl_api.h"
#include "colocate/device/cuda/driver_api.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 8, CELL_BYTES = 65536, OPERATIONS_MAX = 2 * RANKS_MAX };

/* A piece on its way from one rank to another. */
struct cell {
    uint32_t full;
    uint32_t bytes;
    char data[CELL_BYTES];
};

struct shared {
    uint32_t joined;
    struct cell cells[RANKS_MAX][RANKS_MAX]; /* from, to */
};

struct comm {
    struct shared *shared;
    char path[NCCL_UNIQUE_ID_BYTES];
    int rank;
    int ranks;
    bool aborted;
    bool suspended;
    pthread_t worker;
    bool working; /* True: a worker thread has to be joined. */
    char last_error[128];
};

struct operation {
    bool send;
    int peer;
    char *host;
    size_t bytes;
    size_t done;
    uint64_t device; /* Device address that receives the data; 0: the data stay in host memory. */
};

/* What a stream is given at once. */
struct job {
    struct comm *comm;
    void *stream;
    struct operation operations[OPERATIONS_MAX];
    int count;
    char *memory[3]; /* Buffers that are freed with the job. */
    /* After the transfers: `parts` parts of `elements` numbers are made one. */
    int parts;
    size_t elements;
    int type;
    int reduction;
    uint64_t out;
};

static struct {
    int (*download)(void *to, uint64_t from, size_t bytes);
    int (*upload)(uint64_t to, const void *from, size_t bytes);
    int (*synchronize)(void *stream);
    void (*hold)(void *stream, int delta);
} cuda;

static _Thread_local struct job *group;
static _Thread_local int group_depth;

#define X(name, arguments) int name arguments;
NCCL_CALLS(X)
#ifndef FAKE_NCCL_OLD
NCCL_OPTIONAL_CALLS(X)
#endif
#undef X
#define X(name, arguments) const char *name arguments;
NCCL_TEXT_CALLS(X)
#undef X

/* ---- errors on demand ------------------------------------------------------------------- */

static int told(const char *call)
{
    static uint64_t calls;
    const char *text = getenv("FAKE_NCCL_FAIL");
    char name[64];
    unsigned long nth;
    int error;

    if (text == NULL || sscanf(text, "%63[^:]:%lu:%d", name, &nth, &error) != 3 ||
        strcmp(name, call) != 0) {
        return NCCL_SUCCESS;
    }
    return __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) == nth ? error : NCCL_SUCCESS;
}

#define ENTER()                                                                                    \
    do {                                                                                           \
        int told_ = told(__func__);                                                                \
        if (told_ != NCCL_SUCCESS) {                                                               \
            return told_;                                                                          \
        }                                                                                          \
    } while (0)

const char *ncclGetErrorString(int result)
{
    return result == NCCL_REMOTE_ERROR    ? "remote process exited or there was a network error"
           : result == NCCL_SYSTEM_ERROR  ? "unhandled system error"
           : result == NCCL_INVALID_USAGE ? "invalid usage"
                                          : "some error";
}

const char *ncclGetLastError(void *comm)
{
    return comm != NULL ? ((struct comm *)comm)->last_error : "";
}

int ncclGetVersion(int *version)
{
    ENTER();
    *version = 22907;
    return NCCL_SUCCESS;
}

/* ---- transfers -------------------------------------------------------------------------- */

static bool progress_send(const struct comm *comm, struct operation *operation)
{
    struct cell *cell = &comm->shared->cells[comm->rank][operation->peer];
    size_t bytes = operation->bytes - operation->done;

    if (__atomic_load_n(&cell->full, __ATOMIC_ACQUIRE) != 0) {
        return false;
    }
    bytes = bytes < CELL_BYTES ? bytes : CELL_BYTES;
    memcpy(cell->data, operation->host + operation->done, bytes);
    cell->bytes = (uint32_t)bytes;
    __atomic_store_n(&cell->full, 1, __ATOMIC_RELEASE);
    operation->done += bytes;
    return true;
}

static bool progress_receive(const struct comm *comm, struct operation *operation)
{
    struct cell *cell = &comm->shared->cells[operation->peer][comm->rank];

    if (__atomic_load_n(&cell->full, __ATOMIC_ACQUIRE) == 0) {
        return false;
    }
    memcpy(operation->host + operation->done, cell->data, cell->bytes);
    operation->done += cell->bytes;
    __atomic_store_n(&cell->full, 0, __ATOMIC_RELEASE);
    return true;
}

static bool is_aborted(const struct comm *comm)
{
    return __atomic_load_n(&comm->aborted, __ATOMIC_ACQUIRE);
}

/* False if the communicator was aborted before all was there. */
static bool transfer_all(struct job *job)
{
    const struct timespec nap = {.tv_nsec = 20000};
    bool hangs = getenv("FAKE_NCCL_HANG") != NULL;
    bool waiting = true;
    int idle = 0;

    while (waiting) {
        bool moved = false;

        waiting = hangs;
        for (int i = 0; i < job->count; i++) {
            struct operation *operation = &job->operations[i];

            if (operation->done < operation->bytes) {
                waiting = true;
                moved |= operation->send ? progress_send(job->comm, operation)
                                         : progress_receive(job->comm, operation);
            }
        }
        if (is_aborted(job->comm)) {
            return false;
        }
        idle = moved ? 0 : idle + 1;
        if (idle > 20) {
            (void)nanosleep(&nap, NULL);
        } else if (idle > 0) {
            (void)sched_yield();
        }
    }
    return true;
}

static double number_at(const char *data, int type, size_t index)
{
    return type == NCCL_FLOAT64 ? ((const double *)(const void *)data)[index]
                                : (double)((const float *)(const void *)data)[index];
}

/* Sums in the ranks' order, in the numbers' own precision. */
static void reduce(const struct job *job, char *parts)
{
    for (size_t i = 0; i < job->elements; i++) {
        for (int part = 1; part < job->parts; part++) {
            size_t at = (size_t)part * job->elements + i;
            double a = number_at(parts, job->type, i);
            double b = number_at(parts, job->type, at);

            if (job->type == NCCL_FLOAT64) {
                ((double *)(void *)parts)[i] = job->reduction == NCCL_SUM ? a + b : a < b ? b : a;
            } else {
                ((float *)(void *)parts)[i] = job->reduction == NCCL_SUM ? (float)a + (float)b
                                              : a < b                    ? (float)b
                                                                         : (float)a;
            }
        }
    }
}

static void job_free(struct job *job)
{
    for (int i = 0; i < 3; i++) {
        free(job->memory[i]);
    }
    for (int i = 0; i < job->count; i++) {
        if (job->operations[i].device != 0 && job->memory[0] == NULL) {
            free(job->operations[i].host);
        }
    }
    free(job);
}

static void *work(void *arg)
{
    struct job *job = arg;

    if (transfer_all(job)) {
        if (job->parts > 0) {
            reduce(job, job->memory[1]);
            (void)cuda.upload(job->out, job->memory[1],
                              job->elements * (job->type == NCCL_FLOAT64 ? 8 : 4));
        }
        for (int i = 0; i < job->count; i++) {
            const struct operation *operation = &job->operations[i];

            if (!operation->send && operation->device != 0) {
                (void)cuda.upload(operation->device, operation->host, operation->bytes);
            }
        }
    }
    cuda.hold(job->stream, -1);
    job_free(job);
    return NULL;
}

static void join_worker(struct comm *comm)
{
    if (comm->working) {
        (void)pthread_join(comm->worker, NULL);
        comm->working = false;
    }
}

/* Takes the job. */
static int start(struct job *job)
{
    struct comm *comm = job->comm;

    join_worker(comm);
    cuda.hold(job->stream, 1);
    if (pthread_create(&comm->worker, NULL, work, job) != 0) {
        cuda.hold(job->stream, -1);
        return NCCL_SYSTEM_ERROR;
    }
    comm->working = true;
    return NCCL_SUCCESS;
}

static struct job *job_create(void *comm, void *stream)
{
    struct job *job = calloc(1, sizeof(*job));

    if (job == NULL) {
        abort();
    }
    job->comm = comm;
    job->stream = stream;
    /* What the stream was given before is done first. */
    (void)cuda.synchronize(stream);
    return job;
}

static void add(struct job *job, bool send, int peer, char *host, size_t bytes)
{
    job->operations[job->count++] =
        (struct operation){.send = send, .peer = peer, .host = host, .bytes = bytes};
}

static char *downloaded(const void *device, size_t bytes)
{
    char *host = malloc(bytes);

    if (host == NULL || cuda.download(host, (uint64_t)(uintptr_t)device, bytes) != 0) {
        free(host);
        return NULL;
    }
    return host;
}

static size_t type_bytes(int type)
{
    return type == NCCL_FLOAT64 ? 8 : type == NCCL_FLOAT32 ? 4 : 1;
}

/* Part i of the input (or all of it: part_bytes 0) to rank i, and a part from each. */
static struct job *exchange(const void *in, size_t bytes, bool same, void *comm, void *stream)
{
    struct job *job = job_create(comm, stream);
    int ranks = job->comm->ranks;

    job->memory[0] = downloaded(in, same ? bytes : bytes * (size_t)ranks);
    job->memory[1] = malloc(bytes * (size_t)ranks);
    if (job->memory[0] == NULL || job->memory[1] == NULL) {
        job_free(job);
        return NULL;
    }
    for (int i = 0; i < ranks; i++) {
        size_t part = (size_t)i * bytes;

        add(job, true, i, job->memory[0] + (same ? 0 : part), bytes);
        add(job, false, i, job->memory[1] + part, bytes);
    }
    return job;
}

/* ---- collectives ------------------------------------------------------------------------ */

static bool is_usable(const struct comm *comm)
{
    return !is_aborted(comm) && !comm->suspended;
}

int ncclAllGather(const void *in, void *out, size_t count, int type, void *comm, void *stream)
{
    size_t bytes = count * type_bytes(type);
    struct job *job;

    ENTER();
    if (!is_usable(comm)) {
        return NCCL_INVALID_USAGE;
    }
    job = exchange(in, bytes, true, comm, stream);
    if (job == NULL) {
        return NCCL_INVALID_ARGUMENT;
    }
    for (int i = 0; i < job->comm->ranks; i++) {
        job->operations[2 * i + 1].device = (uint64_t)(uintptr_t)out + (size_t)i * bytes;
    }
    return start(job);
}

static int reduce_parts(const void *in, void *out, size_t count, int type, int reduction, bool same,
                        void *comm, void *stream)
{
    struct job *job;

    if (!is_usable(comm)) {
        return NCCL_INVALID_USAGE;
    }
    job = exchange(in, count * type_bytes(type), same, comm, stream);
    if (job == NULL) {
        return NCCL_INVALID_ARGUMENT;
    }
    job->parts = job->comm->ranks;
    job->elements = count;
    job->type = type;
    job->reduction = reduction;
    job->out = (uint64_t)(uintptr_t)out;
    return start(job);
}

int ncclAllReduce(const void *in, void *out, size_t count, int type, int reduction, void *comm,
                  void *stream)
{
    ENTER();
    return reduce_parts(in, out, count, type, reduction, true, comm, stream);
}

int ncclReduceScatter(const void *in, void *out, size_t count, int type, int reduction, void *comm,
                      void *stream)
{
    ENTER();
    return reduce_parts(in, out, count, type, reduction, false, comm, stream);
}

int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, void *comm,
                  void *stream)
{
    size_t bytes = count * type_bytes(type);
    struct job *job;

    ENTER();
    if (!is_usable(comm)) {
        return NCCL_INVALID_USAGE;
    }
    job = job_create(comm, stream);
    if (job->comm->rank == root) {
        job->memory[0] = downloaded(in, bytes);
        for (int i = 0; i < job->comm->ranks && job->memory[0] != NULL; i++) {
            add(job, true, i, job->memory[0], bytes);
        }
    }
    job->memory[1] = malloc(bytes);
    add(job, false, root, job->memory[1], bytes);
    job->operations[job->count - 1].device = (uint64_t)(uintptr_t)out;
    if (job->memory[0] == NULL) {
        job->memory[0] = malloc(1);
    }
    return start(job);
}

int ncclGroupStart(void)
{
    ENTER();
    group_depth++;
    return NCCL_SUCCESS;
}

int ncclGroupEnd(void)
{
    struct job *job = group;

    group_depth--;
    if (group_depth > 0) {
        return NCCL_SUCCESS;
    }
    group = NULL;
    ENTER();
    return job != NULL ? start(job) : NCCL_SUCCESS;
}

static int add_to_group(bool send, uint64_t device, char *host, size_t bytes, int peer, void *comm,
                        void *stream)
{
    struct operation *operation;

    if (group_depth == 0 || peer >= ((struct comm *)comm)->ranks || host == NULL ||
        !is_usable(comm)) {
        free(host);
        return NCCL_INVALID_USAGE;
    }
    if (group == NULL) {
        group = job_create(comm, stream);
    }
    add(group, send, peer, host, bytes);
    operation = &group->operations[group->count - 1];
    operation->device = device;
    return NCCL_SUCCESS;
}

int ncclSend(const void *data, size_t count, int type, int peer, void *comm, void *stream)
{
    size_t bytes = count * type_bytes(type);

    ENTER();
    (void)cuda.synchronize(stream);
    return add_to_group(true, (uint64_t)(uintptr_t)data, downloaded(data, bytes), bytes, peer, comm,
                        stream);
}

int ncclRecv(void *data, size_t count, int type, int peer, void *comm, void *stream)
{
    size_t bytes = count * type_bytes(type);

    ENTER();
    return add_to_group(false, (uint64_t)(uintptr_t)data, malloc(bytes), bytes, peer, comm, stream);
}

/* ---- communicators ---------------------------------------------------------------------- */

static void load_cuda(void)
{
    const char *path = getenv("TANDEM_CUDA_LIBRARY");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;

    if (library != NULL) {
        *(void **)&cuda.download = dlsym(library, "cuMemcpyDtoH_v2");
        *(void **)&cuda.upload = dlsym(library, "cuMemcpyHtoD_v2");
        *(void **)&cuda.synchronize = dlsym(library, "cuStreamSynchronize");
        *(void **)&cuda.hold = dlsym(library, "fake_cuda_hold");
    }
}

static bool find_cuda(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, load_cuda);
    return cuda.hold != NULL;
}

static int make_file(char *path)
{
    const char *directory = getenv("FAKE_CUDA_DIRECTORY");
    int fd;

    (void)snprintf(path, NCCL_UNIQUE_ID_BYTES, "%s/nccl-XXXXXX",
                   directory != NULL ? directory : "/tmp");
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0) {
        return NCCL_SYSTEM_ERROR;
    }
    (void)close(fd);
    return NCCL_SUCCESS;
}

int ncclGetUniqueId(struct nccl_unique_id *id)
{
    ENTER();
    memset(id, 0, sizeof(*id));
    return make_file(id->bytes);
}

static int join(void **comm_out, int ranks, const char *path, int rank)
{
    struct comm *comm = calloc(1, sizeof(*comm));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *shared = MAP_FAILED;

    if (fd >= 0) {
        shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        (void)close(fd);
    }
    if (comm == NULL || shared == MAP_FAILED || ranks > RANKS_MAX || rank >= ranks ||
        !find_cuda()) {
        free(comm);
        return NCCL_INVALID_ARGUMENT;
    }
    comm->shared = shared;
    comm->rank = rank;
    comm->ranks = ranks;
    (void)snprintf(comm->path, sizeof(comm->path), "%s", path);
    (void)snprintf(comm->last_error, sizeof(comm->last_error), "rank %d: peer %d does not answer",
                   rank, (rank + 1) % ranks);
    (void)__atomic_add_fetch(&comm->shared->joined, 1, __ATOMIC_ACQ_REL);
    *comm_out = comm;
    return NCCL_IN_PROGRESS;
}

int ncclCommInitRankConfig(void **comm, int ranks, struct nccl_unique_id id, int rank,
                           struct nccl_config *config)
{
    ENTER();
    if (config->magic != NCCL_CONFIG_MAGIC || config->blocking != 0) {
        return NCCL_INVALID_ARGUMENT;
    }
    return join(comm, ranks, id.bytes, rank);
}

int ncclCommGetAsyncError(void *comm, int *result)
{
    const struct comm *asked = comm;
    bool complete = (int)__atomic_load_n(&asked->shared->joined, __ATOMIC_ACQUIRE) >= asked->ranks;

    ENTER();
    if (complete && asked->rank == 0) {
        (void)unlink(asked->path);
    }
    *result = complete ? NCCL_SUCCESS : NCCL_IN_PROGRESS;
    return NCCL_SUCCESS;
}

static int end(struct comm *comm)
{
    join_worker(comm);
    (void)munmap(comm->shared, sizeof(*comm->shared));
    free(comm);
    return NCCL_SUCCESS;
}

int ncclCommDestroy(void *comm)
{
    ENTER();
    return end(comm);
}

int ncclCommAbort(void *comm)
{
    __atomic_store_n(&((struct comm *)comm)->aborted, true, __ATOMIC_RELEASE);
    return end(comm);
}

#ifndef FAKE_NCCL_OLD
int ncclCommSuspend(void *comm, int what)
{
    ENTER();
    if (what != NCCL_SUSPEND_MEMORY || !is_usable(comm)) {
        return NCCL_INVALID_USAGE;
    }
    join_worker(comm);
    ((struct comm *)comm)->suspended = true;
    return NCCL_SUCCESS;
}

int ncclCommResume(void *comm)
{
    ENTER();
    if (!((struct comm *)comm)->suspended) {
        return NCCL_INVALID_USAGE;
    }
    ((struct comm *)comm)->suspended = false;
    return NCCL_SUCCESS;
}
#endif
