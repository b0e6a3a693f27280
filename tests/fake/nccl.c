/* nccl.c - a fake library for NCCL: collectives of processes or threads, by shared memory. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Works on the fake library of the CUDA driver (cuda.h), which it finds by TANDEM_CUDA_LIBRARY.  It
 * does what NCCL does with communicators that do not block, as far as a program can tell:
 *
 * - A call only prepares its work, and answers "in progress".  The stream gets the work when
 *   ncclCommGetAsyncError() has been asked often enough; until then no other call is allowed.  A
 *   thread does the work, and the stream is held until it is done.
 * - The result of the initialisation comes late, and is an error if two ranks are on one GPU,
 * unless NCCL_MULTI_RANK_GPU_ENABLE is 1.
 * - A rank waits for a peer that does not come until it is aborted.  If the peer's process has
 * ended, the communicator reports an error, and the stream waits still.
 * - ncclCommDestroy() and ncclCommAbort() block until all ranks end, too, or their processes have.
 *
 *   FAKE_NCCL_FAIL     "ncclAllGather:3:2": the third of them fails with error 2; with -9 as the
 *                      error it kills the process
 *   FAKE_NCCL_HANG     1: no collective ever ends
 *   FAKE_NCCL_ASKS     how often a call is asked for its result until it is there (2)
 *   FAKE_NCCL_INIT_MS  how long the initialisation takes after the last rank has come (0)
 *   FAKE_NCCL_BYTES    memory on the GPU that a communicator has unless it is suspended (0) */
#include "colocate/comm/nccl/nccl_api.h"
#include "colocate/device/cuda/driver_api.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
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

/* What the other ranks know of one. */
struct member {
    struct cu_uuid gpu;
    uint32_t finalized;
    uint32_t ended;
};

struct shared {
    uint32_t joined;
    struct member members[RANKS_MAX];
    struct cell cells[RANKS_MAX][RANKS_MAX]; /* from, to */
};

struct comm {
    struct shared *shared;
    char path[NCCL_UNIQUE_ID_BYTES];
    /* The shared file.  A lock on byte `rank` lasts as long as the rank's process. */
    int fd;
    int rank;
    int ranks;
    bool aborted;
    bool suspended;
    uint64_t memory; /* On the GPU; 0: none. */
    bool finalizes;
    int64_t complete_ms;  /* When this rank saw that all had come; 0: not yet. */
    int asks;             /* Questions until the result of the last call is there. */
    int error;            /* What the communicator reports from then on. */
    struct job *prepared; /* The work of the last call, until its result is there. */
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
    int (*device)(void);
    int (*uuid)(struct cu_uuid *uuid, int device);
    int (*allocate)(uint64_t *address_out, size_t bytes);
    int (*release)(uint64_t address);
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
    if (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) != nth) {
        return NCCL_SUCCESS;
    }
    if (error < 0) {
        (void)kill(getpid(), -error);
    }
    return error;
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

/* ---- the other ranks -------------------------------------------------------------------- */

static bool is_alive(const struct comm *comm, int rank)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};

    return rank == comm->rank ||
           (fcntl(comm->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK);
}

/* True if all other ranks have set their flag, or their processes have ended. */
static bool peers_have(const struct comm *comm, bool finalized)
{
    for (int i = 0; i < comm->ranks; i++) {
        struct member *member = &comm->shared->members[i];

        if (i != comm->rank && __atomic_load_n(&member->ended, __ATOMIC_ACQUIRE) == 0 &&
            !(finalized && __atomic_load_n(&member->finalized, __ATOMIC_ACQUIRE) != 0) &&
            is_alive(comm, i)) {
            return false;
        }
    }
    return true;
}

static void report(struct comm *comm, int error)
{
    __atomic_store_n(&comm->error, error, __ATOMIC_RELEASE);
}

/* Reports an error if the process of a rank has ended from which something is missing. */
static void look_for_the_dead(const struct job *job)
{
    for (int i = 0; i < job->count; i++) {
        const struct operation *operation = &job->operations[i];

        if (operation->done < operation->bytes && !is_alive(job->comm, operation->peer)) {
            report(job->comm, NCCL_REMOTE_ERROR);
        }
    }
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
        if (idle % 100 == 99) {
            look_for_the_dead(job);
        }
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

/* Gives the prepared work to the stream. */
static void launch(struct comm *comm)
{
    struct job *job = comm->prepared;

    comm->prepared = NULL;
    join_worker(comm);
    cuda.hold(job->stream, 1);
    if (pthread_create(&comm->worker, NULL, work, job) != 0) {
        cuda.hold(job->stream, -1);
        report(comm, NCCL_SYSTEM_ERROR);
        return;
    }
    comm->working = true;
}

static int asks_needed(void)
{
    const char *text = getenv("FAKE_NCCL_ASKS");

    return text != NULL ? (int)strtol(text, NULL, 10) : 2;
}

/* Takes the job. */
static int start(struct job *job)
{
    struct comm *comm = job->comm;

    comm->prepared = job;
    comm->asks = asks_needed();
    if (comm->asks == 0) {
        launch(comm);
        return NCCL_SUCCESS;
    }
    return NCCL_IN_PROGRESS;
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
    return !is_aborted(comm) && !comm->suspended && !comm->finalizes && comm->asks == 0 &&
           comm->prepared == NULL && comm->complete_ms != 0;
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
        *(void **)&cuda.device = dlsym(library, "fake_device");
        *(void **)&cuda.uuid = dlsym(library, "cuDeviceGetUuid_v2");
        *(void **)&cuda.allocate = dlsym(library, "cuMemAlloc_v2");
        *(void **)&cuda.release = dlsym(library, "cuMemFree_v2");
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

/* Takes the communicator's memory on the GPU. */
static bool allocate_memory(struct comm *comm)
{
    const char *text = getenv("FAKE_NCCL_BYTES");
    size_t bytes = text != NULL ? strtoul(text, NULL, 10) : 0;

    return bytes == 0 || cuda.allocate(&comm->memory, bytes) == 0;
}

/* Gives the communicator's memory on the GPU back. */
static void free_memory(struct comm *comm)
{
    if (comm->memory != 0) {
        (void)cuda.release(comm->memory);
        comm->memory = 0;
    }
}

static int join(void **comm_out, int ranks, const char *path, int rank)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    struct comm *comm = calloc(1, sizeof(*comm));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct shared *shared = MAP_FAILED;

    if (fd >= 0) {
        shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (comm == NULL || shared == MAP_FAILED || ranks > RANKS_MAX || rank >= ranks ||
        !find_cuda() || fcntl(fd, F_OFD_SETLK, &lock) != 0 ||
        cuda.uuid(&shared->members[rank].gpu, cuda.device()) != 0 || !allocate_memory(comm)) {
        free(comm);
        (void)close(fd);
        return NCCL_INVALID_ARGUMENT;
    }
    comm->fd = fd;
    comm->asks = asks_needed();
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

static int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Reports an error if two ranks are on one GPU. */
static void look_for_shared_gpus(struct comm *comm)
{
    const char *may_share = getenv("NCCL_MULTI_RANK_GPU_ENABLE");

    for (int i = 0; i < comm->ranks && (may_share == NULL || strcmp(may_share, "1") != 0); i++) {
        for (int j = i + 1; j < comm->ranks; j++) {
            if (memcmp(&comm->shared->members[i].gpu, &comm->shared->members[j].gpu,
                       sizeof(struct cu_uuid)) == 0) {
                (void)snprintf(comm->last_error, sizeof(comm->last_error),
                               "Duplicate GPU detected : rank %d and rank %d both on CUDA device",
                               i, j);
                report(comm, NCCL_INVALID_USAGE);
            }
        }
    }
}

/* True once the initialisation is over. */
static bool is_initialised(struct comm *comm)
{
    const char *text = getenv("FAKE_NCCL_INIT_MS");

    if ((int)__atomic_load_n(&comm->shared->joined, __ATOMIC_ACQUIRE) < comm->ranks) {
        return false;
    }
    if (comm->complete_ms == 0) {
        comm->complete_ms = now_ms();
        if (comm->rank == 0) {
            (void)unlink(comm->path);
        }
        look_for_shared_gpus(comm);
    }
    return now_ms() - comm->complete_ms >= (text != NULL ? strtol(text, NULL, 10) : 0);
}

int ncclCommGetAsyncError(void *comm, int *result)
{
    struct comm *asked = comm;

    ENTER();
    *result = NCCL_IN_PROGRESS;
    if (!is_initialised(asked) || (asked->finalizes && !peers_have(asked, true))) {
        return NCCL_SUCCESS;
    }
    if (asked->asks > 0) {
        asked->asks--;
        return NCCL_SUCCESS;
    }
    if (asked->prepared != NULL) {
        launch(asked);
    }
    *result = __atomic_load_n(&asked->error, __ATOMIC_ACQUIRE);
    return NCCL_SUCCESS;
}

/* Ends a rank as soon as the others do. */
static int end(struct comm *comm)
{
    const struct timespec nap = {.tv_nsec = 1000000};

    join_worker(comm);
    __atomic_store_n(&comm->shared->members[comm->rank].ended, 1, __ATOMIC_RELEASE);
    while (!peers_have(comm, false)) {
        (void)nanosleep(&nap, NULL);
    }
    if (comm->prepared != NULL) {
        job_free(comm->prepared);
    }
    free_memory(comm);
    (void)munmap(comm->shared, sizeof(*comm->shared));
    (void)close(comm->fd);
    free(comm);
    return NCCL_SUCCESS;
}

int ncclCommFinalize(void *comm)
{
    struct comm *finalized = comm;

    ENTER();
    if (!is_usable(comm)) {
        return NCCL_INVALID_USAGE;
    }
    join_worker(comm);
    finalized->finalizes = true;
    finalized->asks = asks_needed();
    __atomic_store_n(&finalized->shared->members[finalized->rank].finalized, 1, __ATOMIC_RELEASE);
    return NCCL_IN_PROGRESS;
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
    free_memory(comm);
    ((struct comm *)comm)->suspended = true;
    ((struct comm *)comm)->asks = asks_needed();
    return NCCL_IN_PROGRESS;
}

int ncclCommResume(void *comm)
{
    ENTER();
    if (!((struct comm *)comm)->suspended || ((struct comm *)comm)->asks > 0) {
        return NCCL_INVALID_USAGE;
    }
    if (!allocate_memory(comm)) {
        return NCCL_SYSTEM_ERROR;
    }
    ((struct comm *)comm)->suspended = false;
    ((struct comm *)comm)->asks = asks_needed();
    return NCCL_IN_PROGRESS;
}
#endif
